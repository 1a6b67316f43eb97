"""Fit P(click) = attraction x observation by maximum likelihood on counts: the solver of PBM and UBM.

Clicks and impressions are counted by document and cell; a cell is what observation depends on: the position for the
PBM, position and last click for the UBM. The log-likelihood,

    sum over groups of  c log(a t) + (n - c) log(1 - a t),        a of the document, t of the cell, both at most 1,

is concave in log a and log t, so it has one maximum. EM (Dempster et al. 1977) needs thousands of steps to reach it,
the more the smaller a t is. Here each document's a is solved for exactly, given t, by Newton's method in one unknown.
The rest is a concave function of the few t, also maximised by Newton's method, whose matrix is a sum over documents. A
Newton step estimates the remaining distance. So the fit stops when the step is small, and not when the likelihood stops
changing, which happens long before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int64

Pseudo: TypeAlias = tuple[float, float]  # pseudo-counts of every probability: clicks and skips
Table: TypeAlias = tuple[Int64, Int64, Float64, Float64]  # offsets, cells, clicks, skips
NO_PRIOR: Pseudo = (0.0, 0.0)
_INNER = 50
_LONGEST = 2.0  # step of log t
_HALVINGS = 40
_FINEST = 1e-8  # shorter steps are rounding errors
_RIDGE = 1e-7  # times a cell's clicks, added to its curvature, so that what is not identified does not move


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """A log counted by document and cell.

    A document is a row of `Clicks.lists`, so it belongs to one query: the same page for another query is another one.

    Attributes:
        rows: documents, sorted, each once, [documents].
        offsets: document i has the groups `offsets[i]` up to `offsets[i + 1]`, exclusive, [documents + 1].
        cells: cell of each group, from 0, [groups].
        clicks: clicks of each group, [groups].
        impressions: impressions of each group, [groups].
        size: number of cells.
    """

    rows: Int64
    offsets: Int64
    cells: Int64
    clicks: Float64
    impressions: Float64
    size: int

    @classmethod
    def of(cls, clicks: Clicks, cells: Int64, size: int) -> Groups:
        """Count a log, given the cell of each entry; merged sessions give the same counts.

        >>> from clickprism.types import Lists
        >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
        >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1, 2, 1, 2], np.int32),
        ...     np.array([3, 1, 2, 0]), np.array([5, 4]))
        >>> groups = Groups.of(log, log.positions - 1, 2)
        >>> groups.cells.tolist(), groups.clicks.tolist(), groups.impressions.tolist()
        ([0, 1], [5.0, 1.0], [9.0, 9.0])
        """
        if clicks.weights is not None:
            remedy = "Estimate on the log as it was clicked, before it is corrected"
            raise DataError(
                "the clicks have weights, so they were corrected already: their counts cannot be used", remedy=remedy
            )
        keys, group = np.unique(clicks.rows * np.int64(size) + cells, return_inverse=True)
        rows, sizes = np.unique(keys // size, return_counts=True)
        clicked, shown = (
            np.bincount(group, weights=weights, minlength=len(keys)).astype(np.float64)
            for weights in (clicks.clicks, clicks.list_impressions)
        )
        return cls(rows, np.append(0, np.cumsum(sizes)).astype(np.int64), keys % size, clicked, shown, size)


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """The result of a fit.

    Attributes:
        attraction: P(click | observed), [documents].
        observation: P(observed), [cells]; nan for cells that were never shown, 0 for cells without clicks.
        iterations: number of steps.
        converged: whether the fit converged.
    """

    attraction: Float64
    observation: Float64
    iterations: int
    converged: bool


def fit_factors(
    groups: Groups, *, tolerance: float = 1e-4, max_iterations: int = 10_000, prior: Pseudo = NO_PRIOR
) -> Factors:
    """Return the most probable attraction and observation.

    Unbiased in the limit of many impressions if clicks follow the model and documents link the cells (several rankers,
    shuffles, swaps). If groups of cells have no document in common, observation is comparable only within a group. The
    cost does not depend on the number of sessions.

    Without a prior only the products a t are identifiable. Then the highest t is 1, which does not reduce the
    likelihood: multiplying t and dividing a by a constant keeps all products. Cells without impressions are nan,
    documents without clicks 0. Pseudo-counts add  clicks log x + skips log(1 - x)  for every probability x: as if each
    document had been shown so often in a cell that is always observed, and each cell with a document that always
    attracts.

    Args:
        groups: the counts.
        tolerance: stop when the relative distance of every observation to its limit is below this.
        max_iterations: maximum number of Newton steps.
        prior: pseudo-counts, clicks and skips.

    >>> cells, clicks = np.array([0, 1, 0, 1]), np.array([40.0, 20.0, 20.0, 10.0])
    >>> found = fit_factors(Groups(np.arange(2), np.array([0, 2, 4]), cells, clicks, np.full(4, 100.0), 2))
    >>> found.observation.round(4).tolist(), found.attraction.round(4).tolist()
    ([1.0, 0.5], [0.4, 0.2])
    """
    used, cells = np.unique(groups.cells, return_inverse=True)
    packed = replace(groups, cells=cells.astype(np.int64), size=len(used))
    shown, clicked = (
        np.bincount(cells, weights=weights, minlength=len(used)).astype(np.float64)
        for weights in (groups.impressions, groups.clicks)
    )
    observation = (clicked + prior[0]) / np.maximum(shown + sum(prior), 1e-300)
    observation /= max(float(observation.max(initial=0.0)), 1e-300)
    observation = np.where(clicked + prior[0] > 0, np.clip(observation, 1e-9, 1 - 1e-3 * (prior[1] > 0)), 0.0)
    documents = len(groups.offsets) - 1
    found = _climb(
        _table(packed, prior),
        np.append(observation, 1.0),
        np.full(documents, 0.5),
        tolerance=max(tolerance, _FINEST),
        max_iterations=max_iterations,
    )
    whole = np.full(groups.size, np.nan if prior == NO_PRIOR else prior[0] / sum(prior))
    whole[used] = np.where((shown > 0) | (prior != NO_PRIOR), found.observation[:-1], np.nan)
    return replace(found, observation=whole)


def _table(groups: Groups, prior: Pseudo) -> Table:
    """Return the groups and, as further groups, the pseudo-counts of each document and of each cell."""
    skips = groups.impressions - groups.clicks
    if prior == NO_PRIOR:
        return groups.offsets, groups.cells, groups.clicks, skips
    documents = len(groups.offsets) - 1
    ends = groups.offsets[1:]
    return (
        np.append(groups.offsets + np.arange(documents + 1), len(skips) + documents + groups.size),
        np.append(np.insert(groups.cells, ends, groups.size), np.arange(groups.size)),
        np.append(np.insert(groups.clicks, ends, prior[0]), np.full(groups.size, prior[0])),
        np.append(np.insert(skips, ends, prior[1]), np.full(groups.size, prior[1])),
    )


def _climb(
    table: Table, observation: Float64, attraction: Float64, *, tolerance: float, max_iterations: int
) -> Factors:
    """Maximise by Newton's method in log t, kept at or below 0 by projection (Bertsekas 1982), with step halving.

    The last cell is always observed; cells of observation 0 stay 0. Without a prior the highest observation is scaled
    to 1 at every step.
    """
    moving = observation > 0
    moving[-1] = False
    anchored = len(table[0]) - 1 > len(attraction)
    evidence = np.bincount(table[1], weights=table[2], minlength=len(observation)) + 1e-300
    value, attraction, gradient, curvature = _at(table, observation, attraction)
    iteration = 0
    for iteration in range(1, max_iterations + 1):
        free = np.flatnonzero(moving & ((observation < 1) | (gradient < -_FINEST * evidence)))
        if len(free) == 0:
            return Factors(attraction, observation, iteration, True)
        matrix = curvature[np.ix_(free, free)]
        step = np.linalg.solve(matrix + np.diag(_RIDGE * evidence[free]), gradient[free])
        step = np.clip(step, -_LONGEST, _LONGEST)
        share = 1.0
        for _ in range(_HALVINGS):
            moved = observation.copy()
            moved[free] = np.minimum(observation[free] * np.exp(share * step), 1.0)
            moved[:-1] /= 1.0 if anchored else moved[:-1].max()
            way = np.log(moved[moving] / observation[moving])
            reached = _at(table, moved, attraction)
            if reached[0] >= value + 1e-4 * float(way @ gradient[moving]) - 1e-12 * abs(value):
                break
            share /= 2
        else:
            break
        observation, (value, attraction, gradient, curvature) = moved, reached
        if float(np.abs(way).max()) < tolerance * share:
            return Factors(attraction, observation, iteration, True)
    return Factors(attraction, observation, iteration, False)


def _at(table: Table, observation: Float64, attraction: Float64) -> tuple[float, Float64, Float64, Float64]:
    """Return likelihood, best attraction, gradient and -Hessian by log t; the search starts from `attraction`."""
    size = len(observation)
    attraction, gradient, curvature = attraction.copy(), np.zeros(size), np.zeros((size, size))
    value = _profile(table, observation, attraction, (gradient, curvature))
    return value, attraction, gradient, curvature + curvature.T


@compiled
def _profile(table: Table, observation: Float64, attraction: Float64, sums: tuple[Float64, Float64]) -> float:
    """Return the likelihood with the best attraction for this observation; write that, the gradient and the -Hessian.

    Gradient and -Hessian H are by log t. Instead of H, a matrix M with H = M + M' is added: each pair of cells once,
    the diagonal halved.

    With weights w = (n - c) p / (1 - p)^2, p = a t, the -Hessian is diag(sum w) - sum over documents of w w' / sum(w):
    the Laplacian of the graph in which documents link cells. If attraction is at its bound, the second term is omitted.
    A document beyond the length of `attraction` always attracts.
    """
    offsets, cells, clicks, skips = table
    gradient, curvature = sums
    value = 0.0
    weights = np.zeros(len(observation))
    for document in range(len(offsets) - 1):
        first, last = offsets[document], offsets[document + 1]
        chance = 1.0
        if document < len(attraction):
            chance = _attraction(table, document, observation, attraction[document])
            attraction[document] = chance
        total = 0.0
        for group in range(first, last):
            cell = cells[group]
            both = chance * observation[cell]
            rest = max(1 - both, 1e-12)
            weight = skips[group] * both / rest**2
            value += clicks[group] * np.log(max(both, 1e-300))
            if skips[group] > 0:
                value += skips[group] * np.log1p(-both)
            gradient[cell] += clicks[group] - weight * rest
            curvature[cell, cell] += 0.5 * weight
            weights[group - first] = weight
            total += weight
        if chance < 1 and total > 0:
            for group in range(first, last):
                scaled = weights[group - first] / total
                line = curvature[cells[group]]
                line[cells[group]] -= 0.5 * scaled * weights[group - first]
                for other in range(first, group):
                    line[cells[other]] -= scaled * weights[other - first]
    return value


@compiled
def _attraction(table: Table, document: int, observation: Float64, start: float) -> float:
    """Return the best attraction of one document: the root of  clicks - sum (n - c) a t / (1 - a t)  in (0, 1], or 1.

    The root is between c / (c + s) and c / s, with s the sum of (n - c) t. Newton's method in log a approaches it from
    above after at most one step; if rounding errors move it out of the interval, the interval is halved.
    """
    offsets, cells, clicks, skips = table
    first, last = offsets[document], offsets[document + 1]
    found, missed, slope = 0.0, 0.0, 0.0
    for group in range(first, last):
        seen = observation[cells[group]]
        found += clicks[group]
        missed += skips[group] * seen
        if skips[group] > 0:
            slope += skips[group] * seen / max(1 - seen, 1e-300)
    if slope <= found:
        return 1.0 if found > 0 else 0.0
    low, high = found / (found + missed), min(1.0, found / missed)
    chance = max(min(max(start, low), high - 1e-12), low)
    for _ in range(_INNER):
        odds, slope = 0.0, 0.0
        for group in range(first, last):
            both = chance * observation[cells[group]]
            part = skips[group] * both / (1 - both)
            odds += part
            slope += part / (1 - both)
        low, high = (chance, high) if found > odds else (low, chance)
        further = chance * np.exp(min((found - odds) / max(slope, 1e-300), 5.0))
        if not low < further < high:
            further = 0.5 * (low + high)
        way = abs(further - chance)
        chance = further
        if way <= max(1e-9 * (1 - chance), 1e-14) * chance:
            break
    return chance
