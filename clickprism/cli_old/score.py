"""`clickprism score`: the documents of a file, scored by a bundle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output

EPILOG = (
    "Examples:\n\nclickprism score bundles/dla test.txt --out scores.csv\n\n"
    "clickprism score bundles/dla documents.parquet --threads 4 --out scores.parquet"
)


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A folder that clickprism bundle wrote.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="LETOR text, or .parquet, .csv, .tsv, .jsonl with columns as the bundle names its features.",
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="query_id, document_id (if the file has them), score; .csv, .tsv, .jsonl or .parquet.",
            rich_help_panel=OUTPUT,
        ),
    ],
    threads: Annotated[int, typer.Option("--threads", min=1, metavar="N", help="Of the ranker.")] = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score every document of a file, in its order: the same scores that the service would give."""
    from clickprism.serve.batch import score_file
    from clickprism.serve.bundle import Bundle
    from clickprism.serve.scorer import open_scorer

    output = Output(json, quiet)
    loaded = Bundle.load(bundle)
    start = time.perf_counter()
    rows = score_file(loaded, open_scorer(loaded, threads=threads), file, out)
    seconds = time.perf_counter() - start
    facts = {"rows": rows, "model_version": loaded.version, "seconds": round(seconds, 3), "out": str(out)}
    output.result(f"{rows:,} documents scored by {loaded.manifest.name} ({loaded.version})", facts)
    output.note(f"Written: {out} ({seconds:.1f} s)")
