"""Which rows of many are equal: a table of hashes, compiled. Importing it imports numba."""

from __future__ import annotations

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.log.murmur import State
from clickprism.types import Int64


@compiled
def firsts(rows: State) -> Int64:
    """Of each row the first one that equals it; the rows are hashes, so that their own bits are as good as any.

    Args:
        rows: shape (rows, words).
    """
    size = 16
    while size < 2 * len(rows):
        size *= 2
    slots, found = np.full(size, -1, np.int32), np.empty(len(rows), np.int64)
    mask = np.uint64(size - 1)
    for row in range(len(rows)):
        at = rows[row, 0] & mask
        while slots[at] >= 0 and not _equal(rows, row, slots[at]):
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at] = row
        found[row] = slots[at]
    return found


@compiled
def _equal(rows: State, one: int, other: int) -> bool:
    for word in range(rows.shape[1]):  # noqa: SIM110
        if rows[one, word] != rows[other, word]:
            return False
    return True
