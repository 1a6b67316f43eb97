"""`python -m reproduce.choice --worlds 12 --first 100`: which criterion without labels tracks the true nDCG."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from clickprism._util.processes import side_by_side
from clickprism.simulation.worlds import draw_settings
from reproduce.choice.table import by_world, lines, markdown, write_expected
from reproduce.choice.worlds import row_of
from reproduce.common.cli import guarded, world_options, world_seeds


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(given))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = world_options("choice", __doc__, worlds=12, first=100)
    made.add_argument("--write-expected", action="store_true", help="write reproduce/choice/expected.csv")
    made.add_argument("--json", action="store_true", help="print the rows of all worlds instead of a table")
    return made


def reproduce(given: argparse.Namespace) -> None:
    """Every world that is not done yet, then the table."""
    seeds = world_seeds(given)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in side_by_side([(row_of, (draw_settings(seed), given.out)) for seed in seeds], given.processes):
        rows.append(row)
        print(f"world {row['seed']}: {row['cpu_seconds']} CPU s", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: int(row["seed"]))
    made = lines(rows)
    if given.write_expected:
        write_expected(made)
    print(json.dumps(rows, indent=1) if given.json else f"{markdown(made)}\n\n{by_world(rows, 'tune')}")


if __name__ == "__main__":
    sys.exit(main())
