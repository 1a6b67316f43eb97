"""A log with random weights: how far an estimate would move on another log like it.

Weights are drawn from the exponential distribution, as in the Bayesian bootstrap (Rubin 1981), for whole queries, since
documents and clicks of one query go together. No weight is 0: what the log supports, each draw supports. Logs are
weighted as counts, not session by session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final, get_args

import numpy as np

from clickprism._util.grouping import same_lists
from clickprism._util.progress import Progress, no_progress
from clickprism.errors import SettingError, UnsupportedError
from clickprism.observation.counts import BY_PATTERN, Counts
from clickprism.observation.curve import cut, sums
from clickprism.types import Clicks, Float64, Int64

Unit = Literal["auto", "query", "list", "session"]
BLOCKS = 1000  # queries are drawn one by one up to this many, then in that many random blocks
DEEPEST = 200  # positions; pairs of them, in every draw, must fit into memory
FEW = 10  # queries, in effect, below which sessions are drawn


@final
@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """How intervals are made.

    Attributes:
        resamples: Number of resampled logs for the intervals; 0 for no intervals.
        confidence: Confidence level of the intervals.
        unit: What is resampled: query (other queries like these), session (other sessions of the same queries) or list
            (other ranked lists of them). auto is query, or session or list if there are fewer than ten queries in
            effect, (sum of sessions)^2 / sum of squares.
        seed: Random seed.
    """

    resamples: int = 200
    confidence: float = 0.95
    unit: Unit = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 0 or self.resamples == 1:
            raise SettingError("resamples", self.resamples, "be 0, or at least 2")
        if not 0 < self.confidence < 1:
            raise SettingError("confidence", self.confidence, "be between 0 and 1")
        if self.unit not in get_args(Unit):
            raise SettingError("unit", self.unit, f"be one of {', '.join(get_args(Unit))}")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "not be negative")

    def interval(self, curve: Float64, draws: Float64) -> tuple[Float64, Float64]:
        """Lower and upper ends around a curve [positions], from its draws [draws, positions].

        Draws are to the curve as the curve is to the truth (Davison and Hinkley 1997): what they are too high by, the
        curve is likely too high by as well. So the middle of the draws is mirrored, as ratios, curve^2 / draw. Models
        with a parameter for every document need that: a draw of sessions is noisier than the log, and so more biased.
        """
        if len(draws) == 0:
            return np.full(draws.shape[1], np.nan), np.full(draws.shape[1], np.nan)
        tail = (1 - self.confidence) / 2
        ends = np.quantile(draws, [1 - tail, tail], axis=0)
        lower, upper = np.divide(curve**2, ends, out=np.stack([curve, curve]), where=ends > 0)
        return lower, upper


@final
class Sample:
    """A log as counts, as it is (draw 0) and with the weights of each draw.

    Attributes:
        clicks: the log, merged by pattern where it is known what was clicked together, else by list.
        draws: one more than there are resamples.
        unit: what is drawn, "query", "list" or "session".
    """

    def __init__(self, clicks: Clicks, bootstrap: Bootstrap, *, progress: Progress = no_progress) -> None:
        if clicks.sessions == 0:
            raise UnsupportedError("there are no sessions to estimate from")
        if clicks.max_position > DEEPEST:
            raise UnsupportedError(
                f"the log has positions down to {clicks.max_position:,}; curves are estimated for at most {DEEPEST}",
                remedy=f"Use the top of the lists only: --depth {DEEPEST} or less",
            )
        if (np.diff(clicks.offsets) == 0).any():
            clicks = cut(clicks, clicks.max_position)
        self.clicks = clicks.merge(by="pattern" if clicks.are_patterns else "list")
        self.draws = 1 + bootstrap.resamples
        self.unit = _unit(self.clicks, bootstrap.unit)
        self._seed = bootstrap.seed
        self._progress = progress

    @cached_property
    def _pairs(self) -> tuple[Int64, Int64, Int64]:
        """The documents and positions of the counts, and which of them each entry of the clicks is."""
        depth = self.clicks.max_position + 1
        keys, pair = np.unique(self.clicks.rows * depth + self.clicks.positions, return_inverse=True)
        return keys // depth, keys % depth, pair

    @cached_property
    def counts(self) -> Counts:
        """The log as it is."""
        return self._counted(self.clicks.clicks.astype(np.float64), self.clicks.list_impressions.astype(np.float64))

    @cached_property
    def _blocks(self) -> Int64:
        """The block of queries that each document belongs to, [documents]."""
        asked = np.unique(_queries(self.clicks))
        blocks = np.zeros(len(self.clicks.lists), dtype=np.int64)
        blocks[asked] = np.arange(len(asked))
        if len(asked) > BLOCKS:
            blocks[asked] = self._rng(0).permutation(len(asked)) % BLOCKS
        return blocks[self.clicks.lists.list_of]

    @cached_property
    def _block_weights(self) -> Float64:
        """The weight of each block of queries in each draw, [draws, blocks]; those of draw 0 are 1."""
        size = int(self._blocks.max(initial=0)) + 1
        ones = np.ones((1, size))
        return np.concatenate([ones, *(self._rng(draw).exponential(size=(1, size)) for draw in range(1, self.draws))])

    @cached_property
    def _same_list(self) -> Int64:
        """Which ranked lists of the clicks are the same but for what was clicked, [ranked lists]."""
        return same_lists(self.clicks.offsets, self.clicks.rows, self.clicks.positions, np.zeros(0, np.int64))[0]

    def list_weights(self, draw: int) -> Float64:
        """The weight of each ranked list of `clicks`, [ranked lists]."""
        weights = np.ones(len(self.clicks))
        if draw == 0:
            return weights
        if self.unit == "query":
            weights = self._block_weights[draw][self._blocks[self.clicks.rows[self.clicks.offsets[:-1]]]]
        elif self.unit == "list":
            weights = self._rng(draw).exponential(size=int(self._same_list.max()) + 1)[self._same_list]
        else:
            weights = self._rng(draw).gamma(self.clicks.impressions) / self.clicks.impressions
        return weights

    def weighted(self) -> Iterator[Counts]:
        """The counts of each draw."""
        return map(self.weighted_counts, range(self.draws))

    def weighted_counts(self, draw: int) -> Counts:
        """The counts of one draw."""
        counts = self.counts
        if draw == 0:
            return counts
        if self.unit == "query":
            weights = self._block_weights[draw][self._blocks[counts.rows]]
            return Counts(counts.rows, counts.positions, counts.clicks * weights, counts.impressions * weights)
        weights = np.repeat(self.list_weights(draw), np.diff(self.clicks.offsets))
        return self._counted(self.clicks.clicks * weights, self.clicks.list_impressions * weights)

    def curves(self, fit: Callable[[int], Float64]) -> Float64:
        """What makes the curve of one draw, done for all, several at once, [draws, positions]; 0 is done first."""
        from clickprism._util.compiled import THREADS

        made = [fit(0)]
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                for curve in pool.map(fit, range(1, self.draws)):
                    made.append(curve)
                    self._progress(len(made) - 1, self.draws - 1)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return np.stack(made)

    def totals(self, group: Int64, size: int, rows: Int64, *values: Float64) -> list[Float64]:
        """Values of rows added up by group with the weights of each draw of queries, each [draws, size]."""
        blocks = self._block_weights.shape[1]
        place = self._blocks[rows] * size + group
        return [self._block_weights @ sums(place, value, blocks * size).reshape(blocks, size) for value in values]

    def _counted(self, clicks: Float64, impressions: Float64) -> Counts:
        rows, positions, pair = self._pairs
        return Counts(rows, positions, sums(pair, clicks, len(rows)), sums(pair, impressions, len(rows)))

    def _rng(self, draw: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, draw])


def _queries(clicks: Clicks) -> Int64:
    """The query of each ranked list."""
    return clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]


def _unit(clicks: Clicks, unit: Unit) -> str:
    if unit == "session" and not clicks.are_patterns:
        raise UnsupportedError(
            "sessions cannot be resampled: they were merged by list",
            remedy=f"Resample by --unit query or list. {BY_PATTERN}",
        )
    if unit != "auto":
        return unit
    asked = np.bincount(_queries(clicks), weights=clicks.impressions)
    if asked.sum() ** 2 >= FEW * (asked**2).sum():
        return "query"
    return "session" if clicks.are_patterns else "list"
