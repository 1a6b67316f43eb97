"""The whole of it: run, average, draw, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clickprism._util.files import make_folder
from reproduce.common.cli import How
from reproduce.common.files import done
from reproduce.common.page import publish
from reproduce.common.pool import Clock, perform_all, say, seconds_of, span
from reproduce.inforank.config import EXPECTED
from reproduce.inforank.plan import Plan
from reproduce.inforank.report import as_text, write_all
from reproduce.inforank.rows import Results, Row, rows_of
from reproduce.inforank.runs import Run
from reproduce.inforank.worlds import data_key, dataset_of

LOG_SECONDS = 4.0


def reproduce(plan: Plan, how: How) -> list[Row]:
    """Run what is not done yet, write summary.json, figures/ and report.html; returns the rows of summary.json."""
    if how.only_say:
        foresee(plan, how.out, how.jobs)
        return []
    runs = plan.runs()
    make_folder(how.out)
    if not all(done(run, how.out) for run in runs):
        read_data(runs, plan.folder)
    perform_all(runs, out=how.out, folder=plan.folder, jobs=how.jobs, what="runs", log_seconds=LOG_SECONDS)
    results = Results(plan, how.out)
    seconds = seconds_of(runs, how.out)
    return publish(
        rows_of(results),
        how,
        EXPECTED,
        write=lambda rows, paper: write_all(results, rows, paper, seconds=seconds),
        text=as_text,
    )


def read_data(runs: Sequence[Run], folder: Path | None) -> None:
    """Read the files of the data once, so that what is missing or broken is said before anything is run."""
    if folder is not None:
        for world in {data_key(run.world, folder): run.world for run in runs}.values():
            dataset_of(world, folder)


def foresee(plan: Plan, out: Path, jobs: int) -> float:
    """Say how many runs there are in all and how long they will take; returns the seconds."""
    runs = plan.runs()
    left = [run for run in runs if not done(run, out)]
    clock = Clock([run for run in runs if done(run, out)], out, log_seconds=LOG_SECONDS)
    seconds = clock.total(left, jobs)
    before = len(runs) - len(left)
    say(f"in all: {len(runs)} runs, {before} done before; about {span(seconds)} with {jobs} at a time")
    return seconds
