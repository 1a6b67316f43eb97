"""`clickprism export`: carry a ranker into another engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output

EPILOG = (
    "Examples:\n\nclickprism export runs/demo/bundle --format onnx --out ranker.onnx\n\n"
    "clickprism export runs/trees --format xgboost-json --feature-names names.txt --featureset shop --out body.json\n\n"
    "clickprism export runs/trees --format solr --store shop --name ranker_v2 --out solr/\n\n"
    "clickprism export runs/linear --format linear-json --complete --out body.json"
)


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL|BUNDLE", help="A folder of clickprism train, or a bundle.")],
    *,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="onnx (every ranker); lightgbm, lightgbm-json, xgboost-json (Elasticsearch, OpenSearch), ranklib "
            "(trees); linear-json (Elasticsearch, OpenSearch); solr (trees, linear, relu and tanh networks); vespa.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="PATH", help="The file; of solr and vespa a new folder.", rich_help_panel=OUTPUT),
    ],
    feature_names: Annotated[
        Path | None,
        typer.Option(
            "--feature-names",
            metavar="FILE",
            help="One name a line, or a JSON list; by default those of the bundle, else feature_1, feature_2, ...",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of the model there; by default that of the folder.")
    ] = None,
    store: Annotated[
        str, typer.Option("--store", "--featureset", metavar="NAME", help="Of the feature store or feature set there.")
    ] = "clickprism",
    complete: Annotated[
        bool,
        typer.Option(
            "--complete", help="No document ever lacks a feature: for formats that cannot say what that means."
        ),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the rows to check with.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a ranker in the format of another engine.

    First it scores a sample, missing values included, by a reader of that format: nothing is written on a mismatch.
    """
    from clickprism.serve.export.read import read_source
    from clickprism.serve.export.write import check_format, export

    output = Output(json, quiet)
    check_format(format_name)
    source = read_source(model, feature_names=feature_names, name=name, store=store, complete=complete)
    done = export(source, out, format_name=format_name, seed=seed)
    files = [str(path) for path in done.files]
    facts = {"format": format_name, "files": files, "rows_checked": done.rows, "notes": list(done.notes)}
    facts |= {"name": source.name, "feature_names": list(source.feature_names)}
    output.result("\n".join(files), facts)
    output.note(f"{done.rows:,} rows score alike in {format_name} and in the model")
    for note in done.notes:
        output.note(note[0].upper() + note[1:])
