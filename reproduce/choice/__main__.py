"""`python -m reproduce.choice --worlds 12 --first 100`: which criterion without labels tracks the true nDCG."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from clickprism.experiment.worlds import draw_settings
from reproduce.choice.table import by_world, lines, markdown, write_expected
from reproduce.choice.worlds import row_of
from reproduce.common.cli import guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(given))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m reproduce.choice", description=__doc__)
    made.add_argument("--worlds", type=int, default=12, help="how many (default: %(default)s)")
    made.add_argument("--first", type=int, default=100, help="the first seed (default: %(default)s)")
    made.add_argument("--out", type=Path, default=Path("out/choice"), help="where rows are kept (default: %(default)s)")
    made.add_argument("--write-expected", action="store_true", help="write reproduce/choice/expected.csv")
    made.add_argument("--json", action="store_true", help="print the rows of all worlds instead of a table")
    return made


def reproduce(given: argparse.Namespace) -> None:
    """Every world that is not done yet, then the table."""
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(given.first, given.first + given.worlds):
        rows.append(row_of(draw_settings(seed), given.out))
        print(f"world {seed}: {rows[-1]['cpu_seconds']} CPU s", file=sys.stderr, flush=True)
    made = lines(rows)
    if given.write_expected:
        write_expected(made)
    print(json.dumps(rows, indent=1) if given.json else f"{markdown(made)}\n\n{by_world(rows, 'tune')}")


if __name__ == "__main__":
    sys.exit(main())
