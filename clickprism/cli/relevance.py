"""`clickprism relevance`: estimate the relevance of documents from clicks, and use the estimates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clickprism._util.files import check_output
from clickprism.cli.output import Flat, Output, command_line
from clickprism.data.click_table import TableSettings
from clickprism.errors import SettingError
from clickprism.log.features.schedule import days_of, parse_time
from clickprism.log.open_log import ReadSettings, kind_of, open_source
from clickprism.log.sessions import update_sessions
from clickprism.log.settings import EngineSettings, FeatureSettings
from clickprism.log.store import LogStore
from clickprism.relevance.approximation_settings import ApproximateSettings
from clickprism.relevance.estimators import EstimateSettings
from clickprism.relevance.imputation import ImputeSettings, SourceFiles
from clickprism.relevance.judgments import JudgmentSettings
from clickprism.relevance.randomised import ExplorationSettings
from clickprism.relevance.ranking import RankSettings

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.relevance.estimate import LogEstimates


def estimate(
    log: str,
    /,
    *,
    out: Path,
    imputation: Path | None = None,
    propensities: Path | None = None,
    parameters: Path | None = None,
    days: str | None = None,
    examination: str | None = None,
    model: Path | None = None,
    outcome: str = "click",
    settings: Flat[EstimateSettings],
    table: Flat[TableSettings],
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Estimate the relevance of each query-document pair, with intervals.

    The relevance of a pair is its click probability at position 1. By default it is estimated by the model of the log,
    which separates clicks into relevance and observation. The file has one row per pair: the estimate, its interval,
    and where it comes from.

    ```bash
    clickprism relevance estimate mylog --out estimates.parquet
    clickprism relevance estimate mylog --imputation imputed.parquet --model runs/log_model --out estimates.parquet
    clickprism relevance estimate mylog --estimator affine --parameters trust.json --out estimates.parquet
    clickprism relevance estimate mylog --estimator affine --click-parameters first_slot --out estimates.parquet
    clickprism relevance estimate clicks.csv --map document=sku --outcome cart --out carts.parquet
    ```

    Args:
        log: Ingested log; or events, a session file, a table of CSV or Parquet files, or a database with --query, which
            are read into memory and estimated by the model of the log, without --min-users.
        out: Parquet file for the estimates.
        imputation: Predicted relevance, from `clickprism relevance impute apply`; also pairs that were never shown get
            an estimate.
        propensities: File with the known observation probability of each position, position 1 first, which replaces the
            estimated curve: a JSON list, or one number a line.
        parameters: Click parameters for estimators other than log_model, from `clickprism bias trust`; by default those
            of the model of the log.
        days: First and last day to use, such as 2026-01-01..2026-01-28, or one day; by default all (UTC).
        examination: JSON file of an examination model for doubly_robust, or none; by default the current one of the
            log, if there is one.
        model: Folder for the fitted model of the log.
        outcome: What is estimated: click, another outcome such as booking, or a weighted sum such as "click + 5*cart",
            as a share of the sum of the weights. Outcomes other than click need a table or events of OpenSearch UBI.
    """
    from clickprism.relevance.estimate import estimate_relevance, estimate_table, refuse_options
    from clickprism.relevance.pair_files import read_query_texts

    check_output(out, suffix=".parquet")
    chosen = days_of(days)
    if (kind := kind_of(log)) != "log":
        logged = open_source(
            log, table, outcome=outcome, settings=ReadSettings(on_error="quarantine"), note=output.note
        )
        texts = read_query_texts(Path(log)) if kind == "sessions" else None
        other = settings.estimator
        given: dict[str, object] = {"imputation": imputation, "parameters": parameters, "days": days}
        given |= {"examination": examination, "estimator": None if other == "log_model" else other}
        refuse_options(log, given | {"min_users": settings.min_users or None})
        if settings.min_users is None:
            output.note("Pairs that few users saw are included: --min-users needs an ingested log (privacy).")
        found = estimate_table(
            logged, out, settings, outcome=outcome, propensities=propensities, folder=model, texts=texts
        )
        _show_estimates(found, out, output)
        return
    if outcome != "click":
        raise SettingError("outcome", outcome, "be click for an ingested log. Name the table itself, or use auto")
    store = LogStore.open(Path(log), note=output.note)
    with store.write(engine=engine.engine, memory=engine.memory) as writer:
        found = estimate_relevance(
            store,
            writer.engine,
            out,
            settings,
            parameters=parameters,
            propensities=propensities,
            imputation=imputation,
            days=chosen,
            examination=examination,
            model=model,
        )
    store.record_output(out, command_line("relevance", "estimate", log, "--out", out))
    _show_estimates(found, out, output)


