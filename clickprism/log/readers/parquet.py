"""Rows of Parquet files, a row group at a time; groups that cannot be read are one bad row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.errors import DataError
from clickprism.log.readers.chunk import Bad
from clickprism.log.readers.lines import broken_text

FAULTS: Final = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
MAGIC: Final = b"PAR1"
_NONE: Final = pa.table({"line": pa.array([], pa.int64())})


def read_groups(path: Path, *, chunk_bytes: int) -> Iterator[tuple[pa.Table, list[Bad], int]]:
    """The rows of a file in tables with `line` (the row, from 1), what cannot be read, and the bytes read.

    Structures are flattened into columns with dots in their names; texts are UTF-8.
    """
    size, done, first = path.stat().st_size, 0, 1
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
    except FAULTS:
        yield _NONE, [Bad(1, "unreadable", None, _head(path))], size
        return
    with file:
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            share = max(1, chunk_bytes * max(1, facts.num_rows) // max(1, facts.total_byte_size))
            seen = 0
            try:
                for batch in file.iter_batches(batch_size=min(share, 1 << 20), row_groups=[group]):
                    table, bad = _readable(pa.Table.from_batches([batch]), first + seen)
                    seen += batch.num_rows
                    read = size * (first - 1 + seen) // max(1, file.metadata.num_rows)
                    yield table, bad, read - done
                    done = read
            except FAULTS:
                words = f"row group {group + 1} of {file.num_row_groups}, {facts.num_rows - seen} rows"
                yield _NONE, [Bad(first + seen, "unreadable", None, words.encode())], 0
            first += facts.num_rows
    if done < size:
        yield _NONE, [], size - done


def column_names(path: Path) -> list[str]:
    """The names of a file's columns, structures flattened; none if it cannot be read."""
    try:
        schema = pq.read_schema(path)
        table, _ = _readable(schema.empty_table(), 1)
    except FAULTS:
        return []
    return [name for name in table.column_names if name != "line"]


def as_json(table: pa.Table, indices: Sequence[int]) -> list[bytes]:
    """Rows as JSON texts."""
    import json

    chosen = table.take(pa.array(indices, pa.int64())).to_pylist()
    return [json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "replace") for row in chosen]


def _readable(table: pa.Table, first: int) -> tuple[pa.Table, list[Bad]]:
    """The same with line numbers, flat, with texts that are known to be UTF-8; rows with others are bad."""
    while structures := [name for name in table.column_names if _structure(table, name)]:
        for name in structures:
            place = table.column_names.index(name)
            inner = table.select([name]).flatten()
            table = table.remove_column(place)
            for column in inner.column_names:
                table = table.append_column(column, inner[column])
    broken = np.zeros(len(table), bool)
    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if _textual(kind):
            values = table.column(place).cast(kind).cast(pa.large_binary()).combine_chunks()
            broken |= _not_utf8(values)
            table = table.set_column(place, field.name, values)
        elif pa.types.is_null(kind):
            table = table.set_column(place, field.name, pa.nulls(len(table), pa.string()))
    lines = pa.array(first + np.arange(len(table)))
    table = table.append_column("line", lines) if "line" not in table.column_names else _relined(table, lines)
    bad: list[Bad] = []
    if broken.any():
        wrong = np.flatnonzero(broken).tolist()
        bad = [Bad(first + row, "not-utf8", None, raw) for row, raw in zip(wrong, as_json(table, wrong), strict=True)]
        table = table.filter(pa.array(~broken))
    for place, field in enumerate(table.schema):
        if pa.types.is_large_binary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.string()))
    return table, bad


def _structure(table: pa.Table, name: str) -> bool:
    return name != "features" and pa.types.is_struct(table.schema.field(name).type)


def _textual(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests) or kind in (pa.string_view(), pa.binary_view())


def _not_utf8(values: pa.LargeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        filled = pc.fill_null(values, b"")
        offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + len(filled) + 1]
        return broken_text(memoryview(filled.buffers()[2]), offsets[:-1], offsets[1:])
    return np.zeros(len(values), bool)


def _relined(table: pa.Table, lines: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index("line"), "line", lines)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
