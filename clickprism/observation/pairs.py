"""Documents seen at two positions: the same relevance twice, so that rates differ by observation alone.

For every unordered pair of positions, the documents shown at both give

    s_k = sum_d w_d c_dk / n_dk,    s_k' = sum_d w_d c_dk' / n_dk',    E[s_k] / E[s_k'] = o_k / o_k'

under the position-based model, whatever the weights w_d, as long as they do not depend on clicks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final, get_args

import numpy as np

from clickprism.errors import SettingError, UnsupportedError
from clickprism.observation.bootstrap import Sample
from clickprism.observation.counts import Counts
from clickprism.observation.curve import Support, sums
from clickprism.types import Float64, Int64

Weights = Literal["matched", "equal"]
LEAST_CLICKS = 10.0


def check_weights(weights: str, least_clicks: float) -> None:
    """Settings that every estimator from pairs has.

    "matched" weighs a document by n n' / (n + n'), as Mantel and Haenszel (1959) do with strata: about as one over the
    variance of the difference. "equal" counts every document as one, as published for intervention harvesting.
    """
    if weights not in get_args(Weights):
        raise SettingError("weights", weights, f"be one of {', '.join(get_args(Weights))}")
    if not 0 < least_clicks < float("inf"):
        raise SettingError("least_clicks", least_clicks, "be above 0")


@final
@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of positions with documents seen at both.

    Attributes:
        positions: how many there are.
        low: the higher place on the page, from 0, [pairs].
        high: the lower place, from 0, [pairs].
        strength: the clicks that a ratio rests on, in effect: one over the variance of its logarithm, with matched
            weights and clicks taken as Poisson; c c' / (c + c') for one document with as many impressions, [pairs].
        first: of every document and pair, where it stands in the counts at the first position, [lines].
        second: and where at the second.
        pair: which pair that is, [lines].
    """

    positions: int
    low: Int64
    high: Int64
    strength: Float64
    first: Int64
    second: Int64
    pair: Int64

    def at(self, one: Int64, other: Int64) -> Int64:
        """Which pair joins two positions, -1 where none does."""
        table = np.full((self.positions, self.positions), -1, dtype=np.int64)
        table[self.low, self.high] = table[self.high, self.low] = np.arange(len(self.low))
        places: Int64 = table[one, other]
        return places

    def rates(self, sample: Sample, weights: Weights) -> Rates:
        """The weighted click rates of the documents of each pair, in every draw."""
        size = len(self.low)
        if sample.unit == "query":
            lines = _rates(sample.counts, self.first, self.second, weights)
            return Rates(*sample.totals(self.pair, size, sample.counts.rows[self.first], *lines))
        draws = [
            [sums(self.pair, values, size) for values in _rates(counts, self.first, self.second, weights)]
            for counts in sample.weighted()
        ]
        return Rates(*(np.stack(each) for each in zip(*draws, strict=True)))


@final
class Rates(NamedTuple):
    """Of the documents of each pair: their weight, and their weighted click rates at both places, [draws, pairs]."""

    weight: Float64
    low: Float64
    high: Float64


def link(counts: Counts) -> Links:
    """The pairs of a log."""
    positions = counts.max_position
    first, second = _lines(counts)
    key = (counts.positions[first] - 1) * positions + counts.positions[second] - 1
    known, pair = np.unique(key, return_inverse=True)
    _, *lines = _rates(counts, first, second, "matched")
    variance = np.zeros(len(known))
    for values, place in zip(lines, (first, second), strict=True):
        clicks = counts.clicks[place]
        squares = sums(pair, values**2 / np.maximum(clicks, 1e-300), len(known))
        total = sums(pair, values, len(known))
        variance += np.divide(squares, total**2, out=np.full(len(known), np.inf), where=total > 0)
    strength = 1 / variance
    return Links(positions, known // positions, known % positions, strength, first, second, pair)


def moved(counts: Counts, note: str) -> Support:
    """What estimates from pairs rest on: the documents seen at several positions."""
    several = np.bincount(counts.rows)[counts.rows] > 1
    places, size = counts.positions[several] - 1, counts.max_position
    return Support(
        documents=len(np.unique(counts.rows[several])),
        impressions=sums(places, counts.impressions[several], size),
        clicks=sums(places, counts.clicks[several], size),
        note=note,
    )


def refuse_few(counts: Counts) -> None:
    """Refuse a log with no click at position 1, or with one position only: no curve is relative to nothing."""
    if counts.max_position < 2:
        raise UnsupportedError("the log has one position only", remedy="A curve needs at least two")
    if not (counts.clicks[counts.positions == 1] > 0).any():
        raise UnsupportedError("the log has no click at position 1, to which curves are relative")


def _lines(counts: Counts) -> tuple[Int64, Int64]:
    """Every two entries of the counts that are of one document, the higher position first."""
    firsts, seconds = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for gap in range(1, len(counts)):
        same = np.flatnonzero(counts.rows[gap:] == counts.rows[:-gap])
        if len(same) == 0:
            break
        firsts.append(same)
        seconds.append(same + gap)
    return np.concatenate(firsts), np.concatenate(seconds)


def _rates(counts: Counts, first: Int64, second: Int64, weights: Weights) -> tuple[Float64, Float64, Float64]:
    """The weight of each line and its weighted click rates at both positions."""
    one, other = counts.impressions[first], counts.impressions[second]
    weight = one * other / (one + other) if weights == "matched" else np.ones(len(first))
    return weight, weight * counts.clicks[first] / one, weight * counts.clicks[second] / other
