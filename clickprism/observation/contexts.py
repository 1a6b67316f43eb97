"""Position curves of a whole log and of its parts: by a column, such as the device, or by query frequency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, final

import numpy as np

from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.data.sessions import SessionLog
from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.curve import Curve
from clickprism.observation.estimate import ESTIMATORS, Curves, Estimator, estimate_curves
from clickprism.settings import resolve, suggest
from clickprism.types import Text

QUERY_FREQUENCY: Final = "query-frequency"
BUCKETS: Final = ("head", "middle", "tail")
NAMED: Final = 10  # excluded parts that are listed by name


@final
@dataclass(frozen=True, kw_only=True)
class CurveSettings:
    """Which position curves to estimate, and from which sessions.

    Attributes:
        method: Estimator; repeat the option for several.
        where: Use only the sessions with this value, written as column=value; repeat it for several conditions.
        by: Estimate separate curves for each value of this column, or for query-frequency (head, middle, tail).
        min_sessions: Exclude values of `by` with fewer sessions.
        depth: Use only positions 1 to this one; by default all.
        pivot: Position that the estimator pivot compares all others with.
        weights: Weight of a document shown at two positions: by its impressions at both (matched), or equal.
    """

    method: tuple[str, ...] = tuple(ESTIMATORS)
    where: tuple[str, ...] = ()
    by: str | None = None
    min_sessions: int = 1000
    depth: int | None = None
    pivot: int = 1
    weights: Literal["matched", "equal"] = "matched"

    def __post_init__(self) -> None:
        if self.min_sessions < 1:
            raise SettingError("min_sessions", self.min_sessions, "be at least 1")
        if self.depth is not None and self.depth < 2:
            raise SettingError("depth", self.depth, "be at least 2")
        for condition in self.where:
            if "=" not in condition:
                raise SettingError("where", condition, "be written as column=value")
        for name in self.method:
            if name not in ESTIMATORS:
                raise SettingError("method", name, f"be a known estimator ({suggest(name, ESTIMATORS)})")
        if self.pivot < 1:
            raise SettingError("pivot", self.pivot, "be at least 1")

    @property
    def estimators(self) -> list[Estimator]:
        """The estimators with their settings."""
        values = {"pivot": self.pivot, "weights": self.weights}
        classes = [resolve(ESTIMATORS, name, path="method") for name in dict.fromkeys(self.method)]
        return [cls(**{it.name: values[it.name] for it in fields(cls) if it.name in values}) for cls in classes]


@final
@dataclass(frozen=True, eq=False)
class Observed:
    """The position curves of a log, and of its parts.

    Attributes:
        whole: Curves of all sessions.
        parts: Curves for each value of the column.
        excluded: Values with too few sessions, and how many sessions each has.
        settings: Settings of the curves.
        bootstrap: Settings of the intervals.
    """

    whole: Curves
    parts: dict[str, Curves]
    excluded: dict[str, int]
    settings: CurveSettings
    bootstrap: Bootstrap

    def tables(self) -> list[Table]:
        """Return one table of curves, and one of what they are based on, for the log and for each part."""
        by, confidence = self.settings.by, self.bootstrap.confidence
        tables = _tables("All", self.whole, confidence)
        for value, curves in self.parts.items():
            tables += _tables(f"{by} = {value}", curves, confidence, known=self.whole.unsupported)
        if self.excluded:
            few = sorted(self.excluded.items(), key=lambda item: -item[1])
            rows = [[value, f"{count:,}"] for value, count in few[:NAMED]]
            if len(few) > NAMED:
                rows.append([f"and {len(few) - NAMED:,} more", ""])
            caption = f"Excluded: values of {by} with fewer than {self.settings.min_sessions:,} sessions"
            tables.append(Table(caption, [by or "", "sessions"], rows))
        return tables

    @property
    def differ(self) -> tuple[str, str, int] | None:
        """The parts, higher first, and the position at which the best curve differs most beyond its intervals."""
        best = self.whole.best
        found = {value: part.curves[best] for value, part in self.parts.items() if best and best in part.curves}
        worst, gap = None, 1.0
        for place in range(1, max(map(len, found.values()), default=0)):
            ends = [
                (curve.lower[place], curve.upper[place], value) for value, curve in found.items() if place < len(curve)
            ]
            known = [each for each in ends if np.isfinite(each[:2]).all()]
            if len(known) < 2:
                continue
            high, low = max(known), min(known, key=lambda each: each[1])
            if high[0] > gap * low[1]:
                worst, gap = (high[2], low[2], place + 1), high[0] / max(low[1], 1e-300)
        return worst


def observe(
    log: SessionLog,
    settings: CurveSettings | None = None,
    *,
    bootstrap: Bootstrap | None = None,
    progress: Progress = no_progress,
) -> Observed:
    """Estimate the position curves of a log by several estimators, and those of each part of it.

    Args:
        log: Sessions; see `data.sessions.read_log`.
        settings: Estimators, and which sessions they use.
        bootstrap: Settings of the intervals.
        progress: see `estimate_curves`.
    """
    settings, bootstrap = settings or CurveSettings(), bootstrap or Bootstrap()
    log = where(log, settings.where)
    kept: dict[str, SessionLog] = {}
    excluded: dict[str, int] = {}
    if settings.by is not None:
        values = query_frequency(log) if settings.by == QUERY_FREQUENCY else log.column(settings.by)
        names, part = np.unique(values, return_inverse=True)
        sessions = np.bincount(part, weights=log.clicks.impressions).astype(np.int64).tolist()
        for number, value in enumerate(names.tolist()):
            if sessions[number] >= settings.min_sessions:
                kept[value] = log.take(part == number)
            else:
                excluded[value] = sessions[number]

    def curves(part: SessionLog) -> Curves:
        return estimate_curves(
            part.clicks,
            settings.estimators,
            bootstrap=bootstrap,
            depth=settings.depth,
            truth=part.observation,
            progress=progress,
        )

    return Observed(curves(log), {value: curves(part) for value, part in kept.items()}, excluded, settings, bootstrap)


def where(log: SessionLog, conditions: Sequence[str]) -> SessionLog:
    """Return the sessions that meet all conditions, each written as `column=value`."""
    for condition in conditions:
        name, _, value = condition.partition("=")
        values = log.column(name)
        chosen = values == value
        if not chosen.any():
            found = np.unique(values).tolist()
            shown = ", ".join(found[:10]) + (", ..." if len(found) > 10 else "")
            raise DataError(f"no session has {condition}", remedy=f"The column has {shown}")
        log = log.take(chosen)
    return log


def query_frequency(log: SessionLog) -> Text:
    """The bucket of each ranked list: the most frequent queries that make a third of the sessions are the head.

    [ranked lists]; a query is as a whole in one bucket, that of its middle session.
    """
    clicks = log.clicks
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    asked = np.bincount(query, weights=clicks.impressions, minlength=len(clicks.lists))
    order = np.argsort(-asked, kind="stable")
    middle = np.empty(len(asked))
    middle[order] = np.cumsum(asked[order]) - asked[order] / 2
    bucket = np.minimum((3 * middle / asked.sum()).astype(np.int64), 2)
    names: Text = np.array(BUCKETS, dtype=np.str_)[bucket[query]]
    return names


def _tables(name: str, curves: Curves, confidence: float, known: dict[str, str] | None = None) -> list[Table]:
    """Return the curves, one row per position, and what each is based on; reasons in `known` are not repeated."""
    found, truth = list(curves.curves.values()), curves.truth
    caption = f"{name}: {curves.sessions:,} sessions"
    units = {curve.unit for curve in found} - {""}
    if units:
        caption += f"; {confidence:.0%} intervals, resampled by {units.pop()}"
    rows = []
    for index in range(max(map(len, found), default=0)):
        true = [] if truth is None else [f"{truth[index]:.3f}" if index < len(truth) else "-"]
        rows.append([str(index + 1), *true, *(_cell(curve, index) for curve in found)])
    header = ["position", *([] if truth is None else ["truth"]), *(curve.name for curve in found)]
    facts = []
    for curve in found:
        error = "" if curve.error is None else f"relative error {curve.error:.1%}; "
        basis = f"{curve.support.documents:,} documents, {curve.support.clicks.sum():,.0f} clicks"
        facts.append([curve.name, f"{error}{basis}; {curve.support.note}"])
    for method, reason in curves.unsupported.items():
        same = (known or {}).get(method) == reason
        facts.append([method, f"not supported: {'same reason as for all sessions' if same else reason}"])
    return [Table(caption, header, rows), Table("", ["estimator", "based on"], facts)]


def _cell(curve: Curve, index: int) -> str:
    if index >= len(curve):
        return "-"
    value, lower, upper = (each[index] for each in (curve.values, curve.lower, curve.upper))
    return f"{value:.3f}" if index == 0 or np.isnan(lower) else f"{value:.3f} [{lower:.3f}, {upper:.3f}]"
