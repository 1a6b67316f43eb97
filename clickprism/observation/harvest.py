"""AllPairs intervention harvesting: every document seen at two positions, by whatever rankings, is an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.errors import SettingError, TrainingError
from clickprism.observation.bootstrap import Sample
from clickprism.observation.curve import Support
from clickprism.observation.pairs import LEAST_CLICKS, Links, Rates, Weights, check_weights, link, moved, refuse_few
from clickprism.observation.support import require_linked
from clickprism.types import Bool, Float64

LEAST = 1e-9  # of the weight of a pair, as clicks or skips, so that logarithms and curvature exist
HALVINGS = 60


@final
@dataclass(frozen=True)
class AllPairs:
    """One curve from all pairs of positions at once (Agarwal et al. 2019), by maximum likelihood.

    maximise  sum over pairs kk' of  s_k log(p_k r_kk') + (w - s_k) log(1 - p_k r_kk')  and the same for k',

    with s_k the weighted click rates of the documents seen at both positions, w their weight, and r_kk' = r_k'k one
    free parameter a pair, their mean relevance. In log p and log r the likelihood is concave, so there is one maximum,
    found by Newton's method: r is eliminated pair by pair, and what is left is a graph of positions whose edges are
    pairs. It stops when the curve does.

    Unbiased under the position-based model, as long as which ranking a session got did not depend on its user, and
    relevance stayed the same over the log.

    Attributes:
        weights: "matched" weighs a document by n n' / (n + n'), "equal" by 1, as published; see `observation.pairs`.
        least_clicks: in effect, that the links between positions must rest on.
        tolerance: of the logarithm of the curve.
        max_iterations: Newton steps, at most.
    """

    name: ClassVar[str] = "allpairs"

    weights: Weights = "matched"
    least_clicks: float = LEAST_CLICKS
    tolerance: float = 1e-8
    max_iterations: int = 200

    def __post_init__(self) -> None:
        check_weights(self.weights, self.least_clicks)
        if not 0 < self.tolerance < 1:
            raise SettingError("tolerance", self.tolerance, "be between 0 and 1")
        if self.max_iterations < 1:
            raise SettingError("max_iterations", self.max_iterations, "be at least 1")

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        refuse_few(sample.counts)
        links = link(sample.counts)
        note = require_linked(links, self.least_clicks)
        problem = _Problem(links, links.rates(sample, self.weights))
        return problem.solve(self.tolerance, self.max_iterations), moved(sample.counts, note)


class _Problem:
    """The likelihood of all draws at once; pairs without a click say nothing and are left out."""

    def __init__(self, links: Links, rates: Rates) -> None:
        clicked = (rates.low + rates.high > 0).all(axis=0)
        self.size = links.positions
        self.low, self.high = links.low[clicked], links.high[clicked]
        weight = rates.weight[:, clicked]
        self.clicks = [np.maximum(each[:, clicked], LEAST * weight) for each in (rates.low, rates.high)]
        self.skips = [np.maximum(weight - each, LEAST * weight) for each in self.clicks]

    def solve(self, tolerance: float, max_iterations: int) -> Float64:
        """The curves, [draws, positions], 1 at the first."""
        curve, relevance = self._start()
        value = self._value(curve, relevance)
        done = np.zeros(len(curve), dtype=np.bool_)
        for _ in range(max_iterations):
            step, change, rise = self._step(curve, relevance)
            share = np.where(done, 0.0, 1.0)
            for _ in range(HALVINGS):
                further = self._value(curve + share[:, None] * step, relevance + share[:, None] * change)
                short = ~(further >= value + 1e-4 * share * rise - 1e-12 * np.abs(value))
                if not short.any():
                    break
                share = np.where(short, share / 2, share)
            curve, relevance = curve + share[:, None] * step, relevance + share[:, None] * change
            value = self._value(curve, relevance)
            done |= (np.abs(step).max(axis=1) < tolerance) & (share > 0.5)
            if done.all():
                curves: Float64 = np.exp(curve - curve[:, :1])
                return curves
        raise TrainingError(f"the curve of allpairs has not settled after {max_iterations} steps")

    def _start(self) -> tuple[Float64, Float64]:
        """Least squares on the logarithms of the ratios, and a relevance that all probabilities allow."""
        one, other = self.clicks
        weight = one * other / (one + other)
        curve = self._graph(weight, weight * np.log(one / other))
        low, high = curve[:, self.low], curve[:, self.high]
        mean = (one + other) / (one + other + self.skips[0] + self.skips[1])
        relevance = np.log(mean) - np.logaddexp(low, high) + np.log(2)
        return curve, np.minimum(relevance, -np.maximum(low, high) - 0.05)

    def _logits(self, curve: Float64, relevance: Float64) -> list[Float64]:
        return [curve[:, self.low] + relevance, curve[:, self.high] + relevance]

    def _value(self, curve: Float64, relevance: Float64) -> Float64:
        """The likelihood of every draw, minus infinity where a probability is not below 1, [draws]."""
        total = np.zeros(len(curve))
        outside: Bool = np.zeros(len(curve), dtype=np.bool_)
        for log_chance, clicks, skips in zip(self._logits(curve, relevance), self.clicks, self.skips, strict=True):
            outside |= (log_chance >= 0).any(axis=1)
            below = np.minimum(log_chance, -1e-15)
            total += (clicks * below + skips * np.log(-np.expm1(below))).sum(axis=1)
        return np.where(outside, -np.inf, total)

    def _step(self, curve: Float64, relevance: Float64) -> tuple[Float64, Float64, Float64]:
        """Newton's step of the curve and of the relevance, and the rise that the gradient promises."""
        slopes, bends = [], []
        for log_chance, clicks, skips in zip(self._logits(curve, relevance), self.clicks, self.skips, strict=True):
            rest = -np.expm1(log_chance)
            odds = skips * np.exp(log_chance) / rest
            slopes.append(clicks - odds)
            bends.append(odds / rest)
        total = bends[0] + bends[1]
        flow = (bends[1] * slopes[0] - bends[0] * slopes[1]) / total
        step = self._graph(bends[0] * bends[1] / total, flow)
        along = bends[0] * step[:, self.low] + bends[1] * step[:, self.high]
        change = (slopes[0] + slopes[1] - along) / total
        rise = sum(
            (slope * (step[:, place] + change)).sum(axis=1)
            for slope, place in zip(slopes, (self.low, self.high), strict=True)
        )
        return step, change, np.asarray(rise)

    def _graph(self, weight: Float64, flow: Float64) -> Float64:
        """Solve for one value a position from edge weights and flows along the edges, 0 at position 1."""
        matrix, flows = np.zeros((2, len(weight), self.size, self.size))
        matrix[:, self.low, self.high] = matrix[:, self.high, self.low] = -weight
        flows[:, self.low, self.high], flows[:, self.high, self.low] = flow, -flow
        places = np.arange(self.size)
        matrix[:, places, places] = -matrix.sum(axis=2)
        values = np.zeros(matrix.shape[:2])
        values[:, 1:] = np.linalg.solve(matrix[:, 1:, 1:], flows.sum(axis=2)[:, 1:, None])[..., 0]
        return values
