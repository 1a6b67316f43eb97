"""The quick way for plain lines: JSON objects without escapes, lists or objects in them, with nothing wrong.

Most lines of a log are plain, and need no parser. All others are left for the query of `rows`, which reads and judges
any line; what both can read, they read alike. Only good rows are given here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.log.readers.chunk import Chunk, bad_table
from clickprism.log.readers.lines import Lines
from clickprism.log.readers.settings import SourceSettings
from clickprism.log.readers.sources import ALIASES
from clickprism.log.schema import ROW
from clickprism.types import Int64

WORTH: Final = 1 << 20  # bytes of text from which on it pays to load compiled code
SIZE: Final = 4 << 20  # bytes of text at a time: what is made of them is still near when it is used
_DAY: Final = 86_400_000_000  # microseconds
_SCALES: Final = {"s": (10**11, 10**6, 1), "ms": (10**14, 10**3, 1), "us": (10**17, 1, 1), "ns": (10**18, 1, 1000)}


def read_plain(lines: Lines, settings: SourceSettings) -> tuple[Chunk, Lines]:
    """The good rows among the plain lines, and the lines that are none of these.

    Args:
        lines: of our own rows.
        settings: of times and positions.
    """
    from clickprism.log.readers import scan

    count, data = len(lines), np.frombuffer(lines.data, np.uint8)
    begin, length = (np.empty((len(scan.TEXTS), count), np.int32) for _ in range(2))
    values, good = np.empty((len(scan.NUMBERS), count), np.int64), np.empty(count, np.bool_)
    places = _places((*scan.TEXTS, *scan.NUMBERS))
    scan.scan(data, lines.starts, lines.ends, *places, _limits(settings), begin, length, values, good)
    kept = _by_day(np.flatnonzero(good), values[scan.NUMBERS.index("time")])
    columns = {name: _texts(*scan.gather(data, begin[i], length[i], kept)) for i, name in enumerate(scan.TEXTS)}
    for i, name in enumerate(scan.NUMBERS):
        columns[name] = _numbers(name, values[i], kept)
    columns["line"] = pa.array(lines.numbers[kept])
    columns["query_id"] = _query_keys(columns["query_id"], columns["query"])
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(kept), field.type) for field in ROW]
    chunk = Chunk(pa.Table.from_arrays(arrays, schema=ROW), bad_table(lines.bad), 0, lines.read)
    return chunk, replace(lines.take(~good), bad=[], read=0).alone()


def _by_day(rows: Int64, time: Int64) -> Int64:
    """The rows in the order of their days, as they are stored; those of a day stay as they are."""
    days = time[rows] // _DAY
    return rows if (days[1:] >= days[:-1]).all() else rows[np.argsort(days, kind="stable")]


def _places(read: Sequence[str]) -> tuple[Any, Any]:
    """The names of our fields, and where each starts, ends and goes; fields that are not read go nowhere."""
    places = {name: place for place, name in enumerate((*read, *(name for name in ROW.names if name not in read)))}
    named = [(alias.encode(), places[name]) for name in ROW.names[:-1] for alias in ALIASES.get(name, (name,))]
    bounds = np.cumsum([0, *(len(name) for name, _ in named)])
    targets = np.array([place for _, place in named])
    return np.frombuffer(b"".join(name for name, _ in named), np.uint8), np.stack([bounds[:-1], bounds[1:], targets], 1)


def _limits(settings: SourceSettings) -> Int64:
    epoch, step = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    earliest = (datetime.fromisoformat(settings.earliest).replace(tzinfo=UTC) - epoch) // step
    latest = (settings.last_time.replace(tzinfo=UTC) - epoch) // step
    units = [scale for unit, scale in _SCALES.items() if settings.unit in ("auto", unit)]
    limits = [max(0, earliest), latest, settings.max_position, settings.max_duration_ms]
    return np.array([*limits, *(each for scale in units for each in scale)], np.int64)


def _texts(offsets: Any, values: Any, bits: Any, missing: int) -> pa.StringArray:
    buffers = [pa.py_buffer(bits) if missing else None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers, missing)


def _numbers(name: str, values: Int64, kept: Int64) -> pa.Array:
    from clickprism.log.readers import scan

    kind = ROW.field(name).type
    if name == "kind":
        return pa.array(scan.KINDS).take(pa.array(values[kept]))
    if pa.types.is_boolean(kind):
        packed, bits, missing = scan.pack_flags(values, kept)
    else:
        packed = np.empty(len(kept), np.int32 if kind == pa.int32() else np.int64)
        bits, missing = scan.pack(values, kept, packed)
    return pa.Array.from_buffers(
        kind, len(kept), [pa.py_buffer(bits) if missing else None, pa.py_buffer(packed)], missing
    )


def _query_keys(query_id: pa.Array, query: pa.Array) -> pa.Array:
    """The query ids; where there is none the MD5 of the query, made once for each query."""
    missing = pc.and_(query_id.is_null(), query.is_valid())
    if not pc.any(missing).as_py():
        return query_id
    found = query.filter(missing).dictionary_encode()
    keys = [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in found.dictionary.to_pylist()]
    return pc.replace_with_mask(query_id, missing, pa.array(keys, pa.string()).take(found.indices))
