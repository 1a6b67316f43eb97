"""From the sessions of a log to an examination model, and what it is worth."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from clickprism._util.tables import Table
from clickprism.errors import DataError, UnsupportedError
from clickprism.log.schema import EXAMINATION_UNIT, SESSIONS
from clickprism.log.sessions import by_day, has_display_times, update_sessions
from clickprism.observation.examination import curves
from clickprism.observation.examination.cells import (
    CELLS,
    NEGATIVE,
    POSITIVE,
    TRUTH_CELLS,
    cells,
    collected,
    column,
    truth_cells,
)
from clickprism.observation.examination.curves import Point
from clickprism.observation.examination.files import save_model
from clickprism.observation.examination.measures import Quality, quality
from clickprism.observation.examination.model import ExaminationModel
from clickprism.observation.examination.train import check_enough, counts, grow, no_display_times
from clickprism.observation.examination_settings import ExaminationSettings

if TYPE_CHECKING:
    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore

ANCHORS: Final = 5
ATTEMPTS: Final = 3
FEW: Final = 200  # positives or negatives held out: fewer say little of a model
SHOWN: Final = 20  # positions of a curve
TRUTH: Final = pa.schema(
    [
        pa.field("search_id", pa.string()),
        pa.field("document_id", pa.string()),
        pa.field("position", pa.int32()),
        pa.field("observed", pa.bool_()),
    ]
)
"""What is read of the truth of a simulated log."""


@dataclass(frozen=True)
class AgainstTruth:
    """Estimates against what simulated users truly observed, on the searches held out: all rows, labelled or not.

    Attributes:
        quality: as if the truth were the label.
        by_position: the share observed at each position.
        below_anchor: the share observed below a click, by the position of the click.
        farthest: the greatest distance of the mean estimate from the share observed, over positions.
    """

    quality: Quality
    by_position: tuple[Point, ...]
    below_anchor: Mapping[int, tuple[Point, ...]]
    farthest: float


@dataclass(frozen=True)
class Examination:
    """A trained examination model and what it is worth.

    Attributes:
        model: the trees.
        counts: rows that count, and of them positive, negative, between the thresholds, missing a display time.
        cells: how many distinct rows of features and labels they are.
        learned: rows that were learned from.
        quality: on the labelled rows of the searches held out.
        importance: the share of each feature in what the splits gained.
        by_position: the mean estimate at each position, of all rows (Figure 4 (a)).
        labels: the share of positives among the labelled rows at each position.
        below_anchor: the mean estimate below a click, by the position of the click (Figure 4 (b)).
        truth: where it is known.
    """

    model: ExaminationModel
    counts: Mapping[str, int]
    cells: int
    learned: int
    quality: Quality
    importance: Mapping[str, float]
    by_position: tuple[Point, ...]
    labels: tuple[Point, ...]
    below_anchor: Mapping[int, tuple[Point, ...]]
    truth: AgainstTruth | None = None

    @property
    def warning(self) -> str | None:
        """What to know before the estimates are trusted, if there is little to judge them by."""
        positives = round(self.quality.rows * self.quality.positive)
        negatives = self.quality.rows - positives
        if min(positives, negatives) >= FEW:
            return None
        return (
            f"Uncertain: only {positives:,} positive and {negatives:,} negative examples are held out. With fewer than "
            f"{FEW} of either the measures are rough; use more days before you rely on the estimates"
        )

    def summary(self, file: Path | None = None) -> ExaminationSummary:
        """Return everything but the trees; `file` is where the model was saved."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "model"}
        model = self.model
        return ExaminationSummary(
            file=file,
            fingerprint=model.fingerprint,
            days=list(model.sessions),
            settings=model.settings,
            warning=self.warning,
            **values,
        )


