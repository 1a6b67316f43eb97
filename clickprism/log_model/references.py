"""Model-free position curves, shown beside the model: documents shown at several positions, and randomised positions.

AllPairs (Agarwal et al. 2019, "Estimating position bias without intrusive interventions") compares the click rates of
the documents that were shown at two positions. For every pair of positions k, k'

    s_k = sum_d w_d c_dk / n_dk,      s_k' = sum_d w_d c_dk' / n_dk',      E[s_k] / E[s_k'] = o_k / o_k'

whatever the relevance of the documents, with w_d = n n' / (n + n') (Mantel and Haenszel 1959). The curve maximises

    sum over pairs of positions of  s_k log(o_k r) + (w - s_k) log(1 - o_k r),   one r for each pair of positions

It is unbiased if positions do not depend on clicks; an engine that reacts to clicks biases it (`feedback_statistics`).
Intervals are by the Bayesian bootstrap over queries: each query gets an exponential weight (Rubin 1981).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.stats import norm

from clickprism.errors import TrainingError, UnsupportedError
from clickprism.log_model.counts import LogCounts
from clickprism.log_model.results import CLOSE, Agreement, Curve, Identified, Linkage
from clickprism.types import Bool, Float64, Int64

LEAST_CLICKS: Final = 10.0  # effective clicks that a link between two positions needs
BLOCKS: Final = 1000  # queries are drawn one by one up to this number; more are drawn in this number of random blocks
HALVINGS: Final = 60
PSEUDO_CLICK: Final = 0.5
LEAST: Final = 1e-12
TOLERANCE: Final = 1e-8
MOST_STEPS: Final = 200
DISAGREE: Final = 0.01  # p-value below which two curves disagree


@final
@dataclass(frozen=True, eq=False)
class Links:
    """Documents shown at two positions, summed over each pair of positions.

    Attributes:
        positions: Number of positions.
        low: Upper position of each pair, from 0, [links].
        high: Lower position of each pair, from 0, [links].
        strength: Effective number of clicks of each link: one over the variance of its log ratio, [links].
        sums: Weight, s_k and s_k' of each block of queries, [3, blocks, links].
        documents: Number of (query, document) pairs shown at several positions.
        clicks: Clicks on them.
    """

    positions: int
    low: Int64
    high: Int64
    strength: Float64
    sums: Float64
    documents: int
    clicks: float

    @classmethod
    def of(cls, counts: LogCounts, *, seed: int = 0) -> Links:
        """Return the links of a log."""
        key = counts.pair * counts.positions + counts.position
        cells, cell = np.unique(key, return_inverse=True)  # contexts and the like are added up
        pair, position = cells // counts.positions, cells % counts.positions
        clicks, shown = (np.bincount(cell, weights=each) for each in (counts.clicks, counts.impressions))
        first, second = _same_pair(pair)
        weight = shown[first] * shown[second] / (shown[first] + shown[second])
        rates = weight * clicks[first] / shown[first], weight * clicks[second] / shown[second]
        known, link = np.unique(position[first] * counts.positions + position[second], return_inverse=True)
        variance = np.zeros(len(known))
        for rate, at in zip(rates, (first, second), strict=True):
            squares = np.bincount(link, weights=rate**2 / np.maximum(clicks[at], LEAST), minlength=len(known))
            total = np.bincount(link, weights=rate, minlength=len(known))
            variance += np.divide(squares, total**2, out=np.full(len(known), np.inf), where=total > 0)
        block = np.random.default_rng([seed, 7]).permutation(counts.queries) % min(BLOCKS, max(counts.queries, 1))
        of_block = block[counts.query[pair[first]]] * max(len(known), 1) + link
        size = (min(BLOCKS, max(counts.queries, 1)), len(known))
        sums = np.stack(
            [
                np.bincount(of_block, weights=each, minlength=size[0] * size[1]).reshape(size)
                for each in (weight, *rates)
            ]
        )
        moved = counts.several
        return cls(
            counts.positions,
            known // counts.positions,
            known % counts.positions,
            np.where(np.isfinite(variance), 1 / np.maximum(variance, LEAST), 0.0),
            sums.astype(np.float64, copy=False),
            int(moved.sum()),
            float(counts.by_pair(counts.clicks)[moved].sum()),
        )

    def draw(self, resamples: int, seed: int) -> Float64:
        """Return weight, s_k and s_k' of the log itself (draw 0) and of each resampled log, [3, draws, links]."""
        weights = np.random.default_rng([seed, 8]).exponential(size=(resamples, self.sums.shape[1]))
        return np.asarray(np.concatenate([np.ones((1, self.sums.shape[1])), weights]) @ self.sums)

    def tree(self) -> Int64:
        """Return the links of the spanning tree, or forest, with the strongest links."""
        strong = self.strength > 0
        at = np.flatnonzero(strong)
        shape = (self.positions, self.positions)
        graph = csr_array((1 / self.strength[at], (self.low[at], self.high[at])), shape=shape)
        found = minimum_spanning_tree(graph).tocoo()
        table = np.full(shape, -1, dtype=np.int64)
        table[self.low, self.high] = table[self.high, self.low] = np.arange(len(self.low))
        return np.asarray(table[found.row, found.col])

    def groups(self, links: Int64) -> Int64:
        """Return the group of positions that each position belongs to by these links; that of position 1 is 0."""
        shape = (self.positions, self.positions)
        graph = csr_array((np.ones(len(links)), (self.low[links], self.high[links])), shape=shape)
        return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _same_pair(pair: Int64) -> tuple[Int64, Int64]:
    """Return every two cells of the same pair, in order."""
    firsts, seconds = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for gap in range(1, len(pair)):
        same = np.flatnonzero(pair[gap:] == pair[:-gap])
        if len(same) == 0:
            break
        firsts.append(same)
        seconds.append(same + gap)
    return np.concatenate(firsts), np.concatenate(seconds)


