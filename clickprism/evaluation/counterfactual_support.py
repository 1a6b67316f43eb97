"""A new ranking laid over a log: which of its documents stood where it would put them, and how often.

Given a query, sessions are exchangeable: chance, a day or an experiment decided which list each one got, not its user.
So how often a list, the top of a list, or a document at a position was shown within the query is its propensity, and
the clicks of those sessions are what it would earn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.ranking import check_scores
from clickprism.observation.curve import cut, sums
from clickprism.types import Bool, Clicks, Float64, Int64

TIES: Final = 20  # seed of the order of documents with equal scores
Match: TypeAlias = Literal["list", "top", "item"]


@final
@dataclass(frozen=True, eq=False)
class Cells:
    """How often the log did what the new ranking would do, by query and position.

    Attributes:
        shown: sessions that match, [queries, positions].
        clicked: clicks at the position in those sessions, [queries, positions].
        entries: which entries of the log these are.
    """

    shown: Float64
    clicked: Float64
    entries: Int64

    @property
    def rates(self) -> Float64:
        """Clicks a session that matches; 0 where none does, [queries, positions]."""
        rates: Float64 = self.clicked / np.maximum(self.shown, 1)
        return rates


@final
@dataclass(frozen=True, eq=False)
class Placed:
    """The new ranking of every query that was asked, against the log.

    Attributes:
        clicks: the log, positions 1 to the depth only.
        queries: those that were asked, as places in `clicks.lists`, [queries].
        query: of each ranked list, as a place in `queries`, [ranked lists].
        sessions: of each query, [queries].
        rows: the documents of the new ranking, best first, -1 below its end, [queries, positions].
        place: where the new ranking puts each document, from 0; the depth where it does not show it, [documents].
    """

    clicks: Clicks
    queries: Int64
    query: Int64
    sessions: Float64
    rows: Int64
    place: Int64

    @property
    def depth(self) -> int:
        """How many positions are looked at."""
        return int(self.rows.shape[1])

    @property
    def filled(self) -> Bool:
        """Where the new ranking has a document, [queries, positions]."""
        return self.rows >= 0

    @property
    def shares(self) -> Float64:
        """Of all sessions, those of each query, [queries]."""
        shares: Float64 = self.sessions / self.sessions.sum()
        return shares

    @cached_property
    def owner(self) -> Int64:
        """The ranked list of each entry, [entries]."""
        return np.repeat(np.arange(len(self.clicks)), np.diff(self.clicks.offsets))

    @cached_property
    def rates_by_position(self) -> Float64:
        """Clicks a session at each position, as logged, [positions]."""
        clicked = np.bincount(self.clicks.positions - 1, weights=self.clicks.clicks, minlength=self.depth)
        rates: Float64 = clicked / self.sessions.sum()
        return rates

    def logged(self, worth: Float64) -> Float64:
        """What a session of each query earned, each click by what its position is worth, [queries]."""
        earned = self.clicks.clicks * worth[self.clicks.positions - 1]
        per_query: Float64 = sums(self.query[self.owner], earned, len(self.queries)) / self.sessions
        return per_query

    @cached_property
    def rates(self) -> Float64:
        """Clicks a session of each query at each position, as logged, [queries, positions]."""
        cell = self.query[self.owner] * self.depth + self.clicks.positions - 1
        clicked = sums(cell, self.clicks.clicks.astype(np.float64), self.rows.size).reshape(self.rows.shape)
        rates: Float64 = clicked / self.sessions[:, None]
        return rates

    def cells(self, match: Match) -> Cells:
        """The sessions that showed the new list whole, its top down to a position, or its document at the position."""
        log, index = self.clicks, np.arange(len(self.clicks.rows))
        same = self.place[log.rows] == log.positions - 1
        alike = np.cumsum(same) - (np.cumsum(same) - same)[log.offsets[:-1]][self.owner]
        top = same & (alike == log.positions)
        if match == "top":
            same = top
        if match == "list":
            length = self.filled.sum(axis=1)[self.query]
            whole = np.zeros(len(log), dtype=np.bool_)
            last = index[top & (log.positions == length[self.owner])]
            whole[self.owner[last]] = True
            same &= whole[self.owner]
        entries = np.flatnonzero(same)
        cell = self.query[self.owner[entries]] * self.depth + log.positions[entries] - 1
        size = self.rows.size
        shown, clicked = (
            sums(cell, each[entries].astype(np.float64), size) for each in (log.list_impressions, log.clicks)
        )
        return Cells(shown.reshape(self.rows.shape), clicked.reshape(self.rows.shape), entries.astype(np.int64))


def place(clicks: Clicks, scores: Float64, *, depth: int) -> Placed:
    """Rank the documents of every query that was asked by score and lay the ranking over the log.

    A ranking is as long as the longest list that was shown for the query, `depth` at most. Documents of equal score
    stand in an order drawn once, the same in every run.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((3, 0), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 2]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([3, 0, 0, 1]), np.array([3, 1]))
    >>> placed = place(log, np.array([0.9, 0.1, 0.5]), depth=10)
    >>> placed.rows.tolist(), placed.cells("top").shown.tolist(), placed.cells("list").shown.tolist()
    ([[0, 2]], [[4.0, 1.0]], [[1.0, 1.0]])
    """
    if depth < 1:
        raise SettingError("depth", depth, "be at least 1")
    if clicks.sessions == 0:
        raise DataError("there are no sessions to evaluate on")
    if clicks.weights is not None:
        raise DataError(
            "clicks that carry weights are corrected already", remedy="Evaluate on the log as it was clicked"
        )
    values = check_scores(scores, clicks.lists.documents)
    log = cut(clicks, depth)
    of_list = log.lists.list_of[log.rows[log.offsets[:-1]]]
    queries, query = np.unique(of_list, return_inverse=True)
    sessions = np.bincount(query, weights=log.impressions).astype(np.float64)
    longest = np.zeros(len(queries), dtype=np.int64)
    np.maximum.at(longest, query, log.positions[log.offsets[1:] - 1])
    ties = np.random.default_rng(TIES).random(log.lists.documents)
    new_place = np.empty(log.lists.documents, dtype=np.int64)
    in_list = np.arange(log.lists.documents) - log.lists.offsets[log.lists.list_of]
    new_place[np.lexsort((ties, -values, log.lists.list_of))] = in_list
    length = np.zeros(len(log.lists), dtype=np.int64)
    length[queries] = np.minimum(longest, log.lists.lengths[queries])
    new_place = np.where(new_place < length[log.lists.list_of], new_place, depth)
    rows = np.full((len(queries), int(longest.max())), -1, dtype=np.int64)
    kept = np.flatnonzero(new_place < depth)
    number = np.full(len(log.lists), -1, dtype=np.int64)
    number[queries] = np.arange(len(queries))
    rows[number[log.lists.list_of[kept]], new_place[kept]] = kept
    return Placed(log, queries.astype(np.int64), query.astype(np.int64), sessions, rows, new_place)
