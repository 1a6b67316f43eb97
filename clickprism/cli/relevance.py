"""`clickprism relevance`: estimate the relevance of documents from clicks, and use the estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from clickprism.cli.output import FLAT, Output
from clickprism.log.settings import EngineSettings
from clickprism.relevance.estimators import EstimateSettings
from clickprism.relevance.exploration import ExplorationSettings
from clickprism.relevance.judgments import JudgmentSettings
from clickprism.relevance.ranking import RankSettings


def estimate(
    log: Path,
    *,
    out: Path,
    parameters: Path | None = None,
    imputation: Path | None = None,
    days: str | None = None,
    examination: str | None = None,
    settings: Annotated[EstimateSettings, FLAT],
    engine: Annotated[EngineSettings, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Estimate the relevance of each query-document pair, with intervals.

    The relevance of a pair is its click probability at position 1: clicks are corrected for position and trust bias.
    The file has one row per pair: the estimate, its interval, and the evidence behind it.

    ```bash
    clickprism relevance estimate mylog --out estimates.parquet
    clickprism relevance estimate mylog --parameters trust.json --imputation imputed.parquet --out estimates.parquet
    clickprism relevance estimate mylog --estimator.name affine --days 2024-01-01..2024-01-07 --out estimates.parquet
    ```

    Args:
        log: Ingested log.
        out: Parquet file for the estimates.
        parameters: Click parameters, from `clickprism bias trust`; by default they are estimated from the log.
        imputation: Predicted relevance, from `clickprism relevance impute apply`; also pairs that were never shown get
            an estimate.
        days: First and last day to use, such as 2026-01-01..2026-01-28, or one day; by default all (UTC).
        examination: JSON file of an examination model, or none; by default the current one of the log, if there is one.
    """
    from clickprism._util.files import check_output
    from clickprism.log.schedule import days_of
    from clickprism.log.store import LogStore
    from clickprism.relevance.of_log import estimate_relevance

    check_output(out, suffix=".parquet")
    chosen = days_of(days)
    store = LogStore.open(log, note=output.note)
    with store.write(engine=engine.engine, memory=engine.memory) as writer:
        found = estimate_relevance(
            store,
            writer.engine,
            out,
            settings,
            parameters=parameters,
            imputation=imputation,
            days=chosen,
            examination=examination,
        )
    output.result(found)
    output.note(f"Written: {out}")
    output.next("relevance", "judgments", out, "--out", "judgments.csv")


def judgments(
    estimates: Path,
    *,
    out: Path,
    format: Literal["table", "workbench", "quepid", "letor"] = "table",  # noqa: A002
    queries: Path | None = None,
    settings: Annotated[JudgmentSettings, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Turn estimates into a judgment list.

    Pairs with enough evidence get a grade from 0 to 4; the others are counted by reason.

    ```bash
    clickprism relevance judgments estimates.parquet --out judgments.csv
    clickprism relevance judgments estimates.parquet --scale absolute --cuts 0.1 --cuts 0.3 --out judgments.jsonl
    clickprism relevance judgments estimates.parquet --format quepid --queries queries.tsv --out ratings.csv
    ```

    Args:
        estimates: File that `clickprism relevance estimate` or `approximate apply` has written.
        out: File for the list: .csv, .tsv, .jsonl or .parquet of query_id, document_id, grade, estimate, lower, upper
            and weight, or any name in the format of another tool.
        format: A table, or the format of another tool: OpenSearch Search Relevance Workbench (JSON), Quepid (CSV) or
            LETOR text. Those contain the text of the query, the document id and the grade.
        queries: Texts of the queries for these tools (TSV, CSV, JSON lines or Parquet); by default their ids.
    """
    from clickprism.relevance.judgment_files import judge_file

    found = judge_file(estimates, out, settings, kind=format, queries=queries)
    output.result(found)
    if not found.judged:
        output.note("No pair has enough evidence: lower --min-weight, or estimate from more days of clicks")
    output.note(f"Written: {out}")


def rank(
    estimates: Path,
    *,
    out: Path,
    settings: Annotated[RankSettings, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Rank the documents of each query by their estimates.

    ```bash
    clickprism relevance rank estimates.parquet --out ranking.csv
    clickprism relevance rank estimates.parquet --by lower --top 10 --out ranking.jsonl
    clickprism relevance rank estimates.parquet --by thompson --seed 7 --top 1 --out explore.csv
    ```

    Args:
        estimates: File that `clickprism relevance estimate` or `approximate apply` has written.
        out: File for the ranking: .csv, .tsv, .jsonl or .parquet of query_id, rank, document_id, score, estimate, lower
            and upper.
    """
    from clickprism.relevance.ranking import rank_file

    output.result(rank_file(estimates, out, settings))
    output.note(f"Written: {out}")


def exploration(
    log: Path,
    *,
    estimates: Path | None = None,
    settings: Annotated[ExplorationSettings, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Measure what a randomised first result costs.

    The result is the number of clicks lost, with an interval. With estimates of the same log it is also how much more
    certain the estimates are because of the randomised first results.

    ```bash
    clickprism relevance exploration mylog
    clickprism relevance exploration mylog --estimates estimates.parquet --share 0.02
    ```

    Args:
        log: Ingested log in which some first results were randomised, and are marked as such.
        estimates: Estimates of the same log, from `clickprism relevance estimate`.
    """
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore
    from clickprism.relevance.exploration import measure_exploration

    store = LogStore.open(log, note=output.note)
    with store.write() as writer:
        update_sessions(store, writer.engine)
        output.result(measure_exploration(store, settings, estimates=estimates))
    if estimates is None:
        output.next("relevance", "exploration", log, "--estimates", "estimates.parquet")
