"""Measure the coverage of counterfactual intervals: `python -m reproduce.counterfactual --worlds 24 --first 0`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from clickprism._util.files import write_file

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from reproduce.common.cli import guarded, world_options, world_seeds
from reproduce.counterfactual.run import study
from reproduce.counterfactual.tables import as_csv, as_markdown, lines

EXPECTED = Path(__file__).with_name("expected.csv")
PAGE = Path(__file__).parents[2] / "docs" / "research" / "counterfactual.md"
BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and print its tables; exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: _run(given))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = world_options("counterfactual", __doc__, worlds=24)
    made.add_argument(
        "--write", action="store_true", help="write the figures into expected.csv and docs/research/counterfactual.md"
    )
    return made


def _run(given: argparse.Namespace) -> None:
    rows = study(world_seeds(given), folder=given.out, processes=given.processes, note=_print)
    made = list(lines(rows))
    print(as_markdown(made))
    if given.write:
        write_file(EXPECTED, as_csv(made))
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN, 1)
        write_file(PAGE, f"{before}{BEGIN}\n{as_markdown(made)}{END}{rest.split(END, 1)[1]}")


def _print(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
