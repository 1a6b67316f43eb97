"""The whole of it: tune, run, average, draw, write."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from clickprism.experiment.files import make_folder
from clickprism.experiment.stages import load_raw
from reproduce.common.files import done
from reproduce.common.page import summary_text
from reproduce.common.pool import perform_all, say, seconds_of, span
from reproduce.lbd.expected import EXPECTED
from reproduce.lbd.plan import Plan
from reproduce.lbd.report import as_text, write_all
from reproduce.lbd.rows import Results, Row, rows_of
from reproduce.lbd.runs import data_settings
from reproduce.lbd.tune import clock_of, known, left_to_try, settings_of, tune_all


def reproduce(
    plan: Plan,
    *,
    out: Path,
    jobs: int = 2,
    as_json: bool = False,
    only_say: bool = False,
    write_expected: bool = False,
) -> list[Row]:
    """Run what is not done yet, and write summary.json, figures/ and report.html into `out`.

    Args:
        plan: what to run.
        out: the folder of the runs and of the results.
        jobs: processes, each on one core.
        as_json: print the rows instead of a table.
        only_say: say how many runs there are and how long they will take, and stop.
        write_expected: fill our figures into expected.csv.

    Returns:
        The rows of summary.json.
    """
    left = foresee(plan, out, jobs)
    if only_say:
        return []
    make_folder(out)
    if left > 0:
        read_data(plan)
    tunings = tune_all(plan, out=out, jobs=jobs)
    plan = replace(plan, tuned=settings_of(tunings))
    runs = plan.runs()
    perform_all(runs, out=out, folder=plan.folder, jobs=jobs, what="runs")
    results = Results(plan, out, tunings)
    paper = EXPECTED.load()
    rows = EXPECTED.with_paper(rows_of(results), paper)
    page = write_all(results, rows, paper, seconds=seconds_of(runs, out))
    if write_expected:
        EXPECTED.write(EXPECTED.merged(paper, rows))
        say(f"our figures are in {EXPECTED.file.name}")
    sys.stdout.write(summary_text(rows) if as_json else as_text(rows) + "\n")
    say(f"written: {page}, {out / 'summary.json'}, {out / 'figures'}")
    return rows


def read_data(plan: Plan) -> None:
    """Read the files of the data once, so that what is missing or broken is said before anything is tuned."""
    if plan.folder is not None:
        for world in plan.worlds(0.0, plan.size.seeds[:1]):
            load_raw(data_settings(world, plan.folder))


def foresee(plan: Plan, out: Path, jobs: int) -> float:
    """Say how many runs there are in all and how long they will take; returns the seconds."""
    plan = replace(plan, tuned=settings_of(known(plan, out)))
    tuning = {run.key: run for study in plan.tuning for run in left_to_try(plan, study, out)}
    runs = list(({run.key: run for run in plan.runs()} | tuning).values())
    left = [run for run in runs if not done(run, out)]
    seconds = clock_of(plan, out).total(left, jobs)
    finished = len(runs) - len(left)
    about = f"about {len(runs)} runs ({len(tuning)} of tuning among them), {finished} done before"
    say(f"in all: {about}; about {span(seconds)} with {jobs} at a time")
    return seconds