def _show_estimates(found: LogEstimates, out: Path, output: Output) -> None:
    output.result(found)
    for warning in found.warnings:
        output.note(warning)
    output.note(f"Written: {out}")
    output.next("relevance", "judgments", out, "--out", "judgments.csv")


def impute_fit(
    clicks: Path, /, *, out: Path, files: Flat[SourceFiles], settings: Flat[ImputeSettings], output: Flat[Output]
) -> None:
    """Fit an imputation model.

    The model predicts relevance from the texts of query and document, or from features, so that pairs without clicks
    get a prediction too. It learns from the clicks on randomised first results. Ctrl-C keeps the best model so far.

    ```bash
    clickprism relevance impute fit mylog --features features.letor --out runs/imputation
    clickprism relevance impute fit mylog --features features.letor --feature.ranker lambdamart --out runs/trees
    clickprism relevance impute fit clicks.tsv --queries queries.tsv --documents documents.tsv --out runs/text
    ```

    Args:
        clicks: Ingested log in which some first results were randomised, or a table of query_id, document_id, clicks
            and impressions as randomised first results.
        out: Folder for the model.
    """
    from clickprism.relevance.imputation import Source, train_imputation

    with output.progress("training") as progress:
        source = Source(files, settings=settings, note=output.note, progress=progress)
        found = train_imputation(clicks, source, out)
    output.result(found)
    if found.warning is not None:
        output.note(found.warning)
    given = [word for name, file in vars(files).items() if file is not None for word in (f"--{name}", file)]
    output.next("relevance", "impute", "apply", out, "pairs.tsv", *given, "--out", "imputed.parquet")
    if found.stopped == "interrupted":
        output.note("Interrupted; the best model so far was saved")
        raise KeyboardInterrupt


def impute_apply(
    imputation: Path, pairs: Path, /, *, out: Path, files: Flat[SourceFiles], output: Flat[Output]
) -> None:
    """Predict relevance with a fitted imputation model.

    ```bash
    clickprism relevance impute apply runs/imputation pairs.tsv --features features.letor --out imputed.parquet
    ```

    Args:
        imputation: Folder that `clickprism relevance impute fit` has written.
        pairs: Table of query_id and document_id to predict.
        out: File for the predictions: .parquet, .jsonl, .csv or .tsv of query_id, document_id and imputation.
    """
    from clickprism.relevance.imputation import Source, apply_imputation

    output.result(apply_imputation(imputation, Source(files, note=output.note), pairs, out))
    output.note(f"Written: {out}")


def impute_cross_fit(
    clicks: Path,
    pairs: Path,
    /,
    *,
    out: Path,
    folds: int = 5,
    files: Flat[SourceFiles],
    settings: Flat[ImputeSettings],
    output: Flat[Output],
) -> None:
    """Predict relevance, each query by a model of the other queries.

    Use it for estimates from the same log: a model that has learned from the clicks of a query would count them twice.

    ```bash
    clickprism relevance impute cross-fit mylog pairs.tsv --features features.letor --out imputed.parquet
    ```

    Args:
        clicks: Ingested log in which some first results were randomised, or a table of query_id, document_id, clicks
            and impressions as randomised first results.
        pairs: Table of query_id and document_id to predict.
        out: File for the predictions: .parquet, .jsonl, .csv or .tsv of query_id, document_id and imputation.
        folds: Number of parts of the queries, and of models.
    """
    from clickprism.relevance.imputation import Source, cross_impute

    with output.progress("training") as progress:
        source = Source(files, settings=settings, note=output.note, progress=progress)
        found = cross_impute(clicks, source, pairs, out, folds=folds)
    output.result(found)
    output.note(f"Written: {out}")


