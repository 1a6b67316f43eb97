"""Whether a difference is real: paired tests, Holm's correction, bootstrap intervals.

The unit of analysis is the query. Values are [queries], or [runs, queries] for several seeds of the same method: each
query is then first averaged over its runs, so that more seeds never count as more queries. NaN is a query that does not
count; in a pair it is excluded together with its partner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Float64

RESAMPLES = 2_000
FLIPS = 10_000
EXACT = 14
CELLS = 1 << 22


@final
@dataclass(frozen=True)
class Interval:
    """A mean with a confidence interval; low and high are NaN if fewer than two queries count."""

    mean: float
    low: float
    high: float
    queries: int


@final
@dataclass(frozen=True)
class PairedTest:
    """A two-sided paired test: the mean difference, first minus second, and how likely one as large is by chance."""

    difference: float
    p_value: float
    queries: int


def by_query(values: Float64) -> Float64:
    """Return the mean over runs of each query, [queries]; NaN if no run counts it."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 1:
        return array
    if array.ndim != 2:
        raise DataError(f"values must be [queries] or [runs, queries], got an array of shape {array.shape}")
    counts = ~np.isnan(array)
    runs = counts.sum(axis=0)
    return np.where(runs > 0, np.where(counts, array, 0).sum(axis=0) / np.maximum(runs, 1), np.nan)


def differences(first: Float64, second: Float64) -> Float64:
    """Return first minus second, query by query, where both count."""
    one, other = by_query(first), by_query(second)
    if one.shape != other.shape:
        raise DataError(f"{len(one)} and {len(other)} queries cannot be paired", remedy="Evaluate on the same queries")
    result = one - other
    return result[~np.isnan(result)]


def paired_t(first: Float64, second: Float64) -> PairedTest:
    """Student's paired t-test: t = mean(d) / (sd(d) / sqrt(n)), with n - 1 degrees of freedom.

    No difference at all has p = 1, the same difference everywhere p = 0, fewer than two pairs p = NaN.

    >>> round(paired_t(np.array([3.0, 5.0, 4.0]), np.array([1.0, 2.0, 3.0])).p_value, 6)  # t = 2 / (1 / sqrt(3))
    0.07418
    """
    from scipy.special import stdtr

    d = differences(first, second)
    mean = float(d.mean()) if len(d) else float("nan")
    if len(d) < 2:
        return PairedTest(mean, float("nan"), len(d))
    error = float(d.std(ddof=1) / np.sqrt(len(d)))
    if error == 0:
        return PairedTest(mean, 1.0 if mean == 0 else 0.0, len(d))
    return PairedTest(mean, float(2 * stdtr(len(d) - 1, -abs(mean / error))), len(d))


def paired_randomisation(first: Float64, second: Float64, *, flips: int = FLIPS, seed: int = 0) -> PairedTest:
    """Fisher's paired randomisation test: how often random signs make the mean difference as large.

    All 2^m sign patterns of the m differences that are not 0 if m is at most 14, else `flips` random ones, which with
    the observed one give p = (1 + as large) / (1 + flips).

    >>> paired_randomisation(np.array([2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0])).p_value  # +++ and --- of eight
    0.25
    """
    if flips < 1:
        raise SettingError("flips", flips, "be at least 1")
    d = differences(first, second)
    mean = float(d.mean()) if len(d) else float("nan")
    if len(d) < 2:
        return PairedTest(mean, float("nan"), len(d))
    moves = d[d != 0]
    least = abs(moves.sum()) - 1e-12 * np.abs(moves).sum()
    if len(moves) <= EXACT:
        patterns = np.arange(2 ** len(moves))[:, None] >> np.arange(len(moves)) & 1
        return PairedTest(mean, float((np.abs((1.0 - 2.0 * patterns) @ moves) >= least).mean()), len(d))
    rng, large, step = np.random.default_rng(seed), 0, max(1, CELLS // len(moves))
    for start in range(0, flips, step):
        flipped = rng.integers(0, 2, size=(min(step, flips - start), len(moves)), dtype=np.int8)
        large += int((np.abs(moves.sum() - 2 * (flipped @ moves)) >= least).sum())
    return PairedTest(mean, (1 + large) / (1 + flips), len(d))


def holm(p_values: Float64) -> Float64:
    """Holm's step-down correction: p_(i) becomes the largest of (m - j + 1) p_(j) over j <= i, at most 1.

    NaN stays NaN and is not counted in m.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    result = np.full(p.shape, np.nan)
    factors = np.arange(len(order), 0, -1)
    result[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1) if len(order) else []
    return result


def interval(values: Float64, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return a BCa bootstrap interval of a mean over queries; for a difference, pass `differences(first, second)`."""
    kept = by_query(values)
    kept = kept[~np.isnan(kept)]
    low, high = intervals(kept[:, None], confidence=confidence, resamples=resamples, seed=seed)
    return Interval(float(kept.mean()) if len(kept) else float("nan"), float(low[0]), float(high[0]), len(kept))


def intervals(
    columns: Float64, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Float64, Float64]:
    """Return BCa bootstrap bounds of the mean of each column, [queries, columns] to [columns] (Efron 1987).

    All columns use the same resampled queries. The bounds are quantiles of resampled means, corrected for bias and
    skewness; the jackknife of a mean has a closed form.
    """
    from scipy.special import ndtr, ndtri

    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    if resamples < 2:
        raise SettingError("resamples", resamples, "be at least 2")
    queries, width = columns.shape
    if queries < 2:
        return np.full(width, np.nan), np.full(width, np.nan)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, width))
    step = max(1, CELLS // queries)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.integers(0, queries, size=(size, queries)) + queries * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * queries).reshape(size, queries)
        means[start : start + size] = counts @ columns / queries
    observed = columns.mean(axis=0)
    share = ((means < observed).mean(axis=0) + (means <= observed).mean(axis=0)) / 2
    bias = ndtri(np.clip(share, 0.5 / resamples, 1 - 0.5 / resamples))[:, None]
    centred = columns - observed
    scale = np.maximum((centred**2).sum(axis=0) ** 1.5, np.finfo(np.float64).tiny)
    acceleration = ((centred**3).sum(axis=0) / (6 * scale))[:, None]
    shifted = bias + ndtri(np.array([(1 - confidence) / 2, (1 + confidence) / 2]))
    levels = ndtr(bias + shifted / (1 - acceleration * shifted))
    bounds = np.array([np.quantile(means[:, i], levels[i]) for i in range(width)]).reshape(width, 2)
    constant = np.ptp(columns, axis=0) == 0
    bounds[constant] = columns[0, constant][:, None]
    return bounds[:, 0], bounds[:, 1]
