"""Estimate the relevance of every pair of a click log by the model of the log, and write the estimates to a file.

The engine adds up the clicks; the model is fitted in memory. Every pair that was shown gets its posterior mean. Pairs
that are only in an imputation get their imputation, calibrated to the estimates of shown pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.special import betaincinv, expit

from clickprism._util.files import atomic_file
from clickprism.errors import UnsupportedError
from clickprism.log.features.partials import PAIR, counting
from clickprism.log.load import LogSums, read_sums
from clickprism.log.schema import EVENTS, SESSIONS
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.results import Curve, Verdict
from clickprism.log_model.terms import log_odds
from clickprism.relevance.estimates import ESTIMATES, SOURCES, Estimates, estimate_rows, with_suppressed
from clickprism.relevance.estimators import EstimateSettings, normal_quantile
from clickprism.relevance.pair_files import IMPUTATION, check_imputation
from clickprism.training.calibration import Calibration
from clickprism.types import Bool, Float64

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

SHOWN: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200)  # positions of the curve in the output
LEAST: Final = 0.05  # least prior strength of pairs that were never shown
FEW: Final = 2  # shown pairs with an imputation that its calibration needs


@final
@dataclass(frozen=True, eq=False)
class ModelSummary:
    """What the output of `estimate` says about the model of the log.

    Attributes:
        curve: Observation at each position relative to position 1, as `clickprism bias position` prints it.
        strength: Prior strength, in impressions at position 1.
        fits: Whether the model fits the log.
        feedback: Whether the engine reacts to clicks.
        warnings: What may be wrong with the estimates, a sentence each.
    """

    curve: Curve
    strength: float
    fits: bool
    feedback: Verdict
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, model: LogModel) -> ModelSummary:
        """Return the summary of a model."""
        fits = model.fit_quality.fits
        return cls(model.curve, model.strength, fits, model.feedback.verdict, tuple(_warnings(model)))

    def rows(self) -> list[list[str]]:
        """Return the rows of the output."""
        shown = [k for k in SHOWN if k <= len(self.curve)]
        values = ", ".join(f"{self.curve.values[k - 1]:.3f}" for k in shown)
        return [
            ["prior strength, in impressions at position 1", f"{self.strength:.3g}"],
            [f"observation at positions {', '.join(map(str, shown))}", values],
            ["the model fits the log", "yes" if self.fits else "no"],
        ]


def _warnings(model: LogModel) -> list[str]:
    """Return what a reader of the estimates must know, a sentence or two each."""
    found, linkage = [], model.linkage
    meanings = {
        "features": "identified by features only, not by documents shown at several positions",
        "not identified": "not identified by this log: estimates there rely on the order of the engine",
    }
    for kind, meaning in meanings.items():
        positions = [k for k, each in enumerate(linkage.identified, start=1) if each == kind and k > 1]
        if positions and model.curve.name != "given":
            where = _span(positions)
            found.append(f"Warning: observation at {where} is {meaning}. {linkage.repair}".strip())
    if model.feedback.verdict == "present":
        found.append(
            "Warning: the engine reacts to clicks: it moves documents up after clicks. The estimates are corrected "
            "for this as far as it can be estimated."
        )
    if not model.fit_quality.fits:
        off = np.expm1(model.fit_quality.largest)
        found.append(
            f"Warning: the model does not fit this log: observed clicks differ from expected clicks by up to {off:.0%} "
            "at some positions, so the intervals are too narrow. For details run: clickprism diagnose LOG"
        )
    return found


def _span(positions: list[int]) -> str:
    """Return positions as text: "position 4", "positions 2 to 10" or "positions 2, 5, 6"."""
    if len(positions) == 1:
        return f"position {positions[0]}"
    if len(positions) == positions[-1] - positions[0] + 1:
        return f"positions {positions[0]} to {positions[-1]}"
    return f"positions {', '.join(map(str, positions))}"


@final
@dataclass(frozen=True, eq=False)
class FittedLog:
    """The model of an ingested log.

    Attributes:
        model: The model.
        sums: What it was fitted to.
        imputed: Imputation of each pair of the log, nan if it has none, [pairs]; None without an imputation.
        unshown: query_id, document_id and imputation of the pairs that were never shown; None without an imputation.
        texts: query_id and query, the text of each query.
    """

    model: LogModel
    sums: LogSums
    texts: pa.Table
    imputed: Float64 | None = None
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
    given = None if imputation is None else pq.read_table(check_imputation(imputation), columns=IMPUTATION.names)
    counted = settings.min_users != 0
    sums = read_sums(store, engine, days=days, depth=settings.depth, users=counted, ids=folder is not None)
    imputed, unshown = (None, None) if given is None else _matched(sums.pairs, given)
    prior = None
    if imputed is not None and np.isfinite(imputed).sum() >= FEW:
        prior = np.where(np.isnan(imputed), np.nanmean(imputed), imputed)
    model = LogModel.fit(
        sums.logged,
        settings=LogModelSettings(depth=settings.depth, confidence=settings.confidence, seed=settings.seed),
        imputation=prior,
        propensities=propensities,
    )
    if folder is not None:
        rows = counting(engine.read(store.table("sessions").files(days), SESSIONS))
        searches = rows.select("day", "search_id", "query_id").distinct().count().name("searches")
        number = engine.collect(searches.as_table())["searches"][0].as_py()
        model = replace(model, size=replace(model.size, sessions=int(number)))
        model.save(folder)
    events = engine.read(store.table("events").files(days), EVENTS)
    texts = engine.collect(events.group_by("query_id").aggregate(query=events.query.max()))
    return FittedLog(model, sums, texts, imputed, unshown)


def _matched(pairs: pa.Table, given: pa.Table) -> tuple[Float64, pa.Table]:
    """Return the imputation of each of the pairs, nan if it has none, and the imputations of other pairs."""
    names = list(PAIR)
    given = given.cast(IMPUTATION)
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
    """Relevance of pairs that were never shown: c_1 ~ Beta(k m, k (1 - m)), m = the calibrated imputation.

    Attributes:
        calibration: Log-odds of m by the log-odds of the imputation.
        k: Strength, by how much the relevance of shown pairs differs from m.
    """

    calibration: Calibration
    k: float

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


def write_posterior(fitted: FittedLog, out: Path, *, min_users: int | None, store: LogStore) -> int:
    """Write the estimates of a model (`ESTIMATES`), ordered by query and document.

    Args:
        fitted: The model of the log.
        out: Parquet file to write.
        min_users: Pairs seen by fewer users are treated as if they had never been shown. By default the k of the log,
            or 0 if no row of the log has a user id.
        store: The log.

    Returns:
        The number of pairs that too few users saw.
    """
    sums, relevance, imputed = fitted.sums, fitted.model.relevance, fitted.imputed
    known = posterior_estimates(fitted.model)
    if min_users is None and not sums.users.any():
        store.note("This log has no user ids, so no pair is excluded because few users saw it (--min-users).")
        min_users = 0
    least = store.settings.windows.k if min_users is None else min_users
    enough: Bool = sums.users >= least
    if not enough.any() and imputed is None:
        raise UnsupportedError(
            f"fewer than {least} users saw each of the {len(enough):,} pairs, so they are excluded (privacy)",
            file=store.folder,
            remedy="If this log does not need the threshold, use --min-users 0; otherwise use more days",
        )
    kept = np.flatnonzero(enough)
    pairs = sums.pairs
    if imputed is not None:
        pairs = pairs.append_column("imputation", pa.array(imputed, from_pandas=True))
    rows = estimate_rows(pairs.take(kept), known.select(kept), relevance.impressions[kept], relevance.clicks[kept])
    table = pa.table(rows, schema=ESTIMATES)
    if imputed is not None and fitted.unshown is not None:
        few = np.flatnonzero(~enough & np.isfinite(imputed))
        rest = pa.concat_tables([pairs.take(few).cast(IMPUTATION), fitted.unshown])
        usable = np.flatnonzero(enough & np.isfinite(imputed))
        prior = PriorOfImputation.of(imputed[usable], known.select(usable))
        found = prior.estimates(rest["imputation"].to_numpy(), fitted.model.settings.confidence)
        none = np.zeros(rest.num_rows)
        table = pa.concat_tables([table, pa.table(estimate_rows(rest, found, none, none), schema=ESTIMATES)])
    table = table.drop_columns("query").join(fitted.texts, "query_id", join_type="left outer").select(ESTIMATES.names)
    table = table.sort_by([(name, "ascending") for name in PAIR])
    suppressed = len(enough) - len(kept)
    with atomic_file(out, parents=True) as draft:
        pq.write_table(table.cast(with_suppressed(suppressed)), draft, compression="zstd")
    return suppressed
