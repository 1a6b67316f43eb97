"""`clickprism tune`: which method and which ranker to take, by the log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.auto import shown
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
    names_from,
    seconds_from,
)
from clickprism.cli_old.output import Output

EPILOG = (
    "Examples:\n\nclickprism tune logs/shop --out runs/choice --budget 5m\n\n"
    "clickprism tune clicks.npz --config settings.toml --rankers linear,mlp --json\n\n"
    "clickprism tune logs/shop --methods pooled,dla --processes 4"
)


def command(
    log: AnyLog,
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="NAMES",
            help="Observation models to choose from, parted by commas: click, position, trust, browsing, bend, pooled, "
            "pooled-bend, dla, lbd; by default click and the two pooled ones.",
        ),
    ] = None,
    rankers: Annotated[
        str | None,
        typer.Option(
            "--rankers",
            metavar="NAMES",
            help="Rankers to choose from, parted by commas: linear, mlp, lambdamart, blend; by default all.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The folder for choice.json, model/ and every trial; called again, what was done before is not done "
            "again.",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("runs/choice"),
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
    """Choose a method and a ranker by a log alone, without labels, and train the ranker on all of it.

    Methods are observation models: how often documents were seen where they stood. The one is taken that predicts the
    clicks of held-out queries, and the ranker that earns most by it on queries it did not learn from. The model in
    --out takes raw features.
    """
    from clickprism.choice.candidates import CHOSEN_FROM, RANKERS
    from clickprism.choice.tune import TuneSettings, tune

    output = Output(json, quiet)
    settings = TuneSettings(
        budget=seconds_from(budget),
        seed=seed,
        processes=processes,
        methods=CHOSEN_FROM if methods is None else tuple(names_from(methods) or ()),
        rankers=tuple(RANKERS) if rankers is None else tuple(names_from(rankers) or ()),
    )
    columns = {"day": day, "ranker": ranker, "randomised": randomised}
    with shown(output) as progress:
        progress("read", f"reading {log.name}")
        logged = read_any_logged(log, output, **columns, on_error=on_error, memory=memory, config=config, sets=sets)
        choice = tune(logged, settings=settings, out=out, progress=lambda text: progress("choice", text))
    output.result(choice.text(), choice.plain())
    output.note(f"\nModel: {out / 'model'}\nEvery trial: {out}")
