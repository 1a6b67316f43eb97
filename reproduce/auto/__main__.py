"""`python -m reproduce.auto --worlds 24 --first 0`: regret of `clickprism auto` over worlds drawn by seed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism._util.processes import side_by_side
from reproduce.auto.table import flat, library_table, markdown, summary, write_expected
from reproduce.auto.worlds import library_row, row_of
from reproduce.common.cli import guarded, world_options, world_seeds


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(given))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = world_options("auto", __doc__, worlds=20, first=140)
    made.add_argument("--budget", type=float, default=600.0, help="seconds of each call of auto (default: %(default)s)")
    made.add_argument("--write-expected", action="store_true", help="write reproduce/auto/expected.csv")
    made.add_argument("--library", action="store_true", help="methods of the library on the sessions of these worlds")
    made.add_argument("--json", action="store_true", help="print the rows instead of a table")
    return made


def reproduce(given: argparse.Namespace) -> None:
    """Every world that is not done yet, then the table."""
    seeds, seconds = world_seeds(given), given.budget
    given.out.mkdir(parents=True, exist_ok=True)
    if given.library:
        print(library_table([library_row(seed, given.out) for seed in seeds]))
        return
    tasks = [(row_of, (seed, given.out, seconds)) for seed in seeds]
    rows = []
    for row in side_by_side(tasks, given.processes):
        rows.append(flat(row))
        said = {name: rows[-1][name] for name in ("seed", "chosen", "best", "ndcg", "regret", "above_click")}
        print(" ".join(f"{name} {value}" for name, value in said.items()), file=sys.stderr, flush=True)
    rows.sort(key=lambda row: int(row["seed"]))
    if given.write_expected:
        write_expected(rows)
    print(json.dumps(rows, indent=1) if given.json else f"{markdown(rows)}\n\n{summary(rows).text}")


if __name__ == "__main__":
    sys.exit(main())
