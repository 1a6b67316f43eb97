"""Test of trust bias: do documents that are rarely clicked lose more clicks as they move down than others?

    E[c_dj] = n_dj o_dj (g_d + kappa gamma_k),    gamma_1 = 1

For a given curve and kappa, the clicks of a pair shown at several positions estimate its own g_d, and the residuals

    r_dj = c_dj - n_dj o_dj (g_d + kappa gamma_k),    sum over j of r_dj = 0

have expectation 0 whatever the relevance of the pair. Their sums by position give the curve. Their sums weighted by
h_d gamma_k give kappa, with h_d = 1 / relevance: trust changes the clicks of poor documents most. The relevance in h_d
comes from one random half of the impressions and the residuals from the other, so that they are independent. The model
does not have to include trust.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import norm

from clickprism.log_model.fit import Fit, trust_gamma
from clickprism.log_model.results import Feedback, Linkage, Test, Verdict
from clickprism.types import Bool, Float64

UNIT: Final = "click probability at position 1 that trust adds"
LEVEL: Final = 0.01  # p-value below which trust is present
MATERIAL: Final = 0.1  # share of the clicks at position 1 that trust must explain
WIDE: Final = 0.6  # share that an interval may not reach if trust is said to be absent
SPLITS: Final = 3  # random splits of the impressions
STEPS: Final = 25
LONGEST: Final = 0.5  # Newton step of one parameter
FEWEST: Final = 10  # queries with documents shown at several positions


def trust_test(fit: Fit, linkage: Linkage, feedback: Feedback, *, confidence: float, seed: int = 0) -> Test:
    """Return the test of trust bias by documents shown at several positions."""
    counts = fit.problem.counts
    several = counts.several
    if counts.positions < 2 or len(np.unique(counts.query[several])) < FEWEST:
        return Test("trust", "inconclusive", unit=UNIT, note="too few documents were shown at several positions")
    kappa, error, z = estimate_trust(fit, seed=seed)
    top = counts.position == 0
    rate = float(counts.clicks[top].sum() / max(counts.impressions[top].sum(), 1.0))
    reach = float(norm.isf((1 - confidence) / 2)) * error
    p_value = float(norm.sf(z))
    verdict: Verdict = "present" if p_value < LEVEL and kappa >= MATERIAL * rate else "absent"
    note = ""
    if not linkage.linked:
        verdict, note = "inconclusive", "positions are not linked by documents shown at several of them"
    elif feedback.verdict == "present":
        verdict, note = "inconclusive", "the engine reacts to clicks, which hides trust bias"
    elif verdict == "absent" and kappa + reach > WIDE * rate:
        verdict, note = "inconclusive", "documents that were shown at several positions got too few clicks"
    ends = max(kappa - reach, 0.0), max(kappa + reach, 0.0)
    return Test("trust", verdict, max(kappa, 0.0), *ends, UNIT, p_value, note=note)


def estimate_trust(fit: Fit, *, seed: int = 0) -> tuple[float, float, float]:
    """Return kappa, its standard error, and the score test of kappa = 0 in standard errors; clustered by query."""
    equations = _Equations(fit, seed)
    free, theta = equations.free, np.append(equations.curve, 0.0)
    curve = free & (np.arange(len(free)) < len(free) - 1)
    moments, slope = equations.solve(theta, curve)
    part = np.linalg.lstsq(slope[np.ix_(curve, curve)].T, slope[-1, curve], rcond=None)[0]
    direction = np.zeros(len(free))
    direction[curve], direction[-1] = -part, 1.0  # without what the curve explains
    score = moments @ direction
    spread = float(np.sqrt((score**2).sum()))
    moments, slope = equations.solve(theta, free)
    inverse = np.linalg.pinv(slope[np.ix_(free, free)])
    middle = (moments.T @ moments).toarray()[np.ix_(free, free)]
    error = float(np.sqrt(max(float((inverse @ middle @ inverse.T)[-1, -1]), 0.0)))
    return float(theta[-1]), error, float(score.sum()) / spread if spread > 0 else 0.0


class _Part(NamedTuple):
    """Half of the impressions of each cell, their clicks, and h of each pair by the other half."""

    impressions: Float64
    clicks: Float64
    h: Float64


class _Equations:
    """The moments of the curve and kappa, on the cells of pairs shown at several positions.

    Attributes:
        curve: Log observation by position in the model, to start from, [positions].
        free: Which of the curve and kappa are estimated, [positions + 1].
    """

    def __init__(self, fit: Fit, seed: int) -> None:
        counts, logs = fit.problem.counts, fit.problem.log_observation(fit.theta)
        cells = np.flatnonzero(counts.several[counts.pair])
        self.size, self.positions = len(counts), counts.positions
        self.query, self.queries = counts.query, counts.queries
        self.pair, self.position = counts.pair[cells], counts.position[cells]
        self.impressions, self.clicks = counts.impressions[cells], counts.clicks[cells]
        self.gamma = trust_gamma(self.position)
        shown = self.by_position(self.impressions)
        self.curve = self.by_position(self.impressions * logs[cells]) / np.maximum(shown, 1e-300)
        self.offset = logs[cells] - self.curve[self.position]  # what depends on the document, as in the model
        self.free = np.append((shown > 0) & (np.arange(self.positions) > 0), True)
        # one prior for all: the prior of the model depends on where a pair was first clicked, thus on its own clicks
        rate = float(np.median(fit.problem.strengths(fit.theta, fit.problem.prior_mean(fit.theta))[1]))
        rng, seen = np.random.default_rng([seed, 7]), np.exp(logs[cells])
        shape = rate * self.clicks.sum() / max(float((self.impressions * seen).sum()), 1e-300)
        self.parts: list[_Part] = []
        for _ in range(SPLITS):
            shares = self._half(rng)
            for own, other in (shares, shares[::-1]):
                known = self.by_pair(other[0] * seen) + rate
                self.parts.append(_Part(*own, known / np.maximum(self.by_pair(other[1]) + shape, 1e-9) / SPLITS))

    def by_pair(self, values: Float64) -> Float64:
        return np.bincount(self.pair, weights=values, minlength=self.size).astype(np.float64, copy=False)

    def by_position(self, values: Float64) -> Float64:
        return np.bincount(self.position, weights=values, minlength=self.positions).astype(np.float64, copy=False)

    def _half(self, rng: np.random.Generator) -> list[tuple[Float64, Float64]]:
        """Return the impressions and clicks of two random halves of the impressions of each cell."""
        shown, clicked = self.impressions.astype(np.int64), self.clicks.astype(np.int64)
        size = (shown + rng.integers(0, 2, len(shown))) // 2
        clicks = rng.hypergeometric(clicked, np.maximum(shown - clicked, 0), np.minimum(size, shown))
        half = size.astype(np.float64), clicks.astype(np.float64)
        return [half, (self.impressions - half[0], self.clicks - half[1])]

    def solve(self, theta: Float64, free: Bool) -> tuple[csr_array, Float64]:
        """Change the free parameters so that the sums of their moments are 0; return `at` there."""
        moments, slope = self.at(theta)
        for _ in range(STEPS):
            score = np.asarray(moments.sum(axis=0))[free]
            move = np.clip(-np.linalg.lstsq(slope[np.ix_(free, free)], score, rcond=None)[0], -LONGEST, LONGEST)
            theta[free] += move
            moments, slope = self.at(theta)
            if np.abs(move).max() < 1e-6:
                break
        return moments, slope

    def at(self, theta: Float64) -> tuple[csr_array, Float64]:
        """Return the moments of each query, [queries, positions + 1], and the derivatives of their sums."""
        kappa, pair, gamma = theta[-1], self.pair, self.gamma
        observed = np.exp(theta[self.position] + self.offset)
        slope = np.zeros((self.positions + 1, self.positions + 1))
        seen, share, mean, _ = self._exposure(self.impressions, observed)
        value = self.by_pair(self.clicks) / np.maximum(self.by_pair(seen), 1e-300) - kappa * mean  # g_d
        rate = value[pair] + kappa * gamma
        slope[:-1, :-1] = (self._table(seen).T @ self._table(share * rate)).toarray()
        slope[:-1, :-1] -= np.diag(self.by_position(seen * rate))
        slope[:-1, -1] = -self.by_position(seen * (gamma - mean[pair]))
        last = np.zeros(self.size)
        for part in self.parts:  # h times the sum of (gamma - its mean) (c - n o kappa gamma), where g_d cancels
            own, own_share, centre, spread = self._exposure(part.impressions, observed)
            above, h = gamma - centre[pair], part.h[pair]
            last += part.h * (self.by_pair(above * part.clicks) - kappa * spread)
            slope[-1, -1] -= float(part.h @ spread)
            taken = self.by_pair(part.clicks)[pair]
            slope[-1, :-1] -= self.by_position(h * (own_share * above * taken + kappa * own * above**2))
        rows = np.concatenate([self.query[pair], self.query])
        columns = np.concatenate([self.position, np.full(self.size, self.positions)])
        shape = (self.queries, self.positions + 1)
        values = np.concatenate([self.clicks - seen * rate, last])
        return csr_array((values, (rows, columns)), shape=shape), slope

    def _exposure(self, impressions: Float64, observed: Float64) -> tuple[Float64, Float64, Float64, Float64]:
        """Return n o of cells, their share of the pair, and by pair the mean of gamma and its spread times n o."""
        seen = impressions * observed
        total = np.maximum(self.by_pair(seen), 1e-300)
        mean = self.by_pair(seen * self.gamma) / total
        spread = self.by_pair(seen * (self.gamma - mean[self.pair]) ** 2)
        return seen, seen / total[self.pair], mean, spread

    def _table(self, values: Float64) -> csr_array:
        return csr_array((values, (self.pair, self.position)), shape=(self.size, self.positions))
