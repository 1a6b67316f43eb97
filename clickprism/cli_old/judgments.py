"""`clickprism judgments`: graded judgement lists from estimates of relevance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output, columns

EPILOG = (
    "Examples:\n\nclickprism judgments estimates.parquet --out judgments.csv\n\n"
    "clickprism judgments estimates.parquet --out judgments.csv --set scale=absolute --set 'cuts=[.1, .2, .4, .6]'\n\n"
    "clickprism judgments estimates.parquet --out judgments.jsonl --set by=lower --set least_weight=30\n\n"
    "clickprism judgments estimates.parquet --format workbench --queries queries.tsv --out judgments.json\n\n"
    "clickprism judgments estimates.parquet --format quepid --queries queries.tsv --out ratings.csv"
)


def command(
    estimates: Annotated[Path, typer.Argument(metavar="ESTIMATES", help="A file of clickprism estimate.")],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="query_id, document_id, grade, estimate, lower, upper, weight; .csv, .tsv, .jsonl or .parquet.",
            rich_help_panel=OUTPUT,
        ),
    ],
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="table, as --out ends; workbench, OpenSearch Search Relevance Workbench JSON; quepid, its CSV; letor, "
            "text. The last three have the text of the query, the document and its grade.",
            rich_help_panel=OUTPUT,
        ),
    ] = "table",
    texts: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            metavar="FILE",
            help="The texts of queries, for these three: TSV, CSV, JSON lines or Parquet; without it their ids stand.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="scale (quantile, absolute, relative), cuts, by (value, lower), least_weight, widest, imputed, "
            "least_documents; may be repeated.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Grade the pairs that clicks know enough about, from 0 to 4, and count the others by reason."""
    from math import isnan

    import numpy as np

    from clickprism.relevance.files import check_suffix, write_rows
    from clickprism.relevance.judgment_files import check_judgment_format, query_words, write_judgments
    from clickprism.relevance.judgments import JudgmentSettings, judge
    from clickprism.relevance.table import read_estimates
    from clickprism.settings import build, override

    output = Output(json, quiet)
    check_judgment_format(format_name)
    if format_name == "table":
        check_suffix(out)
    chosen = build(JudgmentSettings, override({}, settings or ()), path="--set")
    ids, queries, known = read_estimates(estimates)
    made = judge(known, queries, settings=chosen)
    order = np.lexsort((-known.values[made.pairs], queries[made.pairs]))
    pairs = made.pairs[order]
    kept = known.select(pairs)
    query_ids, document_ids = (ids[name].take(pairs) for name in ("query_id", "document_id"))
    if format_name == "table":
        write_rows(
            out,
            {
                "query_id": query_ids,
                "document_id": document_ids,
                "grade": made.grades[order],
                "estimate": kept.values,
                "lower": kept.lower,
                "upper": kept.upper,
                "weight": kept.weight,
            },
        )
    else:
        words = query_ids.to_pylist() if texts is None else query_words(texts, query_ids.to_pylist())
        judged = zip(words, document_ids.to_pylist(), made.grades[order].tolist(), strict=True)
        write_judgments(out, judged, kind=format_name, name=out.stem)
    facts = made.plain()
    starts = [None, *facts["cuts"]]
    rows = [
        [str(grade), "" if start is None else "-" if isnan(start) else f"{start:.4f}", f"{number:,}"]
        for grade, (start, number) in enumerate(zip(starts, facts["grades"].values(), strict=True))
    ]
    output.result(columns(["grade", "from", "pairs"], rows), {**facts, "out": str(out)})
    for reason, number in facts["left_out"].items():
        output.note(f"not judged, {reason}: {number:,}")
    if not len(made):
        output.note("Nothing was judged: lower least_weight, or count more days of clicks")
    output.note(f"Written: {out}")
