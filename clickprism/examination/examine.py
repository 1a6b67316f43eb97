"""Train the examination model of a log, and measure how good its estimates are on held-out searches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from clickprism._util.tables import Table
from clickprism.errors import DataError, UnsupportedError
from clickprism.examination.model import (
    CELLS,
    NEGATIVE,
    POSITIVE,
    TRUTH_CELLS,
    ExaminationModel,
    cells,
    check_enough,
    collected,
    column,
    counts,
    no_display_times,
    save_model,
    train_model,
    truth_cells,
)
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.schema import EXAMINATION_UNIT, SESSIONS
from clickprism.log.sessions import has_display_times, update_sessions
from clickprism.log.table import by_day
from clickprism.types import Bool, Int64

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

ANCHORS: Final = 5  # positions of a click that have a curve
SHOWN: Final = 20  # positions of a curve
BINS: Final = 10
FEW: Final = 200  # with fewer held-out positives or negatives the measures are rough
ATTEMPTS: Final = 3
TRUTH: Final = pa.schema(
    {"search_id": pa.string(), "document_id": pa.string(), "position": pa.int32(), "observed": pa.bool_()}
)
"""Columns that are read of the truth of a simulated log."""


@dataclass(frozen=True)
class Bin:
    """The rows with an estimate in [low, high): their mean estimate, and the share of positives."""

    low: float
    high: float
    rows: int
    estimate: float
    share: float


@dataclass(frozen=True)
class Quality:
    """Quality of estimates on some rows."""

    rows: int  # Number of rows
    positive: float  # Share of positive rows
    auc: float  # Probability that a positive has a higher estimate than a negative, ties count half; NaN without either
    log_loss: float  # Mean of -log e over positives and -log(1 - e) over negatives, in nats
    entropy: float  # Log loss of the best constant
    calibration_error: float  # Mean of |mean estimate - share of positives| over rows, in ten bins of equal width
    bins: tuple[Bin, ...]  # The bins that are not empty


@dataclass(frozen=True)
class Point:
    """A mean over the rows at a position, which is on a page of the results."""

    position: int
    page: int
    rows: int
    value: float


@dataclass(frozen=True)
class AgainstTruth:
    """Estimates compared with the true observation of simulated users, on all rows of held-out searches."""

    quality: Quality  # Quality with true observation as the label
    by_position: tuple[Point, ...]  # Share observed at each position
    below_anchor: Mapping[int, tuple[Point, ...]]  # Share observed below a click, by the position of the click


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What an examination model was trained on, and how good its estimates are."""

    file: Path | None  # JSON file of the model; None if it was not saved
    fingerprint: str  # Fingerprint of the model
    days: list[str]  # Days that it was trained on
    settings: ExaminationSettings  # Settings of the model
    warning: str | None  # Why the measures are rough, if few rows are held out
    # Number of session rows, and of positive, negative, between (the thresholds) and missing (no time) ones
    counts: Mapping[str, int]
    cells: int  # Number of distinct rows of features and labels
    learned: int  # Number of rows that the model was trained on
    quality: Quality  # Quality on the labelled rows of held-out searches
    importance: Mapping[str, float]  # Share of each feature in the gain of all splits
    by_position: tuple[Point, ...]  # Mean estimate at each position, over all rows (Figure 4 (a))
    labels: tuple[Point, ...]  # Share of positives among the labelled rows at each position
    # Mean estimate below a click, by the position of the click (Figure 4 (b))
    below_anchor: Mapping[int, tuple[Point, ...]]
    truth: AgainstTruth | None  # Comparison with true observation, if it is known

    def tables(self) -> list[Table]:
        """Return the display times, the quality, the calibration, the features, and the estimates by position."""
        names = {"rows": "all", "positive": f"positive: over {self.settings.positive_ms:,} ms"}
        names |= {"negative": f"negative: under {self.settings.negative_ms:,} ms"}
        names |= {"between": "between the two, not used", "missing": "without a display time, not used"}
        total = self.counts["rows"]
        rows = [[name, f"{self.counts[key]:,}", f"{self.counts[key] / total:.1%}"] for key, name in names.items()]
        measured = {"labels by display time": self.quality}
        if self.truth is not None:
            measured["true observation"] = self.truth.quality
        quality = [
            [name, f"{one.rows:,}", f"{one.positive:.3f}"]
            + [f"{value:.4f}" for value in (one.auc, one.log_loss, one.entropy, one.calibration_error)]
            for name, one in measured.items()
        ]
        bins = [
            [f"{one.low:.1f} to {one.high:.1f}", f"{one.rows:,}", f"{one.estimate:.3f}", f"{one.share:.3f}"]
            for one in self.quality.bins
        ]
        importance = [[name.replace("_", " "), f"{share:.1%}"] for name, share in self.importance.items()]
        curves = {"share positive": self.labels} | ({} if self.truth is None else {"observed": self.truth.by_position})
        values = [{point.position: f"{point.value:.3f}" for point in curve} for curve in curves.values()]
        positions = [
            [str(point.position), f"{point.rows:,}", f"{point.value:.3f}"]
            + [known.get(point.position, "-") for known in values]
            for point in self.by_position
        ]
        measures = ["held-out searches", "rows", "positive", "AUC", "log loss", "of a constant", "calibration error"]
        return [
            Table("Display times", ["rows", "count", "share"], rows),
            Table("Quality of the estimates", measures, quality),
            Table("Calibration on the labels", ["estimate", "rows", "mean estimate", "share positive"], bins),
            Table("Importance of the features", ["feature", "share"], importance),
            Table("By position", ["position", "rows", "mean estimate", *curves], positions),
        ]