def linkage(counts: LogCounts, links: Links, *, features: bool, randomised: Bool, views: bool = False) -> Linkage:
    """Return which positions are linked, by what, and the cheapest repair.

    Positions form a graph whose edges are documents shown at both. Observation and relevance are identifiable if and
    only if it is connected (Chen et al. 2024, "Identifiability matters").

    Args:
        counts: Counts of the log.
        links: Its links.
        features: Whether the prior of the model uses features.
        randomised: Whether each position was filled at random in part of the log, [positions].
        views: Whether the log records what users observed: then every position is known.
    """
    tree = links.tree()
    strong = tree[links.strength[tree] >= LEAST_CLICKS]
    groups = np.zeros(counts.positions, dtype=np.int64) if views else links.groups(strong)
    by_chance = randomised if np.count_nonzero(randomised) > 1 else np.zeros_like(randomised)
    if by_chance.any():  # positions that chance filled can be compared, and so can all that is linked to one of them
        groups = np.where(np.isin(groups, groups[by_chance]), groups[by_chance].min(), groups)
    evidence = _evidence(links, tree)
    identified: list[Identified] = []
    for position in range(counts.positions):
        if views:
            identified.append("views")
        elif by_chance[position] and by_chance[0]:
            identified.append("randomised")
        elif groups[position] == 0:
            identified.append("documents")
        else:
            identified.append("features" if features else "not identified")
    weakest = None
    if len(strong):
        at = int(strong[links.strength[strong].argmin()])
        weakest = (int(links.low[at]) + 1, int(links.high[at]) + 1, float(links.strength[at]))
    return Linkage(tuple(identified), evidence, groups, links.documents, len(counts), weakest, _repair(groups, counts))


def _evidence(links: Links, tree: Int64) -> Float64:
    """Return the strength of the weakest link on the strongest way from each position to position 1, [positions]."""
    evidence = np.zeros(links.positions)
    evidence[0] = np.inf
    for _ in range(links.positions):
        for at in tree[np.argsort(-links.strength[tree])]:
            low, high = links.low[at], links.high[at]
            through = min(max(evidence[low], evidence[high]), links.strength[at])
            evidence[low], evidence[high] = max(evidence[low], through), max(evidence[high], through)
    evidence[0] = links.strength[tree].sum() if len(tree) else 0.0
    return evidence


def _repair(groups: Int64, counts: LogCounts) -> str:
    """Return the cheapest repair in one sentence: one swap between neighbouring groups of positions for each gap."""
    numbers = list(dict.fromkeys(groups.tolist()))
    if len(numbers) <= 1:
        return ""
    swaps = []
    for number in numbers[1:]:
        place = int(np.flatnonzero(groups == number)[0])
        swaps.append((place, place + 1))
    shown = counts.by_position(counts.impressions)
    rate = counts.by_position(counts.clicks) / np.maximum(shown, 1.0)
    needed = sum(2 * LEAST_CLICKS / max(float(min(rate[a - 1], rate[b - 1])), 1e-4) for a, b in swaps)
    named = ", ".join(f"{a} and {b}" for a, b in swaps[:3]) + (", ..." if len(swaps) > 3 else "")
    return f"Swap the results at positions {named} in about {needed:,.0f} searches"


