"""`clickprism feedback`: rounds of log, retrain, show, and what they do to popular items."""

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
    names_from,
    seeds_from,
    settings_of,
)
from clickprism.cli_old.output import Output, command_line

EPILOG = (
    "Examples:\n\nclickprism feedback --methods click,dla,labels --seeds 3 --out runs/feedback\n\n"
    "clickprism feedback --user popularity --rounds 4 --set exploration=0.1 --json"
)


def command(
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="NAMES",
            help="Parted by commas: methods, or labels of the config.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", help="Number of rounds: the setting rounds.", rich_help_panel=SETTINGS),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help="Number of runs; run i uses the seed of --seed plus i.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    seed: Seed = None,
    user: User = None,
    sessions: Sessions = None,
    ranker: Ranker = None,
    epochs: Epochs = None,
    config: Config = None,
    sets: Set = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="How many seeds at a time.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="A folder for results.json, the figures and report.html; chains done before are taken from it.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let rankers learn from the clicks on what they show, round after round, and watch popularity bias."""
    from clickprism._util.tables import as_text
    from clickprism.experiments.feedback import feedback_loop, write_feedback
    from clickprism.experiments.settings import FeedbackSettings

    settings = settings_of(
        config,
        sets,
        base=FeedbackSettings(),
        seeds=seeds_from(seeds, seed),
        methods=names_from(methods),
        rounds=rounds,
        user__name=user,
        sessions=sessions,
        ranker__name=ranker,
        fit__epochs=epochs,
    )
    output = Output(json, quiet)

    def progress(done: int, total: int | None = None, text: str = "") -> None:
        output.note(f"{done} of {total}: {text}")

    results = feedback_loop(settings, out=out, jobs=jobs, progress=progress)
    output.result(as_text(results.tables()), results)
    if out is not None:
        following = command_line("feedback", "--config", f"{out}/settings.toml", "--user", "popularity")
        output.note(f"Report: {write_feedback(results, out, next_commands=[following])}")
