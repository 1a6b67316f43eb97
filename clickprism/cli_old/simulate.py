"""`clickprism simulate`: a click log of simulated users, with the truth beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import OUTPUT, SETTINGS, Config, Json, Quiet, settings_of
from clickprism.cli_old.output import Output, columns, command_line
from clickprism.errors import DataError, SettingError

EPILOG = (
    "Examples:\n\nclickprism simulate --out clicks.npz\n\n"
    "clickprism simulate --user trust --sessions 50 --set simulation.length=20 --out clicks.npz\n\n"
)


def command(
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The .npz file to write.", rich_help_panel=OUTPUT)
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write clicks on the validation part too, for evaluation.validation=clicks.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    config: Config = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A single setting on top of all else, such as simulation.length=20; may be repeated.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", metavar="NAME", help="Who clicks (pbm): the setting user.name.", rich_help_panel=SETTINGS
        ),
    ] = None,
    sessions: Annotated[
        int | None,
        typer.Option(
            "--sessions",
            metavar="N",
            help="How many (100): of each query, or in all where simulation.frequency is not each.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Of everything random (0).", rich_help_panel=SETTINGS),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let simulated users click; save clicks and truth, print how they behaved."""
    if out is None:
        raise SettingError("--out", out, "be given")
    import numpy as np

    from clickprism._util.files import make_folder
    from clickprism.data.clicks import save_clicks
    from clickprism.experiments import load_data, simulate_log
    from clickprism.experiments.data import graded

    settings = settings_of(config, sets, seeds=None if seed is None else [seed], user__name=user, sessions=sessions)
    for file in (out, held_out or out):
        make_folder(file.parent)
        if file.is_dir():
            raise DataError("is a folder", file=file, remedy="Name a file to write, such as clicks.npz")
    log = simulate_log(settings, graded(load_data(settings.data)), seed=settings.seeds[0])
    clicks = log.simulation.clicks
    save_clicks(clicks, out, truth=log.simulation.truth)
    if held_out is not None:
        save_clicks(log.held_out, held_out)
    shown = np.bincount(clicks.positions, weights=clicks.list_impressions)[1:]
    rates = np.bincount(clicks.positions, weights=clicks.clicks)[1:] / np.maximum(shown, 1)
    observation = log.simulation.observation
    rows = [
        [str(position), f"{rate:.4f}", f"{seen:.4f}"]
        for position, (rate, seen) in enumerate(zip(rates, observation, strict=True), start=1)
    ]
    counts = {"sessions": clicks.sessions, "lists": len(clicks), "clicks": int(clicks.clicks.sum())}
    output = Output(json, quiet)
    output.result(
        f"{settings.user['name']}, seed {settings.seeds[0]}: {counts['sessions']:,} sessions, "
        f"{counts['lists']:,} distinct ranked lists, {counts['clicks']:,} clicks\n\n"
        + columns(["position", "clicked", "observed"], rows),
        {
            "file": str(out),
            "user": settings.user["name"],
            "seed": settings.seeds[0],
            **counts,
            "click_rate": rates.tolist(),
            "observation": observation.tolist(),
        },
    )
    words: list[object] = ["train", "--clicks", out]
    if held_out is not None and settings.evaluation.validation == "clicks":
        words += ["--held-out", held_out]
    if config is not None:
        words += ["--config", config]
    for assignment in sets or []:
        words += ["--set", assignment]
    output.note(f"Written to {out}. Next: {command_line(*words, '--method', 'dla', '--out', 'runs/dla')}")
