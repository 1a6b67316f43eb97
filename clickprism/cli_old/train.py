"""`clickprism train`: one ranker from clicks, by one method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.evaluation.independence import Independence
    from clickprism.experiments.bend import Bend

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
    trained = train_ranker(settings, label, out=out, clicks=clicks, held_out=held_out, resume=resume, show=output.bar)
    fitted = trained.fitted
    data: dict[str, Any] = {
        "method": label,
        "ranker": settings.ranker["name"],
        "seed": settings.seeds[0],
        "clicks": None if clicks is None else str(clicks),
        "model": str(trained.model),
        "best": fitted.best_epoch,
        "epochs": fitted.history[-1].epoch if fitted.history else 0,
        "stopped": fitted.stopped,
        "validation": settings.evaluation.validation,
        "value": fitted.best_value,
        "observation": None if fitted.observation is None else fitted.observation.tolist(),
        "truth": None if trained.truth is None else (trained.truth / trained.truth[0]).tolist(),
        "lipschitz": None if trained.bend is None else trained.bend.plain(),
        "choices": [] if trained.bend is None else trained.bend.plain_choices(),
        "delta_ci": None if trained.independence is None else trained.independence.plain(),
    }
    interrupted = fitted.stopped == "interrupted"
    if not first:
        raise typer.Exit(INTERRUPTED if interrupted else 0)
    output.result(_text(data, trained.bend, trained.independence), data)
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


def _text(data: dict[str, Any], bend: Bend | None, gap: Independence | None) -> str:
    from clickprism.experiments.bend import choice_text
    from clickprism.experiments.bias import independence_text

    ends = {"epochs": "all of them", "patience": "no better for a while", "interrupted": "interrupted"}
    unit = "trees" if data["ranker"] == "lambdamart" else "epoch"
    lines = [
        f"{data['method']} · {data['ranker']} · seed {data['seed']}: best {unit} {data['best']} of {data['epochs']} "
        f"({ends[data['stopped']]})"
    ]
    if data["clicks"] is not None:
        lines.append(f"clicks: {data['clicks']}")
    if data["value"] is not None:
        lines.append(f"validation by {data['validation']}: {data['value']:.4f}")
    lines.append(f"model: {data['model']}")
    if bend is not None and bend.choices:
        lines.append(f"{data['method']}: {choice_text(bend.choices)}")
    if gap is not None:
        lines.append(f"{data['method']}: {independence_text(gap)}")
    if data["observation"] is not None:
        truth = data["truth"] or [None] * len(data["observation"])
        rows = [
            [str(position), f"{seen:.4f}", "-" if true is None else f"{true:.4f}"]
            for position, (seen, true) in enumerate(zip(data["observation"], truth, strict=False), start=1)
        ]
        lines += ["", "observation relative to position 1", columns(["position", "used", "truth"], rows)]
    if bend is not None:
        heading = f"slope of log observation relative to position 1 in the features, over {bend.documents} documents"
        lines += ["", heading, columns(["position", "mean", "truth", "maximum", "truth"], _slopes(bend))]
    return "\n".join(lines)


def _slopes(bend: Bend) -> list[list[str]]:
    """A row a position, and one for all of them."""
    names = [*map(str, range(1, len(bend.fitted.means) + 1)), "all"]
    table = [names]
    for one, several in (("mean", "means"), ("maximum", "maxima")):
        for side in (bend.fitted, bend.truth):
            values = [None] * len(names) if side is None else [*getattr(side, several), getattr(side, one)]
            table.append(["-" if value is None else f"{value:.4f}" for value in values])
    return [list(row) for row in zip(*table, strict=True)]