def approximate_fit(
    log: Path,
    /,
    *,
    imputation: Path,
    out: Path,
    since: str | None = None,
    features: Flat[FeatureSettings],
    settings: Flat[ApproximateSettings],
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Fit the approximation network.

    The network learns to estimate relevance from the click features of a pair and its imputation, from the clicks on
    randomised first results. It is fast enough to rank by online.

    ```bash
    clickprism relevance approximate fit mylog --imputation imputed.parquet --out runs/approximation
    clickprism relevance approximate fit mylog --imputation imputed.parquet --preset published --out runs/published
    ```

    Args:
        log: Ingested log in which some first results were randomised, and are marked as such.
        imputation: Predicted relevance, from `clickprism relevance impute apply`.
        out: Folder for the network.
        since: Learn from randomised first results from this time on (UTC), by click features as of then; by default
            the last half of the log, at most four weeks.
    """
    from clickprism.relevance.approximate_log import fit_log

    start = None if since is None else parse_time(since, field="since")
    with _updated(log, features, engine, output) as (store, connected, windows):
        found = fit_log(store, connected, imputation, out, since=start, settings=settings, **windows)
    output.result(found)
    if found.warning is not None:
        output.note(found.warning)
    output.note(f"Written: {out}")
    more = [] if features.min_users is None else ["--min-users", features.min_users]
    words = ["relevance", "approximate", "apply", log, out, "--imputation", imputation, *more]
    output.next(*words, "--out", "estimates.parquet")


def approximate_apply(
    log: Path,
    network: Path,
    /,
    *,
    imputation: Path,
    out: Path,
    as_of: str | None = None,
    features: Flat[FeatureSettings],
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Predict estimates with a fitted network.

    The file has one row for each pair of the log and of the imputation, as that of `clickprism relevance estimate`.

    ```bash
    clickprism relevance approximate apply mylog runs/approximation --imputation imputed.parquet --out estimates.parquet
    ```

    Args:
        log: Ingested log.
        network: Folder that `clickprism relevance approximate fit` has written.
        imputation: Predicted relevance, from `clickprism relevance impute apply`.
        out: Parquet file for the estimates.
        as_of: Time of the click features (UTC); by default the end of the log.
    """
    from clickprism.relevance.approximate_log import apply_log
    from clickprism.relevance.approximation import Approximation

    check_output(out, suffix=".parquet")
    time, loaded = None if as_of is None else parse_time(as_of, field="as_of"), Approximation.load(network)
    with _updated(log, features, engine, output) as (store, connected, windows):
        found = apply_log(store, connected, loaded, out, imputation=imputation, as_of=time, **windows)
    output.result(found)
    output.note(f"Written: {out}")
    output.next("relevance", "rank", out, "--out", "ranking.csv")


@contextmanager
def _updated(
    log: Path, features: FeatureSettings, engine: EngineSettings, output: Output
) -> Iterator[tuple[LogStore, Engine, dict[str, Any]]]:
    """Yield a log with up-to-date sessions, its engine, and how its click features are computed."""
    from clickprism.examination.model import chosen_model

    store = LogStore.open(log, note=output.note)
    with store.write(engine=engine.engine, memory=engine.memory) as writer:
        update_sessions(store, writer.engine)
        examiner = chosen_model(store.folder / "models", features.examination)
        yield store, writer.engine, {"examiner": examiner, "window_settings": features.windows(store.settings.windows)}


def judgments(
    estimates: Path,
    /,
    *,
    out: Path,
    format: Literal["table", "workbench", "quepid"] = "table",  # noqa: A002
    queries: Path | None = None,
    settings: Flat[JudgmentSettings],
    output: Flat[Output],
) -> None:
    """Turn estimates into a judgment list.

    Every pair with an estimate gets a grade from 0 to 4. Grades with little evidence are marked as uncertain. Pairs
    seen by too few users are not in the estimates (`--min-users` of `clickprism relevance estimate`); they are counted.

    ```bash
    clickprism relevance judgments estimates.parquet --out judgments.csv
    clickprism relevance judgments estimates.parquet --cuts 0.1 --cuts 0.3 --out judgments.jsonl
    clickprism relevance judgments estimates.parquet --format quepid --queries queries.tsv --out ratings.csv
    ```

    Args:
        estimates: File that `clickprism relevance estimate` or `approximate apply` has written.
        out: File for the list: .csv, .tsv, .jsonl or .parquet of query_id, document_id, query, grade, estimate, lower,
            upper, source, impressions and uncertain, or any name in the format of another tool.
        format: A table, or the format of another tool: OpenSearch Search Relevance Workbench (JSON) or Quepid (CSV).
            Those contain the text of the query, the document id and the grade.
        queries: Texts of the queries (TSV, CSV, JSON lines or Parquet); without it the tools get the query ids.
    """
    from clickprism.relevance.judgments import judge_file

    found = judge_file(estimates, out, settings, kind=format, queries=queries)
    output.result(found)
    if found.warning is not None:
        output.note(found.warning)
    output.note(f"Written: {out}")


def rank(estimates: Path, /, *, out: Path, settings: Flat[RankSettings], output: Flat[Output]) -> None:
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


def exploration(log: Path, /, *, settings: Flat[ExplorationSettings], output: Flat[Output]) -> None:
    """Measure what a randomised first result costs.

    The result is the number of clicks lost, with an interval.

    ```bash
    clickprism relevance exploration mylog
    clickprism relevance exploration mylog --share 0.02
    ```

    Args:
        log: Ingested log in which some first results were randomised, and are marked as such.
    """
    from clickprism.relevance.randomised import measure_exploration

    store = LogStore.open(log, note=output.note)
    with store.write() as writer:
        update_sessions(store, writer.engine)
        output.result(measure_exploration(store, settings))
