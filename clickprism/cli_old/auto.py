"""`clickprism auto`: from a log to a ranker that can be served, in one command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clickprism.cli_old.logged import AnyLog, Day, OnError, Randomised, RankerColumn, read_any_logged
from clickprism.cli_old.options import (
    OUTPUT,
    AnySeed,
    Budget,
    Config,
    Json,
    Memory,
    Processes,
    Quiet,
    Set,
    seconds_from,
)
from clickprism.cli_old.output import Output, program

if TYPE_CHECKING:
    from clickprism.data.logged import Logged

EPILOG = (
    "Examples:\n\nclickprism auto logs/shop --out runs/shop --budget 10m\n\n"
    "clickprism auto clicks.npz --config settings.toml --out runs/clicks --seed 1 --json\n\n"
    "clickprism auto logs/shop --out runs/shop --budget 1h --processes 4 --quiet"
)


def command(
    log: AnyLog,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The folder for report.html, auto.json and bundle/; called again, what was done before is not done "
            "again.",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("runs/auto"),
    budget: Budget = "10m",
    seed: AnySeed = 0,
    processes: Processes = 2,
    day: Day = None,
    ranker: RankerColumn = None,
    randomised: Randomised = None,
    on_error: OnError = "raise",
    memory: Memory = "700MB",
    config: Config = None,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Diagnose a log, choose a method without labels, train, value, bundle and report; called again, it goes on.

    A file of clickprism simulate has its features only by the settings that made it: --config and --set, or the default
    ones. Of a log without features there is a report and no ranker: exit code 3.
    """
    from clickprism.errors import DataError
    from clickprism.experiments.auto.report import as_plain
    from clickprism.experiments.auto.run import auto

    output = Output(json, quiet)
    seconds = seconds_from(budget)

    def read() -> Logged:
        columns = {"day": day, "ranker": ranker, "randomised": randomised}
        return read_any_logged(log, output, **columns, on_error=on_error, memory=memory, config=config, sets=sets)

    with shown(output) as progress:
        result = auto(read, out=out, budget=seconds, seed=seed, processes=processes, name=log.name, progress=progress)
    output.result(result.text(log=str(log), program=program()), as_plain(result, log.name))
    output.note(f"\nReport: {result.report}\nEvery decision: {out / 'auto.json'}")
    if result.bundle is None:
        refused = result.stages["choice"]["refused"]
        raise DataError(refused.rstrip("."), file=log, remedy=f"What can be done instead stands in {result.report}")


@contextmanager
def shown(output: Output) -> Iterator[Callable[[str, str], None]]:
    """What is going on: a line on a terminal that changes, else a line a stage; Ctrl-C is told what to do."""
    told: list[str] = []

    def lines(stage: str, text: str) -> None:
        if stage not in told:
            told.append(stage)
            output.note(f"{stage}: {text}")

    try:
        if output.quiet or not sys.stderr.isatty():
            yield lines
            return
        from rich.console import Console

        console = Console(stderr=True)
        with console.status("") as status:

            def line(stage: str, text: str) -> None:
                if stage not in told:
                    told.append(stage)
                    console.print(f"{stage}: {text}", highlight=False, markup=False)
                status.update(f"{stage}: {text}".replace("[", r"\["))

            yield line
    except KeyboardInterrupt:
        output.note("The same command goes on from here.")
        raise
