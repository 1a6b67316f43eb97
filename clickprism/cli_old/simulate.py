"""`clickprism simulate`: a click log of simulated users, or a raw log of a search engine, with the truth beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clickprism.cli_old.options import OUTPUT, SETTINGS, Config, Json, Quiet, settings_of
from clickprism.cli_old.output import Output, columns, command_line
from clickprism.errors import DataError, SettingError

EPILOG = (
    "Examples:\n\nclickprism simulate --out clicks.npz\n\n"
    "clickprism simulate --user trust --sessions 50 --set simulation.length=20 --out clicks.npz\n\n"
    "clickprism simulate --as-log raw --searches 100000 --seed 1\n\n"
    "clickprism simulate --as-log raw --searches 1000 --days 7 --schema ubi --set robots=0"
)
LOG = "A raw log"


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
    as_log: Annotated[
        Path | None,
        typer.Option(
            "--as-log",
            metavar="DIR",
            help="Instead: the folder for a raw log, day by day, for clickprism ingest. --set and --config then take "
            "the settings of such a log (docs/operations.md), --user who reads it (ccm).",
            rich_help_panel=LOG,
        ),
    ] = None,
    searches: Annotated[
        int | None, typer.Option(metavar="N", help="How many people make, in all days (10000).", rich_help_panel=LOG)
    ] = None,
    days: Annotated[int | None, typer.Option(metavar="N", help="How many (30).", rich_help_panel=LOG)] = None,
    start: Annotated[
        str | None, typer.Option(metavar="DATE", help="The first day (2024-01-01).", rich_help_panel=LOG)
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="NAME", help="clickprism, ubi or metarank (clickprism).", rich_help_panel=LOG)
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="jsonl, csv or parquet (jsonl).", rich_help_panel=LOG)
    ] = None,
    compress: Annotated[
        str | None, typer.Option(metavar="NAME", help="zst, gz or none (zst).", rich_help_panel=LOG)
    ] = None,
    files_per_day: Annotated[
        int | None, typer.Option(metavar="N", help="At least so many (1).", rich_help_panel=LOG)
    ] = None,
    config: Config = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A single setting on top of all else, such as simulation.length=20, or with --as-log robots=0; may be "
            "repeated.",
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
    """Let simulated users click; save clicks and truth, print how they behaved; or write a raw log to ingest."""
    named = {"searches": searches, "days": days, "start": start, "schema": schema, "format": file_format}
    named |= {"compress": compress, "files_per_day": files_per_day}
    if as_log is not None:
        _refuse("with --as-log", {"out": out, "held_out": held_out, "sessions": sessions})
        flags = named | {"seed": seed, "user": None if user is None else {"name": user}}
        _raw_log(as_log, config, sets, flags, Output(json, quiet))
        return
    _refuse("without --as-log", named)
    if out is None:
        raise SettingError("--out", out, "be given, or --as-log")
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


def _refuse(where: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise SettingError(f"--{name.replace('_', '-')}", value, f"not be given {where}")


def _raw_log(
    folder: Path, config: Path | None, sets: list[str] | None, flags: Mapping[str, Any], output: Output
) -> None:
    """Write a raw log, and say what an ingest must find in it."""
    from clickprism._util.progress import progress_bar
    from clickprism._util.tables import to_plain
    from clickprism.settings import build, override, read_toml
    from clickprism.simulation.raw_log import write_raw_log
    from clickprism.simulation.raw_settings import RawLogSettings

    values: dict[str, Any] = {} if config is None else read_toml(config)
    values |= {name: value for name, value in flags.items() if value is not None}
    settings = build(RawLogSettings, override(values, sets or ()))
    with progress_bar("days", show=False if output.quiet else None) as progress:
        log = write_raw_log(folder, settings, progress=progress)
    output.result("\n\n".join(table.text() for table in log.tables()), to_plain(log))
    words: list[object] = ["ingest", folder / "events", "--into", folder / "log" if Path("log").exists() else "log"]
    words += ["--schema", "ubi", "--ordinal-base", settings.ordinal_base] if settings.schema == "ubi" else []
    output.note(f"Written to {folder}; the truth is in {folder / 'truth'}. Next: {command_line(*words)}")
