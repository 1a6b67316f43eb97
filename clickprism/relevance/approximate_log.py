"""Fit the approximation networks to the randomised first results of a log, and apply them to all its pairs.

The engine joins clicks, imputations and click vectors. Only the pairs to learn from, or one batch of pairs, are held in
memory. The sessions of the log must be up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.log.features.partials import PAIR
from clickprism.log.features.windows import end_of_log, windows
from clickprism.log.schema import SNAPSHOT
from clickprism.relevance.approximation import Approximation, fit_approximation
from clickprism.relevance.approximation_settings import ApproximateSettings
from clickprism.relevance.click_vectors import ClickVectors, empty_vector
from clickprism.relevance.estimates import ESTIMATES, estimate_rows, join_files
from clickprism.relevance.estimators import normal_quantile
from clickprism.relevance.pair_files import IMPUTATION, check_imputation
from clickprism.relevance.pairs import FirstSlot, read_first_slot
from clickprism.types import Float32, Float64

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.features.partials import Examiner
    from clickprism.log.features.snapshots import Snapshot
    from clickprism.log.settings import WindowSettings
    from clickprism.log.store import LogStore

LONGEST: Final = timedelta(days=28)
TESTED: Final = 0.2
MOST: Final = 200_000  # pairs to learn from; more do not improve networks of this size
EDGE: Final = 1e-6


@final
@dataclass(frozen=True)
class Losses:
    """Cross entropy of several estimates on clicks of held-out queries, by name."""

    queries: int  # Number of queries
    impressions: int  # Number of impressions of these queries
    values: Mapping[str, float]  # Mean loss per impression of each estimate; lower is better
    # How much lower the loss of the last estimate is than that of each other, with the ends of an interval
    gains: Mapping[str, tuple[float, float, float]]


def compare_losses(slot: FirstSlot, values: Mapping[str, Float64], *, confidence: float = 0.95) -> Losses:
    """Compare the losses of estimates, in (0, 1), on clicks on randomised first results, paired by query.

    The last estimate is compared with each other one.

    >>> slot = FirstSlot.of(np.array(["q", "r"]), np.array(["a", "b"]), np.array([1, 0]), impressions=np.array([2, 2]))
    >>> found = compare_losses(slot, {"half": np.full(2, 0.5), "rate": np.array([0.5, 0.25])})
    >>> round(found.values["half"], 4), round(found.values["rate"], 4)
    (0.6931, 0.4904)
    """
    queries, query = np.unique(slot.query_ids, return_inverse=True)
    skips, shown = slot.impressions - slot.clicks, np.bincount(query, weights=slot.impressions)
    total = float(shown.sum())
    sums = {
        name: np.bincount(query, weights=-slot.clicks * np.log(each) - skips * np.log1p(-each))
        for name, each in values.items()
    }
    last, z, gains = list(sums)[-1], normal_quantile(confidence), {}
    for name in list(sums)[:-1]:
        difference = sums[name] - sums[last]
        gain = float(difference.sum()) / total
        spread = float(np.sqrt(((difference - gain * shown) ** 2).sum())) / total
        gains[name] = (gain, gain - z * spread, gain + z * spread)
    return Losses(len(queries), int(total), {name: float(of.sum()) / total for name, of in sums.items()}, gains)


@final
@dataclass(frozen=True, kw_only=True)
class ApproximationSummary:
    """What the approximation network was fitted to, and how good it is."""

    as_of: datetime  # Time of the click vectors (UTC)
    until: datetime  # First-slot clicks are from before this time (UTC)
    pairs: int  # Number of pairs that it was fitted to
    impressions: int  # Number of impressions of these pairs as randomised first results
    without_imputation: int  # Number of pairs without an imputation; they get the mean imputation
    losses: Losses  # Losses of another fit, on a fifth of the queries that it was not fitted to
    k: float  # Number of impressions of a pair that its imputation is equivalent to
    folder: Path  # Folder of the networks

    def tables(self) -> list[Table]:
        """Return tables of the training data and of the losses on held-out queries."""
        rows = [
            ["randomised first results", f"{self.as_of} to {self.until} UTC"],
            ["click features as of", f"{self.as_of} UTC"],
            ["pairs", f"{self.pairs:,}"],
            ["impressions", f"{self.impressions:,}"],
            ["pairs without an imputation: its mean", f"{self.without_imputation:,}"],
            ["impressions that an imputation is equivalent to", f"{self.k:.3g}"],
        ]
        losses, measured = self.losses, []
        for name, loss in losses.values.items():
            gain = losses.gains.get(name)
            text = "" if gain is None else f"{gain[0]:+.5f} ({gain[1]:+.5f} to {gain[2]:+.5f})"
            measured.append([name, f"{loss:.5f}", text])
        caption = f"On {losses.queries:,} held-out queries ({losses.impressions:,} impressions)"
        return [Table("", ["fitted to", ""], rows), Table(caption, ["", "loss", "gain of the approximation"], measured)]

    @property
    def warning(self) -> str | None:
        """Return why the approximation should not be used yet, or is not certain to be better; None if it is better."""
        gains = self.losses.gains
        worse = [name for name, gain in gains.items() if gain[0] <= 0]
        unsure = [name for name, gain in gains.items() if gain[1] <= 0 < gain[0]]
        names = " and ".join(f"the {name}{' part' * (name == 'affine')}" for name in worse or unsure)
        if worse:
            return f"warning: the approximation is not better than {names} alone. Do not rank by it yet"
        if unsure:
            return f"note: the approximation is not significantly better than {names} alone. Use more clicks"
        return None


@final
@dataclass(frozen=True)
class AppliedApproximation:
    """The estimates of an approximation network, which are in a file."""

    as_of: datetime  # Time of the click features (UTC)
    pairs: int  # Number of pairs in the file
    imputed_only: int  # Number of pairs not shown in the month, or to too few users; their estimate is the imputation
    without_imputation: int  # Number of pairs without an imputation; they get the mean imputation
    file: Path

    def tables(self) -> list[Table]:
        """Return the counts."""
        rows = [
            ["pairs", f"{self.pairs:,}"],
            ["not shown in the month, or to too few users: imputation alone", f"{self.imputed_only:,}"],
            ["without an imputation: its mean", f"{self.without_imputation:,}"],
        ]
        return [Table("", [f"as of {self.as_of} UTC", ""], rows)]


def split_time(start: datetime, end: datetime) -> datetime:
    """Return the start of the clicks to predict: the last half of the log, at most four weeks.

    >>> split_time(datetime(2026, 1, 1), datetime(2026, 1, 15)), split_time(datetime(2026, 1, 1), datetime(2026, 7, 1))
    (datetime.datetime(2026, 1, 8, 0, 0), datetime.datetime(2026, 6, 3, 0, 0))
    """
    half = timedelta(days=(end - start).days // 2)
    return end - max(min(half, LONGEST), timedelta(days=1))


def fit_log(
    store: LogStore,
    engine: Engine,
    imputation: Path,
    out: Path,
    *,
    since: datetime | None = None,
    settings: ApproximateSettings | None = None,
    examiner: Examiner | None = None,
    window_settings: WindowSettings | None = None,
) -> ApproximationSummary:
    """Fit the approximation networks to the randomised first results of a log, and save them.

    Args:
        store: The log.
        engine: Engine that runs the queries.
        imputation: Parquet file of imputations (`IMPUTATION`).
        out: Folder for the networks.
        since: Learn from clicks from this time on, by click vectors as of then; by default `split_time`.
        settings: Settings of the networks.
        examiner: Examination model; without one, click vectors have no fields of examination.
        window_settings: Settings of the click vectors; by default those of the log.
    """
    settings = ApproximateSettings() if settings is None else settings
    with store.lock(), store.staging():
        start, end = _span(store)
        if since is None:
            since = split_time(start, end)
            if not start < since:
                raise UnsupportedError(
                    "has one day only; the networks learn to predict later clicks from earlier ones",
                    file=store.folder,
                    remedy="Ingest at least two days, or give --since",
                )
        if not start < since < end:
            raise SettingError("since", str(since), f"be within the log, after {start} and before {end} (UTC)")
        slot = _sampled(read_first_slot(store, since=since), seed=settings.seed)
        found = windows(store, engine, since, examiner=examiner, settings=window_settings, refresh=False)
        vectors, imputed, without = _joined(engine, slot, found.snapshot, check_imputation(imputation))
    losses = _tested(slot, vectors, imputed, settings)
    fitted = fit_approximation(slot, vectors, imputed, settings=settings)
    fitted.save(out)
    return ApproximationSummary(
        as_of=since,
        until=end,
        pairs=len(slot),
        impressions=int(slot.impressions.sum()),
        without_imputation=without,
        losses=losses,
        k=fitted.k,
        folder=out,
    )


def apply_log(
    store: LogStore,
    engine: Engine,
    approximation: Approximation,
    out: Path,
    *,
    imputation: Path,
    as_of: datetime | None = None,
    examiner: Examiner | None = None,
    window_settings: WindowSettings | None = None,
) -> AppliedApproximation:
    """Estimate every pair of a log and of an imputation with fitted networks; write a Parquet file (`ESTIMATES`).

    The click vectors are as of a time, by default the end of the log. The other arguments are those of `fit_log`.
    """
    with store.lock():
        time = _span(store)[1] if as_of is None else as_of
        snapshot = windows(store, engine, time, examiner=examiner, settings=window_settings, refresh=False).snapshot
        known = engine.read([check_imputation(imputation)], IMPUTATION)
        columns = _columns(approximation.scale.fields, snapshot.fields)
        mean = float(engine.collect(known.aggregate(value=known.imputation.mean()))["value"][0].as_py() or 0.5)
        task = _Task(approximation, columns, empty_vector(snapshot), snapshot.fields, mean)
        rows = engine.read(snapshot.files, SNAPSHOT).select(*PAIR, "x")
        with store.staging() as place:
            files = engine.write_batches(_with_imputation(rows, known), task, ESTIMATES, Path(place), stem="estimates")
            pairs = join_files(files, out, ESTIMATES)
    written = pq.read_table(out, columns=["imputed_only", "imputation"])
    imputed_only, without = pc.sum(written["imputed_only"]).as_py() or 0, written["imputation"].null_count
    return AppliedApproximation(snapshot.as_of, pairs, imputed_only, without, out)


def _with_imputation(rows: Any, imputed: Any) -> Any:
    """Return every pair of the log and of the imputation, with the columns of both."""
    other = imputed.rename({f"{name}_imputed": name for name in PAIR})
    both = rows.outer_join(other, [rows[name] == other[f"{name}_imputed"] for name in PAIR])
    pair = {name: ibis.coalesce(both[name], both[f"{name}_imputed"]) for name in PAIR}
    return both.select(**pair, x=both.x, imputation=both.imputation)


@final
@dataclass(frozen=True)
class _Task:
    """Estimates a batch of pairs; it is sent to the executors of Spark."""

    approximation: Approximation
    columns: tuple[int, ...]
    empty: Float32
    fields: tuple[str, ...]
    mean: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        x = _matrix(batch.column("x"), self.empty)
        given = batch.column("imputation").to_numpy(zero_copy_only=False).astype(np.float64)
        known = np.clip(np.where(np.isnan(given), self.mean, given), EDGE, 1 - EDGE)
        estimates = self.approximation.estimates(x[:, self.columns], known)
        sums = []
        for name in ("impressions", "clicked"):
            own = [column for column, field in enumerate(self.fields) if field.partition(".")[2] == name]
            sums.append(np.rint(x[:, own].max(axis=1)).astype(np.int64))
        return pa.record_batch(estimate_rows(batch, estimates, *sums), schema=ESTIMATES)


def _span(store: LogStore) -> tuple[datetime, datetime]:
    """Return when the log begins and ends."""
    days, end = store.table("events").days() or store.table("sessions").days(), end_of_log(store)
    if not days or end is None:
        remedy = "Add events with: clickprism log ingest PATH --into DIR"
        raise DataError("has no events", file=store.folder, remedy=remedy)
    return datetime(days[0].year, days[0].month, days[0].day), end


def _sampled(slot: FirstSlot, *, seed: int) -> FirstSlot:
    """Return at most `MOST` pairs, of complete queries."""
    if len(slot) <= MOST:
        return slot
    queries, query = np.unique(slot.query_ids, return_inverse=True)
    return slot.take((np.random.default_rng(seed).random(len(queries)) < MOST / len(slot))[query])


def _joined(engine: Engine, slot: FirstSlot, snapshot: Snapshot, imputation: Path) -> tuple[ClickVectors, Float64, int]:
    """Return the click vectors and imputations of some pairs, and how many pairs have no imputation."""
    ids = {"query_id": slot.query_ids.tolist(), "document_id": slot.document_ids.tolist()}
    pairs = engine.memory(pa.table(ids | {"row": np.arange(len(slot))}))
    values = engine.read([imputation], IMPUTATION)
    with_value = pairs.left_join(values, list(PAIR)).select("row", *PAIR, "imputation")
    vectors = engine.read(snapshot.files, SNAPSHOT).select(*PAIR, "x")
    table = engine.collect(with_value.left_join(vectors, list(PAIR)).select("row", "imputation", "x"))
    table = table.sort_by([("row", "ascending")])
    given = table["imputation"].to_numpy().astype(np.float64)
    missing = np.isnan(given)
    if missing.all():
        remedy = "Impute the pairs of this log: clickprism relevance impute apply"
        raise DataError("has none of the pairs with randomised first results", file=imputation, remedy=remedy)
    empty = empty_vector(snapshot)
    x = _matrix(table["x"].combine_chunks(), empty)
    known = np.where(missing, given[~missing].mean(), given)
    vectors_of = ClickVectors(slot.query_ids, slot.document_ids, x, snapshot.fields, empty, snapshot.as_of)
    return vectors_of, np.clip(known, EDGE, 1 - EDGE), int(missing.sum())


def _tested(slot: FirstSlot, vectors: ClickVectors, imputed: Float64, settings: ApproximateSettings) -> Losses:
    """Fit networks to four fifths of the queries, and return the losses on the others."""
    queries, query = np.unique(slot.query_ids, return_inverse=True)
    order = np.random.default_rng(settings.seed).permutation(len(queries))
    held_out = np.isin(query, order[: max(1, round(TESTED * len(queries)))])
    if held_out.all():
        remedy = "Randomise the first result of a share of all searches"
        raise UnsupportedError("only one query has randomised first results", remedy=remedy)
    learned, tested = slot.take(~held_out), slot.take(held_out)
    fitted = fit_approximation(learned, vectors, imputed[~held_out], settings=settings)
    x, known = vectors.before(tested), imputed[held_out]
    rate = np.full(len(tested), np.clip(learned.rate, EDGE, 1 - EDGE))
    values = {
        "click rate": rate,
        "imputation": known,
        "affine": np.clip(fitted.affine(x), EDGE, 1 - EDGE),
        "approximation": np.clip(fitted.estimate(x, known), EDGE, 1 - EDGE),
    }
    return compare_losses(tested, values)


def _matrix(column: Any, empty: Float32) -> Float32:
    """Return click vectors as a matrix, `empty` for pairs without one, [pairs, L]."""
    x = np.tile(empty, (len(column), 1))
    there = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if there.any():
        values = column.filter(pa.array(there)).flatten().to_numpy(zero_copy_only=False)
        x[there] = values.reshape(-1, len(empty))
    return x


def _columns(wanted: tuple[str, ...], present: tuple[str, ...]) -> tuple[int, ...]:
    """Return the columns of a snapshot that hold the fields of an approximation."""
    missing = [name for name in wanted if name not in present]
    if missing:
        raise DataError(
            f"the approximation needs the click feature {missing[0]!r}, which this log does not have",
            remedy="Train an examination model (clickprism bias examination), or fit the approximation without one "
            "(clickprism relevance approximate fit --examination none)",
        )
    return tuple(present.index(name) for name in wanted)