@dataclass(frozen=True, kw_only=True)
class ExaminationSummary:
    """What an examination model learned from, and how good its estimates are.

    Attributes:
        file: JSON file of the model.
        fingerprint: Fingerprint of the model.
        days: Days that it learned from.
        settings: Settings of the model.
        warning: Why the measures are uncertain, if there are few held-out rows.

    The other attributes are those of `Examination`.
    """

    file: Path | None
    fingerprint: str
    days: list[str]
    settings: ExaminationSettings
    warning: str | None
    counts: Mapping[str, int]
    cells: int
    learned: int
    quality: Quality
    importance: Mapping[str, float]
    by_position: tuple[Point, ...]
    labels: tuple[Point, ...]
    below_anchor: Mapping[int, tuple[Point, ...]]
    truth: AgainstTruth | None

    def tables(self) -> list[Table]:
        """Return the display times, the quality, the calibration, the features, and the estimates by position."""
        rows = [
            [name, f"{self.counts[key]:,}", f"{self.counts[key] / self.counts['rows']:.1%}"]
            for key, name in (
                ("rows", "all"),
                ("positive", f"positive: over {self.settings.positive_ms:,} ms"),
                ("negative", f"negative: under {self.settings.negative_ms:,} ms"),
                ("between", "between the two, not used"),
                ("missing", "without a display time, not used"),
            )
        ]
        measured = [("labels by display time", self.quality)]
        if self.truth is not None:
            measured.append(("true observation", self.truth.quality))
        quality = [
            [
                name,
                f"{found.rows:,}",
                f"{found.positive:.3f}",
                f"{found.auc:.4f}",
                f"{found.log_loss:.4f}",
                f"{found.entropy:.4f}",
                f"{found.calibration_error:.4f}",
            ]
            for name, found in measured
        ]
        bins = [
            [f"{one.low:.1f} to {one.high:.1f}", f"{one.rows:,}", f"{one.estimate:.3f}", f"{one.share:.3f}"]
            for one in self.quality.bins
        ]
        importance = [[name.replace("_", " "), f"{share:.1%}"] for name, share in self.importance.items()]
        labels = {point.position: f"{point.value:.3f}" for point in self.labels}
        true = {} if self.truth is None else {it.position: f"{it.value:.3f}" for it in self.truth.by_position}
        positions = [
            [
                str(point.position),
                f"{point.rows:,}",
                f"{point.value:.3f}",
                labels.get(point.position, "-"),
                *([] if self.truth is None else [true.get(point.position, "-")]),
            ]
            for point in self.by_position
        ]
        header = ["position", "rows", "mean estimate", "share positive"]
        figures = ["held-out searches", "rows", "positive", "AUC", "log loss", "of a constant", "calibration error"]
        return [
            Table("Display times", ["rows", "count", "share"], rows),
            Table("Quality of the estimates", figures, quality),
            Table("Calibration on the labels", ["estimate", "rows", "mean estimate", "share positive"], bins),
            Table("Importance of the features", ["feature", "share"], importance),
            Table("By position", [*header, *([] if self.truth is None else ["observed"])], positions),
        ]


def examine(
    store: LogStore,
    engine: Engine,
    *,
    settings: ExaminationSettings | None = None,
    days: tuple[date, date] | None = None,
    truth: Path | None = None,
) -> Examination:
    """Train the examination model on the sessions of a log, and measure it on searches held out.

    The engine reads the sessions once, to count cells; all else is work on the cells.

    Args:
        store: with sessions that are up to date.
        engine: that reads them.
        settings: by default those of the log.
        days: the first and the last; by default all.
        truth: a folder of Parquet files with the columns of `TRUTH`.
    """
    chosen: ExaminationSettings = store.settings.part("examination") if settings is None else settings
    sides = [] if truth is None else truth_files(truth)
    table = store.table("sessions")
    found = [day for day in table.days() if days is None or days[0] <= day <= days[1]]
    if not found:
        within = "" if days is None else f" from {days[0]} to {days[1]}"
        raise UnsupportedError(f"has no sessions{within}", file=store.folder, remedy="Choose other days")
    names = f"{found[0]} to {found[-1]}" if len(found) > 1 else str(found[0])
    files = table.files(found)
    read = sessions_read(files)
    sessions = engine.read(files, SESSIONS)
    counted = collected(engine, cells(sessions, chosen), CELLS)
    check_enough(counted, chosen, days=names)
    model = ExaminationModel(grow(counted, chosen), chosen, read)
    against = None
    if truth is not None:
        known = engine.read(sides, TRUTH)
        against = _against_truth(model, collected(engine, truth_cells(sessions, known, chosen), TRUTH_CELLS))
        if not against.quality.rows:
            raise DataError(
                "knows none of the rows that are held out", file=truth, remedy="Give the truth of the same log"
            )
    return assess(model, counted, truth=against)


