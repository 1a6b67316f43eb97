"""Every table and figure of LBD: `python -m reproduce.lbd --quick` in ten minutes, `--full` in the paper's size."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

from clickprism._util.files import make_folder
from clickprism.errors import SettingError
from clickprism.experiments.data import load_data
from reproduce.common.cli import How, changed, guarded, options, parts_of, size_name, words
from reproduce.common.files import done
from reproduce.common.page import publish
from reproduce.common.pool import foresee, perform_all, seconds_of
from reproduce.lbd.config import CANDIDATES, DATA, EXPECTED, PUBLISHED, SIZES
from reproduce.lbd.plan import PARTS, Plan
from reproduce.lbd.report import as_text, write_all
from reproduce.lbd.rows import Results, Row, rows_of
from reproduce.lbd.runs import Run, data_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit codes are those of clickprism."""
    given = parser().parse_args(arguments)
    return guarded(lambda: reproduce(plan_of(given), How.of(given)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = options("lbd", __doc__, data=DATA, full="the network of the paper")
    made.add_argument("--couplings", help="which couplings of Figure 3, such as 0,.3,.6")
    made.add_argument("--maps", help="which couplings of Figure 4, such as 0,.3,.6")
    made.add_argument("--published", action="store_true", help="lambda and t of the paper's Table 3, without tuning")
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """Return what was asked for, checked."""
    size, parts = changed(SIZES[size_name(given)], given), parts_of(given, PARTS)
    if given.couplings:
        size = replace(size, couplings=_numbers("couplings", given.couplings))
    if given.maps:
        size = replace(size, maps=_numbers("maps", given.maps))
    size = replace(size, map_rankers=tuple(name for name in size.map_rankers if name in size.rankers))
    methods = words("methods", given.methods, list(CANDIDATES))
    if given.published:
        if missing := [each for each in product(size.rankers, size.couplings) if each not in PUBLISHED]:
            raise SettingError("couplings", missing[0][1], "be 0, .1 and so on to .6, which Table 3 has")
        parts = tuple(part for part in parts if part != "table 3")
    return Plan(given.data, size, parts, given.folder, published=given.published, methods=methods)


def _numbers(field: str, text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise SettingError(field, text, "be numbers with commas between") from None
    if min(values) < 0:
        raise SettingError(field, text, "not be negative")
    return values


def reproduce(plan: Plan, how: How) -> list[Row]:
    """Run what is not done yet, write summary.json, figures/ and report.html; return the rows of summary.json."""
    runs = all_runs(plan.tuned(how.out))
    foresee(runs, how.out, how.jobs, note=f" ({len(plan.tuning())} of tuning among them)")
    if how.only_say:
        return []
    make_folder(how.out)
    if plan.folder is not None and not all(done(run, how.out) for run in runs):
        for world in plan.worlds(0.0, plan.size.seeds[:1]):  # says what is missing or broken before anything is run
            load_data(data_settings(world, plan.folder))
    todo: dict[str, Any] = {"out": how.out, "folder": plan.folder, "jobs": how.jobs}
    perform_all(plan.tuning(), **todo, what="tuning")
    plan = plan.tuned(how.out)
    perform_all(plan.runs(), **todo, what="runs")
    results = Results(plan, how.out)
    seconds = seconds_of(all_runs(plan), how.out)
    return publish(
        rows_of(results),
        how,
        EXPECTED,
        write=lambda rows, paper: write_all(results, rows, paper, seconds=seconds),
        text=as_text,
    )


def all_runs(plan: Plan) -> list[Run]:
    """Return the runs of tuning and all others, each once."""
    return list({run.key: run for run in [*plan.tuning(), *plan.runs()]}.values())


if __name__ == "__main__":
    sys.exit(main())
