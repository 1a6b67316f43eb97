"""The counts of a log: impressions and clicks of each (query, document) pair in each cell.

All that the model needs of a log are these counts, so its cost does not depend on the number of sessions. A *pair* is a
document of one query. A *cell* is a position, together with the context of the search (such as the device), the
position of the last click above, or the popularity of the document on that day, where the model uses them.

The position at which a pair was first shown is part of the counts. A good engine puts relevant documents first, so this
position is evidence about relevance. Later positions are evidence too, but an engine that reacts to clicks moves
clicked documents up (`feedback` tests this), and its reaction is taken out of them (`positions_without_reaction`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, final

import numpy as np

from clickprism.click_models.popularity import percentiles
from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.types import Bool, Clicks, Float32, Float64, Int64, Text

PART: Final = 500_000  # entries whose days are compared at once
DENSE: Final = 50_000_000  # largest table of (pair, cell) that is counted without sorting
LEVELS: Final = 8  # number of levels of popularity
FEW: Final = 5  # clicks on a query after which an engine may have reacted to them; impressions of a first click rate
TAKEN_OUT: Final = 0.85  # of the reaction: near the top it is smaller than on average (benchmarks/good_engines.py)
MOVES_BACK: Final = -1 / 3  # correlation of changes of positions below which most are by chance
DEEPEST_BROWSING: Final = 20  # below it there would be too many cells of (position, last click)


@final
@dataclass(frozen=True, eq=False)
class LogCounts:
    """Impressions and clicks of each pair in each cell; cells of a pair are consecutive.

    Attributes:
        rows: Row of each pair in the log's documents, increasing, [pairs].
        query: Query of each pair, from 0, not decreasing, [pairs].
        first: Mean log position of each pair when it was first shown, [pairs]; see `first_positions`.
        average: Mean log position of each pair over the whole log, [pairs].
        features: Features of each pair, [pairs, features]; no columns if the log has none.
        pair: Pair of each cell, not decreasing, [cells].
        position: Position of each cell, from 0, [cells].
        impressions: [cells].
        clicks: [cells].
        context: Context of each cell, by index in `contexts`, [cells].
        contexts: Names of the contexts; one empty name if the log is not split.
        last_click: Position of the last click above, from 1, or 0, [cells]; None if cells are not split by it.
        popularity: Popularity of the document when it was shown, from 0 to 1, [cells]; None if cells are not split.
        seen: Impressions that were observed, if the site logs that, [cells]; otherwise None.
        randomised: Whether the position was chosen at random, [cells]; None if the log does not record it.
        placed: Whether the engine chose a position of the pair at least once, [pairs]; None if it did for all pairs.
            Positions chosen at random say nothing about relevance.
    """

    rows: Int64
    query: Int64
    first: Float64
    average: Float64
    features: Float32
    pair: Int64
    position: Int64
    impressions: Float64
    clicks: Float64
    context: Int64
    contexts: tuple[str, ...] = ("",)
    last_click: Int64 | None = None
    popularity: Float64 | None = None
    seen: Float64 | None = None
    randomised: Bool | None = None
    placed: Bool | None = None

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)

    def __repr__(self) -> str:
        return (
            f"LogCounts({len(self)} pairs of {self.queries} queries, {self.positions} positions, "
            f"{self.impressions.sum():.0f} impressions, {self.clicks.sum():.0f} clicks)"
        )

    @property
    def positions(self) -> int:
        """Return the number of positions, that is, the deepest position at which something was shown."""
        return int(self.position.max(initial=-1)) + 1

    @property
    def queries(self) -> int:
        """Return the number of queries."""
        return int(self.query.max(initial=-1)) + 1

    def by_pair(self, values: Float64) -> Float64:
        """Return the sums of values of cells over each pair, [pairs]."""
        return np.bincount(self.pair, weights=values, minlength=len(self)).astype(np.float64, copy=False)

    def by_position(self, values: Float64) -> Float64:
        """Return the sums of values of cells over each position, [positions]."""
        return np.bincount(self.position, weights=values, minlength=self.positions).astype(np.float64, copy=False)

    def by_query_and_position(self, values: Float64) -> Float64:
        """Return the sums of values of cells over each query and position, [queries, positions]."""
        at, shape = self.query[self.pair] * self.positions + self.position, (self.queries, self.positions)
        return np.bincount(at, weights=values, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)

    @cached_property
    def starts(self) -> Int64:
        """Return the first cell of each pair, and the number of cells, [pairs + 1]."""
        return np.searchsorted(self.pair, np.arange(len(self) + 1)).astype(np.int64)

    @property
    def records_views(self) -> bool:
        """Return whether the log records what users observed, at every position where something was shown."""
        if self.seen is None:
            return False
        return bool((self.by_position(self.seen) > 0)[self.by_position(self.impressions) > 0].all())

    def take(self, queries: Bool) -> tuple[LogCounts, Int64]:
        """Return the counts of these queries, [queries] of truth values, and which cells these are."""
        if queries.all():
            return self, np.arange(len(self.pair))
        pairs = queries[self.query]
        cells = np.flatnonzero(pairs[self.pair])
        of_pairs, of_cells = ("rows", "first", "average", "features", "placed"), (
            "position", "impressions", "clicks", "context", "last_click", "popularity", "seen", "randomised",
        )  # fmt: skip
        cut = {
            name: getattr(self, name)[kept]
            for names, kept in ((of_pairs, pairs), (of_cells, cells))
            for name in names
            if getattr(self, name) is not None
        }
        query = np.unique(self.query[pairs], return_inverse=True)[1].astype(np.int64)
        return replace(self, query=query, pair=(np.cumsum(pairs) - 1)[self.pair[cells]], **cut), cells

    @cached_property
    def several(self) -> Bool:
        """Return whether each pair was shown at several positions, [pairs]."""
        low, high = np.full(len(self), self.positions), np.full(len(self), -1)
        np.minimum.at(low, self.pair, self.position)
        np.maximum.at(high, self.pair, self.position)
        return np.asarray(high > low)


def count(
    log: Logged | Clicks,
    *,
    context: Text | None = None,
    by_last_click: bool = False,
    by_popularity: bool = False,
    by_chance: bool = False,
) -> LogCounts:
    """Count the impressions and clicks of each pair in each cell.

    Args:
        log: The log; merged sessions or not, the counts are the same.
        context: Value of a column, such as the device, for each ranked list.
        by_last_click: Split cells by the last click above; needs sessions that are not merged by list.
        by_popularity: Split cells by the clicks that the document had on earlier days.
        by_chance: Split cells by whether the position was chosen at random.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([3, 1, 2, 0]), np.array([5, 4]))
    >>> counts = count(log)
    >>> counts.position.tolist(), counts.clicks.tolist(), counts.impressions.tolist()
    ([0, 1], [5.0, 1.0], [9.0, 9.0])
    """
    logged = as_logged(log)
    clicks = logged.clicks
    if clicks.weights is not None:
        raise DataError(
            "the clicks have weights, so they were corrected already", remedy="Use the log as it was clicked"
        )
    if not len(clicks.rows):
        raise DataError("the log has no impressions", remedy="Ingest events first")
    depth, shown = clicks.max_position, clicks.list_impressions
    parts = {"position": (clicks.positions.astype(np.int64) - 1, depth)}
    names: tuple[str, ...] = ("",)
    if context is not None:
        if context.shape != (len(clicks),):
            raise DataError(f"{len(clicks)} ranked lists but {len(context)} values of the context")
        kinds, kind = np.unique(context, return_inverse=True)
        names = tuple(kinds.tolist())
        parts["context"] = np.repeat(kind.astype(np.int64), np.diff(clicks.offsets)), len(names)
    if by_last_click:
        parts["last_click"] = last_clicks(clicks), depth + 1
    if by_popularity:
        parts["popularity"] = _popularity(logged), LEVELS + 1
    if by_chance and logged.randomised is not None:
        parts["randomised"] = logged.randomised.astype(np.int64), 2
    key, width = clicks.rows.astype(np.int64), 1
    for part, size in parts.values():
        key, width = key * size + part, width * size
    values = (shown, clicks.clicks) if clicks.seen is None else (shown, clicks.clicks, clicks.seen)
    cells, (impressions, clicked, *seen) = _sums(key, clicks.lists.documents * width, *values)
    del key
    split: dict[str, Int64] = {}
    rest = cells
    for name, (_, size) in reversed(parts.items()):
        rest, split[name] = np.divmod(rest, size)
    rows, pair = _sorted_unique(rest)
    popular, chance = split.get("popularity"), split.get("randomised")
    if logged.randomised is None:
        logs = impressions * _log_positions(depth)[split["position"]]
        average = np.bincount(pair, weights=logs) / np.bincount(pair, weights=impressions)
    else:
        average = _mean_log_position(logged)[rows]
    return LogCounts(
        rows=rows,
        query=_sorted_unique(clicks.lists.list_of[rows])[1],
        first=first_positions(logged)[rows],
        average=average,
        features=clicks.lists.features[rows],
        pair=pair,
        position=split["position"],
        impressions=impressions,
        clicks=clicked,
        context=split.get("context", np.zeros(len(cells), dtype=np.int64)),
        contexts=names,
        last_click=split.get("last_click"),
        popularity=None if popular is None else popular / LEVELS,
        seen=seen[0] if seen else None,
        randomised=None if chance is None else chance.astype(np.bool_),
        placed=placed_by_engine(logged, rows),
    )


def first_positions(logged: Logged) -> Float64:
    """Return the mean log position of each document when it was first shown, weighted by impressions, [documents].

    It covers the days until the first click on the document, inclusive, as long as its query had at most `FEW` clicks
    before, and always the first day of the document: until then the engine has hardly reacted to clicks. A log without
    days is read in the order of its lists; if these are merged sessions, which have no order, it is the mean over all
    lists. Documents that were never shown get 0.
    """
    clicks, nothing = logged.clicks, np.iinfo(np.int64).max
    if logged.days is None and (clicks.impressions > 1).any():
        return _mean_log_position(logged)
    of_list = _list_days(logged)
    few = np.repeat(_clicks_before(clicks, of_list) <= FEW, np.diff(clicks.offsets))
    day = np.repeat(of_list, np.diff(clicks.offsets))
    clicked = np.flatnonzero(clicks.clicks)
    own, first = np.full(clicks.lists.documents, nothing), np.full(clicks.lists.documents, nothing)
    np.minimum.at(own, clicks.rows[clicked], day[clicked])
    np.minimum.at(first, clicks.rows, day)
    return _mean_log_position(logged, (few & (day <= own[clicks.rows])) | (day == first[clicks.rows]))


def _clicks_before(clicks: Clicks, day: Int64) -> Int64:
    """Return the clicks that the query of each ranked list had on earlier days, [ranked lists]."""
    query = _list_queries(clicks)
    order = np.lexsort((day, query))
    query, day = query[order], day[order]
    own = np.diff(np.concatenate([[0], np.cumsum(clicks.clicks)])[clicks.offsets])[order]
    total = np.cumsum(own) - own
    first_of_query, first_of_day = (
        np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        for new in (_starts_run(query), _starts_run(query, day))
    )
    before = np.empty_like(own)
    before[order] = total[first_of_day] - total[first_of_query]
    return before


def _list_days(logged: Logged) -> Int64:
    """Return the day of each ranked list; its number in a log without days, [ranked lists]."""
    return np.arange(len(logged)) if logged.days is None else logged.days.astype(np.int64)


def _list_queries(clicks: Clicks) -> Int64:
    """Return the query of each ranked list; any for an empty list, [ranked lists]."""
    return clicks.lists.list_of[clicks.rows[np.minimum(clicks.offsets[:-1], len(clicks.rows) - 1)]]


def placed_by_engine(logged: Logged, rows: Int64) -> Bool | None:
    """Return whether the engine chose a position of each document at least once, [rows]; None if it did for all."""
    if logged.randomised is None:
        return None
    times = np.bincount(logged.clicks.rows, weights=~logged.randomised, minlength=logged.clicks.lists.documents)[rows]
    return None if (times > 0).all() else np.asarray(times > 0)


def _mean_log_position(logged: Logged, chosen: Bool | None = None) -> Float64:
    """Return the mean log position of each document over these entries, by default all, [documents].

    Entries that chance placed are not used, unless the document has no others.
    """
    clicks, size = logged.clicks, logged.clicks.lists.documents
    if logged.randomised is not None:
        own = ~logged.randomised if chosen is None else chosen & ~logged.randomised
        known = np.bincount(clicks.rows, weights=own, minlength=size) > 0
        chosen = np.where(known[clicks.rows], own, True if chosen is None else chosen)
    shown = clicks.list_impressions.astype(np.float64)
    if chosen is not None:
        shown *= chosen
    times = np.maximum(np.bincount(clicks.rows, weights=shown, minlength=size), 1e-300)
    shown *= _log_positions(clicks.max_position)[clicks.positions - 1]
    return np.asarray(np.bincount(clicks.rows, weights=shown, minlength=size) / times)


def _log_positions(depth: int) -> Float64:
    return _rounded(np.log(np.arange(1, depth + 1)))


def _rounded(values: Float64) -> Float64:
    """Return values rounded to multiples of 2^-28.

    Sums of them over impressions are exact, so they do not depend on the order in which a log is read, nor on how its
    sessions are merged. Otherwise the last digit differs, which trees can magnify to another model.
    """
    return np.asarray(np.round(values * 2.0**28) / 2.0**28)


class _Days(NamedTuple):
    """Documents on the days on which they were shown, [entries] each; the days of a document are consecutive."""

    row: Int64  # of the document
    query: Int64
    day: Int64  # from 0
    starts: Int64  # first entry of each document that was shown, [shown documents]
    pair: Int64  # number of the document among those that were shown
    shown: Float64  # impressions on that day
    clicked: Float64
    logs: Float64  # mean log position on that day
    # clicks minus expected clicks: given how often a document was clicked in all, its clicks fall on days in proportion
    # to its exposure, whatever its relevance
    surprise: Float64
    searched: Int64  # distinct query * width + day of all searches
    width: int  # number of days

    @classmethod
    def parts(cls, logged: Logged, curve: Float64) -> Iterator[_Days]:
        """Yield the days of a log in parts of about `PART` entries, which have all the entries of their documents.

        `curve` is the observation at each position, [positions].
        """
        clicks = logged.clicks
        day = np.unique(_list_days(logged), return_inverse=True)[1].astype(np.int64)
        width = int(day.max(initial=0)) + 1
        searched = np.unique((_list_queries(clicks) * width + day)[np.diff(clicks.offsets) > 0])
        curve = _rounded(curve)[np.minimum(np.arange(clicks.max_position), len(curve) - 1)]
        log_positions = _log_positions(clicks.max_position)
        order, ends = np.argsort(clicks.rows), np.cumsum(np.bincount(clicks.rows))
        ranked_list = np.repeat(np.arange(len(clicks), dtype=np.int32), np.diff(clicks.offsets))
        cuts = np.unique([0, *ends[np.searchsorted(ends, np.arange(PART, len(order), PART))], len(order)])
        for entries in np.split(order, cuts[1:-1]):
            at, shown = clicks.positions[entries] - 1, clicks.impressions[ranked_list[entries]]
            key = clicks.rows[entries] * width + day[ranked_list[entries]]
            values = shown, clicks.clicks[entries], shown * curve[at], shown * log_positions[at]
            keys, (total, clicked, exposure, logs) = _sums(key, clicks.lists.documents * width, *values)
            row = keys // width
            starts = np.flatnonzero(_starts_run(row))
            pair = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(row))))
            share = exposure / np.maximum(np.add.reduceat(exposure, starts)[pair], 1e-300)
            surprise = clicked - np.add.reduceat(clicked, starts)[pair] * share
            days = row, clicks.lists.list_of[row], keys % width, starts, pair, total, clicked, logs / total, surprise
            yield cls(*days, searched, width)

    def so_far(self, values: Float64) -> Float64:
        """Return the sums over the days of the document until each day, inclusive, [entries]."""
        sums = np.cumsum(values)
        return np.asarray(sums - (sums - values)[self.starts][self.pair])

    @property
    def rise(self) -> Float64:
        """Return by how much the clicks of each day raise the click rate so far beyond expectation, [entries]."""
        return np.asarray(self.surprise / (self.so_far(self.shown) + FEW))

    def later(self, values: Float64, *, absent: float | None = None) -> Float64:
        """Return the mean of values on later days of the document minus their mean on all days, [entries].

        Args:
            values: Values on each day, [entries].
            absent: Value on days on which the query was searched but the document was not shown; None skips these days.
        """
        days = np.bincount(self.pair)[self.pair].astype(np.float64)
        left = days - self.so_far(np.ones(len(self.row)))
        total = np.add.reduceat(values, self.starts)[self.pair]
        rest = total - self.so_far(values)
        if absent is not None:
            searched, width = self.searched, self.width
            end = np.searchsorted(searched, (self.query + 1) * width)
            missing_left = end - np.searchsorted(searched, self.query * width + self.day) - 1 - left
            missing = end - np.searchsorted(searched, self.query * width) - days
            left, rest = left + missing_left, rest + absent * missing_left
            days, total = days + missing, total + absent * missing
        return np.where(left > 0, rest / np.maximum(left, 1) - total / days, 0.0)


def feedback_statistics(logged: Logged, curve: Float64) -> tuple[Float64, Float64]:
    """Return the sums of x y and of x^2 over the documents and days of each query, [queries] each.

    Their ratio is the reaction of the engine: by how much the log position of a document changes for a click rate that
    is higher by 1. It is negative if clicked documents move up.

        x = (clicks - expected clicks on that day) / (impressions so far + `FEW`)      the rise of the click rate so far
        y = mean log position on later days - mean log position on all days

    Whatever the relevance of the documents, the mean of x y is 0 unless later positions depend on earlier clicks. On
    days on which the query was searched but the document was not shown, its position is the one below the last position
    of the log.

    Args:
        logged: The log.
        curve: Observation at each position, [positions].
    """
    # without days, every list counts as a day; its documents may be missing in the next because that is another page
    below = None if logged.days is None else float(np.log(len(curve) + 1))
    products, squares = np.zeros((2, len(logged.clicks.lists)))
    for days in _Days.parts(logged, curve):
        x, y = days.rise, days.later(days.logs, absent=below)
        products += np.bincount(days.query, weights=x * y, minlength=len(products))
        squares += np.bincount(days.query, weights=x**2, minlength=len(squares))
    return products, squares


def positions_without_reaction(logged: Logged, curve: Float64) -> Float64 | None:
    """Return the mean log position of each document, without the engine's reaction to clicks, [documents].

        log position = what the engine knows + b (click rate until the day before) + noise

    b is estimated with the rises of the click rate beyond expectation as instruments: they change later click rates,
    and later positions only through these. None if clicks do not move documents up, or if little else moves them: then
    the first-shown position is all that the engine knows.

    Args:
        logged: The log of an engine that reacts to clicks.
        curve: Observation at each position, [positions].
    """
    size = logged.clicks.lists.documents
    slope, strength, moves = 0.0, 0.0, np.zeros(3)
    shown, logs, rates = np.zeros((3, size))
    for days in _Days.parts(logged, curve):
        rate = (days.so_far(days.clicked) - days.clicked) / (days.so_far(days.shown) - days.shown + FEW)
        x = days.rise
        slope, strength = slope + float(x @ days.later(days.logs)), strength + float(x @ days.later(rate))
        moves += _moves(days)
        shown += np.bincount(days.row, weights=days.shown, minlength=size)
        logs += np.bincount(days.row, weights=days.shown * days.logs, minlength=size)
        rates += np.bincount(days.row, weights=days.shown * rate, minlength=size)
    if not slope < 0 < strength or not moves[0] < MOVES_BACK * np.sqrt(moves[1] * moves[2]):
        return None
    return np.asarray((logs - TAKEN_OUT * slope / strength * rates) / np.maximum(shown, 1e-300))


def _moves(days: _Days) -> Float64:
    """Return the sums of products and squares of one change of a position and the next, whose correlation tells why.

    Chance moves a document and moves it back: the correlation is -1/2. What clicks change stays: it is about 0.
    """
    change, same = np.diff(days.logs), days.pair[2:] == days.pair[:-2]
    one, following = change[:-1][same], change[1:][same]
    return np.array([one @ following, one @ one, following @ following])


def cut(logged: Logged, depth: int) -> Logged:
    """Return the top of every ranked list: positions 1 to `depth`."""
    clicks = logged.clicks
    kept = clicks.positions <= depth
    if not kept.any():
        raise DataError(f"nothing was shown at positions 1 to {depth}", remedy="Use a larger depth")
    offsets = np.concatenate([[0], np.cumsum(kept)])[clicks.offsets]
    names = ("rows", "positions", "clicks", "weights", "seen")
    entries = {name: getattr(clicks, name)[kept] for name in names if getattr(clicks, name) is not None}
    randomised = None if logged.randomised is None else logged.randomised[kept]
    top = replace(logged, clicks=replace(clicks, offsets=offsets, **entries), randomised=randomised)
    return top.take(np.diff(offsets) > 0)


def last_clicks(clicks: Clicks) -> Int64:
    """Return the position of the last click above each entry of its ranked list, 0 if there is none, [entries]."""
    if not clicks.are_patterns:
        raise DataError(
            "the log does not record which clicks belong to one session",
            remedy='Merge sessions with clicks.merge(by="pattern"), or simulate with --simulation.merge pattern',
        )
    owner = np.repeat(np.arange(len(clicks), dtype=np.int64), np.diff(clicks.offsets))
    span = clicks.max_position + 1
    marks = owner * span + np.where(clicks.clicks > 0, clicks.positions, 0)
    highest = np.concatenate([[0], np.maximum.accumulate(marks)[:-1]])
    return np.where(highest // span == owner, highest % span, 0).astype(np.int64)


def _popularity(logged: Logged) -> Int64:
    """Return the popularity of the document of each entry, by the clicks of earlier days, in `LEVELS`, [entries]."""
    if logged.days is None:
        raise DataError("the log has no days", remedy="Popularity needs the clicks of earlier days")
    clicks = logged.clicks
    day = np.repeat(logged.days, np.diff(clicks.offsets))
    level, before = np.zeros(len(day), dtype=np.int64), np.zeros(clicks.lists.documents)
    for each in np.unique(logged.days):
        at = np.flatnonzero(day == each)
        level[at] = np.round(LEVELS * percentiles(before)).astype(np.int64)[clicks.rows[at]]
        before += np.bincount(clicks.rows[at], weights=clicks.clicks[at], minlength=len(before))
    return level


def as_logged(log: object) -> Logged:
    """Return a log as `Logged`; a TypeError says what to pass instead of other values."""
    if isinstance(log, Logged):
        return log
    if not isinstance(log, Clicks):
        has = isinstance(getattr(log, "clicks", None), Clicks)
        raise TypeError(f"a log must be Logged or Clicks, not {type(log).__name__}{': pass its .clicks' * has}")
    return Logged(log)


def _sums(key: Int64, size: int, *values: Int64 | Float64) -> tuple[Int64, list[Float64]]:
    """Return the distinct keys, increasing, and the sums of values over each; the first values are above 0.

    Keys are from 0 to `size`.
    """
    if size <= DENSE:
        table = np.bincount(key, weights=values[0], minlength=size).astype(np.float64, copy=False)
        found = np.flatnonzero(table)
        sums = [table[found]]
        for each in values[1:]:
            at = np.flatnonzero(each)  # most entries have no clicks
            table = np.bincount(key[at], weights=each[at], minlength=size).astype(np.float64, copy=False)
            sums.append(table[found])
        return found.astype(np.int64), sums
    order = np.argsort(key)
    key = key[order]
    starts = np.flatnonzero(_starts_run(key))
    return key[starts], [np.add.reduceat(each[order].astype(np.float64), starts) for each in values]


def _starts_run(*sorted_values: Int64) -> Bool:
    """Return whether each entry of sorted arrays is the first with its values."""
    new = np.zeros(len(sorted_values[0]), dtype=np.bool_)
    new[:1] = True
    for values in sorted_values:
        new[1:] |= values[1:] != values[:-1]
    return new


def _sorted_unique(values: Int64) -> tuple[Int64, Int64]:
    """Return the distinct values of a sorted array, and the index of each value among them."""
    new = _starts_run(values)
    return values[new], np.cumsum(new, dtype=np.int64) - 1
