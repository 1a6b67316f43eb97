"""`clickprism rank`: ranked lists from estimates of relevance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output

EPILOG = (
    "Examples:\n\nclickprism rank estimates.parquet --out ranking.csv\n\n"
    "clickprism rank estimates.parquet --by lower --top 10 --out ranking.jsonl\n\n"
    "clickprism rank estimates.parquet --by thompson --seed 7 --top 1 --out explore.csv"
)


def command(
    estimates: Annotated[Path, typer.Argument(metavar="ESTIMATES", help="A file of clickprism estimate.")],
    *,
    by: Annotated[
        Literal["value", "lower", "thompson"],
        typer.Option(
            "--by",
            metavar="value|lower|thompson",
            help="The estimate; the lower end of its interval, which asks for proof; or a draw of what it may be, for "
            "the slot in which documents are tried out.",
        ),
    ] = "value",
    top: Annotated[int | None, typer.Option("--top", metavar="N", min=1, help="The best N of each query only.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the draws.")] = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="query_id, rank, document_id, score, estimate, lower, upper; .csv, .tsv, .jsonl or .parquet.",
            rich_help_panel=OUTPUT,
        ),
    ],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank the documents of each query by what is known of them, and by how well."""
    import numpy as np

    from clickprism.relevance.files import check_suffix, write_rows
    from clickprism.relevance.ranking import RankSettings, rank, scores
    from clickprism.relevance.table import read_estimates

    output = Output(json, quiet)
    check_suffix(out)
    ids, queries, known = read_estimates(estimates)
    settings = RankSettings(rule=by, seed=seed)
    order, ranks = rank(known, queries, settings=settings)
    kept = np.arange(len(order)) if top is None else np.flatnonzero(ranks <= top)
    order, ranks = order[kept], ranks[kept]
    write_rows(
        out,
        {
            "query_id": ids["query_id"].take(order),
            "rank": ranks,
            "document_id": ids["document_id"].take(order),
            "score": scores(known, settings=settings)[order],
            "estimate": known.values[order],
            "lower": known.lower[order],
            "upper": known.upper[order],
        },
    )
    count = int(queries[-1]) + 1 if len(queries) else 0
    output.result(
        f"{count:,} queries, {len(order):,} documents ranked by {by}",
        {"queries": count, "rows": len(order), "by": by, "out": str(out)},
    )
    output.note(f"Written: {out}")
