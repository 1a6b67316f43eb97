"""Every table and figure of InfoRank: `python -m reproduce.inforank --quick` in ten minutes, `--full` in full size."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism._util.files import make_folder
from reproduce.common.cli import How, changed, guarded, options, parts_of, size_name, words
from reproduce.common.files import done
from reproduce.common.page import publish
from reproduce.common.pool import foresee, perform_all, seconds_of
from reproduce.inforank.config import CANDIDATES, DATA, EXPECTED, SIZES
from reproduce.inforank.plan import PARTS, Plan
from reproduce.inforank.report import as_text, write_all
from reproduce.inforank.rows import Results, Row, rows_of
from reproduce.inforank.worlds import data_key, dataset_of

LOG_SECONDS = 4.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(plan_of(given), How.of(given)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = options("inforank", __doc__, data=DATA, full="the networks at full size, five draws of all")
    made.add_argument("--users", help="which users, such as pbm,ubm")
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """Return what was asked for, checked."""
    size = changed(SIZES[size_name(given)], given)
    if given.users:
        size = replace(size, users=words("users", given.users, size.users))
    methods = words("methods", given.methods, list(CANDIDATES))
    return Plan(given.data, size, parts_of(given, PARTS), given.folder, methods)


def reproduce(plan: Plan, how: How) -> list[Row]:
    """Run what is not done yet, write summary.json, figures/ and report.html; return the rows of summary.json."""
    runs = plan.runs()
    cost: dict[str, Any] = {"jobs": how.jobs, "log_seconds": LOG_SECONDS}
    if how.only_say:
        foresee(runs, how.out, **cost)
        return []
    make_folder(how.out)
    if plan.folder is not None and not all(done(run, how.out) for run in runs):
        for world in {data_key(run.world, plan.folder): run.world for run in runs}.values():
            dataset_of(world, plan.folder)  # says what is missing or broken before anything is run
    perform_all(runs, out=how.out, folder=plan.folder, what="runs", **cost)
    results = Results(plan, how.out)
    seconds = seconds_of(runs, how.out)
    return publish(
        rows_of(results),
        how,
        EXPECTED,
        write=lambda rows, paper: write_all(results, rows, paper, seconds=seconds),
        text=as_text,
    )


if __name__ == "__main__":
    sys.exit(main())
