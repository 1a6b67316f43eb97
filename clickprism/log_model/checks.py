"""Tests of a fitted model: position bias, coupling, trust, goodness of fit, and whether the engine reacts to clicks.

Trust bias: do documents that are rarely clicked lose more clicks as they move down than others?

    E[c_dj] = n_dj o_dj (g_d + kappa gamma_k),    gamma_1 = 1

For a given curve and kappa, the clicks of a pair shown at several positions estimate its own g_d, and the residuals

    r_dj = c_dj - n_dj o_dj (g_d + kappa gamma_k),    sum over j of r_dj = 0

have expectation 0 whatever the relevance of the pair. Their sums by position give the curve. Their sums weighted by
h_d gamma_k give kappa, with h_d = 1 / relevance: trust changes the clicks of poor documents most. The relevance in h_d
comes from one random half of the impressions and the residuals from the other, so that they are independent. The model
does not have to include trust.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack
from scipy.stats import norm

from clickprism.data.logged import Logged
from clickprism.log_model.counts import LogCounts, feedback_statistics
from clickprism.log_model.fit import SAMPLE, Chosen, Fit, trust_gamma
from clickprism.log_model.likelihood import HIGHEST, LOWEST
from clickprism.log_model.results import Curve, Feedback, GoodnessOfFit, Linkage, Test, Verdict
from clickprism.types import Bool, Float64

LEVEL: Final = 0.01  # p-value below which a bias is present
MATERIAL: Final = 0.05  # relative observation below 1 - this is position bias
MATERIAL_PART: Final = {"coupling": 0.1, "popularity": 0.1}  # smallest size that matters
WIDE: Final = 0.3  # half-width of an interval of the mean relative observation that decides nothing
REACTS: Final = -2.5  # z below which the engine reacts to clicks
QUIET: Final = -1.5  # z above which it may not
MATERIAL_REACTION: Final = 0.2  # change of the log position by a click rate that is higher by 1
POWER: Final = 0.9  # confidence level of the interval that must exclude a material reaction
FEWEST: Final = 5  # queries whose documents change positions
TINY: Final = 1e-12
EXPECTED: Final = 5.0  # clicks in a cell of the goodness of fit
MISFIT: Final = 0.25  # |log ratio| that makes intervals unreliable
DEPENDENCE: Final = 0.5  # prior standard deviation of how the steepness of the curve depends on log relevance
RARE: Final = 0.01  # share of the impressions of the most shown position, below which a position is ignored
UNIT: Final = "click probability at position 1 that trust adds"
MATERIAL_TRUST: Final = 0.1  # share of the clicks at position 1 that trust must explain
WIDE_TRUST: Final = 0.6  # trust is absent only if the interval ends below this share
SPLITS: Final = 3  # random splits of the impressions
STEPS: Final = 25
LONGEST: Final = 0.5  # Newton step of one parameter
FEWEST_QUERIES: Final = 10  # queries with documents shown at several positions


def feedback(logged: Logged, curve: Float64, *, confidence: float = 0.95) -> Feedback:
    """Test whether the engine reacts to clicks (`feedback_statistics`).

    A reaction is absent only if the log would have shown a material one; otherwise a weak result is inconclusive.
    `curve` is the observation at each position, [positions], `confidence` the level of the interval of the reaction.
    """
    days = len(logged.clicks) if logged.days is None else len(np.unique(logged.days))
    products, squares = feedback_statistics(logged, curve) if days > 1 else (np.zeros(0), np.zeros(0))
    spread = float(np.sqrt((products**2).sum()))
    if np.count_nonzero(np.abs(products) > TINY) < FEWEST or spread == 0:
        return Feedback("inconclusive", float("nan"), float("nan"))
    z, reaction = float(products.sum()) / spread, float(products.sum() / squares.sum())
    error = float(np.sqrt(((products - reaction * squares) ** 2).sum()) / squares.sum())
    powerful = reaction - norm.isf((1 - POWER) / 2) * error > -MATERIAL_REACTION
    verdict = "present" if z < REACTS else "absent" if z > QUIET and powerful else "inconclusive"
    reach = float(norm.isf((1 - confidence) / 2)) * error
    p_value = float(norm.cdf(z))
    return Feedback(verdict, z, p_value, reaction, reaction - reach, reaction + reach)  # type: ignore[arg-type]


def position_test(curve: Curve, covariance: Float64, counts: LogCounts, linkage: Linkage) -> Test:
    """Test whether lower positions are observed less often on average; `covariance` is that of the log curve."""
    unit = "observation below position 1 relative to position 1, on average"
    shown = counts.by_position(counts.impressions)
    used = np.flatnonzero(shown >= RARE * shown.max())
    used = used[used > 0]
    if not len(used):
        return Test("position", "inconclusive", unit=unit, note="the log has one position only")
    values = curve.values[used]
    mean, slope = float(values.mean()), np.zeros(len(curve))
    if curve.name == "given":
        return Test("position", "inconclusive", mean, unit=unit, note="the curve was given, not estimated")
    slope[used] = values / len(used)
    error = float(np.sqrt(max(float(slope @ covariance @ slope), 0.0)))
    reach = float(norm.isf((1 - curve.confidence) / 2)) * error
    z = (1 - mean) / error if error > 0 else 0.0
    p_value = float(norm.sf(z))
    present = p_value < LEVEL and mean < 1 - MATERIAL
    verdict = "present" if present else "inconclusive" if reach > WIDE else "absent"
    note = ""
    if not linkage.linked:
        verdict = "inconclusive"
        several = bool((linkage.groups[1:] == 0).any())
        which = "some positions are not" if several else "no other position is"
        note = f"{which} linked to position 1 by documents shown at both"
        if linkage.depth >= 2 and "features" in linkage.identified:
            note += "; their observation is estimated from documents with similar features"
    return Test("position", verdict, mean, max(mean - reach, 0.0), mean + reach, unit, p_value, note=note)  # type: ignore[arg-type]


def part_test(name: str, chosen: Chosen, linkage: Linkage, confidence: float) -> Test | None:
    """Return the test of a part of the model that was tried; None if it was not."""
    part = next((each for each in chosen.parts if each.name.split(" ")[0] == name), None)
    fit = chosen.tried.get(part.name) if part is not None else None
    if part is None or fit is None:
        return None
    estimate, error, unit = _size(name, fit)
    reach = float(norm.isf((1 - confidence) / 2)) * error
    z = part.gain / part.error if part.error > 0 else 0.0
    p_value = float(norm.sf(z))
    if name == "popularity" and np.isfinite(error) and error > 0:
        p_value = float(2 * norm.sf(abs(estimate) / error))
    found = part.used or name == "coupling"  # which is tested but not used if the engine reacts to clicks
    present = found and p_value < LEVEL and not estimate < MATERIAL_PART.get(name, -np.inf)  # nan: no size is known
    note = "" if linkage.linked else "positions are not linked by documents shown at several of them"
    if name == "popularity" and part.blocked and not note:
        note = "an engine that reacts to clicks would leave the same trace"
    verdict = "inconclusive" if note and name in ("coupling", "popularity") else "present" if present else "absent"
    lower, upper = (estimate - reach, estimate + reach) if np.isfinite(error) else (float("nan"), float("nan"))
    if name == "steepness":
        lower = max(lower, 0.0)
    return Test(name, verdict, estimate, lower, upper, unit, p_value, part.gain, part.error, part.used, note)  # type: ignore[arg-type]


def _size(name: str, fit: Fit) -> tuple[float, float, str]:
    """Return the size of a part, its standard error and unit."""
    names = list(fit.names)
    if name == "steepness":
        at = names.index("log sigma")
        error = fit.sigma * float(np.sqrt(max(fit.covariance[at, at], 0.0)))
        return fit.sigma, error, "standard deviation of log steepness over queries"
    if name == "popularity":
        at = names.index("popularity")
        return float(fit.theta[at]), float(np.sqrt(max(fit.covariance[at, at], 0.0))), "flattening of the curve"
    if name == "coupling" and fit.problem.coupled is not None:
        start = fit.problem.design.shape[1]
        spread = fit.problem.coupled @ fit.theta[start : fit.problem.own]
        return float(spread.std()), float("nan"), "standard deviation of steepness over documents"
    return float("nan"), float("nan"), ""


def curve_error(fit: Fit, *, seed: int = 0) -> Float64:
    """Return the covariance of the log curve that is due to the model, not to chance, [positions, positions].

    It is estimated from pairs shown at several positions: given how often a pair was clicked in all, its clicks fall on
    its cells in proportion to n o, whatever its relevance. With this likelihood,

        log o_dj = (log o_dj of the fit) + delta_k + s z_d b_k

    is fitted. z is the log relevance of a pair beyond what its position predicts. There are two errors:

    - delta is the difference between this evidence and the whole model, which also compares different documents. What
      it has beyond its sampling error is the error of the prior; it is averaged over the positions.
    - s is how much flatter the curve is for poor documents. Documents at different positions differ in their relevance,
      by r_k - r_1 on average in its logarithm. The curve at position k is composed of steps between neighbouring
      positions, each of which is measured on the documents there, and so belongs to a document half-way between those
      at 1 and those at k: its error is s b_k (r_k - r_1) / 2.

    Both are zero if the model has the form of the users.
    """
    problem, counts = fit.problem, fit.problem.counts
    size, below = counts.positions, counts.positions - 1
    chosen = counts.several[counts.pair]
    if np.count_nonzero(chosen) > SAMPLE:
        share = SAMPLE / np.count_nonzero(chosen)
        chosen &= (np.random.default_rng([seed, 11]).random(counts.queries) < share)[counts.query[counts.pair]]
    cells = np.flatnonzero(chosen)
    own, pair = np.unique(counts.pair[cells], return_inverse=True)
    if len(np.unique(counts.query[own])) < FEWEST_QUERIES:
        return np.zeros((size, size))
    shape, rate = fit.strengths
    relevance = np.log((counts.by_pair(counts.clicks) + shape) / (fit.exposure + rate))
    clicks, position = problem.relevant_cell_clicks[cells], counts.position[cells]
    total = np.bincount(pair, weights=clicks, minlength=len(own))
    columns = np.stack([np.ones(len(own)), counts.average[own], counts.average[own] ** 2], axis=1)
    root = np.sqrt(total)
    line = np.linalg.lstsq(columns * root[:, None], relevance[own] * root, rcond=None)[0]
    beyond = relevance[own] - columns @ line
    curve = np.concatenate([[0.0], fit.theta[:below]])
    at = np.flatnonzero(position > 0)
    steps = csr_array((np.ones(len(at)), (at, position[at] - 1)), shape=(len(cells), below))
    matrix = hstack([steps, csr_array((beyond[pair] * curve[position])[:, None])], format="csr")
    precision = np.zeros((size, size))
    precision[:below, :below], precision[below, below] = problem.precision[:below, :below], 1 / DEPENDENCE**2
    logs = np.clip(problem.log_observation(fit.theta)[cells], LOWEST, HIGHEST)
    by_pair = csr_array((np.ones(len(cells)), (pair, np.arange(len(cells)))), shape=(len(own), len(cells)))
    theta, hessian, rest = np.zeros(size), precision, clicks
    for _ in range(STEPS):
        seen = problem.impressions[cells] * np.exp(logs + matrix @ theta)
        share_of = seen / np.maximum(by_pair @ seen, 1e-300)[pair]
        rest = clicks - total[pair] * share_of
        mean = by_pair @ csr_array(matrix.multiply((share_of * root[pair])[:, None]))
        hessian = (matrix.T @ csr_array(matrix.multiply((total[pair] * share_of)[:, None]))).toarray()
        hessian = hessian - (mean.T @ mean).toarray() + precision
        move = np.linalg.solve(hessian, matrix.T @ rest - precision @ theta)
        theta = theta + np.clip(move, -LONGEST, LONGEST)
        if np.abs(move).max() < 1e-6:
            break
    where = (counts.query[own][pair], np.arange(len(cells)))
    by_query = csr_array((np.ones(len(cells)), where), shape=(counts.queries, len(cells)))
    scores = (by_query @ csr_array(matrix.multiply(rest[:, None]))).toarray()
    inverse = np.linalg.inv(hessian)
    variance = np.diagonal(inverse @ (scores.T @ scores + precision) @ inverse)
    chance = np.maximum(variance[:below] - np.diagonal(fit.covariance)[:below], 0.0)
    general = max(float((theta[:below] ** 2 - chance).mean()), 0.0)
    dependence = max(float(theta[below] ** 2 - variance[below]), 0.0)
    expected = counts.impressions * np.exp(relevance)[counts.pair]
    average = counts.by_position(expected * relevance[counts.pair]) / np.maximum(counts.by_position(expected), 1e-300)
    off = curve * (average - average[0]) / 2
    result = dependence * np.outer(off, off)
    result[1:, 1:] += general * np.eye(below)
    return np.asarray(result)


def goodness_of_fit(fit: Fit) -> GoodnessOfFit:
    """Compare observed with expected clicks by position and first-shown position.

    The clicks of a cell are predicted from the other cells of the pair and its prior, so that they do not predict
    themselves.
    """
    counts, trust, clicks = fit.problem.counts, fit.problem.trust, fit.problem.counts.clicks
    shape, rate = fit.strengths
    exposure, extra = fit.seen, np.zeros(len(clicks))
    if trust is not None:
        clicks, extra = clicks - trust.clicks, trust.kappa * trust.gamma * exposure
    total, clicked = fit.exposure[counts.pair], counts.by_pair(clicks)[counts.pair]
    other = np.maximum(clicked - clicks, 0.0)
    value = (other + shape[counts.pair]) / (total - exposure + rate[counts.pair])
    expected = value * exposure + extra
    edges = np.unique(np.quantile(counts.first, [0.25, 0.5, 0.75]))
    bin_of = np.searchsorted(edges, counts.first, side="right")[counts.pair]
    bins = len(edges) + 1
    key = counts.position * bins + bin_of
    size = counts.positions * bins
    hits, hoped = (np.bincount(key, weights=each, minlength=size) for each in (counts.clicks, expected))
    by_query = np.zeros((counts.queries, size))
    np.add.at(by_query, (counts.query[counts.pair], key), counts.clicks - expected)
    known = np.flatnonzero(hoped >= EXPECTED)
    spread = by_query[:, known].T @ by_query[:, known]
    error = np.sqrt(np.maximum(np.diagonal(spread), 1e-300))
    off = hits[known] - hoped[known]
    ratio, z = np.full(size, np.nan), np.full(size, np.nan)
    ratio[known], z[known] = hits[known] / hoped[known], off / error
    p_value, largest = 1.0, 0.0
    if len(known):
        # Bonferroni over the cells: the joint covariance of many cells is poorly estimated from few queries
        p_value = float(min(1.0, 2 * norm.sf(np.abs(z[known]).max()) * len(known)))
        sure = np.abs(z[known]) > norm.isf(0.5 * LEVEL / len(known))
        if sure.any():
            largest = float(np.abs(np.log(np.maximum(ratio[known][sure], 1e-3))).max())
    positions = np.exp(np.concatenate([[0.0], edges, [np.log(max(counts.positions, 1))]]))
    labels = tuple(f"{a:.0f} to {b:.0f}" for a, b in pairwise(positions))
    shaped = (counts.positions, bins)
    return GoodnessOfFit(ratio.reshape(shaped), z.reshape(shaped), labels, p_value, largest, largest <= MISFIT)


def trust_test(fit: Fit, linkage: Linkage, feedback: Feedback, *, confidence: float, seed: int = 0) -> Test:
    """Return the test of trust bias by documents shown at several positions."""
    counts = fit.problem.counts
    several = counts.several
    if counts.positions < 2 or len(np.unique(counts.query[several])) < FEWEST_QUERIES:
        return Test("trust", "inconclusive", unit=UNIT, note="too few documents were shown at several positions")
    kappa, error, z = estimate_trust(fit, seed=seed)
    top = counts.position == 0
    rate = float(counts.clicks[top].sum() / max(counts.impressions[top].sum(), 1.0))
    reach = float(norm.isf((1 - confidence) / 2)) * error
    p_value = float(norm.sf(z))
    verdict: Verdict = "present" if p_value < LEVEL and kappa >= MATERIAL_TRUST * rate else "absent"
    note = ""
    if not linkage.linked:
        verdict, note = "inconclusive", "positions are not linked by documents shown at several of them"
    elif feedback.verdict == "present":
        verdict, note = "inconclusive", "the engine reacts to clicks, which hides trust bias"
    elif verdict == "absent" and kappa + reach > WIDE_TRUST * rate:
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

    `curve` is the log observation by position in the model, to start from, [positions]; `free` says which of the curve
    and kappa are estimated, [positions + 1].
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
        rate = float(np.median(fit.strengths[1]))
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
        """Change the free parameters until the sums of the moments are 0; return `at` at the solution."""
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
        """Return the moments of each query, [queries, positions + 1], and the derivatives of the moments' sums."""
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
