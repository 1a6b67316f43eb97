"""Curves of a whole log and of its parts: by a column of the sessions, such as the device, or by query frequency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.data.sessions import SessionLog
from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.estimate import Curves, Estimator, Progress, estimate_curves
from clickprism.types import Text

QUERY_FREQUENCY: Final = "query-frequency"
BUCKETS: Final = ("head", "middle", "tail")


@final
@dataclass(frozen=True, eq=False)
class Observed:
    """The curves of a log, and of its parts.

    Attributes:
        whole: of all sessions.
        parts: by value of the column.
        left_out: the values with too few sessions, and how many those have.
    """

    whole: Curves
    parts: dict[str, Curves]
    left_out: dict[str, int]

    @property
    def differ(self) -> tuple[str, str, int] | None:
        """The parts, higher first, and the position at which the trusted curve differs most beyond its intervals."""
        best = self.whole.best
        found = {
            value: part.curves[best.name] for value, part in self.parts.items() if best and best.name in part.curves
        }
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
    estimators: Sequence[Estimator] | None = None,
    *,
    bootstrap: Bootstrap | None = None,
    depth: int | None = None,
    by: str | None = None,
    least_sessions: int = 1000,
    progress: Progress | None = None,
) -> Observed:
    """The curves of a log by several estimators, and those of each part of it.

    Args:
        log: see `data.sessions.read_log`.
        estimators: which, with their settings; all by default.
        bootstrap: how intervals are made.
        depth: look at positions 1 to this only.
        by: a column of the log, or "query-frequency".
        least_sessions: parts with fewer are left out.
        progress: see `estimate_curves`.
    """
    if least_sessions < 1:
        raise SettingError("least_sessions", least_sessions, "be at least 1")
    kept: dict[str, SessionLog] = {}
    left_out: dict[str, int] = {}
    if by is not None:
        values = query_frequency(log) if by == QUERY_FREQUENCY else log.column(by)
        names, part = np.unique(values, return_inverse=True)
        sessions = np.bincount(part, weights=log.clicks.impressions).astype(np.int64).tolist()
        for number, value in enumerate(names.tolist()):
            if sessions[number] >= least_sessions:
                kept[value] = log.take(part == number)
            else:
                left_out[value] = sessions[number]

    def curves(part: SessionLog) -> Curves:
        truth = part.observation
        return estimate_curves(
            part.clicks, estimators, bootstrap=bootstrap, depth=depth, truth=truth, progress=progress
        )

    return Observed(curves(log), {value: curves(part) for value, part in kept.items()}, left_out)


def where(log: SessionLog, conditions: Sequence[str]) -> SessionLog:
    """The sessions that meet all conditions, each written as `column=value`."""
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise SettingError("where", condition, "be written as column=value")
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