def fit_current(
    store: LogStore,
    engine: Engine,
    *,
    settings: ExaminationSettings | None = None,
    days: tuple[date, date] | None = None,
    truth: Path | None = None,
) -> Examination:
    """Update the sessions, train a model as `examine` does and make it the current one; repeat if the log changes."""
    files = store.table("events").files()
    if files and not has_display_times(files):
        raise no_display_times("this log")
    for _ in range(ATTEMPTS):
        update_sessions(store, engine)
        model, result = examine(store, engine, settings=settings, days=days, truth=truth)
        file = make_current(store, model)
        if file is not None:
            return replace(result, file=file)
        store.note("The sessions changed while the model was trained: training again")
    raise DataError(
        f"changed during each of {ATTEMPTS} attempts to train a model; no model was saved",
        file=store.folder,
        remedy="Run the command again when nothing else writes to the log",
    )


def make_current(store: LogStore, model: ExaminationModel) -> Path | None:
    """Save a model and return its file; None, without saving, if its sessions have changed, as by `log forget`."""
    with store.lock():
        days = [date.fromisoformat(day) for day in model.sessions]
        if _fingerprints(store.table("sessions").files(days)) != dict(model.sessions):
            return None
        return save_model(model, store.folder / "models")


def examine(
    store: LogStore,
    engine: Engine,
    *,
    settings: ExaminationSettings | None = None,
    days: tuple[date, date] | None = None,
    truth: Path | None = None,
) -> tuple[ExaminationModel, Examination]:
    """Train the examination model on the sessions of a log, and measure it on held-out searches.

    Args:
        store: Log with sessions that are up to date.
        engine: Engine that reads them, once.
        settings: Settings of the model; those of the log if None.
        days: First and last day; all if None.
        truth: Folder of Parquet files with the columns of `TRUTH`, if the log was simulated.
    """
    settings = store.settings.part("examination") if settings is None else settings
    truth_files = [] if truth is None else sorted(str(path) for path in truth.glob("**/*.parquet"))
    if truth is not None and not truth_files:
        raise DataError("has no Parquet files", file=truth, remedy="Pass the folder truth/ of a simulated log")
    table = store.table("sessions")
    chosen = [day for day in table.days() if days is None or days[0] <= day <= days[1]]
    if not chosen:
        within = "" if days is None else f" from {days[0]} to {days[1]}"
        raise UnsupportedError(f"has no sessions{within}", file=store.folder, remedy="Choose other days")
    files = table.files(chosen)
    sessions = engine.read(files, SESSIONS)
    counted = collected(engine, cells(sessions, settings), CELLS)
    check_enough(counted, settings, days=f"{chosen[0]} to {chosen[-1]}" if len(chosen) > 1 else str(chosen[0]))
    model = train_model(counted, settings, sessions=_fingerprints(files))
    against = None
    if truth is not None:
        known = truth_cells(sessions, engine.read(truth_files, TRUTH), settings)
        against = _against_truth(model, collected(engine, known, TRUTH_CELLS))
        if not against.quality.rows:
            raise DataError("has none of the held-out rows", file=truth, remedy="Pass the truth of the same log")
    units, label, rows = model.units(counted), column(counted, "label"), column(counted, "rows")
    held_out, labelled = column(counted, "held_out") == 1, label >= NEGATIVE
    measured = held_out & labelled
    held_out_quality = quality(units[measured], label[measured] == POSITIVE, rows[measured])
    model = replace(
        model, quality={name: getattr(held_out_quality, name) for name in ("auc", "log_loss", "calibration_error")}
    )
    return model, Examination(
        file=None,
        fingerprint=model.fingerprint,
        days=list(model.sessions),
        settings=settings,
        warning=_warning(held_out_quality),
        counts=counts(counted),
        cells=counted.num_rows,
        learned=int(rows[labelled & ~held_out].sum()),
        quality=held_out_quality,
        importance=model.importance(),
        by_position=by_position(counted, units),
        labels=by_position(counted, (label == POSITIVE) * EXAMINATION_UNIT, labelled),
        below_anchor=below_anchor(counted, units),
        truth=against,
    )


