"""Find lists with equal contents, by hashing: the compiled loops behind `Clicks.merge`."""

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
    """Return the group of each list, and the first list of each group; lists of a group have equal contents.

    Lists are grouped by a 64-bit hash, and each is then compared with the first of its group. If two different lists
    have the same hash, all lists are hashed again with another salt.

    Args:
        offsets: list i has the entries from `offsets[i]` up to `offsets[i + 1]`, exclusive, [lists + 1].
        rows: first number of each entry, [entries].
        positions: second number of each entry, [entries].
        pattern: third number of each entry, [entries], or an empty array.
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
    """Write the hash of each list to `result`; the 64-bit multiplications wrap around."""
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
    """Return whether each list equals the list `twin` of it."""
    offsets, rows, positions, pattern = columns
    for item in range(len(offsets) - 1):
        begin, other = offsets[item], offsets[twin[item]]
        length = offsets[item + 1] - begin
        if offsets[twin[item] + 1] - other != length:
            return False
        for at in range(length):
            if rows[begin + at] != rows[other + at] or positions[begin + at] != positions[other + at]:
                return False
            if len(pattern) and pattern[begin + at] != pattern[other + at]:
                return False
    return True


@compiled
def add(offsets: Int64, target: Int64, counts: Int64 | Float64, sums: Int64 | Float64) -> None:
    """Add the counts of each list to those of its group, whose entries start at `target`."""
    for item in range(len(offsets) - 1):
        for entry in range(offsets[item], offsets[item + 1]):
            sums[target[item] + entry - offsets[item]] += counts[entry]
