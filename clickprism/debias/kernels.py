"""The loops behind the pair objectives of trees, compiled."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.types import Bool, Float64, Int64

NEAR = 0.01
FAR = 500.0
Sessions: TypeAlias = tuple[Int64, Int64, Int64, Bool, Float64]  # offsets, rows, places, clicked, weights
Sums: TypeAlias = tuple[Float64, Float64]  # derivatives [2, rows], costs [2, positions]


@compiled
def add_pairs(scores: Float64, sessions: Sessions, biases: Float64, truncation: int, sums: Sums) -> None:
    """Add the pairs of each session, clicked against not, to the derivatives and the costs."""
    offsets, rows, places, clicked, weights = sessions
    derivatives, costs = sums
    longest = 1
    for session in range(len(offsets) - 1):
        longest = max(longest, offsets[session + 1] - offsets[session])
    discounts = 1.0 / np.log2(np.arange(longest) + 2.0)
    order, rank, own = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest)
    parts = np.empty((2, longest))
    for session in range(len(offsets) - 1):
        start, end = offsets[session], offsets[session + 1]
        length, hits = end - start, clicked[start:end]
        clicks = int(hits.sum())
        if clicks == 0 or clicks == length:  # noqa: PLR1714 (a set is slow when compiled)
            continue
        for entry in range(length):
            own[entry] = scores[rows[start + entry]]
        _rank(own[:length], order, rank)
        best = discounts[: min(clicks, truncation)].sum()
        apart = own[order[0]] != own[order[length - 1]]
        parts[:] = 0.0
        total = 0.0
        for i in np.flatnonzero(hits):
            for j in range(length):
                if hits[j] or min(rank[i], rank[j]) >= truncation:
                    continue
                gap = own[i] - own[j]
                gain = abs(discounts[rank[i]] - discounts[rank[j]]) / best
                up, down = places[start + i], places[start + j]
                cost = weights[session] * (max(-gap, 0.0) + math.log1p(math.exp(-abs(gap))))
                costs[0, up] += cost / biases[1, down]
                costs[1, down] += cost / biases[0, up]
                if apart:
                    gain /= NEAR + abs(gap)
                chance = 1.0 / (1.0 + math.exp(min(gap, FAR)))
                total += 2 * chance * gain
                pull = chance * gain / (biases[0, up] * biases[1, down])
                parts[0, i] -= pull
                parts[0, j] += pull
                parts[1, i] += pull * (1 - chance)
                parts[1, j] += pull * (1 - chance)
        scale = weights[session] * (math.log2(1 + total) / total if total > 0 else 1.0)
        for entry in range(length):
            derivatives[0, rows[start + entry]] += scale * parts[0, entry]
            derivatives[1, rows[start + entry]] += scale * parts[1, entry]


@compiled
def _rank(scores: Float64, order: Int64, rank: Int64) -> None:
    """The order of the scores, highest first and ties as they stand, and the rank of each."""
    for i in range(len(scores)):
        place = i
        while place > 0 and scores[order[place - 1]] < scores[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    for place in range(len(scores)):
        rank[order[place]] = place
