"""The whole of it: tune, run, average, draw, write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clickprism._util.files import make_folder
from clickprism.experiments.data import load_data
from reproduce.common.cli import How
from reproduce.common.files import done
from reproduce.common.page import publish
from reproduce.common.pool import perform_all, say, seconds_of, span
from reproduce.lbd.config import EXPECTED
from reproduce.lbd.plan import Plan
from reproduce.lbd.report import as_text, write_all
from reproduce.lbd.rows import Results, Row, rows_of
from reproduce.lbd.runs import data_settings
from reproduce.lbd.tune import clock_of, known, left_to_try, separate_settings, settings_of, tune_all


def reproduce(plan: Plan, how: How) -> list[Row]:
    """Run what is not done yet, write summary.json, figures/ and report.html; returns the rows of summary.json."""
    left = foresee(plan, how.out, how.jobs)
    if how.only_say:
        return []
    make_folder(how.out)
    if left > 0:
        read_data(plan)
    tunings = tune_all(plan, out=how.out, jobs=how.jobs)
    plan = replace(plan, tuned=settings_of(tunings), separately=separate_settings(tunings))
    runs = plan.runs()
    perform_all(runs, out=how.out, folder=plan.folder, jobs=how.jobs, what="runs")
    results = Results(plan, how.out, tunings)
    seconds = seconds_of(runs, how.out)
    return publish(
        rows_of(results),
        how,
        EXPECTED,
        write=lambda rows, paper: write_all(results, rows, paper, seconds=seconds),
        text=as_text,
    )


def read_data(plan: Plan) -> None:
    """Read the files of the data once, so that what is missing or broken is said before anything is tuned."""
    if plan.folder is not None:
        for world in plan.worlds(0.0, plan.size.seeds[:1]):
            load_data(data_settings(world, plan.folder))


def foresee(plan: Plan, out: Path, jobs: int) -> float:
    """Say how many runs there are in all and how long they will take; returns the seconds."""
    found = known(plan, out)
    plan = replace(plan, tuned=settings_of(found), separately=separate_settings(found))
    tuning = {run.key: run for study in plan.tuning for run in left_to_try(plan, study, out)}
    runs = list(({run.key: run for run in plan.runs()} | tuning).values())
    left = [run for run in runs if not done(run, out)]
    seconds = clock_of(plan, out).total(left, jobs)
    finished = len(runs) - len(left)
    about = f"about {len(runs)} runs ({len(tuning)} of tuning among them), {finished} done before"
    say(f"in all: {about}; about {span(seconds)} with {jobs} at a time")
    return seconds
