"""Measure how often `diagnose` is right over simulated worlds: `python -m reproduce.diagnosis --quick`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from clickprism._util.files import write_file

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from clickprism.errors import SettingError
from reproduce.common.cli import guarded, words
from reproduce.diagnosis.study import BIASES, Tried, as_csv, as_markdown, brief, try_all

EXPECTED = Path(__file__).parent / "expected.csv"
PAGE = Path(__file__).parents[2] / "docs" / "research" / "diagnosis.md"
BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"
QUICK = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: run(given))


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(prog="python -m reproduce.diagnosis", description=__doc__)
    made.add_argument("--worlds", type=int, default=48, help="number of worlds (default: %(default)s)")
    made.add_argument("--first", type=int, default=0, help="seed of the first world (default: %(default)s)")
    made.add_argument("--quick", action="store_true", help=f"only {QUICK} worlds")
    made.add_argument("--only", help=f"findings, separated by commas (default: {','.join(BIASES)})")
    made.add_argument(
        "--processes", type=int, default=min(2, os.cpu_count() or 1), help="worlds at a time (default: %(default)s)"
    )
    made.add_argument(
        "--write",
        action="store_true",
        help="write the result to reproduce/diagnosis/expected.csv and docs/research/diagnosis.md",
    )
    return made


def run(given: argparse.Namespace) -> None:
    """Diagnose the worlds and print the tables."""
    for name in ("worlds", "processes"):
        if getattr(given, name) < 1:
            raise SettingError(name, getattr(given, name), "be at least 1")
    names = words("only", given.only, BIASES) or BIASES
    count = QUICK if given.quick else given.worlds
    tried = try_all(range(given.first, given.first + count), names=names, processes=given.processes, tell=_tell)
    table = as_markdown(tried)
    print(table)
    if given.write:
        write_file(EXPECTED, as_csv(tried))
        fill(PAGE, table)


def fill(page: Path, table: str) -> None:
    """Write the table between the two marks of a page, or at its end."""
    text = page.read_text(encoding="utf-8") if page.exists() else "# Diagnosis\n"
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    write_file(page, f"{before}{BEGIN}\n{table}{END}{rest.split(END, 1)[1]}")


def _tell(one: Tried) -> None:
    verdicts = "; ".join(one.wrong) or "all right"
    print(f"{one.seed}: {brief(one.settings)}: {verdicts} ({one.seconds:.1f} s)", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
