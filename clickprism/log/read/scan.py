"""The compiled loops of the readers, and the quick way for plain lines. Importing it imports numba.

Plain lines are JSON objects without escapes, lists or objects in them, with nothing wrong. Most lines of a log are
plain and need no parser: an ingest of a million rows takes 4.5 s of CPU with this module and 7.7 s without. All other
lines are left to the query of `validate`, which reads and judges any line; what both can read, they read alike. Only
good rows are given here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clickprism._util.compiled import address, byte, compiled, lowest, put_word, word
from clickprism.log.read.lines import Lines
from clickprism.log.read.settings import SourceSettings
from clickprism.log.read.sources import ALIASES
from clickprism.log.read.validate import Chunk, bad_table
from clickprism.log.schema import ROW
from clickprism.types import Bool, Int32, Int64

RETURN = 13
OK, COUNT, STRAY, RETURNED = range(4)


@compiled
def judge(text: NDArray[np.uint8], starts: Int64, ends: Int64, signs: tuple[int, int], fields: int) -> Int64:
    """What is wrong with each record: OK, the wrong COUNT of fields, a STRAY quote, a carriage RETURNED in the middle.

    A quote opens a field at its start, and closes it at its end; a doubled one is part of the field. `signs` are the
    delimiter and the quote, -1 if there is none.
    """
    delimiter, quote = signs
    codes = np.zeros(len(starts), np.int64)
    for record in range(len(starts)):
        start, end = starts[record], ends[record]
        found, inside, stray, returned = 1, False, False, False
        for at in range(start, end):
            byte = text[at]
            if byte == quote:
                edge = at + 1 == end if inside else at == start
                beside = delimiter if edge else text[at + 1] if inside else text[at - 1]
                stray |= beside not in (delimiter, quote)
                inside = not inside
            elif not inside:
                found += byte == delimiter
                returned |= byte == RETURN
        if stray or inside:
            codes[record] = STRAY
        elif returned:
            codes[record] = RETURNED
        elif found != fields:
            codes[record] = COUNT
    return codes


Bytes = NDArray[np.uint8]

TEXTS: Final = ("event_id", "search_id", "document_id", "action", "user_id", "agent", "ranker", "query_id", "query")
NUMBERS: Final = ("kind", "time", "position", "display_ms", "dwell_ms", "click", "page_skipped", "randomised")
KINDS: Final = ("impression", "interaction")
WORDS: Final = np.frombuffer("".join(["null", "true", "false", *KINDS]).encode(), np.uint8)
ENDS: Final = np.array([0, 4, 8, 13, 23, 34])
_NULL, _TRUE, _FALSE, _STRING, _NUMBER, _BROKEN = 0, 1, 2, 3, 4, 5
_KIND, _TIME, _POSITION, _DWELL = 0, 1, 2, 4
_SEARCH, _DOCUMENT, _ACTION, _QUERY = 1, 2, 3, 7
_TEXTS, _NUMBERS = len(TEXTS), len(TEXTS) + len(NUMBERS)
_DIGITS = 18  # of a number that is read here
_ONES = np.uint64(0x0101010101010101)
_QUOTES, _ESCAPES, _BLANKS, _HIGH = (
    _ONES * np.uint64(34),
    _ONES * np.uint64(92),
    _ONES * np.uint64(32),
    _ONES << np.uint64(7),
)


class Value(NamedTuple):
    """A value: what it is, where it starts, where it ends, and where the text goes on."""

    token: int
    low: int
    high: int
    after: int


@compiled
def _skip(at: int, end: int) -> int:
    """Past blanks."""
    while at < end and (byte(at) == 32 or byte(at) == 9):
        at += 1
    return at


@compiled
def _string(at: int, end: int) -> int:
    """Where the quote is that ends a text; -1 if it has an escape, or no end."""
    while at + 8 <= end:  # eight bytes at once: what is below 0 or borrows was a quote, an escape or a control
        eight = word(at)
        quote, escape = eight ^ _QUOTES, eight ^ _ESCAPES
        found = ((quote - _ONES) & ~quote) | ((escape - _ONES) & ~escape) | ((eight - _BLANKS) & ~eight)
        found &= _HIGH
        if found:
            at += lowest(found)
            return at if byte(at) == 34 else -1
        at += 8
    while at < end:
        if byte(at) == 34:
            return at
        if byte(at) == 92 or byte(at) < 32:
            return -1
        at += 1
    return -1


@compiled
def _same(at: int, low: int, high: int) -> bool:
    """Whether the bytes from `at` on are those from `low` to `high`."""
    while low + 8 <= high:
        if word(at) != word(low):
            return False
        at, low = at + 8, low + 8
    for i in range(high - low):  # noqa: SIM110
        if byte(at + i) != byte(low + i):
            return False
    return True


@compiled
def _digits(at: int, end: int) -> int:
    """The number that these digits are; -1 if they are none, or too many."""
    if at >= end or end - at > _DIGITS:
        return -1
    number = 0
    for i in range(at, end):
        if byte(i) < 48 or byte(i) > 57:
            return -1
        number = number * 10 + byte(i) - 48
    return number


@compiled
def _date(at: int) -> int:
    """Days since 1970 of YYYY-MM-DD; -1 if it is none."""
    year, month, day = _digits(at, at + 4), _digits(at + 5, at + 7), _digits(at + 8, at + 10)
    if byte(at + 4) != 45 or byte(at + 7) != 45 or year < 1970 or month < 1 or month > 12 or day < 1:
        return -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > (30 if month in (4, 6, 9, 11) else (29 if leap else 28) if month == 2 else 31):
        return -1
    years, months = (year - 1, month + 9) if month <= 2 else (year, month - 3)  # years that begin in March
    return years * 365 + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 719469


@compiled
def _clock(at: int) -> int:
    """Seconds of hh:mm:ss; -1 if it is none."""
    hour, minute, second = _digits(at, at + 2), _digits(at + 3, at + 5), _digits(at + 6, at + 8)
    if byte(at + 2) != 58 or byte(at + 5) != 58 or min(hour, minute, second) < 0:
        return -1
    return (hour * 60 + minute) * 60 + second if hour < 24 and minute < 60 and second < 60 else -1


@compiled
def _moment(at: int, end: int) -> int:
    """Microseconds since 1970 of YYYY-MM-DDThh:mm:ss, up to six decimals, then Z or nothing; -1 if it is none."""
    if end - at < 19 or (byte(at + 10) != 84 and byte(at + 10) != 32):
        return -1
    days, seconds = _date(at), _clock(at + 11)
    end -= byte(end - 1) == 90
    micros = 0
    if end > at + 19:
        micros = _digits(at + 20, end) if byte(at + 19) == 46 and end - at <= 26 else -1
        for _ in range(26 - (end - at)):
            micros *= 10
    if days < 0 or seconds < 0 or micros < 0:
        return -1
    return (days * 86400 + seconds) * 1_000_000 + micros


@compiled
def _time(low: int, high: int, limits: Int64) -> int:
    """A time: ISO 8601, or a number of a unit by its size."""
    if high - low > 4 and byte(low + 4) == 45:
        return _moment(low, high)
    number = _digits(low, high)
    for i in range(4, len(limits), 3):
        if 0 <= number < limits[i]:
            return int(number * limits[i + 1] // limits[i + 2])
    return -1


@compiled
def _number(what: int, value: Value, limits: Int64, words: int) -> int:
    """The value as one of `NUMBERS`; -1 if it is none, or beyond the limits."""
    token, low, high, _ = value
    if what > _DWELL:
        if token == _TRUE or token == _FALSE:  # noqa: PLR1714, SIM109 (a set is slow when compiled)
            return 1 if token == _TRUE else 0
        return byte(low) - 48 if token == _NUMBER and high - low == 1 and byte(low) <= 49 else -1
    if token < _STRING:
        return -1
    if what == _KIND:
        for kind in range(2):
            first, last = words + ENDS[3 + kind], words + ENDS[4 + kind]
            if last - first == high - low and _same(low, first, last):
                return kind
        return -1
    number = _time(low, high, limits) if what == _TIME else _digits(low, high)
    least = limits[0] if what == _TIME else 1 if what == _POSITION else 0
    most = limits[1] if what == _TIME else limits[2] if what == _POSITION else limits[3]
    return number if least <= number <= most else -1


@compiled
def _value(at: int, end: int, words: int) -> Value:
    """The value that starts here."""
    start = byte(at) if at < end else 0
    if start == 34:
        high = _string(at + 1, end)
        return Value(_STRING, at + 1, high, high + 1) if high >= 0 else Value(_BROKEN, at, at, at)
    if 48 <= start <= 57:
        high = at
        while high < end and 48 <= byte(high) <= 57:
            high += 1
        return Value(_BROKEN if (start == 48 and high > at + 1) or high - at > _DIGITS else _NUMBER, at, high, high)
    for literal in range(3):
        first, last = words + ENDS[literal], words + ENDS[literal + 1]
        if start == byte(first) and end - at >= last - first and _same(at, first, last):
            return Value(literal, at, at + last - first, at + last - first)
    return Value(_BROKEN, at, at, at)


@compiled
def _field(first: int, end: int, names: int, places: Int64, guess: int) -> int:
    """Which name this is, looked for from `guess` on; -1: of no use, -2: of features."""
    count, size = len(places), end - first
    for i in range(count):
        field = guess + i if guess + i < count else guess + i - count
        low, high = names + places[field, 0], names + places[field, 1]
        if high - low == size and _same(first, low, high):
            return field
    return -2 if size >= 8 and byte(first) == 102 and byte(first + 7) == 95 else -1


@compiled
def scan(  # noqa: PLR0912, PLR0917 (arrays in a tuple, and calls with many, are slow when compiled)
    data: Bytes,
    starts: Int64,
    ends: Int64,
    names: Bytes,
    places: Int64,
    limits: Int64,
    begin: Int32,
    length: Int32,
    numbers: Int64,
    good: Bool,
) -> None:
    """Read the lines that are plain, with nothing wrong.

    Args:
        data: the text.
        starts: of the lines.
        ends: of the lines.
        names: of fields, one after another.
        places: of each name where it starts and ends, and where its value goes: to `TEXTS`, then `NUMBERS`; beyond:
            nowhere, it must be null. Two names may go to one place, but not both with a value.
        limits: the earliest and the latest time, the greatest position and duration; then for each unit of times that
            are numbers: below the first they are times the second by the third.
        begin: out, of each text, shape (texts, lines).
        length: out, of each text; 0: null.
        numbers: out, shape (numbers, lines); -1: null.
        good: out, whether the line was read; what else is said of one that was not is void.
    """
    base, known, words = address(data), address(names), address(WORDS)
    named, taken = np.full(len(places), -1, np.int64), np.full(_NUMBERS + len(places), -1, np.int64)
    for row in range(len(starts)):
        length[:, row] = 0
        numbers[:, row] = -1
        good[row] = False
        end = base + ends[row]
        at, guess = _skip(base + starts[row], end), 0
        more = at < end and byte(at) == 123
        while more:
            first = _skip(at + 1, end) + 1
            if first >= end or byte(first - 1) != 34:
                break
            at = _string(first, end)
            if at < 0:
                break
            field = _field(first, at, known, places, guess)
            at = _skip(at + 1, end)
            if field < -1 or at >= end or byte(at) != 58:
                break
            value = _value(_skip(at + 1, end), end, words)
            at = _skip(value.after, end)
            if value.token == _BROKEN or at >= end or (byte(at) != 44 and byte(at) != 125):
                break
            if field >= 0:
                if named[field] == row:
                    break
                named[field], guess = row, field + 1
                if value.token != _NULL:
                    to = places[field, 2]
                    if taken[to] == row or to >= _NUMBERS:
                        break
                    taken[to] = row
                    if value.token == _STRING and value.low == value.high:
                        pass  # an empty text is null
                    elif to < _TEXTS:
                        if value.token < _STRING:
                            break
                        begin[to, row], length[to, row] = value.low - base, value.high - value.low
                    else:
                        number = _number(to - _TEXTS, value, limits, words)
                        if number < 0:
                            break
                        numbers[to - _TEXTS, row] = number
            if byte(at) == 125:
                more = False
                good[row] = _skip(at + 1, end) == end
        if good[row]:
            good[row] = _complete(length[:, row], numbers[:, row])


@compiled
def _complete(length: Int32, numbers: Int64) -> bool:
    """Whether a row has all that its kind needs; its kind is told."""
    if numbers[_KIND] < 0:
        numbers[_KIND] = length[_ACTION] > 0
    if length[_SEARCH] == 0 or length[_DOCUMENT] == 0 or numbers[_TIME] < 0:
        return False
    if numbers[_KIND] == 0:
        return bool(numbers[_POSITION] > 0 and length[_QUERY] + length[_QUERY + 1] > 0)
    return bool(length[_ACTION] > 0)


@compiled
def gather(data: Bytes, begin: Int32, length: Int32, rows: Int64) -> tuple[Int32, Bytes, Bytes, int]:
    """The texts of these rows one after another, and where they start; the bits of which there are, and how many not.

    An empty text is null.
    """
    offsets, bits, missing = np.empty(len(rows) + 1, np.int32), np.zeros((len(rows) + 7) >> 3, np.uint8), 0
    offsets[0] = 0
    for i in range(len(rows)):
        size = length[rows[i]]
        offsets[i + 1] = offsets[i] + size
        if size:
            bits[i >> 3] |= 1 << (i & 7)
        else:
            missing += 1
    values = np.empty(offsets[-1] + 8, np.uint8)
    source, target = address(data), address(values)
    last = source + len(data) - 8
    for i in range(len(rows)):
        at, to, end = source + begin[rows[i]], target + offsets[i], target + offsets[i + 1]
        while to < end and at <= last:  # what is written too much, the next text overwrites
            put_word(to, word(at))
            at, to = at + 8, to + 8
        for place in range(to, end):
            values[place - target] = byte(at + place - to)
    return offsets, values, bits, missing


@compiled
def pack(values: Int64, rows: Int64, packed: NDArray[np.generic]) -> tuple[Bytes, int]:
    """Put the numbers of these rows into `packed`; the bits of which there are, and how many are not."""
    bits, missing = np.zeros((len(rows) + 7) >> 3, np.uint8), 0
    for i in range(len(rows)):
        value = values[rows[i]]
        if value < 0:
            packed[i] = 0
            missing += 1
        else:
            packed[i] = value
            bits[i >> 3] |= 1 << (i & 7)
    return bits, missing


@compiled
def pack_flags(values: Int64, rows: Int64) -> tuple[Bytes, Bytes, int]:
    """The flags of these rows as bits; the bits of which there are, and how many are not."""
    flags, bits, missing = np.zeros((len(rows) + 7) >> 3, np.uint8), np.zeros((len(rows) + 7) >> 3, np.uint8), 0
    for i in range(len(rows)):
        value = values[rows[i]]
        if value < 0:
            missing += 1
        else:
            flags[i >> 3] |= value << (i & 7)
            bits[i >> 3] |= 1 << (i & 7)
    return flags, bits, missing


_DAY: Final = 86_400_000_000  # microseconds
_SCALES: Final = {"s": (10**11, 10**6, 1), "ms": (10**14, 10**3, 1), "us": (10**17, 1, 1), "ns": (10**18, 1, 1000)}


def read_plain(lines: Lines, settings: SourceSettings) -> tuple[Chunk, Lines]:
    """The good rows among the plain lines, and the lines that are none of these.

    Args:
        lines: of our own rows.
        settings: of times and positions.
    """
    count, data = len(lines), np.frombuffer(lines.data, np.uint8)
    begin, length = (np.empty((len(TEXTS), count), np.int32) for _ in range(2))
    values, good = np.empty((len(NUMBERS), count), np.int64), np.empty(count, np.bool_)
    places = _places((*TEXTS, *NUMBERS))
    scan(data, lines.starts, lines.ends, *places, _limits(settings), begin, length, values, good)
    kept = _by_day(np.flatnonzero(good), values[NUMBERS.index("time")])
    columns = {name: _texts(*gather(data, begin[i], length[i], kept)) for i, name in enumerate(TEXTS)}
    for i, name in enumerate(NUMBERS):
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
    kind = ROW.field(name).type
    if name == "kind":
        return pa.array(KINDS).take(pa.array(values[kept]))
    if pa.types.is_boolean(kind):
        packed, bits, missing = pack_flags(values, kept)
    else:
        packed = np.empty(len(kept), np.int32 if kind == pa.int32() else np.int64)
        bits, missing = pack(values, kept, packed)
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
