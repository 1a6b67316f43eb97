"""`clickprism compare`: every method with every seed, side by side."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from clickprism.cli_old.options import (
    OUTPUT,
    SETTINGS,
    Config,
    Epochs,
    Json,
    Measures,
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
from clickprism.cli_old.output import Output

EPILOG = (
    "Examples:\n\nclickprism compare --methods labels,click,dla --ranker linear --seeds 3\n\n"
    "clickprism compare --user ubm --seeds 2 --jobs 2 --out runs/ubm"
)


def command(
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="NAMES",
            help="Parted by commas: methods, or labels of the config; all by default.",
            rich_help_panel=SETTINGS,
        ),
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
    measures: Measures = None,
    config: Config = None,
    sets: Set = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="What to compare with; click, or else the first."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="How many runs at a time.")] = 1,
    form: Annotated[
        Literal["text", "markdown", "latex", "html", "json"],
        typer.Option(
            "--format",
            metavar="FORM",
            help="Of the table: text, markdown, latex, html or json.",
            rich_help_panel=OUTPUT,
        ),
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="A folder for the models, the table in every form, the figures and report.html.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every method with every seed on simulated clicks, and compare them on the test part."""
    from clickprism._util.tables import as_text
    from clickprism.evaluation import tables
    from clickprism.experiments import compare_methods, write_results

    settings = settings_of(
        config,
        sets,
        seeds=seeds_from(seeds, seed),
        methods=names_from(methods),
        user__name=user,
        sessions=sessions,
        ranker__name=ranker,
        fit__epochs=epochs,
        evaluation__measures=measures,
    )
    output = Output(json or form == "json", quiet)

    def progress(done: int, total: int | None = None, text: str = "") -> None:
        output.note(f"{done} of {total}: {text}")

    results = compare_methods(settings, baseline=baseline, out=out, jobs=jobs, progress=progress)
    written = {"markdown": tables.as_markdown, "latex": tables.as_latex, "html": tables.as_html}
    if form in written and not json:
        output.result(written[form](results.comparison).rstrip(), None)
    else:
        output.result(as_text(results.tables()), results)
    if out is not None:
        title = f"{', '.join(settings.methods)}: {settings.user['name']} users, {settings.ranker['name']} ranker"
        kept = shlex.quote(f"{out}/settings.toml")
        report = write_results(
            results,
            out,
            title=title,
            next_commands=[f"clickprism compare --config {kept} --user ubm --jobs {jobs}"],
        )
        output.note(f"Report: {report}")
