"""Lists with the same contents, found quickly: the loops behind `Clicks.merge`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism._util.compiled import compiled

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
Float64: TypeAlias = NDArray[np.float64]
Columns: TypeAlias = tuple[Int64, Int64, Int32, Int64]  # offsets, rows, positions, pattern


def same_lists(offsets: Int64, rows: Int64, positions: Int32, pattern: Int64) -> tuple[Int64, Int64]:
    """Group lists with equal contents: the group of each list, and the first list of each group, in order.

    Lists are grouped by a 64-bit hash, and each is then compared with the first of its group; should two different
    lists share a hash, all are hashed anew with another salt.

    Args:
        offsets: list i owns the entries `offsets[i]` to `offsets[i + 1]`, [lists + 1].
        rows: of each entry.
        positions: of each entry.
        pattern: one more number an entry that must agree, or none.
    """
    columns = (offsets, rows, positions, pattern)
    hashes = np.empty(len(offsets) - 1, dtype=np.int64)
    salt = 0
    while True:
        _hash(columns, salt, hashes)
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        if _alike(columns, first[group]):
            break
        salt += 1
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[group].astype(np.int64), first[order].astype(np.int64)


@compiled
def _hash(columns: Columns, salt: int, result: Int64) -> None:
    """A hash of each list by 64-bit multiplications, which wrap around."""
    offsets, rows, positions, pattern = columns
    for item in range(len(offsets) - 1):
        state = np.int64(salt) + (offsets[item + 1] - offsets[item])
        for entry in range(offsets[item], offsets[item + 1]):
            state = (state ^ (state >> 29) ^ rows[entry]) * np.int64(-7046029254386353131)
            state = (state ^ (state >> 32) ^ positions[entry]) * np.int64(-4658895280553007687)
            if len(pattern):
                state = (state ^ (state >> 31) ^ pattern[entry]) * np.int64(-7723592293110705685)
        result[item] = state ^ (state >> 30)


@compiled
def _alike(columns: Columns, twin: Int64) -> bool:
    """Whether every list equals its twin."""
    offsets, rows, positions, pattern = columns
    for item in range(len(offsets) - 1):
        begin, other = offsets[item], offsets[twin[item]]
        length = offsets[item + 1] - begin
        if offsets[twin[item] + 1] - other != length:
            return False
        for place in range(length):
            if rows[begin + place] != rows[other + place] or positions[begin + place] != positions[other + place]:
                return False
            if len(pattern) and pattern[begin + place] != pattern[other + place]:
                return False
    return True


@compiled
def add(offsets: Int64, target: Int64, counts: Int64 | Float64, sums: Int64 | Float64) -> None:
    """Add the counts of each list to those of its group, whose entries start at `target`."""
    for item in range(len(offsets) - 1):
        for entry in range(offsets[item], offsets[item + 1]):
            sums[target[item] + entry - offsets[item]] += counts[entry]
