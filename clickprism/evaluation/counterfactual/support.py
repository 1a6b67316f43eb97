"""What a log says about a new ranking: how often it showed the same, what its model predicts, how far to trust that.

Given a query, sessions are exchangeable: chance, the day or an experiment decided which list a session got, not its
user. So how often a list, the top of a list, or a document at a position was shown within the query is its propensity,
and the clicks of those sessions are what the new ranking would get. The rest is predicted by the model of the log,
which is checked on documents that the log showed at several positions, on whole lists, and on days.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import check_scores
from clickprism.log_model.counts import cut
from clickprism.log_model.model import LogModel
from clickprism.types import Bool, Clicks, Float64, Int64

Match: TypeAlias = Literal["list", "top", "item"]
TIES: Final = 20  # seed of the order of documents with equal scores
LEAST: Final = 1e-6
TAILS: Final = (0.05, 0.95)  # quantiles of relevance between which a document without clicks is assumed to lie
DRAWS: Final = 100  # draws of the curve
HALF: Final = 0.5  # positions by which a document must move to count as moved
FLAT: Final = 0.1  # smallest mean move, in log observation, that an elasticity is computed over
FURTHEST: Final = 4.0  # largest factor by which a predicted rate is corrected
SLOPE_SPREAD: Final = 0.5  # prior standard deviation of the slope of lists around 1
CALM: Final = 100.0  # clicks by which the level of each day is shrunk towards that of the others


@final
@dataclass(frozen=True, eq=False)
class Matched:
    """Sessions that showed what the new ranking would show, by query and position."""

    shown: Float64  # Number of sessions that match, [queries, positions]
    clicked: Float64  # Clicks at the position in those sessions, [queries, positions]
    entries: Int64  # Entries of the log that match

    @property
    def rates(self) -> Float64:
        """Return the clicks per matching session; 0 if there is none, [queries, positions]."""
        return np.asarray(self.clicked / np.maximum(self.shown, 1))


@final
@dataclass(frozen=True, eq=False)
class Placed:
    """The new ranking of every query that was asked, and the log."""

    clicks: Clicks  # The log, positions 1 to the depth only
    days: Int64 | None  # Day of each ranked list, from 0, [ranked lists]; None if unknown
    queries: Int64  # Queries that were asked, as indices in `clicks.lists`, [queries]
    query: Int64  # Query of each ranked list, as an index in `queries`, [ranked lists]
    sessions: Float64  # Number of sessions of each query, [queries]
    rows: Int64  # Documents of the new ranking, best first, -1 below its end, [queries, positions]
    position: Int64  # Position of each document in the new ranking, from 0; the depth if it is not shown, [documents]

    @property
    def depth(self) -> int:
        """Return the number of positions that count."""
        return int(self.rows.shape[1])

    @property
    def filled(self) -> Bool:
        """Return where the new ranking has a document, [queries, positions]."""
        return self.rows >= 0

    @property
    def shares(self) -> Float64:
        """Return the share of all sessions that each query has, [queries]."""
        return np.asarray(self.sessions / self.sessions.sum())

    @cached_property
    def owner(self) -> Int64:
        """Return the ranked list of each entry, [entries]."""
        return np.repeat(np.arange(len(self.clicks)), np.diff(self.clicks.offsets))

    @cached_property
    def rates(self) -> Float64:
        """Return the clicks per session of each query at each position, as logged, [queries, positions]."""
        cell = self.query[self.owner] * self.depth + self.clicks.positions - 1
        clicked = sums(cell, self.clicks.clicks, self.rows.size)
        return np.asarray(clicked.reshape(self.rows.shape) / self.sessions[:, None])

    @cached_property
    def rates_by_position(self) -> Float64:
        """Return the clicks per session at each position, as logged, [positions]."""
        return np.asarray(self.shares @ self.rates)

    def matched(self, match: Match) -> Matched:
        """Return the sessions that showed the whole new list, its top down to a position, or a document there."""
        log = self.clicks
        same = self.position[log.rows] == log.positions - 1
        alike = np.cumsum(same) - (np.cumsum(same) - same)[log.offsets[:-1]][self.owner]
        top = same & (alike == log.positions)
        if match == "top":
            same = top
        if match == "list":
            length = self.filled.sum(axis=1)[self.query]
            whole = np.zeros(len(log), dtype=np.bool_)
            whole[self.owner[top & (log.positions == length[self.owner])]] = True
            same &= whole[self.owner]
        entries = np.flatnonzero(same).astype(np.int64)
        cell = self.query[self.owner[entries]] * self.depth + log.positions[entries] - 1
        shown, clicked = (
            sums(cell, each[entries], self.rows.size).reshape(self.rows.shape)
            for each in (log.list_impressions, log.clicks)
        )
        return Matched(shown, clicked, entries)


def sums(group: Int64, values: Float64 | Int64, size: int) -> Float64:
    """Return the sum of the values of each group, [size]."""
    return np.bincount(group, weights=values, minlength=size).astype(np.float64, copy=False)


def place(logged: Logged, scores: Float64, *, depth: int) -> Placed:
    """Rank the documents of every query that was asked by score.

    A ranking is as long as the longest list that was shown for the query, at most `depth`. Documents with equal scores
    get a random order, the same in every run.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((3, 0), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 2]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([3, 0, 0, 1]), np.array([3, 1]))
    >>> placed = place(Logged(log), np.array([0.9, 0.1, 0.5]), depth=10)
    >>> placed.rows.tolist(), placed.matched("top").shown.tolist(), placed.matched("list").shown.tolist()
    ([[0, 2]], [[4.0, 1.0]], [[1.0, 1.0]])
    """
    if depth < 1:
        raise SettingError("depth", depth, "be at least 1")
    clicks = logged.clicks
    if clicks.sessions == 0:
        raise DataError("the log has no sessions to evaluate on")
    if clicks.weights is not None:
        raise DataError(
            "the clicks have weights, so they were corrected already", remedy="Evaluate on the log as it was clicked"
        )
    values = check_scores(scores, clicks.lists.documents)
    top = cut(logged, depth)
    log = top.clicks
    days = None if top.days is None else np.unique(top.days, return_inverse=True)[1].astype(np.int64)
    lists, list_of = log.lists, log.lists.list_of
    queries, query = np.unique(list_of[log.rows[log.offsets[:-1]]], return_inverse=True)
    sessions = sums(query, log.impressions, len(queries))
    longest = np.zeros(len(queries), dtype=np.int64)
    np.maximum.at(longest, query, log.positions[log.offsets[1:] - 1])
    ties = np.random.default_rng(TIES).random(lists.documents)
    position = np.empty(lists.documents, dtype=np.int64)
    position[np.lexsort((ties, -values, list_of))] = np.arange(lists.documents) - lists.offsets[list_of]
    length = np.zeros(len(lists), dtype=np.int64)
    length[queries] = np.minimum(longest, lists.lengths[queries])
    position = np.where(position < length[list_of], position, depth)
    rows = np.full((len(queries), int(longest.max())), -1, dtype=np.int64)
    shown = np.flatnonzero(position < depth)
    number = np.full(len(lists), -1, dtype=np.int64)
    number[queries] = np.arange(len(queries))
    rows[number[list_of[shown]], position[shown]] = shown
    return Placed(log, days, queries.astype(np.int64), query.astype(np.int64), sessions, rows, position)


class Slope(NamedTuple):
    """A slope that a check estimates, and its standard error; nan if the log does not show it."""

    value: float
    error: float


@final
class Predictions:
    """What the model of a log predicts for the new ranking, and where the log showed each document.

    Observation of document d at position k is its predicted click rate there over that at the first position. So it
    includes everything that the model does: trust, coupling, curves that differ by query. A cell is a document at a
    position where the log showed it.
    """

    def __init__(self, placed: Placed, model: LogModel, *, seed: int) -> None:
        log, depth, size = placed.clicks, placed.depth, placed.clicks.lists.documents
        if len(model.curve) < depth:
            raise DataError(
                f"the model covers positions 1 to {len(model.curve)}, not {depth}",
                remedy="Fit it with a larger depth, or evaluate fewer positions",
            )
        cells, self.cell = np.unique(log.rows * depth + log.positions - 1, return_inverse=True)
        self.cell_rows, self.cell_positions = np.divmod(cells, depth)
        self.impressions, self.clicks = (
            sums(self.cell, each, len(cells)) for each in (log.list_impressions, log.clicks)
        )
        rows, columns = np.maximum(placed.rows, 0), np.broadcast_to(np.arange(depth), placed.rows.shape)
        self.curve = model.curve.values[:depth]  # observation by position
        self.draws = model.draws(DRAWS, seed)[:, :depth] / self.curve
        self.rates = np.where(placed.filled, model.rates(rows, columns + 1), 0.0)  # of the new ranking
        self.observation = _observation(model, rows, columns)  # of its documents
        self.at = _observation(model, self.cell_rows, self.cell_positions)  # in each cell
        groups = model.linkage.groups[:depth]
        self.linked = bool((groups == 0).all())
        shown = np.zeros((size, int(groups.max()) + 1), dtype=np.bool_)
        shown[self.cell_rows, groups[self.cell_positions]] = True
        self.known = placed.filled & shown[rows, groups[columns]]  # shown at a position that can be compared
        low, high = np.quantile(model.relevance.expected, TAILS)
        self.low, self.high = np.minimum(low * self.curve, 1.0), np.minimum(high * self.curve, 1.0)
        pairs, share = model.relevance, np.clip(model.relevance.share, LEAST, 1.0)
        # relevance without clicks, its strength in impressions at the first position, and the weight of the clicks
        self.prior, self.strength, self.share = np.zeros(size), np.zeros(size), np.zeros(size)
        self.prior[pairs.rows], self.share[pairs.rows] = pairs.prior, share
        self.strength[pairs.rows] = pairs.weight * (1 - share) / share

    def by_document(self, values: Float64) -> Float64:
        """Return sums of values of cells over each document, [documents]."""
        return sums(self.cell_rows, values, len(self.prior))

    @cached_property
    def shown(self) -> Float64:
        """Return the impressions of each document, [documents]."""
        return self.by_document(self.impressions)

    @cached_property
    def exposure(self) -> Float64:
        """Return the impressions of each document, converted to impressions at the first position."""
        return self.by_document(self.impressions * self.at)

    @cached_property
    def mean_position(self) -> Float64:
        """Return the mean position of each document, from 0, [documents]; nan if it was never shown."""
        total = self.by_document(self.impressions * self.cell_positions)
        return np.where(self.shown > 0, total / np.maximum(self.shown, 1), np.nan)

    def curve_variance(self, rows: Int64, weights: Float64) -> float:
        """Return the variance of the weighted sum of rates, [queries, positions], by the uncertainty of the curve.

        Clicks over exposure, (C + K m) / (E + K), change in the other direction, by their weight in the estimate.
        """
        at = np.nonzero(weights)
        row, value = rows[at], (weights * self.rates)[at]
        sums = np.empty(len(self.draws))
        for number, ratio in enumerate(self.draws):
            exposure = self.by_document(self.impressions * self.at * ratio[self.cell_positions])
            relative = exposure[row] / np.maximum(self.exposure[row], LEAST)
            sums[number] = value @ (ratio[at[1]] / (1 - self.share[row] + self.share[row] * relative))
        return float(sums.var())

    def elasticity(self, documents: Bool, *, up: bool) -> Slope:
        """Return how the model errs on these documents, [documents], where the log moved them up, or down.

        Their clicks are exp(slope |move|) times those predicted from the clicks at their other positions; a move is a
        difference of log observation. If observation depends on the document, o_k^(1 + e), and the model does not
        include that, the slope is the mean of e, or of -e for moves down.
        """
        rows, position, shown = self.cell_rows, self.cell_positions, self.impressions
        elsewhere = self.exposure[rows] - shown * self.at
        others = self.shown[rows] - shown
        mean = (self.by_document(shown * position)[rows] - shown * position) / np.maximum(others, 1)
        direction = position < mean - HALF if up else position > mean + HALF
        at = np.flatnonzero(direction & (others > 0) & documents[rows])
        row, n, elsewhere, others = rows[at], shown[at], elsewhere[at], others[at]
        relevance = self.by_document(self.clicks)[row] - self.clicks[at] + self.strength[row] * self.prior[row]
        relevance /= np.maximum(elsewhere + self.strength[row], LEAST)
        predicted, clicked = np.minimum(relevance * self.at[at], 1.0) * n, self.clicks[at]
        if predicted.sum() <= 0 or clicked.sum() == 0:
            return Slope(0.0, float("nan"))
        move = np.log(self.at[at]) - np.log(np.maximum(elsewhere, LEAST) / np.maximum(others, 1))
        ratio = clicked.sum() / predicted.sum()
        span = max(abs(float(predicted @ move / predicted.sum())), FLAT)
        rest = np.bincount(row, weights=clicked - ratio * predicted)
        error = np.sqrt((rest**2).sum()) / clicked.sum()
        return Slope(float(np.log(ratio)) / span, float(error) / span)


def _observation(model: LogModel, rows: Int64, positions: Int64) -> Float64:
    """Return the observation of documents at positions, from 0, relative to the first."""
    first = model.rates(rows, np.ones_like(positions))
    return np.asarray(np.maximum(model.rates(rows, positions + 1) / np.maximum(first, LEAST), LEAST))


def slope_of(placed: Placed, predictions: Predictions, *, discount: Float64, seed: int) -> Slope:
    """Return how many clicks a list gets more if the model predicts one more, among lists of the same query and day.

    The slope is 1 if clicks at one position do not depend on the other positions, and less if a good document ends the
    search. It is shrunk towards 1 by its uncertainty. Sessions are split at random into halves A and B. With m the
    predicted and e the observed clicks of a list, each minus its mean over the sessions of the query and day,

        slope = sum of n m_A e_B / sum of n m_A m_B

    which is 1 if the model is right, because the noise of the halves is independent.
    """
    day = placed.days
    log, owner, size = placed.clicks, placed.owner, len(predictions.prior)
    group = placed.query if day is None else placed.query * (int(day.max()) + 1) + day
    _, group = np.unique(group, return_inverse=True)
    rng = np.random.default_rng(seed)
    first = rng.binomial(log.impressions, 0.5)
    clicks = rng.hypergeometric(log.clicks, log.list_impressions - log.clicks, first[owner])
    observation, strength = predictions.at[predictions.cell], predictions.strength / 2
    halves = [first, log.impressions - first]
    predicted: list[Float64] = []
    observed: list[Float64] = []
    for sessions, clicked in zip(halves, (clicks, log.clicks - clicks), strict=True):
        total, exposure = sums(log.rows, clicked, size), sums(log.rows, sessions[owner] * observation, size)
        relevance = (total + strength * predictions.prior) / np.maximum(exposure + strength, LEAST)
        means = relevance[log.rows] * observation, clicked / np.maximum(sessions[owner], 1)
        for values, mean in zip((predicted, observed), means, strict=True):
            values.append(_centred(sums(owner, mean * discount[log.positions - 1], len(log)), group, sessions))
    groups = int(group.max()) + 1
    top, bottom = np.zeros(groups), np.zeros(groups)
    for half, sessions in enumerate(halves):
        other = sessions * _centred(predicted[1 - half], group, sessions)
        top += sums(group, other * observed[half], groups)
        bottom += sums(group, other * predicted[half], groups)
    if bottom.sum() <= LEAST:
        return Slope(1.0, SLOPE_SPREAD)
    found = top.sum() / bottom.sum()
    variance = ((top - found * bottom) ** 2).sum() / bottom.sum() ** 2
    weight = SLOPE_SPREAD**2 / (SLOPE_SPREAD**2 + variance)
    return Slope(float(1 + weight * (found - 1)), float(np.sqrt(weight * variance)))


def _centred(values: Float64, group: Int64, sessions: Int64) -> Float64:
    """Return values minus their mean over the sessions of the group, [ranked lists]."""
    mean = np.bincount(group, weights=sessions * values) / np.maximum(np.bincount(group, weights=sessions), 1)
    return np.asarray(values - mean[group])


@final
@dataclass(frozen=True, eq=False)
class Days:
    """How much users clicked on each day."""

    day: Int64  # Day of each ranked list, from 0, [ranked lists]
    # Clicks of each day over those that the same documents at the same positions got on other days, [days]
    levels: Float64

    @classmethod
    def of(cls, placed: Placed, cell: Int64) -> Days | None:
        """Compare the clicks in each cell (document and position), [entries], on each day with those on other days."""
        log, day = placed.clicks, placed.days
        if day is None:
            return None
        count = int(day.max()) + 1
        key, cells = cell * count + day[placed.owner], int(cell.max(initial=-1)) + 1
        clicked, shown = (
            sums(key, each, cells * count).reshape(-1, count) for each in (log.clicks, log.list_impressions)
        )
        others = shown.sum(axis=1, keepdims=True) - shown
        rest = (clicked.sum(axis=1, keepdims=True) - clicked) / np.maximum(others, 1)
        weight = shown * others / np.maximum(shown + others, 1)
        rates = clicked / np.maximum(shown, 1)
        return cls(day, (CALM + (weight * rates).sum(axis=0)) / (CALM + (weight * rest).sum(axis=0)))

    def shift(self, placed: Placed, matched: Matched, weight: Float64) -> float:
        """Return the relative increase in clicks of weighted matching sessions that is due to their days."""
        log, entries = placed.clicks, matched.entries
        if not len(entries):
            return 0.0
        owner = placed.owner[entries]
        heavy = weight[placed.query[owner], log.positions[entries] - 1] * log.list_impressions[entries]
        days = sums(self.day[owner], heavy, len(self.levels))
        every = sums(self.day, log.impressions, len(self.levels))
        return float((days / days.sum() - every / every.sum()) @ self.levels)


@final
@dataclass(frozen=True, eq=False)
class Checks:
    """What the log says about the predictions of its model, and about its days.

    Each check corrects an estimate, and widens its interval by half of the correction and twice its standard error.
    """

    # Clicks over predicted clicks on documents that the log moved up (or down) as the new ranking does,
    # [queries, positions]; 1 where no document moves
    ratio: Float64
    doubt: Float64  # How far off a corrected rate may be, as a share, [queries, positions]
    slope: Slope  # How many clicks lists get more if the model predicts one more
    days: Days | None  # How much users clicked on each day; None if days are unknown

    @classmethod
    def of(cls, placed: Placed, predictions: Predictions, *, discount: Float64, seed: int) -> Checks:
        """Check the model on documents that the log moved as the new ranking does, on lists, and on days."""
        slope = slope_of(placed, predictions, discount=discount, seed=seed)
        rows, shown = np.maximum(placed.rows, 0), placed.position < placed.depth
        mean = np.log(np.maximum(predictions.exposure, LEAST) / np.maximum(predictions.shown, 1))
        length = np.where(predictions.shown[rows] > 0, np.abs(np.log(predictions.observation) - mean[rows]), 0.0)
        ratio, doubt = np.ones(placed.rows.shape), np.zeros(placed.rows.shape)
        for up in (True, False):
            move = placed.position - predictions.mean_position
            moved: Bool = shown & (move < -HALF if up else move > HALF)
            found = predictions.elasticity(moved, up=up)
            at = placed.filled & moved[rows]
            if np.isnan(found.error):
                doubt[at] = 1.0
                continue
            ratio[at] = np.clip(np.exp(found.value * length[at]), 1 / FURTHEST, FURTHEST)
            doubt[at] = np.abs(ratio[at] - 1) / 2 + 2 * found.error * length[at] * ratio[at]
        return cls(ratio, doubt, slope, Days.of(placed, predictions.cell))
