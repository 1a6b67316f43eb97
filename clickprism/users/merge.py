"""Join simulated sessions with the same ranked list, clicks and truth together, quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from clickprism.compiled import compiled
from clickprism.errors import DataError
from clickprism.types import Clicks, Int32, Int64, Simulation, Truth, concatenate, slices

Columns: TypeAlias = tuple[Int64, Int64, Int32, Int64]  # offsets, rows, positions, pattern


def merge(simulation: Simulation, *, by: Literal["list", "pattern"] = "list") -> Simulation:
    """`Clicks.merge` for clicks and truth: same groups, same order (of first appearance), counts added.

    Lists are grouped by a 64-bit hash and each is then compared with the first of its group; should two different lists
    ever share a hash, all are hashed anew with another salt.
    """
    clicks, truth = simulation.clicks, simulation.truth
    pattern = np.zeros(0, dtype=np.int64)
    if by == "pattern":
        if not ((clicks.clicks == 0) | (clicks.clicks == clicks.list_impressions)).all():
            raise DataError("sessions merged by list cannot be split by pattern")
        pattern = (clicks.clicks > 0).astype(np.int64)
    group, first = _groups((clicks.offsets, clicks.rows, clicks.positions, pattern))
    entries, offsets = slices(clicks.offsets, first)
    impressions = np.zeros(len(first), dtype=np.int64)
    np.add.at(impressions, group, clicks.impressions)
    target = offsets[:-1][group]
    sums = []
    for counts in (clicks.clicks, truth.observed, truth.attracted):
        sums.append(np.zeros(len(entries), dtype=np.int64))
        _add(clicks.offsets, target, counts, sums[-1])
    rows, positions = clicks.rows[entries], clicks.positions[entries]
    merged = Clicks(clicks.lists, offsets, rows, positions, sums[0], impressions)
    return Simulation(merged, Truth(observed=sums[1], attracted=sums[2]))


def join(parts: Sequence[Simulation]) -> Simulation:
    """Several simulations over the same documents, one after the other."""
    truth = Truth(
        observed=np.concatenate([part.truth.observed for part in parts]),
        attracted=np.concatenate([part.truth.attracted for part in parts]),
    )
    return Simulation(concatenate([part.clicks for part in parts]), truth)


def _groups(columns: Columns) -> tuple[Int64, Int64]:
    hashes = np.empty(len(columns[0]) - 1, dtype=np.int64)
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
def _add(offsets: Int64, target: Int64, counts: Int64, sums: Int64) -> None:
    """Add the counts of each list to those of its group, whose entries start at `target`."""
    for item in range(len(offsets) - 1):
        for entry in range(offsets[item], offsets[item + 1]):
            sums[target[item] + entry - offsets[item]] += counts[entry]