def assess(model: ExaminationModel, counted: pa.Table, *, truth: AgainstTruth | None = None) -> Examination:
    """What a model is worth on cells.

    Args:
        model: any.
        counted: with the columns of `CELLS`.
        truth: what else is known.
    """
    units, label, rows = model.units(counted), column(counted, "label"), column(counted, "rows")
    held_out, labelled = column(counted, "held_out") == 1, label >= NEGATIVE
    measured = held_out & labelled
    worth = quality(units[measured], label[measured] == POSITIVE, rows[measured])
    found = {"auc": worth.auc, "log_loss": worth.log_loss, "calibration_error": worth.calibration_error}
    return Examination(
        model=replace(model, quality=found),
        counts=counts(counted),
        cells=counted.num_rows,
        learned=int(rows[labelled & ~held_out].sum()),
        quality=worth,
        importance=model.importance(),
        by_position=curves.estimates(counted, units, deepest=SHOWN),
        labels=curves.shares(counted, label == POSITIVE, labelled, deepest=SHOWN),
        below_anchor=curves.below_anchor(counted, units, anchors=ANCHORS, deepest=SHOWN),
        truth=truth,
    )


def check_display_times(store: LogStore) -> None:
    """Raise the error of `examine` before any work, if no event of the log has a display time."""
    files = store.table("events").files()
    if files and not has_display_times(files):
        raise no_display_times("this log")


def sessions_read(files: Sequence[str]) -> dict[str, str]:
    """The days of files of sessions, each with the fingerprint of its files."""
    return {
        day.isoformat(): hashlib.sha256("\n".join(Path(file).name for file in named).encode()).hexdigest()[:32]
        for day, named in sorted(by_day(files).items())
    }


def make_current(store: LogStore, model: ExaminationModel) -> Path | None:
    """Save a model under the log's lock; None, and nothing saved, if a day it learned from has changed meanwhile.

    A user may have been forgotten while the model was trained: it must then be trained again, without that user.
    """
    with store.lock():
        days = [date.fromisoformat(day) for day in model.sessions]
        if sessions_read(store.table("sessions").files(days)) != dict(model.sessions):
            return None
        return save_model(model, store.folder / "models")


def fit_current(
    store: LogStore,
    engine: Engine,
    *,
    settings: ExaminationSettings | None = None,
    days: tuple[date, date] | None = None,
    truth: Path | None = None,
) -> ExaminationSummary:
    """Update the sessions, train a model of them and make it the current one; again if the log changed meanwhile.

    The arguments are those of `examine`.
    """
    check_display_times(store)
    for _ in range(ATTEMPTS):
        update_sessions(store, engine)
        found = examine(store, engine, settings=settings, days=days, truth=truth)
        file = make_current(store, found.model)
        if file is not None:
            return found.summary(file)
        store.note("The sessions changed while the model was trained: training again")
    raise DataError(
        f"changed during each of {ATTEMPTS} attempts to train a model; no model was saved",
        file=store.folder,
        remedy="Run the command again when nothing else writes to the log",
    )


def truth_files(folder: Path) -> list[str]:
    """The Parquet files of the truth of a log, in the order of their names."""
    files = sorted(str(path) for path in folder.glob("**/*.parquet"))
    if not files:
        raise DataError("has no Parquet files", file=folder, remedy="Give the folder truth/ of a simulated log")
    return files


def _against_truth(model: ExaminationModel, counted: pa.Table) -> AgainstTruth:
    measured = counted.filter(counted["held_out"])
    units, rows = model.units(measured), column(measured, "rows")
    observed = column(measured, "observed") == 1
    everywhere = np.ones(len(rows), dtype=np.bool_)
    true = curves.shares(measured, observed, everywhere, deepest=SHOWN)
    estimated = curves.estimates(measured, units, deepest=SHOWN)
    away = [abs(one.value - other.value) for one, other in zip(true, estimated, strict=True)]
    return AgainstTruth(
        quality=quality(units, observed, rows),
        by_position=true,
        below_anchor=curves.below_anchor(
            measured, observed.astype(np.int64) * EXAMINATION_UNIT, anchors=ANCHORS, deepest=SHOWN
        ),
        farthest=max(away, default=0.0),
    )
