"""Coverage of counterfactual intervals over worlds: `python -m reproduce.counterfactual --worlds 48 --first 0`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from clickprism.cli.output import columns
from reproduce.common.cli import guarded
from reproduce.counterfactual.run import SUMMARY, study, summary, write_rows, write_summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: _run(given))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m reproduce.counterfactual", description=__doc__)
    made.add_argument("--worlds", type=int, default=48, help="how many")
    made.add_argument("--first", type=int, default=0, help="the seed of the first")
    made.add_argument("--processes", type=int, default=1, help="side by side")
    made.add_argument("--out", type=Path, default=Path("runs/counterfactual"), help="the folder for the rows")
    made.add_argument("--write-expected", action="store_true", help="write the summary into expected.csv")
    return made


def _run(given: argparse.Namespace) -> None:
    seeds = range(given.first, given.first + given.worlds)
    rows = study(seeds, processes=given.processes, tell=lambda words: print(words, file=sys.stderr, flush=True))
    lines = summary(rows)
    given.out.mkdir(parents=True, exist_ok=True)
    write_rows(rows, given.out / "rows.csv")
    write_summary(lines, given.out / "summary.csv")
    if given.write_expected:
        write_summary(lines, Path(__file__).with_name("expected.csv"))
    print(columns(SUMMARY.split(","), lines))


if __name__ == "__main__":
    sys.exit(main())
