"""Rows of Parquet files, a row group at a time; groups that cannot be read are one bad row each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.errors import DataError
from clickprism.log.readers.arrow import broken, readable, target, without_views
from clickprism.log.readers.chunk import Bad

FAULTS: Final = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
MAGIC: Final = b"PAR1"
ROWS: Final = 1 << 18  # at a time, at most
_NONE: Final = pa.table({"line": pa.array([], pa.int64())})


class Part(NamedTuple):
    """Some rows.

    Attributes:
        table: as they are in the file.
        first: the line of its first.
        ready: as DuckDB is given them: columns c<place>, and `line`.
        bad: those that are not among the ready ones.
        read: bytes of the file.
    """

    table: pa.Table
    first: int
    ready: pa.Table
    bad: list[Bad]
    read: int = 0

    def raw(self, indices: Sequence[int]) -> list[bytes]:
        """Ready rows as JSON texts."""
        lines = self.ready["line"].take(pa.array(indices, pa.int64())).to_numpy()
        return as_json(self.table, (lines - self.first).tolist())


def read_groups(path: Path, wanted: Sequence[int], *, chunk_bytes: int) -> Iterator[Part]:
    """The rows of a file; lines are rows from 1.

    Structures are flattened into columns with dots in their names. Of the `wanted` columns, texts are UTF-8 and times
    are of a year with four digits; no other column is looked at.
    """
    size, done, first = path.stat().st_size, 0, 1
    try:
        opened = pa.OSFile(os.fsencode(path))
        file = pq.ParquetFile(opened, page_checksum_verification=True, pre_buffer=False)
    except FAULTS:
        yield Part(_NONE, 1, _NONE, [Bad(1, "unreadable", None, _head(path))], size)
        return
    with opened, file:
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            share = max(1, chunk_bytes * max(1, facts.num_rows) // max(1, facts.total_byte_size))
            seen = 0
            try:
                for batch in file.iter_batches(batch_size=min(share, ROWS), row_groups=[group]):
                    table = _flat(pa.Table.from_batches([batch]), path)
                    ready, bad = _ready(table, wanted, first + seen)
                    part = Part(table, first + seen, ready, bad)
                    seen += batch.num_rows
                    read = size * (first - 1 + seen) // max(1, file.metadata.num_rows)
                    yield part._replace(read=read - done)
                    done = read
            except FAULTS:
                words = f"row group {group + 1} of {file.num_row_groups}, {facts.num_rows - seen} rows"
                yield Part(_NONE, 1, _NONE, [Bad(first + seen, "unreadable", None, words.encode())], 0)
            first += facts.num_rows
    if done < size:
        yield Part(_NONE, 1, _NONE, [], size - done)


def columns_of(path: Path) -> pa.Schema:
    """The columns of a file, structures flattened, as `read_groups` makes them ready; none if it cannot be read."""
    try:
        with pa.OSFile(os.fsencode(path)) as file:
            empty = pq.read_schema(file).empty_table()
    except FAULTS:
        return pa.schema([])
    return pa.schema([(field.name, target(field.type)) for field in _flat(empty, path).schema])


def as_json(table: pa.Table, indices: Sequence[int]) -> list[bytes]:
    """Rows as JSON texts; bytes that are not UTF-8 become escapes, a time that no calendar has its number."""
    columns = [_values(column, indices) for column in table.columns]
    rows = (dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True))
    return [json.dumps(row, default=_shown, ensure_ascii=False).encode("utf-8", "replace") for row in rows]


def _flat(table: pa.Table, path: Path) -> pa.Table:
    while True:
        names = table.column_names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"there is more than one column {twice!r}", file=path, remedy="Write each column once")
        structures = [
            name for name in names if name != "features" and pa.types.is_struct(table.schema.field(name).type)
        ]
        if not structures:
            return table
        for name in structures:
            inner = table.select([name]).flatten()
            table = table.drop_columns([name])
            for column, values in zip(inner.column_names, inner.columns, strict=True):
                table = table.append_column(column, values)


def _ready(table: pa.Table, wanted: Sequence[int], first: int) -> tuple[pa.Table, list[Bad]]:
    lines, bad = first + np.arange(len(table)), []
    arrays = [without_views(table.column(place).combine_chunks()) for place in wanted]
    wrong = np.zeros(len(table), bool)
    for array in arrays:
        wrong |= broken(array)
    if wrong.any():
        places = np.flatnonzero(wrong)
        texts = as_json(table, places.tolist())
        bad = [Bad(line, "not-utf8", None, raw) for line, raw in zip(lines[places].tolist(), texts, strict=True)]
        arrays, lines = [array.filter(pa.array(~wrong)) for array in arrays], lines[~wrong]
    columns = {f"c{place}": readable(array) for place, array in zip(wanted, arrays, strict=True)}
    return pa.table(columns | {"line": pa.array(lines, pa.int64())}), bad


def _values(column: pa.ChunkedArray, indices: Sequence[int]) -> list[Any]:
    try:
        return list(column.take(pa.array(indices, pa.int64())).to_pylist())
    except FAULTS:
        return [column[index] for index in indices]


def _shown(value: Any) -> Any:
    """A value that JSON does not have, as one that it has."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if not isinstance(value, pa.Scalar):
        return str(value)
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return _parts(value)


def _parts(value: pa.Scalar) -> Any:
    """What a value without a Python object is made of."""
    if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return list(value)
    if isinstance(value, pa.StructScalar):
        return dict(value.items())
    if isinstance(value, pa.StringScalar | pa.LargeStringScalar | pa.StringViewScalar):
        return value.as_buffer().to_pybytes()
    return getattr(value, "value", str(value.type))


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
