"""Rows of Parquet files as JSON lines, a row group at a time; groups that cannot be read are one bad row each.

DuckDB writes the JSON. What it cannot convert, rows with texts that are not UTF-8 among it, is converted by Python, row
by row. Bytes become text, in which those that are not UTF-8 are escaped; a whole number that was kept as a float has no
decimal point; NaN is null; a duration is in milliseconds.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.errors import DataError
from clickprism.log.read.lines import Lines
from clickprism.log.read.validate import Bad, cursor
from clickprism.types import Int64

FAULTS: Final = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
MAGIC: Final = b"PAR1"
ROWS: Final = 1 << 18  # at a time, at most
SLICE: Final = 2048  # rows that Python converts if DuckDB cannot
_NONE: Final = np.empty(0, np.int64)
_EMPTY: Final = pa.array([], pa.string())
_WHOLE: Final = "{0} = trunc({0}) and abs({0}) < 9007199254740992"
_NUMBER: Final = f"case when {_WHOLE} then to_json(cast({{0}} as bigint)) when isfinite({{0}}) then to_json({{0}}) end"


def parquet_lines(path: Path, *, chunk_bytes: int) -> Iterator[Lines]:
    """The rows of a file as JSON lines; the number of a line is that of the row, from 1.

    Args:
        path: the file.
        chunk_bytes: about how much is held at a time.
    """
    size, done, first = path.stat().st_size, 0, 1
    try:
        opened = pa.OSFile(os.fsencode(path))
        file = pq.ParquetFile(opened, page_checksum_verification=True, pre_buffer=False)
    except FAULTS:
        yield _lines(_EMPTY, _NONE, [Bad(1, "unreadable", None, _head(path))], size)
        return
    with opened, file:
        _refuse_twice(file.schema_arrow.names, path)
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            share = max(1, chunk_bytes * max(1, facts.num_rows) // max(1, facts.total_byte_size))
            seen = 0
            try:
                for batch in file.iter_batches(batch_size=min(share, ROWS), row_groups=[group]):
                    start = first + seen
                    seen += batch.num_rows
                    read = size * (first - 1 + seen) // max(1, file.metadata.num_rows)
                    texts, numbers, bad = _converted(batch, start)
                    yield _lines(texts, numbers, bad, read - done)
                    done = read
            except FAULTS:
                words = f"row group {group + 1} of {file.num_row_groups}, {facts.num_rows - seen} rows"
                yield _lines(_EMPTY, _NONE, [Bad(first + seen, "unreadable", None, words.encode())], 0)
            first += facts.num_rows
    if done < size:
        yield _lines(_EMPTY, _NONE, [], size - done)


def columns_of(path: Path) -> pa.Schema:
    """The columns of a file; none if it cannot be read."""
    try:
        with pa.OSFile(os.fsencode(path)) as file:
            return pq.read_schema(file)
    except FAULTS:
        return pa.schema([])


def _lines(texts: pa.Array, numbers: Int64, bad: list[Bad], read: int) -> Lines:
    """JSON texts as lines of one text."""
    if not len(texts):
        return Lines(b"", _NONE, _NONE, _NONE, _NONE, bad, read)
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset).astype(np.int64)
    data = texts.buffers()[2].to_pybytes()
    return Lines(data, offsets[:-1], offsets[1:], offsets[1:], numbers, bad, read)


def _refuse_twice(names: list[str], path: Path) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"there is more than one column {twice!r}", file=path, remedy="Write each column once")


def _converted(batch: pa.RecordBatch, start: int) -> tuple[pa.Array, Int64, list[Bad]]:
    """The rows as JSON, their numbers, and those that cannot be converted."""
    try:
        return _by_duckdb(batch), np.arange(start, start + len(batch)), []
    except (pa.ArrowException, duckdb.Error, ValueError):
        if len(batch) > SLICE:
            parts = [_converted(batch.slice(at, SLICE), start + at) for at in range(0, len(batch), SLICE)]
            texts = pa.concat_arrays([part[0] for part in parts])
            return texts, np.concatenate([part[1] for part in parts]), [bad for part in parts for bad in part[2]]
    made: list[str] = []
    numbers: list[int] = []
    bad: list[Bad] = []
    for place in range(len(batch)):
        row = batch.slice(place, 1)
        values = {name: _value_of(row.column(at)) for at, name in enumerate(row.schema.names)}
        broken = next((value for value in values.values() if isinstance(value, _Broken)), None)
        text = json.dumps(values, default=_shown, ensure_ascii=False)
        if broken is None:
            made.append(text)
            numbers.append(start + place)
        else:
            bad.append(Bad(start + place, broken.code, broken.name(values), text.encode("utf-8", "replace")))
    return pa.array(made, pa.string()), np.array(numbers, dtype=np.int64), bad


def _by_duckdb(batch: pa.RecordBatch) -> pa.Array:
    batch.validate(full=True)
    columns = [_readable(column) for column in batch.columns]
    fields = [f"{_quoted(name)} := {_sql(f'c{at}', columns[at].type)}" for at, name in enumerate(batch.schema.names)]
    table = pa.table({f"c{at}": column for at, column in enumerate(columns)})
    with cursor() as connection:
        connection.register("rows", table)
        query = " ".join(["from rows select", f"cast(to_json(struct_pack({', '.join(fields)})) as varchar) as text"])
        return connection.sql(query).to_arrow_table()["text"].combine_chunks().cast(pa.string())


def _readable(values: pa.Array) -> pa.Array:
    """The same of a type that DuckDB has."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _readable(values.cast(kind.value_type))
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns")
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("ms"), safe=False).cast(pa.int64())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    if kind == pa.string_view() or pa.types.is_null(kind) or pa.types.is_decimal256(kind):
        return values.cast(pa.string())
    return values.cast(pa.binary()) if kind == pa.binary_view() else values


def _sql(column: str, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return _NUMBER.format(column)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_floating(kind.value_type):
        return f"list_transform({column}, lambda x: {_NUMBER.format('x')})"
    return f"cast({column} as varchar)" if pa.types.is_temporal(kind) or pa.types.is_binary(kind) else column


class _Broken:
    """A value that JSON cannot hold."""

    def __init__(self, code: str, shown: object) -> None:
        self.code, self.shown = code, shown

    def name(self, values: dict[str, Any]) -> str | None:
        """The field of a value of the wrong type; None for a text."""
        return None if self.code == "not-utf8" else next(name for name, value in values.items() if value is self)


def _value_of(column: pa.Array) -> Any:
    """The value of a column of one row."""
    try:
        return _plain(_readable(column).to_pylist()[0])
    except UnicodeDecodeError as error:
        return _Broken("not-utf8", error.object.decode("utf-8", "backslashreplace"))
    except (pa.ArrowException, ValueError, OverflowError):
        return _Broken("wrong-type", getattr(column[0], "value", str(column.type)))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _shown(value: Any) -> Any:
    """A value that JSON does not have, as one that it has."""
    if isinstance(value, _Broken):
        return value.shown
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
