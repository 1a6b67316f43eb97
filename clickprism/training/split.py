"""Split queries into those to learn from, to choose by, and to measure on."""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.types import Int64

TRAIN: Final = 0
CHOOSE: Final = 1
MEASURE: Final = 2


def split_queries(queries: Int64, shares: tuple[float, ...], *, seed: int) -> Int64:
    """Return the part of each pair, by whole queries: 1, 2, ... in these shares, 0 for the rest, [pairs].

    A share above 0 gets at least one query; if that would leave none for the rest, all are 0.

    >>> split_queries(np.array([4, 4, 5, 6, 7]), (0.25, 0.25), seed=0).tolist()
    [2, 2, 0, 1, 0]
    """
    distinct, rows = np.unique(queries, return_inverse=True)
    counts = [max(round(share * len(distinct)), 1) if share else 0 for share in shares]
    if sum(counts) >= len(distinct):
        return np.zeros(len(queries), dtype=np.int64)
    parts = np.repeat(np.arange(len(counts) + 1), [len(distinct) - sum(counts), *counts])
    chosen: Int64 = np.random.default_rng([seed, 7]).permutation(parts)[rows]
    return chosen
