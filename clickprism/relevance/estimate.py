"""Estimate the relevance of every pair of a log: sums of clicks in, a table of estimates out.

The engine, DuckDB or Spark, adds up whole numbers by pair and position. Then the model of the log (`fit_log`), or one
of the published estimators (`estimate_log`), estimates all pairs at once. Values are the same on every engine.
`estimate_table` estimates a log in memory by its model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.special import betaincinv, expit

from clickprism._util.tables import Table
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.examination.model import chosen_model
from clickprism.log.features.partials import EXAMINATION, PAIR, Examiner, counting, total, update_partials
from clickprism.log.load import LogSums, read_sums
from clickprism.log.schema import EVENTS, EXAMINATION_UNIT, PARTIALS, SESSIONS
from clickprism.log.sessions import update_sessions
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.results import ClickParameters, Curve, Verdict, read_propensities
from clickprism.log_model.terms import log_odds
from clickprism.log_model.value import ClickValue, click_value
from clickprism.relevance.estimates import ESTIMATES, SOURCES, Estimates, estimate_rows, write_estimates
from clickprism.relevance.estimators import DEFAULT, DoublyRobust, EstimateSettings, Estimator, normal_quantile
from clickprism.relevance.pair_files import IMPUTATION, check_imputation
from clickprism.relevance.pairs import PairCounts, count_pairs, pivoted
from clickprism.relevance.randomised import first_intercept, log_slot_parameters
from clickprism.training.calibration import Calibration
from clickprism.types import Bool, Float64, Int64

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

POSITIONS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200)  # positions of the curve in the output
LEAST: Final = 0.05  # least prior strength of pairs that were never shown
FEW: Final = 2  # shown pairs with an imputation that its calibration needs
MEANINGS: Final = {
    "clicks": "clicks on the pair",
    "position": "the position at which the engine showed it",
    "features": "features",
    "imputation": "the imputation",
}
"""Text for each source of an estimate; the keys are `SOURCES`."""


@final
@dataclass(frozen=True, eq=False)
class ModelSummary:
    """What the output of `estimate` says about the model of the log."""

    curve: Curve  # Observation at each position relative to position 1, as `clickprism bias position` prints it
    strength: float  # Prior strength, in impressions at position 1
    fits: bool  # Whether the model fits the log
    feedback: Verdict  # Whether the engine reacts to clicks
    warnings: tuple[str, ...]  # What may be wrong with the estimates, a sentence each

    @classmethod
    def of(cls, model: LogModel) -> ModelSummary:
        """Return the summary of a model."""
        from clickprism.diagnosis.position import weak_sources

        fit, warnings = model.fit_quality, [f"Warning: {sentence}" for sentence in weak_sources(model)]
        if warnings and model.linkage.repair:
            warnings.append(f"To repair this: {model.linkage.repair}")
        if model.feedback.verdict == "present":
            warnings.append(
                "Warning: the engine reacts to clicks: it moves documents up after clicks. The estimates are corrected "
                "for this as far as it can be estimated."
            )
        if not fit.fits:
            warnings.append(
                "Warning: the model does not fit this log: observed clicks differ from expected clicks by up to "
                f"{np.expm1(fit.largest):.0%} at some positions, so the intervals are too narrow. For details run: "
                "clickprism diagnose LOG"
            )
        return cls(model.curve, model.strength, fit.fits, model.feedback.verdict, tuple(warnings))


@final
@dataclass(frozen=True)
class LogEstimates:
    """The estimates of a log, which are in a file."""

    pairs: int  # Number of pairs in the file
    sources: dict[str, int]  # Number of pairs by the main source of the estimate (`SOURCES`)
    imputed_only: int  # Number of pairs without an impression that counts
    suppressed: int  # Number of pairs that are excluded, since fewer than min_users users saw them
    below: int  # Number of impressions below the last position that is used
    without_imputation: int  # Number of pairs without an imputation; they get the mean imputation of the shown pairs
    estimator: str
    parameters: ClickParameters  # Click parameters of the positions
    model: ModelSummary | None  # What the model of the log says; None if none was fitted
    file: Path
    # Click probability of an irrelevant first result that doubly_robust assumed; None for others
    beta_1: float | None = None

    @classmethod
    def write(
        cls,
        rows: pa.Table,
        out: Path,
        *,
        estimator: str,
        parameters: ClickParameters,
        below: int,
        suppressed: int = 0,
        imputed: bool = False,
        model: ModelSummary | None = None,
        beta_1: float | None = None,
    ) -> LogEstimates:
        """Write rows of estimates to a file, and count them; `imputed` says whether there was an imputation."""
        write_estimates(rows, out, suppressed=suppressed)
        found = {each["values"]: each["counts"] for each in rows["source"].value_counts().to_pylist()}
        return cls(
            pairs=rows.num_rows,
            sources={name: found[name] for name in SOURCES if name in found},
            imputed_only=pc.sum(rows["imputed_only"]).as_py() or 0,
            suppressed=suppressed,
            below=below,
            without_imputation=rows["imputation"].null_count if imputed else 0,
            estimator=estimator,
            parameters=parameters,
            model=model,
            file=out,
            beta_1=beta_1,
        )

    def tables(self) -> list[Table]:
        """Return the counts, and what the model of the log says."""
        rows = [["pairs", f"{self.pairs:,}"]]
        rows += [[f"  mostly from {MEANINGS[name]}", f"{count:,}"] for name, count in self.sources.items()]
        if unknown := self.pairs - sum(self.sources.values()):
            rows.append(["  without an estimate: not shown at these positions", f"{unknown:,}"])
        rows.append(["pairs excluded: too few users", f"{self.suppressed:,}"])
        if self.below:
            rows.append([f"impressions ignored: below position {len(self.parameters)}", f"{self.below:,}"])
        if self.without_imputation:
            rows.append(["pairs without an imputation: its mean", f"{self.without_imputation:,}"])
        if self.model is not None:
            curve = self.model.curve
            shown = [k for k in POSITIONS if k <= len(curve)]
            values = ", ".join(f"{curve.values[k - 1]:.3f}" for k in shown)
            rows += [
                ["prior strength, in impressions at position 1", f"{self.model.strength:.3g}"],
                [f"observation at positions {', '.join(map(str, shown))}", values],
                ["the model fits the log", "yes" if self.model.fits else "no"],
            ]
        return [Table("", [f"estimator {self.estimator}", ""], rows)]

    @property
    def warnings(self) -> list[str]:
        """Return what a reader of the estimates must know, a sentence or two each."""
        found = [] if self.model is None else list(self.model.warnings)
        if self.suppressed > self.pairs:
            found.append(
                f"Warning: {self.suppressed:,} of {self.suppressed + self.pairs:,} pairs are not in the file, since "
                "too few users saw them (privacy). If this log does not need that, include them: --min-users 0"
            )
        return found


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
    update_sessions(store, engine, days)
    observation = None if propensities is None else read_propensities(propensities)
    fit = partial(fit_log, store, engine, settings, days=days, propensities=observation, folder=model)
    if estimator is None:
        return write_posterior(fit(imputation=imputation), out, min_users=settings.min_users, store=store)
    log_model: LogModel | None = None
    if parameters is not None:
        used = ClickParameters.read(parameters)
        used = used if settings.depth is None else used.cut(settings.depth)
    elif settings.click_parameters == "first_slot":
        used = log_slot_parameters(store, engine, days=days, depth=settings.depth)
        if isinstance(estimator, DoublyRobust) and settings.beta_1 is None:
            estimator = replace(estimator, beta_1=first_intercept(used))
    else:
        log_model = fit().model
        used = log_model.parameters
    examiner = chosen_model(store.folder / "models", examination)
    if isinstance(estimator, DoublyRobust) and examiner is not None and examiner.settings.clicks == "all":
        store.note(
            "warning: the examination model uses the click on the document itself, which biases doubly_robust. "
            f"Run: clickprism bias examination {store.folder} --clicks others"
        )
    found = estimate_log(
        store,
        engine,
        out,
        estimator=estimator,
        parameters=used,
        imputation=imputation,
        days=days,
        k=settings.min_users,
        examiner=examiner,
    )
    return found if log_model is None else replace(found, model=ModelSummary.of(log_model))


def _check_options(
    settings: EstimateSettings,
    parameters: Path | None,
    propensities: Path | None,
    imputation: Path | None,
    model: Path | None,
) -> None:
    """Raise `SettingError` if options of `estimate_relevance` contradict each other, or one is missing."""
    name = settings.estimator
    if parameters is not None:
        if name == DEFAULT:
            raise SettingError("parameters", str(parameters), "be omitted for log_model; give --propensities instead")
        if propensities is not None:
            raise SettingError("parameters", str(parameters), "be omitted if propensities are given")
        if model is not None:
            raise SettingError("model", str(model), "be omitted if parameters are given, since no model is fitted then")
    others = parameters, propensities, model
    if settings.click_parameters == "first_slot" and any(each is not None for each in others):
        raise SettingError("click_parameters", "first_slot", "be used without --parameters, --propensities and --model")
    if name == DoublyRobust.name and imputation is None:
        raise SettingError("imputation", None, f"be given for the estimator {name}")


def estimate_log(
    store: LogStore,
    engine: Engine,
    out: Path,
    *,
    estimator: Estimator,
    parameters: ClickParameters,
    imputation: Path | None = None,
    days: Sequence[date] | None = None,
    k: int | None = None,
    examiner: Examiner | None = None,
) -> LogEstimates:
    """Estimate the relevance of every pair of a log and of an imputation; write a Parquet file (`ESTIMATES`).

    Args:
        store: The log, whose sessions must be up to date.
        engine: Engine that adds up the clicks.
        out: File to write.
        estimator: The estimator, such as `Affine()`.
        parameters: Click parameters; impressions below their last position are ignored.
        imputation: Parquet file of imputations (`IMPUTATION`). Pairs that were never shown get an estimate too.
        days: Use only these days; by default all.
        k: Ignore the clicks on pairs seen by fewer users. By default the k of the log, or 0 if it has no user ids.
        examiner: Examination model; `doubly_robust` needs one.
    """
    given, depth = None if imputation is None else _read_imputation(imputation), len(parameters)
    with store.lock():  # clicks and examination are of the same events
        rows = counting(engine.read(store.table("sessions").files(days), SESSIONS))
        pairs, counts = count_pairs(rows, engine, depth=depth, users=k != 0)
        if isinstance(estimator, DoublyRobust) and examiner is not None:
            examined = _examination(store, engine, pairs, depth=depth, days=days, examiner=examiner)
            counts = PairCounts(counts.impressions, counts.clicked, *examined)
    if not pairs.num_rows:
        raise DataError("has no impressions to count", file=store.folder, remedy="Ingest events, or use other days")
    enough = _seen_by_enough(pairs["users"].to_numpy(), k, store=store, needed=given is None)
    below, pairs, values = pc.sum(pairs["below"]).as_py(), pairs.select(PAIR), None
    if not enough.all():
        pairs, counts = pairs.filter(pa.array(enough)), counts.select(enough)
    if given is not None:
        own, unshown = _matched(pairs, given)
        mean = np.nanmean(own) if np.isfinite(own).any() else 0.5
        values = np.append(np.where(np.isnan(own), mean, own), unshown["imputation"].to_numpy())
        pairs = pairs.append_column("imputation", pa.array(own, from_pandas=True))
        pairs, counts = pa.concat_tables([pairs, unshown.cast(pairs.schema)]), counts.with_unshown(unshown.num_rows)
    estimates = estimator.estimate(counts, parameters, values)
    shown, clicked = counts.shown, counts.clicked.sum(axis=1)
    return LogEstimates.write(
        _rows(pairs, estimates, shown, clicked, texts=query_texts(store, engine, days)),
        out,
        estimator=estimator.name,
        parameters=parameters,
        below=below,
        suppressed=int((~enough).sum()),
        imputed=given is not None,
        beta_1=getattr(estimator, "beta_1", None),
    )


def _examination(
    store: LogStore, engine: Engine, pairs: pa.Table, *, depth: int, days: Sequence[date] | None, examiner: Examiner
) -> list[Float64]:
    """Return the sums of e, of e c and of e^2 of each pair, [pairs, positions] each."""
    partials = store.table("partials")
    known = {*store.table("events").days(), *store.table("sessions").days(), *partials.days()}
    update_partials(store, engine, days=sorted(known if days is None else known.intersection(days)), examiner=examiner)
    rows = engine.read(partials.files(days), PARTIALS)
    names = {name: [f"{name}_{position}" for position in range(1, depth + 1)] for name in EXAMINATION}
    sums = {
        column: total(ibis.ifelse(rows.position == position, rows[name], 0))
        for name, columns in names.items()
        for position, column in enumerate(columns, start=1)
    }
    found = engine.collect(rows.group_by(list(PAIR)).aggregate(**sums))
    numbered = pairs.select(PAIR).append_column("row", pa.array(np.arange(pairs.num_rows)))
    found = numbered.join(found, list(PAIR), join_type="inner").sort_by("row")
    return [pivoted(found, columns) / EXAMINATION_UNIT for columns in names.values()]


def _seen_by_enough(users: Int64, min_users: int | None, *, store: LogStore, needed: bool) -> Bool:
    """Return which pairs at least `min_users` users saw, by default the k of the log, or 0 if it has no user ids.

    If there is no such pair but one is `needed`, raise `UnsupportedError`.
    """
    if min_users is None and not users.any():
        store.note("This log has no user ids, so no pair is excluded because few users saw it (--min-users).")
        min_users = 0
    least = store.settings.windows.k if min_users is None else min_users
    enough: Bool = users >= least
    if needed and not enough.any():
        raise UnsupportedError(
            f"fewer than {least} users saw each of the {len(enough):,} pairs, so they are excluded (privacy)",
            file=store.folder,
            remedy="If this log does not need the threshold, use --min-users 0; otherwise use more days",
        )
    return enough


def query_texts(store: LogStore, engine: Engine, days: Sequence[date] | None) -> pa.Table:
    """Return the columns query_id and query, the text of each query; null if it is not known."""
    events = engine.read(store.table("events").files(days), EVENTS)
    return engine.collect(events.group_by("query_id").aggregate(query=events.query.max()))


def _rows(
    pairs: pa.Table,
    estimates: Estimates,
    impressions: Float64 | Int64,
    clicked: Float64 | Int64,
    *,
    texts: pa.Table | None = None,
) -> pa.Table:
    """Return a table of estimates, with the text of each query (columns query_id and query) if texts are given."""
    if texts is not None:
        query = pc.index_in(pairs["query_id"], value_set=texts["query_id"])
        pairs = pairs.append_column("query", texts["query"].take(query))
    return pa.table(estimate_rows(pairs, estimates, impressions, clicked), schema=ESTIMATES)


def refuse_options(source: str, given: Mapping[str, object]) -> None:
    """Refuse options that need an ingested log."""
    for name, value in given.items():
        if value is not None:
            must = f"be omitted: it needs an ingested log. Run: clickprism log ingest {source} --into mylog"
            raise SettingError(name, None, must)  # a value after the command would be typed with it


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
    given = None if propensities is None else read_propensities(propensities)
    model = LogModel.fit(logged, settings=_model_settings(settings), propensities=given)
    if folder is not None:
        model.save(folder)
    value, found, estimates = click_value(logged, outcome), model.relevance, posterior_estimates(model)
    if value is not None:
        estimates = times_value(estimates, value, found.rows, settings.confidence)
    ids = model.query_ids.tolist()
    shown = ids if texts is None else [texts.get(query) for query in ids]
    pairs = pa.table(
        {"query_id": ids, "document_id": model.document_ids.tolist(), "query": pa.array(shown, pa.string())}
    )
    return LogEstimates.write(
        _rows(pairs, estimates, found.impressions, found.clicks),
        out,
        estimator=DEFAULT if value is None else f"{DEFAULT}, of {outcome}",
        parameters=model.parameters,
        below=int(logged.clicks.list_impressions[logged.clicks.positions > len(model.curve)].sum()),
        model=ModelSummary.of(model),
    )


def _model_settings(settings: EstimateSettings) -> LogModelSettings:
    return LogModelSettings(depth=settings.depth, confidence=settings.confidence, seed=settings.seed)


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


@final
@dataclass(frozen=True, eq=False)
class FittedLog:
    """The model of an ingested log."""

    model: LogModel
    sums: LogSums  # What it was fitted to
    texts: pa.Table  # columns query_id and query, the text of each query
    # Imputation of each pair of the log, nan if it has none, [pairs]; None without an imputation
    imputed: Float64 | None = None
    # columns query_id, document_id and imputation of the pairs that were never shown; None without an imputation
    unshown: pa.Table | None = None


def fit_log(
    store: LogStore,
    engine: Engine,
    settings: EstimateSettings,
    *,
    days: Sequence[date] | None = None,
    imputation: Path | None = None,
    propensities: Float64 | None = None,
    folder: Path | None = None,
) -> FittedLog:
    """Fit the model of a log, whose sessions must be up to date, by sums of its clicks.

    Args:
        store: The log.
        engine: Engine that adds up the clicks.
        settings: Depth, confidence and seed.
        days: Use only these days; by default all.
        imputation: Parquet file of imputations (`IMPUTATION`).
        propensities: Known observation at each position, [positions].
        folder: Folder to save the model to.
    """
    counted = settings.min_users != 0
    sums = read_sums(store, engine, days=days, depth=settings.depth, users=counted, ids=folder is not None)
    imputed, unshown, prior = None, None, None
    if imputation is not None:
        imputed, unshown = _matched(sums.pairs, _read_imputation(imputation))
        if np.isfinite(imputed).sum() >= FEW:
            prior = np.where(np.isnan(imputed), np.nanmean(imputed), imputed)
    model = LogModel.fit(sums.logged, settings=_model_settings(settings), imputation=prior, propensities=propensities)
    if folder is not None:
        rows = counting(engine.read(store.table("sessions").files(days), SESSIONS))
        searches = rows.select("day", "search_id", "query_id").distinct()
        number = engine.collect(searches.aggregate(number=searches.count()))["number"][0].as_py()
        model = replace(model, size=replace(model.size, sessions=number))
        model.save(folder)
    return FittedLog(model, sums, query_texts(store, engine, days), imputed, unshown)


def _read_imputation(path: Path) -> pa.Table:
    return pq.read_table(check_imputation(path), columns=IMPUTATION.names).cast(IMPUTATION)


def _matched(pairs: pa.Table, given: pa.Table) -> tuple[Float64, pa.Table]:
    """Return the imputation of each pair (nan: none), and the imputations of pairs that are not among these."""
    names = list(PAIR)
    numbered = pairs.select(names).append_column("row", pa.array(np.arange(pairs.num_rows)))
    found = given.join(numbered, names, join_type="left outer")
    other = pc.is_null(found["row"])
    own = found.filter(pc.invert(other))
    imputed = np.full(pairs.num_rows, np.nan)
    imputed[own["row"].to_numpy()] = own["imputation"].to_numpy()
    return imputed, found.filter(other).select(IMPUTATION.names).cast(IMPUTATION)


@final
@dataclass(frozen=True)
class PriorOfImputation:
    """Relevance of pairs that were never shown: c_1 ~ Beta(k m, k (1 - m)), m = the calibrated imputation."""

    calibration: Calibration  # Log-odds of m by the log-odds of the imputation
    k: float  # Strength, by how much the relevance of shown pairs differs from m

    @classmethod
    def of(cls, imputed: Float64, shown: Estimates) -> PriorOfImputation:
        """Fit it to the imputations and estimates of shown pairs; with too few of them, m is the imputation itself."""
        if len(shown) < FEW:
            return cls(Calibration(1.0, 0.0), LEAST)
        calibration = Calibration.fit(log_odds(imputed), shown.values, np.ones(len(shown)))
        mean = expit(calibration(log_odds(imputed)))
        spread = float(((shown.values - mean) ** 2 + shown.variance).mean())  # law of total variance
        return cls(calibration, max(float((mean * (1 - mean)).mean()) / spread - 1, LEAST))

    def estimates(self, imputed: Float64, confidence: float) -> Estimates:
        """Return the estimates of pairs that were never shown, [pairs]."""
        mean, tail, none = expit(self.calibration(log_odds(imputed))), (1 - confidence) / 2, np.zeros(len(imputed))
        lower, upper = (betaincinv(self.k * mean, self.k * (1 - mean), each) for each in (tail, 1 - tail))
        variance = mean * (1 - mean) / (self.k + 1)
        return Estimates(mean, np.minimum(lower, mean), np.maximum(upper, mean), variance, none, none == 0)


def posterior_estimates(model: LogModel) -> Estimates:
    """Return the estimates of the shown pairs of a model; their variance is that of a normal of the same interval."""
    found, confidence = model.relevance, model.settings.confidence
    variance = ((found.upper - found.lower) / (2 * normal_quantile(confidence))) ** 2
    source = np.argmax(found.source[:, None] == np.array(SOURCES), axis=1).astype(np.int32)
    shown = np.zeros(len(found), dtype=np.bool_)
    return Estimates(found.value, found.lower, found.upper, variance, found.weight, shown, source)


def write_posterior(fitted: FittedLog, out: Path, *, min_users: int | None, store: LogStore) -> LogEstimates:
    """Write the estimates of a model (`ESTIMATES`), ordered by query and document.

    Args:
        fitted: The model of the log.
        out: Parquet file to write.
        min_users: Pairs seen by fewer users are treated as if they had never been shown. By default the k of the log,
            or 0 if no row of the log has a user id.
        store: The log.
    """
    sums, model, imputed = fitted.sums, fitted.model, fitted.imputed
    enough = _seen_by_enough(sums.users, min_users, store=store, needed=imputed is None)
    kept, pairs, known = np.flatnonzero(enough), sums.pairs, posterior_estimates(model)
    if imputed is not None:
        pairs = pairs.append_column("imputation", pa.array(imputed, from_pandas=True))
    shown, clicked = model.relevance.impressions[kept], model.relevance.clicks[kept]
    table = _rows(pairs.take(kept), known.select(kept), shown, clicked, texts=fitted.texts)
    if imputed is not None and fitted.unshown is not None:
        few, usable = (np.flatnonzero(each & np.isfinite(imputed)) for each in (~enough, enough))
        rest = pa.concat_tables([pairs.take(few).cast(IMPUTATION), fitted.unshown])
        prior = PriorOfImputation.of(imputed[usable], known.select(usable))
        found, none = prior.estimates(rest["imputation"].to_numpy(), model.settings.confidence), np.zeros(len(rest))
        table = pa.concat_tables([table, _rows(rest, found, none, none, texts=fitted.texts)])
    return LogEstimates.write(
        table,
        out,
        estimator=DEFAULT,
        parameters=model.parameters,
        below=sums.below,
        suppressed=len(enough) - len(kept),
        imputed=imputed is not None,
        model=ModelSummary.of(model),
    )
