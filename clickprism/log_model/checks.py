"""Tests of a fitted model: position bias, trust, coupling, goodness of fit, and whether the engine reacts to clicks."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from scipy.stats import norm

from clickprism.data.logged import Logged
from clickprism.log_model.counts import LogCounts, feedback_statistics
from clickprism.log_model.fit import Chosen, Fit
from clickprism.log_model.likelihood import HIGHEST, LOWEST
from clickprism.log_model.results import Curve, Feedback, GoodnessOfFit, Linkage, Test
from clickprism.types import Float64

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
RARE: Final = 0.01  # share of the impressions of the most shown position, below which a position is ignored


def feedback(logged: Logged, curve: Float64, *, confidence: float = 0.95) -> Feedback:
    """Test whether the engine reacts to clicks (`feedback_statistics`).

    A reaction is absent only if the log would have shown a material one; otherwise a weak result is inconclusive.

    Args:
        logged: The log.
        curve: Observation at each position, [positions].
        confidence: Confidence level of the interval of the reaction.
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
    """Test whether lower positions are observed less often, on average over the positions.

    Args:
        curve: Curve of the model.
        covariance: Covariance of its logarithm, [positions, positions].
        counts: Counts of the log.
        linkage: Links between positions.
    """
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


def goodness_of_fit(fit: Fit) -> GoodnessOfFit:
    """Compare observed with expected clicks by position and first-shown position.

    The clicks of a cell are predicted from the other cells of the pair and its prior, so that they do not predict
    themselves.
    """
    problem, counts = fit.problem, fit.problem.counts
    linear, seen = problem.log_observation(fit.theta), np.zeros(len(counts.pair))
    for step, weight in zip(problem.steps(fit.theta), fit.value.nodes, strict=True):
        seen += weight[counts.query][counts.pair] * np.exp(np.clip(step * linear, LOWEST, HIGHEST))
    shape, rate = problem.strengths(fit.theta, problem.prior_mean(fit.theta))
    exposure = counts.impressions * seen
    trust, clicks = problem.trust, counts.clicks
    extra = 0.0 if trust is None else trust.kappa * trust.gamma * exposure
    if trust is not None:
        clicks = clicks - trust.clicks
    total, clicked = counts.by_pair(exposure)[counts.pair], counts.by_pair(clicks)[counts.pair]
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