def allpairs(links: Links, resamples: int = 200, confidence: float = 0.95, seed: int = 0) -> tuple[Curve, Float64]:
    """Return the curve of documents shown at several positions, and its draws, [resamples, positions]."""
    tree = links.tree()
    groups = links.groups(tree[links.strength[tree] >= LEAST_CLICKS])
    if links.positions < 2 or (groups != 0).any():
        depth = int(np.flatnonzero(groups != 0)[0]) if (groups != 0).any() else 1
        raise UnsupportedError(
            f"position {depth + 1} is not linked to position 1 by documents that were shown at both "
            f"(fewer than {LEAST_CLICKS:g} effective clicks)",
            remedy="Log several rankings of the same query, or swap results in some searches"
            + (f"; or use --depth {depth}" if depth > 1 else ""),
        )
    curves = _solve(links, links.draw(resamples, seed))
    lower, upper = interval(curves[0], curves[1:], confidence)
    at = int(tree[links.strength[tree].argmin()])
    note = f"weakest link {links.low[at] + 1}-{links.high[at] + 1}: {links.strength[at]:,.0f} effective clicks"
    return Curve("allpairs", curves[0], lower, upper, confidence, links.documents, links.clicks, note), curves[1:]


def randomised_curve(
    counts: LogCounts, resamples: int = 200, confidence: float = 0.95, seed: int = 0
) -> tuple[Curve, Float64]:
    """Return the curve of results at random positions, and its draws: click rates relative to position 1."""
    if counts.randomised is None or not counts.randomised.any():
        raise UnsupportedError(
            "the log does not mark results at random positions", remedy="Mark them in the field `randomised`"
        )
    cells = np.flatnonzero(counts.randomised)
    position = counts.position[cells]
    shown = np.bincount(position, weights=counts.impressions[cells], minlength=counts.positions)
    clicks = np.bincount(position, weights=counts.clicks[cells], minlength=counts.positions)
    if shown[0] == 0 or clicks[0] == 0 or np.count_nonzero(shown) < 2:
        raise UnsupportedError(
            "results at random positions have no click at position 1, or are at one position only",
            remedy="Shuffle whole lists in some searches",
        )
    block = np.random.default_rng([seed, 7]).permutation(counts.queries) % min(BLOCKS, counts.queries)
    key = block[counts.query[counts.pair[cells]]] * counts.positions + position
    size = (min(BLOCKS, counts.queries), counts.positions)
    sums = [
        np.bincount(key, weights=each[cells], minlength=size[0] * size[1]).reshape(size)
        for each in (counts.clicks, counts.impressions)
    ]
    weights = np.random.default_rng([seed, 8]).exponential(size=(resamples, size[0]))
    weights = np.concatenate([np.ones((1, size[0])), weights])
    # half a click more at each position, at the mean rate, with a random weight in each draw: a position without clicks
    # is not certain to get none
    more = np.random.default_rng([seed, 10]).exponential(size=(resamples, counts.positions))
    extra = PSEUDO_CLICK * np.concatenate([np.ones((1, counts.positions)), more])
    rates = (weights @ sums[0] + extra) / (weights @ sums[1] + PSEUDO_CLICK * shown.sum() / clicks.sum())
    curves = np.where(shown > 0, rates / rates[:, :1], np.nan)
    lower, upper = interval(curves[0], curves[1:], confidence)
    pairs = len(np.unique(counts.pair[cells]))
    note = f"{shown.sum():,.0f} impressions at random positions"
    return Curve("randomised", curves[0], lower, upper, confidence, pairs, float(clicks.sum()), note), curves[1:]


def interval(curve: Float64, draws: Float64, confidence: float) -> tuple[Float64, Float64]:
    """Return the ends of the interval of each position: draws are to the curve as the curve is to the truth."""
    if len(draws) == 0:
        return np.full(len(curve), np.nan), np.full(len(curve), np.nan)
    tail = (1 - confidence) / 2
    ends = np.quantile(draws, [1 - tail, tail], axis=0)
    lower, upper = np.divide(curve**2, ends, out=np.stack([curve, curve]), where=ends > 0)
    return lower, upper


