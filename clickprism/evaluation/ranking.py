"""Rank documents by score, all lists at once: lists of like length share a padded matrix, ties fall by a fixed hash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError
from clickprism.types import Bool, Float32, Float64, Int32, Int64, Text

CELLS = 1 << 15


@dataclass(frozen=True, eq=False)
class Block:
    """Some lists of like length as one matrix: `rows` and `mask` are [lists, places], `lists` says which lists."""

    lists: Int64
    rows: Int64
    mask: Bool


def blocks(offsets: Int64) -> Iterator[Block]:
    """All lists that have documents, padded at most to twice their length, in matrices of bounded size."""
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    order = order[np.searchsorted(lengths[order], 1) :]
    size = np.ceil(np.log2(np.maximum(lengths[order], 1)))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(size)) + 1, [len(order)]])
    for start, end in pairwise(starts.tolist()):
        if start == end:
            continue
        step = max(1, CELLS // int(lengths[order[end - 1]]))
        for first in range(start, end, step):
            lists = order[first : min(first + step, end)]
            places = np.arange(lengths[lists[-1]])
            mask = places < lengths[lists][:, None]
            yield Block(lists, np.where(mask, offsets[lists][:, None] + places, 0), mask)


def ranked(grades: Int32, scores: Float64, block: Block, query_ids: Text) -> Int32:
    """The grades of each list of the block, best score first, 0 where there is no document, [lists, places].

    Documents of equal score stand in the order of a hash of query id and place in the list. It is the same in every
    run and does not know the grades: a file sorted by grade gains nothing from a ranker that cannot decide.
    """
    keys = np.where(block.mask, -scores[block.rows], np.nan)
    starts = keys.shape[1] * np.arange(len(keys))[:, None]
    order = np.argsort(keys, axis=1) + starts
    in_order = keys.take(order)
    tied = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if tied.any():
        hashes = tie_keys(query_ids[block.lists[tied]], keys.shape[1])
        order[tied] = np.lexsort((hashes, keys[tied]), axis=-1) + starts[tied]
    return np.where(block.mask, grades.take(block.rows.take(order)), np.int32(0))


def tie_keys(query_ids: Text, places: int) -> NDArray[np.uint64]:
    """A 64-bit hash for each place of each query's list, [queries, places]; the width of the id array is no part."""
    width = query_ids.dtype.itemsize // 4
    letters = np.ascontiguousarray(query_ids).view(np.uint32).reshape(len(query_ids), width).astype(np.uint64)
    powers = np.cumprod(np.full(width, 0x9E3779B97F4A7C15, dtype=np.uint64))
    query = _scatter((letters * powers).sum(axis=1, dtype=np.uint64))
    return _scatter(query[:, None] + _scatter(np.arange(1, places + 1, dtype=np.uint64)))


def _scatter(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def check_scores(scores: Float64 | Float32 | Int32, documents: int) -> Float64:
    """The scores as float64; a wrong number of them or a NaN is an error."""
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (documents,):
        raise DataError(f"{documents} documents need as many scores, got an array of shape {values.shape}")
    wrong = np.isnan(values)
    if wrong.any():
        problem = f"{int(wrong.sum())} of {documents} scores are not a number, the first at row {int(wrong.argmax())}"
        raise DataError(problem, remedy="A ranker that diverged gives such scores: lower its learning rate")
    return values


def expected_worth(offsets: Int64, scores: Float64, worth: Float64) -> Float64:
    """What the new place of each entry is worth, when lists are ranked by score and ties fall at random, [entries].

    Documents of equal score share the mean worth of their places: the exact expectation over all orders of the tied.

    Args:
        offsets: ranked list i owns the entries `offsets[i]` to `offsets[i + 1]`, [ranked lists + 1].
        scores: one an entry, [entries].
        worth: of each place from the top, [places]; the places themselves give the mean place.

    >>> expected_worth(np.array([0, 3]), np.array([0.5, 0.9, 0.5]), np.array([1.0, 2.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    place = np.arange(len(scores)) - offsets[:-1][owner]
    order = np.lexsort((-scores, owner))
    fresh = np.ones(len(scores), dtype=np.bool_)
    fresh[1:] = (owner[order][1:] != owner[order][:-1]) | (scores[order][1:] != scores[order][:-1])
    group = np.cumsum(fresh) - 1
    result = np.empty(len(scores))
    result[order] = (np.bincount(group, weights=worth[place]) / np.maximum(np.bincount(group), 1))[group]
    return result
