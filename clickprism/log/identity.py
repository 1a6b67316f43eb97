"""Which rows are the same event: 16 bytes for its identity, 16 for its content."""

from __future__ import annotations

from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.log.schema import ROW

_END, _NULL, _PART = b"\xff", b"\xfe", b"\xfd"
_FIELDS: Final = [field for field in ROW if field.name != "line"]
_HASH: Final = """SELECT unhex(md5(content)) AS content,
    CASE WHEN event_id IS NULL THEN unhex(md5(content)) ELSE unhex(md5('id ' || kind || ' ' || event_id)) END AS key
FROM encoded"""


def identify(rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The columns `key` and `content` of each row, in order.

    `content` is the MD5 of all fields but `line`; `key` that of the event id and the kind, or else `content`.

    Args:
        rows: as `schema.ROW` has them.
        connection: computes the hashes; it must keep the order of rows.

    >>> row = {"kind": "ranking", "time": 0, "search_id": "s", "line": 1}
    >>> rows = pa.Table.from_pylist([row, row | {"line": 2}, row | {"query": ""}], schema=ROW)
    >>> len(set(identify(rows, duckdb.connect())["key"].to_pylist()))
    2
    """
    encoded = pa.table({"content": encode(rows), "event_id": rows["event_id"], "kind": rows["kind"]})
    connection.register("encoded", encoded)
    try:
        return connection.sql(_HASH).to_arrow_table()
    finally:
        connection.unregister("encoded")


def encode(rows: pa.Table) -> pa.ChunkedArray:
    """All fields but `line` in one text of bytes, different for different rows.

    Text is UTF-8, in which the bytes 0xFD to 0xFF never occur: they end a field, stand for null and part a list.
    """
    fields = [_bytes(rows[field.name], field) for field in _FIELDS]
    if all(isinstance(field, pa.Scalar) for field in fields):
        fields[0] = pa.array([fields[0].as_py()] * len(rows), pa.large_binary())
    end = pa.scalar(_END, pa.large_binary())
    return pc.binary_join_element_wise(*fields, end, null_handling="replace", null_replacement=_NULL)


def _bytes(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray | pa.Scalar:
    if column.null_count == len(column):
        return pa.scalar(_NULL, pa.large_binary())
    if pa.types.is_list(field.type):
        return _joined(column.combine_chunks())
    if pa.types.is_timestamp(field.type):
        column = column.cast(pa.int64())
    return column.cast(pa.large_string()).cast(pa.large_binary())


def _joined(column: pa.ListArray) -> pa.Array:
    """The length of each list and its texts."""
    lengths = pc.list_value_length(column)
    offsets = np.concatenate([[0], np.cumsum(lengths.fill_null(0).to_numpy(zero_copy_only=False))])
    values = column.flatten().cast(pa.binary()).fill_null(_NULL)
    texts = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values), _PART)
    counts = lengths.cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(counts, texts, _PART).cast(pa.large_binary())
