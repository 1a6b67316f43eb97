"""The whole of it: run, average, draw, write."""

from __future__ import annotations

from clickprism._util.files import make_folder
from reproduce.adr.config import LEADING
from reproduce.adr.expected import EXPECTED
from reproduce.adr.plan import Plan
from reproduce.adr.report import as_text, write_all
from reproduce.adr.rows import Results, Row, rows_of
from reproduce.adr.worlds import site_of
from reproduce.common.cli import How
from reproduce.common.files import done
from reproduce.common.page import conclude, summary_text
from reproduce.common.pool import Clock, perform_all, say, seconds_of, span

LOG_SECONDS = 3.0


def reproduce(plan: Plan, how: How) -> list[Row]:
    """Run what is not done yet, write summary.json, figures/ and report.html; returns the rows of summary.json."""
    foresee(plan, how.jobs)
    if how.only_say:
        return []
    make_folder(how.out)
    phases = plan.phases()
    if plan.folder is not None and not all(done(run, how.out) for runs in phases.values() for run in runs):
        site_of(plan.world(plan.size.seeds[0]), plan.folder)  # what is missing or broken is said before anything is run
    for what, runs in phases.items():
        if runs:
            perform_all(runs, out=how.out, folder=plan.folder, jobs=how.jobs, what=what, log_seconds=LOG_SECONDS)
    results, paper = Results(plan), EXPECTED.load()
    rows = rows_of(results)
    seconds = sum(seconds_of(runs, how.out) for runs in phases.values())
    page = write_all(results, rows, paper, seconds=seconds)
    if how.write_expected:
        EXPECTED.write(EXPECTED.merged(paper, [row for row in rows if leads(row)]))
    conclude(page, summary_text(rows) if how.as_json else as_text(rows), EXPECTED.file if how.write_expected else None)
    return rows


def leads(row: Row) -> bool:
    """Whether a row is worth a line of expected.csv: of the largest tables one measure is."""
    return row.measure == {"methods": LEADING, "good same bad": "delta GSB, %"}.get(row.table, row.measure)


def foresee(plan: Plan, jobs: int) -> float:
    """Say how many runs there are in all and how long they will take; returns the seconds."""
    seconds, before, total = 0.0, 0, 0
    for runs in plan.phases().values():
        left = [run for run in runs if not done(run, plan.out)]
        clock = Clock([run for run in runs if done(run, plan.out)], plan.out, log_seconds=LOG_SECONDS)
        seconds += clock.total(left, jobs)
        before, total = before + len(runs) - len(left), total + len(runs)
    say(f"in all: {total} runs, {before} done before; about {span(seconds)} with {jobs} at a time")
    return seconds
