"""Which rows are the same event: 16 bytes for its identity, 16 for its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from clickprism.log.schema import ROW

if TYPE_CHECKING:
    from clickprism.log.murmur import State

_FIELDS: Final = [field.name for field in ROW if field.name != "line"]
_NAMED: Final = ("kind", "event_id")
_SEED: Final = {"content": 0, "key": 1}


def identify(rows: pa.Table) -> pa.Table:
    """The columns `key` and `content` of each row, in order.

    `content` is the MurmurHash3 of all fields but `line` (see `clickprism.log.murmur`); `key` that of the kind and the
    event id, with the seed 1, or else `content`. The same rows have the same on any machine.

    Args:
        rows: as `schema.ROW` has them.

    >>> row = {"kind": "ranking", "time": 0, "search_id": "s", "line": 1}
    >>> rows = pa.Table.from_pylist([row, row | {"line": 2}, row | {"query": ""}], schema=ROW)
    >>> len(set(identify(rows)["key"].to_pylist()))
    2
    """
    parts = [_identify(batch) for batch in rows.to_batches()]
    return pa.Table.from_batches(parts, pa.schema([("key", pa.binary()), ("content", pa.binary())]))


def _identify(batch: pa.RecordBatch) -> pa.RecordBatch:
    content = _hashes(batch, _FIELDS, seed=_SEED["content"])
    names, key = batch["event_id"], content
    if names.null_count < len(names):
        key = _hashes(batch, _NAMED, seed=_SEED["key"])
        if names.null_count:
            unnamed = names.is_null().to_numpy(zero_copy_only=False)
            key[unnamed] = content[unnamed]
    return pa.RecordBatch.from_arrays([_binary(key), _binary(content)], ["key", "content"])


def _hashes(batch: pa.RecordBatch, names: list[str] | tuple[str, ...], *, seed: int) -> State:
    from clickprism.log import murmur

    state = np.full((batch.num_rows, 3), seed, np.uint64)
    state[:, 2] = 0
    for name in names:
        column = batch[name]
        if column.null_count == len(column):
            murmur.mix_nulls(state)
        elif pa.types.is_list(column.type):
            lists = _buffer(column, 1, np.int32, 1)
            murmur.mix_lists(state, lists, *_bits(column), *_texts(column.values), *_bits(column.values))
        elif pa.types.is_string(column.type):
            murmur.mix_texts(state, *_texts(column), *_bits(column))
        else:
            whole = column.cast(pa.int64())
            murmur.mix_numbers(state, _buffer(whole, 1, np.int64, 0), *_bits(whole))
    return murmur.finish(state)


def _buffer(column: pa.Array, place: int, kind: type[np.generic], more: int) -> Any:
    """The values of a buffer that belong to the column, and `more` behind them."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[place], kind, len(column) + more, column.offset * size)


def _texts(column: pa.Array) -> tuple[Any, Any]:
    if not len(column):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    data = column.buffers()[2]
    return _buffer(column, 1, np.int32, 1), np.frombuffer(b"" if data is None else data, np.uint8)


def _bits(column: pa.Array) -> tuple[Any, int]:
    bits = column.buffers()[0]
    return np.frombuffer(b"" if bits is None else bits, np.uint8), column.offset


def _binary(hashes: State) -> pa.Array:
    ends = np.arange(0, 16 * len(hashes) + 1, 16, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(hashes.astype("<u8", copy=False)))
    return pa.Array.from_buffers(pa.binary(), len(hashes), [None, pa.py_buffer(ends), data])