def quality(units: Int64, positive: Bool, rows: Int64) -> Quality:
    """Return the quality of the estimates of cells (units of 2^-20), given labels and numbers of rows, [cells].

    >>> found = quality(np.array([2**19, 2**18]), np.array([True, False]), np.array([2, 6]))
    >>> found.auc, found.calibration_error
    (1.0, 0.3125)
    """
    total = int(rows.sum())
    share = int(rows[positive].sum()) / total if total else math.nan
    bins = []
    number = np.minimum(units * BINS // EXAMINATION_UNIT, BINS - 1)
    for place in np.unique(number).tolist():
        here = number == place
        count = int(rows[here].sum())
        estimate = int((units[here] * rows[here]).sum()) / (EXAMINATION_UNIT * count)
        bins.append(Bin(place / BINS, (place + 1) / BINS, count, estimate, int(rows[here & positive].sum()) / count))
    return Quality(
        rows=total,
        positive=share,
        auc=auc(units, positive, rows),
        log_loss=log_loss(units, positive, rows),
        entropy=sum(-p * math.log(p) for p in (share, 1 - share) if p > 0) if total else math.nan,
        calibration_error=sum(abs(one.estimate - one.share) * one.rows for one in bins) / total if total else math.nan,
        bins=tuple(bins),
    )


def auc(units: Int64, positive: Bool, rows: Int64) -> float:
    """Return the area under the ROC curve, (wins + ties / 2) / (positives x negatives), in integers of any size."""
    levels, place = np.unique(units, return_inverse=True)
    by_level = np.zeros((len(levels), 2), dtype=np.int64)
    np.add.at(by_level, (place, positive.astype(np.int64)), rows)
    negatives = twice = positives = 0
    for negative_here, positive_here in by_level.tolist():
        twice += positive_here * (2 * negatives + negative_here)
        negatives += negative_here
        positives += positive_here
    return twice / (2 * positives * negatives) if positives and negatives else math.nan


def log_loss(units: Int64, positive: Bool, rows: Int64) -> float:
    """Return the mean log loss; estimates are kept half a unit away from 0 and 1."""
    total = int(rows.sum())
    if not total:
        return math.nan
    share = np.clip(units / EXAMINATION_UNIT, 0.5 / EXAMINATION_UNIT, 1 - 0.5 / EXAMINATION_UNIT)
    return math.fsum((-np.log(np.where(positive, share, 1 - share)) * rows).tolist()) / total


def by_position(cells: pa.Table, units: Int64, chosen: Bool | None = None) -> tuple[Point, ...]:
    """Return the mean of a value, in units of 2^-20, at each position over some or all cells (Figure 4 (a))."""
    position, rows = column(cells, "position"), column(cells, "rows")
    here = (position <= SHOWN) if chosen is None else chosen & (position <= SHOWN)
    sums, totals, pages = (np.zeros(SHOWN + 1, dtype=np.int64) for _ in range(3))
    np.add.at(sums, position[here], units[here] * rows[here])
    np.add.at(totals, position[here], rows[here])
    np.maximum.at(pages, position[here], column(cells, "page")[here])
    return tuple(
        Point(place, int(pages[place]), int(totals[place]), int(sums[place]) / (EXAMINATION_UNIT * int(totals[place])))
        for place in np.flatnonzero(totals).tolist()
    )


def below_anchor(cells: pa.Table, units: Int64) -> dict[int, tuple[Point, ...]]:
    """Return the mean of a value at the positions below a click, by the position of the click (Figure 4 (b)).

    The click is the nearest one above a row, at position - click_distance. The first point of a curve is the click
    itself.
    """
    position, distance = column(cells, "position"), column(cells, "click_distance")
    clicked = column(cells, "clicked") == 1
    curves = {}
    for anchor in range(1, ANCHORS + 1):
        own = by_position(cells, units, clicked & (position == anchor))
        under = by_position(cells, units, (distance > 0) & (position - distance == anchor))
        if own and under:
            curves[anchor] = own + under
    return curves


def _against_truth(model: ExaminationModel, counted: pa.Table) -> AgainstTruth:
    measured = counted.filter(counted["held_out"])
    units, observed = model.units(measured), column(measured, "observed")
    return AgainstTruth(
        quality=quality(units, observed == 1, column(measured, "rows")),
        by_position=by_position(measured, observed * EXAMINATION_UNIT),
        below_anchor=below_anchor(measured, observed * EXAMINATION_UNIT),
    )


def _warning(quality: Quality) -> str | None:
    positives = round(quality.rows * quality.positive)
    negatives = quality.rows - positives
    if min(positives, negatives) >= FEW:
        return None
    return (
        f"Uncertain: only {positives:,} positive and {negatives:,} negative examples are held out. With fewer than "
        f"{FEW} of either the measures are rough; use more days before you rely on the estimates"
    )


def _fingerprints(files: Sequence[str]) -> dict[str, str]:
    """Return the days of files of sessions, each with a fingerprint of its files."""
    return {
        day.isoformat(): hashlib.sha256("\n".join(Path(file).name for file in named).encode()).hexdigest()[:32]
        for day, named in sorted(by_day(files).items())
    }
