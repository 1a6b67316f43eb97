"""Which new rows of a day repeat an event: keys are looked up in parts, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
Read: TypeAlias = Callable[[list[str]], Iterator[pa.RecordBatch]]
"""Gives these columns of some rows: always the same rows in the same order."""


@dataclass(frozen=True, eq=False)
class Again:
    """The rows of a day whose key was there before: `same` with the same content, else a variant."""

    file: Int64
    row: Int64
    same: Bool


def find_again(staged: Read, stored: Sequence[str], *, rows: int, threads: int = 1) -> Again:
    """The staged rows that repeat a key, of the stored files or of staged rows before them.

    Args:
        staged: rows with `key`, `content`, `file` and `row`.
        stored: Parquet files with `key` and `content`.
        rows: how many are staged.
        threads: how many do this at a time.
    """
    before = sum(pq.read_metadata(path).num_rows for path in stored)
    sources: list[Read] = [*(partial(_read_stored, path) for path in stored), staged]
    parts = 1 + threads * (before + rows) // KEYS
    found = [_find(sources, part=part, parts=parts) for part in range(parts)]
    places, same = np.concatenate([each for each, _ in found]), np.concatenate([each for _, each in found])
    order = np.argsort(places)
    order = order[places[order] >= before]
    file, row = (_values([staged], name, places[order] - before).astype(np.int64) for name in ("file", "row"))
    return Again(file, row, same[order])


def _find(sources: Sequence[Read], *, part: int, parts: int) -> tuple[Int64, Bool]:
    """Where keys of a part repeat one before, in rising order, and whether they do so with the same content."""
    from clickprism.log.firsts import firsts

    keys, places, start = [np.empty((0, 2), np.uint64)], [np.empty(0, np.int64)], 0
    for source in sources:
        for batch in source(["key"]):
            halves = _array(batch["key"])
            if parts > 1:
                chosen = np.flatnonzero(halves[:, 1] % np.uint64(parts) == part)
                keys.append(halves[chosen])
                places.append(start + chosen)
            else:
                keys.append(halves)
                places.append(np.arange(start, start + len(batch)))
            start += len(batch)
    key, place = np.concatenate(keys), np.concatenate(places)
    first = firsts(key)
    again = first < np.arange(len(first))
    involved = again.copy()
    involved[first[again]] = True
    content = _values(sources, "content", place[involved]).reshape(-1, 2)
    both = firsts(np.concatenate([content, key[involved]], axis=1))  # rows of one key would all fall on one place
    same = both < np.arange(len(both))
    return place[again], same[again[involved]]


def _values(sources: Sequence[Read], name: str, places: Int64) -> NDArray[np.generic]:
    """The values of a column at places in rising order."""
    found: list[NDArray[np.generic]] = []
    start = 0
    for source in sources if len(places) else []:
        for batch in source([name]):
            low, high = np.searchsorted(places, [start, start + len(batch)])
            if high > low:
                found.append(_array(batch[name])[places[low:high] - start])
            start += len(batch)
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def _read_stored(path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(columns=columns, use_threads=False)


def _array(column: pa.Array) -> State:
    """The values; of hashes their two halves, shape (values, 2)."""
    if not pa.types.is_binary(column.type) or not len(column):
        return column.to_numpy() if len(column) else np.empty((0, 2), np.uint64)
    start = np.frombuffer(column.buffers()[1], np.int32, 1, 4 * column.offset)[0]
    return np.frombuffer(column.buffers()[2], "<u8", 2 * len(column), start).reshape(-1, 2)
