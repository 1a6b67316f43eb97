"""The graph that links positions: two are linked by the documents that were shown at both, as strongly as by clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from clickprism.diagnosis.clusters import NORMAL_95
from clickprism.observation.counts import Counts
from clickprism.observation.curve import sums
from clickprism.observation.pairs import Links, link
from clickprism.types import Bool, Float64, Int64


class Link(NamedTuple):
    """Two positions, from 1, and the clicks in effect that link them."""

    one: int
    other: int
    strength: float


class Swap(NamedTuple):
    """Two positions whose documents should trade places in some searches, to link them.

    Attributes:
        one: the higher position, from 1.
        other: the lower position.
        searches: in how many searches, about, for the wanted precision.
        loss: clicks that a swapped search costs at most, by the click rates of the two positions.
    """

    one: int
    other: int
    searches: float
    loss: float

    @property
    def cost(self) -> float:
        """Clicks that all of it costs at most."""
        return self.searches * self.loss


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """How positions are linked.

    Attributes:
        strength: clicks in effect that link two positions, one over the variance of the log of their ratio,
            [positions, positions].
        ratio: of the click rates of the documents of a link, column over row, [positions, positions]; nan without.
        shown: whether a position was shown at all, [positions].
    """

    strength: Float64
    ratio: Float64
    shown: Bool

    def groups(self, least: float) -> Int64:
        """The group of each position by links of at least this strength; that of the first shown is 0; -1: not shown.

        >>> strength = np.array([[0, 9, 0], [9, 0, 2.0], [0, 2, 0]])
        >>> Graph(strength, np.ones((3, 3)), np.ones(3, np.bool_)).groups(5).tolist()
        [0, 0, 1]
        """
        _, group = connected_components((self.strength >= least) & (self.strength > 0), directed=False)
        _, first, number = np.unique(group[self.shown], return_index=True, return_inverse=True)
        order = np.empty(len(first), dtype=np.int64)
        order[np.argsort(first)] = np.arange(len(first))
        result = np.full(len(self.shown), -1, dtype=np.int64)
        result[self.shown] = order[number]
        return result

    def tree(self) -> list[Link]:
        """The strongest links that hold all together, or each group that hangs together, the weakest first."""
        cost = np.divide(1.0, self.strength, out=np.zeros_like(self.strength), where=self.strength > 0)
        kept = minimum_spanning_tree(cost).tocoo()
        pairs = [(min(a, b), max(a, b)) for a, b in zip(kept.row.tolist(), kept.col.tolist(), strict=True)]
        return sorted(
            (Link(a + 1, b + 1, float(self.strength[a, b])) for a, b in pairs), key=lambda each: each.strength
        )

    def errors(self) -> tuple[Float64, Float64]:
        """Observation relative to position 1 along the strongest links, and half of its 95% interval, [positions].

        nan where no links lead. What lies above 1 is taken as 1. Other estimators use more links, and may be surer.
        """
        size = len(self.shown)
        log, variance = np.full(size, np.nan), np.full(size, np.nan)
        log[0] = variance[0] = 0.0
        adjacent = np.zeros((size, size))
        for one, other, strength in self.tree():
            adjacent[one - 1, other - 1] = strength
        order, before = breadth_first_order(adjacent, 0, directed=False)
        for place in order[1:]:
            come = before[place]
            log[place] = log[come] + np.log(self.ratio[come, place])
            variance[place] = variance[come] + 1 / self.strength[come, place]
        curve = np.minimum(np.exp(log), 1.0)
        return curve, NORMAL_95 * curve * np.sqrt(variance)


def graph_of(counts: Counts) -> Graph:
    """The graph of a log."""
    links, size = link(counts), counts.max_position
    strength, ratio = np.zeros((size, size)), np.full((size, size), np.nan)
    rates = _rates(counts, links)
    solid = (rates > 0).all(axis=0)
    low, high = links.low[solid], links.high[solid]
    strength[low, high] = strength[high, low] = links.strength[solid]
    ratio[low, high], ratio[high, low] = rates[1, solid] / rates[0, solid], rates[0, solid] / rates[1, solid]
    return Graph(strength, ratio, np.bincount(counts.positions - 1, minlength=size) > 0)


def cheapest_swaps(graph: Graph, rate: Float64, *, least: float, precision: float) -> list[Swap]:
    """The swaps that link all groups of positions at the least cost in clicks, cheapest first.

    A swap of the documents at j and k changes clicks from c_j + c_k = r o_j + r' o_k to r' o_j + r o_k, so it loses
    (r - r')(o_j - o_k) <= (sqrt(c_j) - sqrt(c_k))^2, whatever r, r' and o. With n searches swapped and many more not,
    the swapped ones decide how strong the link is: n (r' o_j + r o_k) >= 2 n sqrt(c_j c_k) clicks in effect. Errors add
    up from link to link, so each is made as strong as if all lay on one way.

    Args:
        graph: of the log.
        rate: clicks a search at each position, above 0, [positions].
        least: links as strong as this are there already.
        precision: half of the interval that is wanted for the observation relative to position 1.
    """
    group = graph.groups(least)
    places = np.flatnonzero(graph.shown)
    one, other = (each.ravel() for each in np.meshgrid(places, places, indexing="ij"))
    upper = one < other
    one, other = one[upper], other[upper]
    apart = group[one] != group[other]
    wanted = np.maximum(least, (NORMAL_95 * np.minimum(rate[other] / rate[0], 1.0) / precision) ** 2)
    searches = wanted * max(int(group.max()), 1) / (2 * np.sqrt(rate[one] * rate[other]))
    loss = (np.sqrt(rate[one]) - np.sqrt(rate[other])) ** 2
    cost = np.zeros_like(graph.strength)
    cost[one, other] = np.where(apart, np.maximum(searches * loss, 1e-3), 1e-6)  # below 1e-8 is no edge to scipy
    kept = minimum_spanning_tree(cost).tocoo()
    taken = {(a, b) for a, b in zip(kept.row.tolist(), kept.col.tolist(), strict=True) if group[a] != group[b]}
    swaps = [
        Swap(int(a) + 1, int(b) + 1, float(n), float(lost))
        for a, b, n, lost in zip(one, other, searches, loss, strict=True)
        if (int(a), int(b)) in taken
    ]
    return sorted(swaps, key=lambda swap: swap.cost)


def _rates(counts: Counts, links: Links) -> Float64:
    """The weighted click rates of the documents of each link, at its higher and its lower position, [2, links]."""
    one, other = counts.impressions[links.first], counts.impressions[links.second]
    weight, size = one * other / (one + other), len(links.low)
    return np.stack(
        [
            sums(links.pair, weight * counts.clicks[place] / shown, size)
            for place, shown in ((links.first, one), (links.second, other))
        ]
    )