def agreement(model: Float64, covariance: Float64, reference: Curve, draws: Float64) -> Agreement:
    """Test whether the model and a model-free estimate are the same curve: the largest difference of logarithms.

    Both use the same clicks, so their difference varies less than the test assumes: it is conservative.

    Args:
        model: Log curve of the model, [positions].
        covariance: Its covariance, [positions, positions].
        reference: Model-free curve.
        draws: Resampled model-free curves, [resamples, positions].
    """
    known = np.flatnonzero(np.isfinite(reference.values) & (reference.values > 0))
    known = known[known > 0]
    if not len(known):
        return Agreement(reference, float("nan"), True, 1, 1.0)
    difference = model[known] - np.log(reference.values[known])
    largest = int(np.abs(difference).argmax())
    p_value = float("nan")
    if len(draws) > 1:
        # each position separately, Bonferroni: few queries estimate the joint covariance of many positions badly
        spread = np.log(np.maximum(draws[:, known], 1e-6)).var(axis=0) + np.diagonal(covariance)[known]
        z = np.abs(difference) / np.sqrt(np.maximum(spread, 1e-300))
        p_value = float(min(1.0, 2 * norm.sf(z.max()) * len(known)))
    close = bool(np.abs(difference).max() < CLOSE)
    agrees = close or not p_value < DISAGREE
    return Agreement(reference, p_value, agrees, int(known[largest]) + 1, float(np.exp(difference[largest])))


def _solve(links: Links, sums: Float64) -> Float64:
    """Return the curve of every draw, 1 at the first position, [draws, positions]; by Newton's method."""
    weight, first, second = sums
    used = (first + second > 0).all(axis=0)
    low, high, weight = links.low[used], links.high[used], weight[:, used]
    clicks = [np.maximum(each[:, used], LEAST * weight) for each in (first, second)]
    skips = [np.maximum(weight - each, LEAST * weight) for each in clicks]

    def value(curve: Float64, rate: Float64) -> Float64:
        total, outside = np.zeros(len(curve)), np.zeros(len(curve), dtype=np.bool_)
        for place, hit, miss in zip((low, high), clicks, skips, strict=True):
            logs = curve[:, place] + rate
            outside |= (logs >= 0).any(axis=1)
            logs = np.minimum(logs, -1e-15)
            total += (hit * logs + miss * np.log(-np.expm1(logs))).sum(axis=1)
        return np.where(outside, -np.inf, total)

    def graph(edges: Float64, flow: Float64) -> Float64:
        """Solve for one value a position from edge weights and flows along the edges, 0 at position 1."""
        matrix, flows = np.zeros((2, len(edges), links.positions, links.positions))
        matrix[:, low, high] = matrix[:, high, low] = -edges
        flows[:, low, high], flows[:, high, low] = flow, -flow
        at = np.arange(links.positions)
        matrix[:, at, at] = -matrix.sum(axis=2)
        result = np.zeros(matrix.shape[:2])
        result[:, 1:] = np.linalg.solve(matrix[:, 1:, 1:], flows.sum(axis=2)[:, 1:, None])[..., 0]
        return result

    edges = clicks[0] * clicks[1] / (clicks[0] + clicks[1])
    curve = graph(edges, edges * np.log(clicks[0] / clicks[1]))
    mean = (clicks[0] + clicks[1]) / (clicks[0] + clicks[1] + skips[0] + skips[1])
    rate = np.log(mean) - np.logaddexp(curve[:, low], curve[:, high]) + np.log(2)
    rate = np.minimum(rate, -np.maximum(curve[:, low], curve[:, high]) - 0.05)
    now, done = value(curve, rate), np.zeros(len(curve), dtype=np.bool_)
    for _ in range(MOST_STEPS):
        slopes, curvatures = [], []
        for place, hit, miss in zip((low, high), clicks, skips, strict=True):
            logs = curve[:, place] + rate
            rest = -np.expm1(logs)
            odds = miss * np.exp(logs) / rest
            slopes.append(hit - odds)
            curvatures.append(odds / rest)
        total = curvatures[0] + curvatures[1]
        step = graph(
            curvatures[0] * curvatures[1] / total, (curvatures[1] * slopes[0] - curvatures[0] * slopes[1]) / total
        )
        change = (slopes[0] + slopes[1] - curvatures[0] * step[:, low] - curvatures[1] * step[:, high]) / total
        rise = sum((s * (step[:, at] + change)).sum(axis=1) for s, at in zip(slopes, (low, high), strict=True))
        share = np.where(done, 0.0, 1.0)
        for _ in range(HALVINGS):
            ahead = value(curve + share[:, None] * step, rate + share[:, None] * change)
            short = ~(ahead >= now + 1e-4 * share * rise - 1e-12 * np.abs(now))
            if not short.any():
                break
            share = np.where(short, share / 2, share)
        curve, rate = curve + share[:, None] * step, rate + share[:, None] * change
        now = value(curve, rate)
        done |= (np.abs(step).max(axis=1) < TOLERANCE) & (share > 0.5)
        if done.all():
            return np.asarray(np.exp(curve - curve[:, :1]))
    raise TrainingError(f"the curve of allpairs did not converge in {MOST_STEPS} steps")
