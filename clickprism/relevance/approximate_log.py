"""The approximation of a click log: fitted to its randomised first slots, and applied to all its pairs.

Both go by the engine: first-slot clicks, imputations and click vectors are joined there, and of a snapshot no more is
in memory than the pairs to learn from, or a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.log.fields import no_clicks
from clickprism.log.partials import PAIR
from clickprism.log.schedule import schedule
from clickprism.log.schema import SNAPSHOT
from clickprism.log.sessions import update_sessions
from clickprism.log.windows import end_of_log, windows
from clickprism.relevance.approximate import Approximation, fit_approximation
from clickprism.relevance.approximate_settings import ApproximateSettings
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.relevance.losses import Losses, compare_losses
from clickprism.relevance.of_log import with_imputation
from clickprism.relevance.randomised import FirstSlot, read_first_slot
from clickprism.relevance.table import (
    ESTIMATES,
    IMPUTATION,
    check_imputation,
    count_written,
    estimate_columns,
    join_files,
)
from clickprism.types import Float32, Float64

if TYPE_CHECKING:
    from clickprism.log.engine import Engine
    from clickprism.log.partials import Examiner
    from clickprism.log.settings import WindowSettings
    from clickprism.log.snapshots import Snapshot
    from clickprism.log.store import LogStore

LONGEST: Final = timedelta(days=28)
TESTED: Final = 0.2
MOST: Final = 200_000  # pairs to learn from; more have no more to say to networks of this size
EDGE: Final = 1e-6


@final
@dataclass(frozen=True, eq=False)
class LogApproximation:
    """What `fit_log` did.

    Attributes:
        approximation: fitted to all queries.
        as_of: the click vectors know nothing later (UTC).
        until: first-slot clicks are from before this time.
        pairs: that were learned from.
        impressions: in randomised first slots.
        without_imputation: pairs that the imputation does not know; they take its mean.
        losses: of another fit, on a fifth of the queries that it has not seen.
    """

    approximation: Approximation
    as_of: datetime
    until: datetime
    pairs: int
    impressions: int
    without_imputation: int
    losses: Losses

    def save(self, folder: Path) -> ApproximationSummary:
        """Save the networks to a folder, and return everything but the networks."""
        self.approximation.save(folder)
        shared = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "approximation"}
        return ApproximationSummary(k=self.approximation.k, folder=folder, **shared)


@final
@dataclass(frozen=True, kw_only=True)
class ApproximationSummary:
    """What the approximation network was fitted to, and how good it is.

    Attributes:
        as_of: Time of the click vectors (UTC).
        until: First-slot clicks are from before this time (UTC).
        pairs: Number of pairs that it was fitted to.
        impressions: Number of their impressions as randomised first results.
        without_imputation: Number of pairs without an imputation; they get the mean imputation.
        losses: Losses of another fit, on a fifth of the queries that it was not fitted to.
        k: Number of impressions of a pair that its imputation is equivalent to.
        folder: Folder of the networks.
    """

    as_of: datetime
    until: datetime
    pairs: int
    impressions: int
    without_imputation: int
    losses: Losses
    k: float
    folder: Path

    def tables(self) -> list[Table]:
        """Return what it was fitted to, and the losses on held-out queries."""
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
        """Why the approximation should not be used yet, or is not certain to be better."""
        gains = self.losses.gains
        worse = [name for name, gain in gains.items() if gain[0] <= 0]
        unsure = [name for name, gain in gains.items() if gain[1] <= 0 < gain[0]]
        if worse:
            return f"warning: it is not better than the {' and the '.join(worse)} alone: do not rank by it yet"
        if unsure:
            return f"note: it is not significantly better than the {' and the '.join(unsure)}: use more clicks"
        return None


@final
@dataclass(frozen=True)
class AppliedApproximation:
    """The estimates of an approximation network, which are in a file.

    Attributes:
        as_of: Time of the click features (UTC).
        pairs: Number of pairs in the file.
        imputed_only: Number of pairs not shown in the month, or to too few users; their estimate is the imputation.
        without_imputation: Number of pairs without an imputation; they get the mean imputation.
        file: The file that was written.
    """

    as_of: datetime
    pairs: int
    imputed_only: int
    without_imputation: int
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
    """Where to part a log: its last half is to be predicted, four weeks at most, by what was known before.

    >>> split_time(datetime(2026, 1, 1), datetime(2026, 1, 15)), split_time(datetime(2026, 1, 1), datetime(2026, 7, 1))
    (datetime.datetime(2026, 1, 8, 0, 0), datetime.datetime(2026, 6, 3, 0, 0))
    """
    half = timedelta(days=(end - start).days // 2)
    return end - max(min(half, LONGEST), timedelta(days=1))


def fit_log(
    store: LogStore,
    engine: Engine,
    imputation: Path,
    *,
    since: datetime | None = None,
    settings: ApproximateSettings | None = None,
    examiner: Examiner | None = None,
    window_settings: WindowSettings | None = None,
    refresh: bool = True,
) -> LogApproximation:
    """Fit the approximation to the randomised first slots of a log.

    Args:
        store: the log.
        engine: where the queries run.
        imputation: a Parquet file of `IMPUTATION`.
        since: first-slot clicks from this time on are learned from, by click vectors as of then; by default
            `split_time`.
        settings: of the networks.
        examiner: the examination model; without one, x has no fields of examination.
        window_settings: of the click vectors; the log's own by default.
        refresh: bring the sessions up to date with the events first; False takes them as they are.
    """
    settings = ApproximateSettings() if settings is None else settings
    with store.lock(), store.staging():
        if refresh:
            update_sessions(store, engine)
        start, end = _span(store)
        if since is None:
            since = split_time(start, end)
            if not start < since:
                raise UnsupportedError(
                    "has one day only; the approximation learns from later clicks what earlier ones predict",
                    file=store.folder,
                    remedy="Ingest at least two days, or give --since",
                )
        if not start < since < end:
            raise SettingError("since", str(since), f"be within the log, after {start} and before {end} (UTC)")
        slot = _sampled(read_first_slot(store, since=since), seed=settings.seed)
        made = windows(store, engine, since, examiner=examiner, settings=window_settings, refresh=False)
        vectors, imputed, without = _joined(engine, slot, made.snapshot, check_imputation(imputation))
    losses = _tested(slot, vectors, imputed, settings)
    fitted = fit_approximation(slot, vectors, imputed, settings=settings)
    shown = int(slot.impressions.sum())
    return LogApproximation(fitted, since, end, len(slot), shown, without, losses)


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
    refresh: bool = True,
) -> AppliedApproximation:
    """Estimate every pair of a log, and of an imputation; written to a Parquet file (`ESTIMATES`).

    Args:
        store: the log.
        engine: where the queries run.
        approximation: such as `fit_log` makes.
        out: the file; whole or not at all.
        imputation: a Parquet file of `IMPUTATION`.
        as_of: the time of the click vectors; by default the end of the log.
        examiner: the examination model, if there was one when the approximation was fitted.
        window_settings: of the click vectors; the log's own by default.
        refresh: bring the sessions up to date with the events first; False takes them as they are.
    """
    with store.lock():
        time = _span(store)[1] if as_of is None else as_of
        made = windows(store, engine, time, examiner=examiner, settings=window_settings, refresh=refresh)
        snapshot, known = made.snapshot, engine.read([check_imputation(imputation)], IMPUTATION)
        columns = _columns(approximation.scale.fields, snapshot.fields)
        mean = float(engine.collect(known.aggregate(value=known.imputation.mean()))["value"][0].as_py() or 0.5)
        task = _Task(approximation, columns, _empty(snapshot), snapshot.fields, mean)
        rows = engine.read(snapshot.files, SNAPSHOT).select(*PAIR, "x")
        with store.staging() as place:
            files = engine.write_batches(with_imputation(rows, known), task, ESTIMATES, Path(place), stem="estimates")
            pairs = join_files(files, out, ESTIMATES)
    return AppliedApproximation(snapshot.as_of, pairs, *count_written(out), out)


@final
@dataclass(frozen=True)
class _Task:
    """The estimates of a batch of pairs; it is sent to the executors of Spark."""

    approximation: Approximation
    columns: tuple[int, ...]
    empty: Float32
    fields: tuple[str, ...]
    mean: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        x = _matrix(batch.column("x"), self.empty)
        given = batch.column("imputation").to_numpy(zero_copy_only=False).astype(np.float64)
        known = np.clip(np.where(np.isnan(given), self.mean, given), EDGE, 1 - EDGE)
        made = estimate_columns(self.approximation.estimates(x[:, self.columns], known))
        columns: dict[str, Any] = {name: batch.column(name) for name in PAIR} | made
        for name in ("impressions", "clicked"):
            places = [place for place, field in enumerate(self.fields) if field.partition(".")[2] == name]
            columns[name] = pa.array(np.rint(x[:, places].max(axis=1)).astype(np.int64))
        columns["imputation"] = batch.column("imputation")
        return pa.record_batch([columns[name] for name in ESTIMATES.names], schema=ESTIMATES)


def _span(store: LogStore) -> tuple[datetime, datetime]:
    """When the log begins and ends."""
    days, end = store.table("events").days() or store.table("sessions").days(), end_of_log(store)
    if not days or end is None:
        remedy = "Bring some in by: clickprism log ingest PATH --into DIR"
        raise DataError("has no events", file=store.folder, remedy=remedy)
    return datetime(days[0].year, days[0].month, days[0].day), end


def _sampled(slot: FirstSlot, *, seed: int) -> FirstSlot:
    """At most `MOST` pairs, of whole queries."""
    if len(slot) <= MOST:
        return slot
    queries, query = np.unique(slot.query_ids, return_inverse=True)
    return slot.take((np.random.default_rng(seed).random(len(queries)) < MOST / len(slot))[query])


def _joined(engine: Engine, slot: FirstSlot, snapshot: Snapshot, imputation: Path) -> tuple[ClickVectors, Float64, int]:
    """The click vectors and the imputations of the pairs of a slot, and how many have no imputation."""
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
        raise DataError("knows none of the pairs in randomised first slots", file=imputation, remedy=remedy)
    empty = _empty(snapshot)
    x = _matrix(table["x"].combine_chunks(), empty)
    known = np.where(missing, given[~missing].mean(), given)
    vectors_of = ClickVectors(slot.query_ids, slot.document_ids, x, snapshot.fields, empty, snapshot.as_of)
    return vectors_of, np.clip(known, EDGE, 1 - EDGE), int(missing.sum())


def _tested(slot: FirstSlot, vectors: ClickVectors, imputed: Float64, settings: ApproximateSettings) -> Losses:
    """The losses on a fifth of the queries of a fit to the others."""
    queries, query = np.unique(slot.query_ids, return_inverse=True)
    order = np.random.default_rng(settings.seed).permutation(len(queries))
    aside = np.isin(query, order[: max(1, round(TESTED * len(queries)))])
    if aside.all():
        remedy = "Randomise the first slot of a share of all searches"
        raise UnsupportedError("only one query has randomised first slots", remedy=remedy)
    learned, tested = slot.take(~aside), slot.take(aside)
    fitted = fit_approximation(learned, vectors, imputed[~aside], settings=settings)
    x, known = vectors.before(tested), imputed[aside]
    rate = np.full(len(tested), np.clip(learned.rate, EDGE, 1 - EDGE))
    values = {
        "click rate": rate,
        "imputation": known,
        "affine": fitted.affine(x),
        "approximation": np.clip(fitted.estimate(x, known), EDGE, 1 - EDGE),
    }
    return compare_losses(tested, values)


def _empty(snapshot: Snapshot) -> Float32:
    """What a pair that was never shown holds, [L]."""
    examined = any(name.endswith(".examination") for name in snapshot.fields)
    spans = schedule(snapshot.as_of)
    return np.concatenate([no_clicks(span.hours, examination=examined) for span in spans]).astype(np.float32)


def _matrix(column: Any, empty: Float32) -> Float32:
    """Click vectors as a matrix, `empty` where there is none, [pairs, L]."""
    x = np.tile(empty, (len(column), 1))
    there = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if there.any():
        values = column.filter(pa.array(there)).flatten().to_numpy(zero_copy_only=False)
        x[there] = values.reshape(-1, len(empty))
    return x


def _columns(wanted: tuple[str, ...], present: tuple[str, ...]) -> tuple[int, ...]:
    """Where the fields of an approximation stand in a snapshot."""
    missing = [name for name in wanted if name not in present]
    if missing:
        raise DataError(
            f"the approximation needs the field {missing[0]!r} of click vectors, which this log's lack",
            remedy="Train an examination model (clickprism bias examination), or fit the approximation without one "
            "(clickprism relevance approximate fit --examination none)",
        )
    return tuple(present.index(name) for name in wanted)
