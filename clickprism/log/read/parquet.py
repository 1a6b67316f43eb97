"""Arrow columns as DuckDB can be given them: texts that are UTF-8, times that a calendar has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.errors import DataError
from clickprism.log.read.lines import broken_text
from clickprism.log.read.validate import Bad
from clickprism.types import Bool

SECONDS: Final = (-62_135_596_800, 253_402_300_799)  # of the years 1 to 9999, since 1970
DAYS: Final = (-719_162, 2_932_896)
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def target(kind: pa.DataType) -> pa.DataType:
    """The type that `readable` gives.

    >>> target(pa.dictionary(pa.int8(), pa.binary())), target(pa.timestamp("ns", "UTC")), target(pa.duration("s"))
    (DataType(string), TimestampType(timestamp[us]), DataType(int64))
    """
    if pa.types.is_dictionary(kind):
        return target(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    return pa.date32() if pa.types.is_date(kind) else _inner(kind)


def without_views(values: pa.Array) -> pa.Array:
    """The same, of an older type: Arrow has no filter for views of texts, and casts views of lists wrongly."""
    if values.type in (pa.string_view(), pa.binary_view()):
        return values.cast(pa.large_binary())
    if pa.types.is_list_view(values.type) or pa.types.is_large_list_view(values.type):
        lengths = pc.list_value_length(values)
        offsets = np.concatenate([[0], np.cumsum(pc.fill_null(lengths, 0).to_numpy())])
        return pa.LargeListArray.from_arrays(offsets, pc.list_flatten(values), mask=lengths.is_null())
    return values


def readable(values: pa.Array) -> pa.Array:
    """The same as texts, numbers, dates, times in microseconds, or lists and structures of texts and numbers.

    Durations are milliseconds. A time or a date outside the years 1 to 9999 becomes the first or the last one.
    """
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_timestamp(kind):
        return _in_units(values, 10**6).cast(pa.timestamp("us"))
    if pa.types.is_duration(kind):
        return _in_units(values, 10**3)
    if pa.types.is_date64(kind):
        values = _clipped(pc.divide(values.cast(pa.int64()), 86_400_000), DAYS).cast(pa.int32()).cast(pa.date32())
    if pa.types.is_date(kind):
        return _clipped(values.cast(pa.int32()), DAYS).cast(pa.int32()).cast(pa.date32())
    return values.cast(target(kind)) if target(kind) != kind else values


def broken(values: pa.Array) -> Bool:
    """Which values have a text that is not UTF-8 in them."""
    kind, none = values.type, np.zeros(len(values), bool)
    if pa.types.is_dictionary(kind):
        return broken(values.cast(kind.value_type)) if _textual(kind.value_type) else none
    if _textual(kind):
        return _not_utf8(values.cast(pa.large_binary()))
    if pa.types.is_struct(kind):
        for inner in values.flatten():
            none |= broken(inner)
    elif pa.types.is_map(kind):
        for inner in (values.keys, values.items):
            none |= broken(pa.ListArray.from_arrays(values.offsets, inner))
    elif pa.types.is_nested(kind):
        inner = broken(pc.list_flatten(values))
        if inner.any():
            none[pc.list_parent_indices(values).to_numpy()[inner]] = True
    return none


def _inner(kind: pa.DataType) -> pa.DataType:
    """The type of a value in a list or a structure: a text or a number."""
    if pa.types.is_dictionary(kind):
        return _inner(kind.value_type)
    if pa.types.is_nested(kind):
        return _nested(kind)
    if _textual(kind) or pa.types.is_null(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.float32() if pa.types.is_float16(kind) else kind


def _nested(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_inner(kind.key_type), _inner(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(place).name, _inner(kind.field(place).type)) for place in range(kind.num_fields)])
    short = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    return pa.list_(_inner(kind.value_type)) if short else pa.large_list(_inner(kind.value_type))


def _in_units(values: pa.Array, per_second: int) -> pa.Array:
    own = PER_SECOND[values.type.unit]
    numbers = values.cast(pa.int64())
    if own < 10**9:  # nanoseconds in 64 bits are all of these years
        numbers = _clipped(numbers, (SECONDS[0] * own, (SECONDS[1] + 1) * own - 1))
    return pc.divide(numbers, own // per_second) if own > per_second else pc.multiply(numbers, per_second // own)


def _clipped(numbers: pa.Array, limits: tuple[int, int]) -> pa.Array:
    least, most = (pa.scalar(limit, pa.int64()) for limit in limits)
    return pc.max_element_wise(least, pc.min_element_wise(most, numbers, skip_nulls=False), skip_nulls=False)


def _textual(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    views = (pa.string_view(), pa.binary_view())
    return any(test(kind) for test in tests) or kind in views or pa.types.is_fixed_size_binary(kind)


def _not_utf8(values: pa.LargeBinaryArray) -> Bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        filled = pc.fill_null(values, b"")
        offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + len(filled) + 1]
        return broken_text(memoryview(filled.buffers()[2]), offsets[:-1], offsets[1:])
    return np.zeros(len(values), bool)


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
