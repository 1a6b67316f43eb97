"""`clickprism train`: one ranker from clicks, by one method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import (
    OUTPUT,
    SETTINGS,
    Config,
    Epochs,
    Json,
    Quiet,
    Ranker,
    Seed,
    Sessions,
    Set,
    User,
    settings_of,
)
from clickprism.cli_old.output import Output, command_line

DEFAULT_METHOD = "dla"
EPILOG = (
    "Examples:\n\nclickprism train --method dla --ranker mlp --out runs/dla\n\n"
    "clickprism train --clicks clicks.npz --method ipw --set methods.ipw.floor=0.05 --out runs/ipw\n\n"
    "clickprism train --resume --epochs 200 --out runs/dla\n\n"
    "torchrun --standalone --nproc-per-node 2 -m clickprism train --out runs/dla"
)


def command(
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The folder for model/, metrics.jsonl, settings.toml and the checkpoint.",
            rich_help_panel=OUTPUT,
        ),
    ],
    clicks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Clicks on the training part, whose truth ipw uses; without them, users are simulated."
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Clicks on the validation part, for evaluation.validation=clicks."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in the folder, by the settings there.")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="By what: a method, or a label of the config; the only one of the config, or else dla.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    ranker: Ranker = None,
    epochs: Epochs = None,
    user: User = None,
    sessions: Sessions = None,
    seed: Seed = None,
    config: Config = None,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a ranker on clicks; Ctrl-C keeps the best so far."""
    from clickprism._util.tables import as_text
    from clickprism.cli_old.app import INTERRUPTED
    from clickprism.errors import DataError, SettingError
    from clickprism.experiments import train_ranker
    from clickprism.experiments.train import CHECKPOINT
    from clickprism.experiments.train import SETTINGS as KEPT
    from clickprism.training.distributed import place

    for name, value in (("--user", user), ("--sessions", sessions)):
        if clicks is not None and value is not None:
            raise SettingError(name, value, "not be given with --clicks, whose clicks are made already")
    first = place()[0] == 0
    if resume and first and not any((out / file).is_file() for file in (KEPT, CHECKPOINT)):
        remedy = "Name the folder of an earlier run, or leave --resume out"
        raise DataError("there is nothing to resume", file=out, remedy=remedy)
    if resume and config is None and (out / KEPT).exists():
        config = out / KEPT
    settings = settings_of(
        config,
        sets,
        seeds=None if seed is None else [seed],
        user__name=user,
        sessions=sessions,
        ranker__name=ranker,
        fit__epochs=epochs,
    )
    label = method or (next(iter(settings.methods)) if len(settings.methods) == 1 else DEFAULT_METHOD)
    output = Output(json, quiet)
    trained = train_ranker(
        settings, method=label, out=out, source=clicks, held_out=held_out, resume=resume, show=output.bar
    )
    interrupted = trained.stopped == "interrupted"
    if not first:
        raise typer.Exit(INTERRUPTED if interrupted else 0)
    output.result(as_text(trained.tables()), trained)
    if interrupted:
        files = [("--clicks", clicks), ("--held-out", held_out)]
        given = [word for name, file in files if file is not None for word in (name, file)]
        trees = settings.ranker["name"] == "lambdamart"
        again = "Trees are not gone on with but grow anew" if trees else "Go on"
        output.note(
            f"Interrupted; the best so far is kept. {again}: {command_line('train', '--resume', *given, '--out', out)}"
        )
        raise typer.Exit(INTERRUPTED)
    output.note(f"Next: {command_line('evaluate', out)}")
