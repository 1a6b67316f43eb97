"""Columns of a log: use only some sessions (`--where`), or compare sessions by the value of a column (`--by`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.types import Clicks, Text

QUERY_FREQUENCY: Final = "query-frequency"
BUCKETS: Final = ("head", "middle", "tail")
DERIVED: Final = (QUERY_FREQUENCY, "ranker", "randomised")  # columns that are not read from a session file
OTHER: Final = "other values"
NAMED: Final = 10  # values of a column that an error lists


@final
@dataclass(frozen=True, kw_only=True)
class ColumnSettings:
    """Which sessions to use, and how to split them.

    Attributes:
        where: Use only the sessions with this value, written as column=value; may be repeated.
        by: Compare the values of this column, such as device. Also: query-frequency (head, middle and tail queries),
            ranker, randomised.
        min_sessions: Values of the column of --by with fewer sessions are added together as "other values".
    """

    where: tuple[str, ...] = ()
    by: str | None = None
    min_sessions: int = 1000

    def __post_init__(self) -> None:
        if self.min_sessions < 1:
            raise SettingError("min_sessions", self.min_sessions, "be at least 1")
        for condition in self.where:
            if "=" not in condition:
                raise SettingError("where", condition, "be written as column=value")

    @property
    def columns(self) -> list[str]:
        """Return the columns that must be read from a session file."""
        names = [condition.partition("=")[0] for condition in self.where]
        return [name for name in dict.fromkeys([*names, *([self.by] if self.by else [])]) if name not in DERIVED]


def column(logged: Logged, name: str) -> Text:
    """Return the value of a column for each ranked list, [ranked lists]."""
    if name in logged.columns:
        return logged.columns[name]
    if name == QUERY_FREQUENCY:
        return query_frequency(logged.clicks)
    known = list(logged.columns)
    if logged.policy is not None:
        if name == "ranker":
            named: Text = np.array(logged.policies, dtype=np.str_)[logged.policy]
            return named
        known.append("ranker")
    if logged.randomised is not None:
        if name == "randomised":
            return np.where(np.logical_and.reduceat(logged.randomised, logged.clicks.offsets[:-1]), "1", "0")
        known.append("randomised")
    raise DataError(f"the log has no column {name!r}", remedy=f"It has {', '.join([*known, QUERY_FREQUENCY])}")


def where(logged: Logged, settings: ColumnSettings) -> Logged:
    """Return the ranked lists that meet all conditions."""
    for condition in settings.where:
        name, _, value = condition.partition("=")
        values = column(logged, name)
        chosen = values == value
        if not chosen.any():
            found = np.unique(values).tolist()
            shown = ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
            raise DataError(f"no session has {condition}", remedy=f"The column has {shown}")
        logged = logged.take(chosen)
    return logged


def contexts(logged: Logged, settings: ColumnSettings) -> Text | None:
    """Return the context of each ranked list: its value of `by`, where rare values are one; None without `by`."""
    if settings.by is None:
        return None
    names, number = np.unique(column(logged, settings.by), return_inverse=True)
    sessions = np.bincount(number, weights=logged.clicks.impressions)
    common = sessions >= settings.min_sessions
    if not common.any():
        raise UnsupportedError(
            f"no value of {settings.by} has {settings.min_sessions:,} sessions (the largest has {sessions.max():,.0f})",
            remedy="Lower --min-sessions, or omit --by",
        )
    kept: Text = np.where(common, names, OTHER)[number]
    return kept


def query_frequency(clicks: Clicks) -> Text:
    """Return the bucket of each ranked list: the most frequent queries that make a third of the sessions are the head.

    [ranked lists]; a query is in one bucket, that of its middle session.
    """
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    asked = np.bincount(query, weights=clicks.impressions, minlength=len(clicks.lists))
    order = np.argsort(-asked, kind="stable")
    middle = np.empty(len(asked))
    middle[order] = np.cumsum(asked[order]) - asked[order] / 2
    bucket = np.minimum((3 * middle / asked.sum()).astype(np.int64), 2)
    names: Text = np.array(BUCKETS, dtype=np.str_)[bucket[query]]
    return names
