"""`clickprism demo`: all of it in a minute, on embedded data."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet, Set, settings_of
from clickprism.cli_old.output import Output, program

EPILOG = "Examples:\n\nclickprism demo\n\nclickprism demo --seed 7 --out runs/demo7 --json"


def command(
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder for report and models.", rich_help_panel=OUTPUT)
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="The first of two seeds.")] = 0,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, metavar="N", help="How many runs at a time; 0 for one a core.")
    ] = 0,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Embedded data, biased users, the floor, debiased rankers, the ceiling: a table, a report, models."""
    from clickprism._util.tables import as_text
    from clickprism.experiments.demo import next_commands, run_demo
    from clickprism.experiments.settings import DemoSettings

    start = time.perf_counter()
    settings = settings_of(None, sets, base=DemoSettings(seed=seed))
    output = Output(json, quiet)

    def progress(done: int, total: int | None = None, text: str = "") -> None:
        output.note(f"{done} of {total}: {text}")

    demo = run_demo(settings, out=out, jobs=jobs or os.cpu_count() or 1, progress=progress)
    output.result(as_text(demo.tables()), demo)
    output.note(f"{time.perf_counter() - start:.0f} s. Report: {demo.report}\nModel:  {demo.model}\nTry next:")
    for line in next_commands(settings, out, program=program()):
        output.note(f"  {line}")
