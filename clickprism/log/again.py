"""Which new rows of a day repeat an event: keys are looked up in parts, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clickprism.types import Bool, Int64

if TYPE_CHECKING:
    from clickprism.log.murmur import State

KEYS: Final = 1 << 23  # that are held at a time, by all threads; each takes about 140 bytes
NEW, SAME, VARIANT = 0, 1, 2
Read: TypeAlias = Callable[[str], Iterator[pa.Array]]
"""Gives a column of some rows: always the same rows in the same order."""
Again: TypeAlias = NDArray[np.uint8]
"""Of each row of a day: `NEW`, or its key was there before: `SAME` with the same content, else a `VARIANT`."""


def find_again(staged: Read, stored: Sequence[str], found: Again, *, threads: int = 1) -> None:
    """Mark the staged rows that repeat a key, of the stored files or of staged rows before them.

    Args:
        staged: gives the columns `key` and `content`.
        stored: Parquet files with them.
        found: out, zeros at first, for each staged row.
        threads: how many do this at a time.
    """
    before = sum(pq.read_metadata(path).num_rows for path in stored)
    sources: list[Read] = [*(partial(_read_stored, path) for path in stored), staged]
    parts = 1 + threads * (before + len(found)) // KEYS
    for part in range(parts):
        places, same = _find(sources, part=part, parts=parts)
        new = places >= before
        found[places[new] - before] = np.where(same[new], SAME, VARIANT)


def _find(sources: Sequence[Read], *, part: int, parts: int) -> tuple[Int64, Bool]:
    """Where keys of a part repeat one before, in rising order, and whether they do so with the same content."""
    from clickprism.log.firsts import firsts

    keys, places, start = [np.empty((0, 2), np.uint64)], [np.empty(0, np.int64)], 0
    for source in sources:
        for column in source("key"):
            halves = _halves(column)
            if parts > 1:
                chosen = np.flatnonzero(halves[:, 1] % np.uint64(parts) == part)
                keys.append(halves[chosen])
                places.append(start + chosen)
            else:
                keys.append(halves)
            start += len(column)
    key = np.concatenate(keys)
    place = np.concatenate(places) if parts > 1 else np.arange(start)
    first = firsts(key)
    again = first < np.arange(len(first))
    involved = again.copy()
    involved[first[again]] = True
    content = _contents(sources, place[involved])
    both = firsts(np.concatenate([content, key[involved]], axis=1))  # rows of one key would all fall on one place
    same = both < np.arange(len(both))
    return place[again], same[again[involved]]


def _contents(sources: Sequence[Read], places: Int64) -> State:
    """The contents at places in rising order."""
    found, start = [np.empty((0, 2), np.uint64)], 0
    for source in sources if len(places) else []:
        for column in source("content"):
            low, high = np.searchsorted(places, [start, start + len(column)])
            if high > low:
                found.append(_halves(column)[places[low:high] - start])
            start += len(column)
    return np.concatenate(found)


def _read_stored(path: str, name: str) -> Iterator[pa.Array]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=[name], use_threads=False):
            yield batch.column(0)


def _halves(column: pa.Array) -> State:
    """The two halves of hashes, shape (values, 2)."""
    if not len(column):
        return np.empty((0, 2), np.uint64)
    start = np.frombuffer(column.buffers()[1], np.int32, 1, 4 * column.offset)[0]
    return np.frombuffer(column.buffers()[2], "<u8", 2 * len(column), start).reshape(-1, 2)
