"""The whole of it: run, average, draw, write."""

from __future__ import annotations

import sys
from pathlib import Path

from clickprism.experiment.files import make_folder
from reproduce.common.files import done
from reproduce.common.page import summary_text
from reproduce.common.pool import Clock, perform_all, say, seconds_of, span
from reproduce.inforank.expected import EXPECTED
from reproduce.inforank.plan import Plan
from reproduce.inforank.report import as_text, write_all
from reproduce.inforank.rows import Results, Row, rows_of

LOG_SECONDS = 4.0


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
    runs = plan.runs()
    if only_say:
        foresee(plan, out, jobs)
        return []
    make_folder(out)
    perform_all(runs, out=out, folder=plan.folder, jobs=jobs, what="runs", log_seconds=LOG_SECONDS)
    results = Results(plan, out)
    paper = EXPECTED.load()
    rows = EXPECTED.with_paper(rows_of(results), paper)
    page = write_all(results, rows, paper, seconds=seconds_of(runs, out))
    if write_expected:
        EXPECTED.write(EXPECTED.merged(paper, rows))
        say(f"our figures are in {EXPECTED.file.name}")
    sys.stdout.write(summary_text(rows) if as_json else as_text(rows) + "\n")
    say(f"written: {page}, {out / 'summary.json'}, {out / 'figures'}")
    return rows


def foresee(plan: Plan, out: Path, jobs: int) -> float:
    """Say how many runs there are in all and how long they will take; returns the seconds."""
    runs = plan.runs()
    left = [run for run in runs if not done(run, out)]
    clock = Clock([run for run in runs if done(run, out)], out, log_seconds=LOG_SECONDS)
    seconds = clock.total(left, jobs)
    before = len(runs) - len(left)
    say(f"in all: {len(runs)} runs, {before} done before; about {span(seconds)} with {jobs} at a time")
    return seconds
