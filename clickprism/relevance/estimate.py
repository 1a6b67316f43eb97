"""Estimate the relevance of every pair of a log: a table of pairs in, a table of estimates out.

By default the model of the log estimates it (`by_log_model`), of an ingested log or of a log in memory. For the other
estimators the engine, DuckDB or Spark, adds up whole numbers by pair and position; the estimator, which is numpy, then
processes Arrow batches of pairs. What depends on the whole log is learned from a sample of its pairs first. Values are
the same on every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism._util.tables import Table
from clickprism.data.logged import Logged
from clickprism.errors import SettingError, UnsupportedError
from clickprism.examination.model import chosen_model
from clickprism.log.features.partials import EXAMINATION, PAIR, Examiner, counting, update_partials
from clickprism.log.schema import EXAMINATION_UNIT, PARTIALS, SESSIONS
from clickprism.log.sessions import update_sessions
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.results import ClickParameters, read_propensities
from clickprism.log_model.value import ClickValue, click_value
from clickprism.relevance.by_log_model import ModelSummary, fit_log, posterior_estimates, write_posterior
from clickprism.relevance.estimates import (
    ESTIMATES,
    Estimates,
    count_written,
    estimate_rows,
    join_files,
    with_suppressed,
)
from clickprism.relevance.estimators import DoublyRobust, EstimateSettings, Estimator, FromLogModel, normal_quantile
from clickprism.relevance.pair_files import IMPUTATION, check_imputation
from clickprism.relevance.pairs import PairCounts
from clickprism.relevance.slot_parameters import first_intercept, log_slot_parameters
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

LEARN: Final = 60_000  # pairs, at most, to learn from
COUNTS: Final = ("impressions", "clicked")
MEANINGS: Final = {
    "clicks": "clicks on the pair",
    "position": "the position at which the engine showed it",
    "features": "features",
    "imputation": "the imputation",
}
"""Text for each source of an estimate; the keys are `SOURCES`."""


@final
@dataclass(frozen=True)
class LogEstimates:
    """The estimates of a log, which are in a file.

    Attributes:
        pairs: Number of pairs in the file.
        sources: Number of pairs by what most of their estimate comes from (`SOURCES`).
        imputed_only: Number of pairs without an impression that counts.
        suppressed: Number of pairs that are excluded, since fewer than min_users users saw them.
        below: Number of impressions below the last position that is used.
        without_imputation: Number of pairs without an imputation; they get the mean imputation of the shown pairs.
        estimator: Name of the estimator.
        beta_1: Click probability of an irrelevant first result that doubly_robust assumed; None for others.
        parameters: Click parameters of the positions.
        model: What the model of the log says; None if none was fitted.
        file: The file that was written.
    """

    pairs: int
    sources: dict[str, int]
    imputed_only: int
    suppressed: int
    below: int
    without_imputation: int
    estimator: str
    parameters: ClickParameters
    model: ModelSummary | None
    file: Path
    beta_1: float | None = None

    @classmethod
    def of(
        cls,
        file: Path,
        estimator: str,
        parameters: ClickParameters,
        *,
        suppressed: int = 0,
        below: int = 0,
        imputed: bool = False,
        model: LogModel | None = None,
    ) -> LogEstimates:
        """Count the rows of a file of estimates; `imputed` says whether there was an imputation."""
        only, without, sources = count_written(file)
        return cls(
            pairs=sum(sources.values()),
            sources=sources,
            imputed_only=only,
            suppressed=suppressed,
            below=below,
            without_imputation=without if imputed else 0,
            estimator=estimator,
            parameters=parameters,
            model=None if model is None else ModelSummary.of(model),
            file=file,
        )

    def tables(self) -> list[Table]:
        """Return the counts, and what the model of the log says."""
        rows = [["pairs", f"{self.pairs:,}"]]
        rows += [[f"  mostly from {MEANINGS[name]}", f"{count:,}"] for name, count in self.sources.items()]
        rows.append(["pairs excluded: too few users", f"{self.suppressed:,}"])
        if self.below:
            rows.append([f"impressions ignored: below position {len(self.parameters)}", f"{self.below:,}"])
        if self.without_imputation:
            rows.append(["pairs without an imputation: its mean", f"{self.without_imputation:,}"])
        if self.model is not None:
            rows += self.model.rows()
        return [Table("", [f"estimator {self.estimator}", ""], rows)]


def estimate_relevance(
    store: LogStore,
    engine: Engine,
    out: Path,
    settings: EstimateSettings | None = None,
    *,
    parameters: Path | None = None,
    propensities: Path | None = None,
    imputation: Path | None = None,
    days: Sequence[date] | None = None,
    examination: str | None = None,
    model: Path | None = None,
) -> LogEstimates:
    """Estimate the relevance of every pair of a log.

    Args:
        store: The log.
        engine: Engine that adds up the clicks.
        out: Parquet file to write.
        settings: Estimator, depth and privacy.
        parameters: JSON file that `clickprism bias trust` has written, for estimators other than log_model; by default
            they are those of the model of the log.
        propensities: File with the known observation of each position; it replaces the estimated curve.
        imputation: Parquet file of imputations; pairs that were never shown are estimated by it.
        days: Use only these days.
        examination: JSON file of an examination model, "none", or None for the current model of the log.
        model: Folder to save the model of the log to.
    """
    settings = settings or EstimateSettings()
    estimator = settings.build()
    _check_options(settings, parameters, propensities, imputation, model)
    if days is not None:
        known = store.table("events").days()
        days = sorted(set(known) & set(days))
        if not days:
            span = f"{known[0]} to {known[-1]}" if known else "no day"
            raise UnsupportedError(f"has no events on these days; it has {span}", file=store.folder)
    given = None if propensities is None else read_propensities(propensities)
    if parameters is None:
        update_sessions(store, engine, days)
    fit = partial(fit_log, store, engine, settings, days=days, propensities=given, folder=model)
    if isinstance(estimator, FromLogModel):
        fitted = fit(imputation=imputation)
        few = write_posterior(fitted, out, min_users=settings.min_users, store=store)
        return LogEstimates.of(
            out,
            estimator.name,
            fitted.model.parameters,
            suppressed=few,
            below=fitted.sums.below,
            imputed=imputation is not None,
            model=fitted.model,
        )
    log_model: LogModel | None = None
    if parameters is not None:
        found = ClickParameters.read(parameters)
        found = found if settings.depth is None else found.cut(settings.depth)
    elif settings.click_parameters == "first_slot":
        found = log_slot_parameters(store, engine, days=days, depth=settings.depth)
        if isinstance(estimator, DoublyRobust) and "beta_1" not in settings.estimator:
            estimator = replace(estimator, beta_1=first_intercept(found))
    else:
        log_model = fit().model
        found = log_model.parameters
    examiner = chosen_model(store.folder / "models", examination)
    if estimator.name == "doubly_robust" and examiner is not None and examiner.settings.clicks == "all":
        store.note(
            "warning: the examination model uses the click on the document itself, which biases doubly_robust. "
            f"Run: clickprism bias examination {store.folder} --clicks others"
        )
    made = estimate_log(
        store,
        engine,
        out,
        estimator=estimator,
        parameters=found,
        imputation=imputation,
        days=days,
        k=settings.min_users,
        examiner=examiner,
    )
    summary = None if log_model is None else ModelSummary.of(log_model)
    return replace(made, model=summary, beta_1=getattr(estimator, "beta_1", None))


def _check_options(
    settings: EstimateSettings,
    parameters: Path | None,
    propensities: Path | None,
    imputation: Path | None,
    model: Path | None,
) -> None:
    """Raise `SettingError` if options of `estimate_relevance` contradict each other, or one is missing."""
    name = settings.estimator["name"]
    if parameters is not None and name == FromLogModel.name:
        raise SettingError("parameters", str(parameters), "be omitted for log_model; give --propensities instead")
    if parameters is not None and propensities is not None:
        raise SettingError("parameters", str(parameters), "be omitted if propensities are given")
    if parameters is not None and model is not None:
        raise SettingError("model", str(model), "be omitted if parameters are given, since no model is fitted then")
    others = parameters, propensities, model
    if settings.click_parameters == "first_slot" and any(each is not None for each in others):
        raise SettingError("click_parameters", "first_slot", "be used without --parameters, --propensities and --model")
    if name in ("doubly_robust", "imputation") and imputation is None:
        raise SettingError("imputation", None, f"be given for the estimator {name}")


def estimate_log(
    store: LogStore,
    engine: Engine,
    out: Path,
    *,
    estimator: Estimator,
    parameters: ClickParameters,
    imputation: Path | None = None,
    days: Iterable[date] | None = None,
    k: int | None = None,
    examiner: Examiner | None = None,
    refresh: bool = True,
) -> LogEstimates:
    """Estimate the relevance of every pair of a log and of an imputation; write a Parquet file (`ESTIMATES`).

    Args:
        store: The log.
        engine: Engine that adds up the clicks.
        out: File to write.
        estimator: The estimator, such as `Affine()`.
        parameters: Click parameters; impressions below their last position are ignored.
        imputation: Parquet file of imputations (`IMPUTATION`). Pairs that were never shown get an estimate too.
        days: Use only these days; by default all.
        k: Ignore the clicks on pairs seen by fewer users. By default the k of the log, or 0 if it has no user ids.
        examiner: Examination model; `doubly_robust` needs one.
        refresh: Update the sessions first.
    """
    with store.lock(), ExitStack() as stack:
        partials = store.table("partials")
        chosen = None if days is None else sorted(days)
        known = {*store.table("events").days(), *store.table("sessions").days(), *partials.days()}
        needed = sorted(known if chosen is None else known & set(chosen))
        if refresh:
            update_sessions(store, engine, needed)
        update_partials(store, engine, days=needed, examiner=examiner)
        names = (*COUNTS, *EXAMINATION) if examiner is not None else COUNTS
        rows = engine.read(partials.files(chosen), PARTIALS)
        sums = stack.enter_context(engine.held(pair_sums(rows, depth=len(parameters), names=names)))
        below, every = (int(_one(engine, value)) for value in (sums.below.sum().fill_null(0), sums.count()))
        sessions = engine.read(store.table("sessions").files(chosen), SESSIONS)
        if k is None:
            k = store.settings.windows.k if _one(engine, sessions.user_id.count()) else 0
        if k > 0:
            enough = _seen_by(sessions, k)
            sums = stack.enter_context(engine.held(sums.semi_join(enough, list(PAIR))))
        shown = int(_one(engine, sums.count())) if k > 0 else every
        if every and not shown and imputation is None:
            raise UnsupportedError(
                f"fewer than {k} users saw each of the {every:,} pairs, so that their clicks are ignored (privacy)",
                file=store.folder,
                remedy="If the log has no user ids, or few users, use --min-users 0; otherwise use more days",
            )
        if imputation is not None:
            sums = with_imputation(sums, engine.read([check_imputation(imputation)], IMPUTATION))
        task = _learned(_Task(estimator, parameters, names), engine, sums, shown=shown)
        with store.staging() as folder:
            schema = with_suppressed(every - shown)
            files = engine.write_batches(sums, task, schema, Path(folder), stem="estimates")
            join_files(files, out, schema)
    name, few, given = estimator.name, every - shown, imputation is not None
    return LogEstimates.of(out, name, parameters, suppressed=few, below=below, imputed=given)


def pair_sums(partials: Any, *, depth: int, names: Sequence[str] = COUNTS) -> Any:
    """Return the sums of each pair at each position to `depth`, in columns such as `clicked_3`, and `below`.

    Whole numbers are added up as doubles, which is exact below 2^53 and so does not depend on the order.

    Args:
        partials: An ibis table with the columns `PARTIALS`.
        depth: Last position to use.
        names: Columns to add up.
    """
    sums = {
        f"{name}_{position}": ibis.ifelse(partials.position == position, partials[name].cast("float64"), 0.0).sum()
        for name in names
        for position in range(1, depth + 1)
    }
    beyond = ibis.ifelse(partials.position > depth, partials.impressions.cast("float64"), 0.0).sum()
    return partials.group_by(list(PAIR)).aggregate(**sums, below=beyond)


@final
@dataclass(frozen=True)
class _Task:
    """Estimates a batch of pairs; it is sent to the executors of Spark."""

    estimator: Estimator
    parameters: ClickParameters
    names: tuple[str, ...]
    mean: float | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        counts, imputed = self.inputs(batch)
        estimates = self.estimator.estimate(counts, self.parameters, imputed)
        rows = estimate_rows(batch, estimates, counts.shown, counts.clicked.sum(axis=1))
        return pa.record_batch(rows, schema=ESTIMATES)

    def inputs(self, batch: Any) -> tuple[PairCounts, Float64 | None]:
        """Return the counts and the imputations of a batch, or of a table."""
        sums = {
            name: np.stack([_numbers(batch[f"{name}_{k}"]) for k in range(1, len(self.parameters) + 1)]).T
            for name in self.names
        }
        shown, clicked = (sums[name].astype(np.int64) for name in COUNTS)
        examined = {name: sums[name] / EXAMINATION_UNIT for name in self.names if name not in COUNTS}
        counts = PairCounts(shown, clicked, **examined)
        if "imputation" not in batch.schema.names:
            return counts, None
        given = np.asarray(batch["imputation"].to_numpy(zero_copy_only=False), dtype=np.float64)
        return counts, np.where(np.isnan(given), 0.5 if self.mean is None else self.mean, given)


def _learned(task: _Task, engine: Engine, sums: Any, *, shown: int) -> _Task:
    """Return the task with what its estimator learns from a sample of the pairs that were shown."""
    given = "imputation" in sums.columns
    sample = sums.filter(sums.below.notnull()) if given else sums
    if shown > LEARN:
        letters = (sample.query_id + "\x1f" + sample.document_id).hexdigest("sha256").substr(0, 6)
        sample = sample.filter(letters < f"{int(LEARN / shown * 16**6):06x}")
    table = engine.collect(sample).sort_by([(name, "ascending") for name in PAIR])
    if not given and not table.num_rows:
        raise UnsupportedError(
            "the log has no pair to estimate", remedy="Ingest events first, use other days, or lower --min-users"
        )
    task = replace(task, mean=pc.mean(table["imputation"]).as_py() if given else None)
    return replace(task, estimator=task.estimator.learn(task.inputs(table)[0]))


def with_imputation(sums: Any, imputed: Any) -> Any:
    """Return every pair of the log and of the imputation, with the columns of both."""
    other = imputed.rename({f"{name}_imputed": name for name in PAIR})
    both = sums.outer_join(other, [sums[name] == other[f"{name}_imputed"] for name in PAIR])
    pair = {name: ibis.coalesce(both[name], both[f"{name}_imputed"]) for name in PAIR}
    return both.select(
        **pair, **{name: both[name] for name in sums.columns if name not in PAIR}, imputation=both.imputation
    )


def _seen_by(sessions: Any, k: int) -> Any:
    """Return the pairs that at least k distinct users saw; rows without a user do not count."""
    rows = counting(sessions)
    found = rows.group_by(list(PAIR)).aggregate(users=rows.user_id.nunique())
    return found.filter(found.users >= k).select(*PAIR)


def _numbers(column: Any) -> Float64:
    """Return the sums of a column; 0 for pairs that were never shown."""
    values: Float64 = column.to_numpy(zero_copy_only=False)
    return np.nan_to_num(values) if column.null_count else values


def _one(engine: Engine, value: Any) -> Any:
    return engine.collect(value.name("value").as_table())["value"][0].as_py()


def refuse_options(source: str, given: Mapping[str, object]) -> None:
    """Refuse options that need an ingested log."""
    for name, value in given.items():
        if value is not None:
            remedy = f"be omitted: it needs an ingested log. Run: clickprism log ingest {source} --into mylog"
            raise SettingError(name, str(value), remedy)


def estimate_table(
    logged: Logged,
    out: Path,
    settings: EstimateSettings,
    *,
    outcome: str = "click",
    propensities: Path | None = None,
    folder: Path | None = None,
    texts: Mapping[str, str] | None = None,
) -> LogEstimates:
    """Estimate the relevance of every pair that a log shows, and write the estimates to a file.

    Args:
        logged: The log.
        out: Parquet file to write.
        settings: Depth, confidence and seed.
        outcome: What is estimated: click, another outcome, or a weighted sum of outcomes.
        propensities: File with the known observation at each position.
        folder: Folder to save the model of the log to.
        texts: Text of each query by its id; by default the ids are the texts.
    """
    model = LogModel.fit(
        logged,
        settings=LogModelSettings(depth=settings.depth, confidence=settings.confidence, seed=settings.seed),
        propensities=None if propensities is None else read_propensities(propensities),
    )
    if folder is not None:
        model.save(folder)
    value, found, estimates = click_value(logged, outcome), model.relevance, posterior_estimates(model)
    if value is not None:
        estimates = times_value(estimates, value, found.rows, settings.confidence)
    ids = model.query_ids.tolist()
    shown = {text: text for text in ids} if texts is None else texts
    pairs = pa.table({"query_id": ids, "document_id": model.document_ids.tolist()})
    pairs = pairs.append_column("query", pa.array([shown.get(query) for query in ids], pa.string()))
    table = pa.table(estimate_rows(pairs, estimates, found.impressions, found.clicks), schema=ESTIMATES)
    with atomic_file(out, parents=True) as draft:
        pq.write_table(table.sort_by([(name, "ascending") for name in PAIR]), draft, compression="zstd")
    name = FromLogModel.name if value is None else f"{FromLogModel.name}, of {outcome}"
    below = int(logged.clicks.list_impressions[logged.clicks.positions > len(model.curve)].sum())
    return LogEstimates.of(out, name, model.parameters, below=below, model=model)


def times_value(estimates: Estimates, value: ClickValue, rows: Int64, confidence: float) -> Estimates:
    """Return c_1 v as a share of the sum of the weights; the intervals combine the errors of both.

    Args:
        estimates: Estimates of c_1, [pairs].
        value: v of each document.
        rows: Document of each pair, [pairs].
        confidence: Confidence level of the intervals.
    """
    full = sum(value.weights.values())
    share = np.clip(value.values[rows] / full, 0.0, 1.0)
    reach = normal_quantile(confidence) * estimates.values * value.errors[rows] / full
    product = estimates.values * share
    lower = product - np.hypot(share * (estimates.values - estimates.lower), reach)
    upper = product + np.hypot(share * (estimates.upper - estimates.values), reach)
    lower, upper = np.clip(lower, 0.0, product), np.clip(upper, product, 1.0)
    variance = ((upper - lower) / (2 * normal_quantile(confidence))) ** 2
    return replace(estimates, values=product, lower=lower, upper=upper, variance=variance)
