"""Arrow columns as DuckDB can be given them: texts that are UTF-8, times that a calendar has."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.log.readers.lines import broken_text
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
