"""`clickprism data`: look at judged lists and impression logs, check public data sets, write the embedded data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from clickprism.cli_old import recommendation
from clickprism.cli_old.options import OUTPUT, Config, Json, Quiet, Set, settings_of
from clickprism.cli_old.output import Output, columns

app = typer.Typer(
    no_args_is_help=True,
    help="Look at judged lists and impression logs, check public data sets, write the embedded data.",
    epilog="Example:\n\nclickprism data info train.txt",
)


@app.command(epilog="Example:\n\nclickprism data recipes")
def recipes(json: Json = False) -> None:
    """List the public data sets that clickprism knows."""
    from clickprism.data.recipes import RECIPES

    rows = [
        [name, f"{it.queries:,}", f"{it.documents:,}", str(it.features), it.normalise, it.title]
        for name, it in RECIPES.items()
    ]
    names = ("title", "source", "queries", "documents", "features", "normalise")
    Output(json).result(
        columns(["recipe", "queries", "documents", "features", "normalise", "title"], rows),
        {name: {key: getattr(recipe, key) for key in names} for name, recipe in RECIPES.items()},
    )


@app.command(epilog="Example:\n\nclickprism data check mq2008 data/MQ2008")
def check(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="The name of a data set; see `clickprism data recipes`.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where its files are, plain, .gz or .zst.")],
    json: Json = False,
) -> None:
    """Say what a folder holds of a public data set and what is missing; exit code 3 if it is not complete."""
    from clickprism.data.recipes import check
    from clickprism.errors import DataError

    report = check(recipe, folder)
    data = {
        "recipe": report.name,
        "ok": report.ok,
        "found": [str(file) for file in report.found],
        "missing": list(report.missing),
        "counts": [asdict(count) | {"ok": count.ok} for count in report.counts],
    }
    from clickprism._util.tables import as_text

    Output(json).result(as_text(report.tables()), data)
    if not report.ok:
        raise typer.Exit(DataError.exit_code)


@app.command(
    epilog="Examples:\n\nclickprism data info train.txt test.txt\n\n"
    "clickprism data info train.txt.gz --on-error quarantine --quarantine-file broken.jsonl"
)
def info(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="LETOR text, plain, .gz or .zst.")],
    *,
    on_error: Annotated[
        Literal["raise", "quarantine"],
        typer.Option(
            "--on-error", metavar="raise|quarantine", help="End at a broken line, or leave it out and count it."
        ),
    ] = "raise",
    quarantine_file: Annotated[
        Path | None,
        typer.Option("--quarantine-file", metavar="FILE", help="Write the lines left out to this file, as JSON lines."),
    ] = None,
    json: Json = False,
) -> None:
    """Read LETOR, SVMlight or ranklib text; print how many lists, documents, features, and the shares of grades."""
    from clickprism.data.facts import facts
    from clickprism.data.letor import scan_letor

    readings = {str(file): scan_letor(file, missing="nan", on_error=on_error) for file in files}
    if quarantine_file is not None:
        lines = [f"{line.to_json()}\n" for reading in readings.values() for line in reading.quarantined]
        quarantine_file.write_text("".join(lines), encoding="utf-8")
    found = {file: facts(reading.judged) for file, reading in readings.items()}
    left_out = {file: len(reading.quarantined) for file, reading in readings.items()}
    text = "\n\n".join(
        columns(
            [file, ""],
            [
                ["lists", f"{it.lists:,}"],
                ["documents", f"{it.documents:,}"],
                ["documents a list", f"{it.shortest} to {it.longest}"],
                ["features", str(it.features)],
                *[[f"grade {grade}", f"{share:.1%}"] for grade, share in enumerate(it.grades)],
                ["lists without a relevant document", f"{it.without_relevant:,}"],
                ["missing values", f"{it.missing:,}"],
                ["broken lines left out", f"{left_out[file]:,}"],
            ],
        )
        for file, it in found.items()
    )
    data = [{"file": file, **asdict(it), "quarantined": left_out[file]} for file, it in found.items()]
    Output(json).result(text, {"files": data})


@app.command(
    epilog="Examples:\n\nclickprism data generate --out data/embedded\n\n"
    "clickprism data generate --out data/small --set data.synthetic.train_queries=200"
)
def generate(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.", rich_help_panel=OUTPUT)],
    config: Config = None,
    sets: Set = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, metavar="N", help="The setting data.synthetic.seed.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the embedded data as LETOR text: train.txt, validation.txt and test.txt."""
    from clickprism._util.files import make_folder
    from clickprism.data.facts import facts
    from clickprism.data.synthetic import synthetic
    from clickprism.data.write import write_letor

    settings = settings_of(config, sets, data__synthetic__seed=seed).data.synthetic
    make_folder(out)
    dataset, output = synthetic(settings), Output(json, quiet)
    rows = []
    for part in ("train", "validation", "test"):
        judged, file = getattr(dataset, part), out / f"{part}.txt"
        write_letor(judged, file)
        rows.append({"file": str(file), **asdict(facts(judged))})
    header = ["file", "lists", "documents", "features"]
    output.result(columns(header, [[str(row[name]) for name in header] for row in rows]), {"files": rows})
    files = " ".join(f"--set data.{part}={out}/{part}.txt" for part in ("train", "validation", "test"))
    output.note(f"Use it by: --set data.source=files {files}")


app.command(epilog=recommendation.IMPRESSIONS)(recommendation.impressions)
