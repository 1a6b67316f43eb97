"""Compiled loops over delimited text: where fields are, which are the same, what number each is."""

from __future__ import annotations

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.data.files import Bytes
from clickprism.types import Float64, Int64

TAKEN, MISSING, HARD = 0, 1, 2
_EXACT = 2**53
_POWERS = 10.0 ** np.arange(23)  # all exact in float64


@compiled
def split_rows(text: Bytes, begin: tuple[int, int, int, bool], starts: Int64, stops: Int64, lines: Int64) -> Int64:
    """Find the fields of every line from a place on: how many rows are sound, and how many are not.

    Field j of a row is `text[starts[row, j] : stops[row, j]]`. The text ends with a newline. Lines without a byte are
    skipped. A row with another number of fields is not sound: from the end of `lines` on, its line and how many it
    has. Quotes that are not simply around a field: -1 and -1.

    Args:
        text: as bytes.
        begin: what stands between fields, the place, the number of the line there, and whether quotes are quotes.
        starts: filled, [sound rows + 1 or more, fields].
        stops: filled, as `starts`.
        lines: filled with the (last) line of each row, and with how many fields it has, [2, rows or more].
    """
    delimiter, at, line, quotes = begin
    refused = np.array([-1, -1])
    fields, row, broken = stops.shape[1], 0, 0
    while at < len(text):
        found, empty = 0, text[at] == 10 or (text[at] == 13 and text[at + 1] == 10)
        while True:
            quoted = quotes and text[at] == 34
            at += quoted
            start = at
            while at < len(text) and text[at] != 34 if quoted else text[at] != delimiter and text[at] != 10:
                if not quoted and quotes and text[at] == 34:
                    return refused
                line += text[at] == 10
                at += 1
            if at == len(text):
                return refused
            stop = at - 1 if text[at] == 10 and at > start and text[at - 1] == 13 else at
            at += quoted
            at += quoted and text[at] == 13
            if found < fields:
                starts[row, found], stops[row, found] = start, stop
            found += 1
            if text[at] == 10:
                break
            if text[at] != delimiter:
                return refused
            at += 1
        if not empty and found == fields:
            lines[0, row], lines[1, row] = line, found
            row += 1
        elif not empty:
            broken += 1
            lines[0, -broken], lines[1, -broken] = line, found
        at += 1
        line += 1
    return np.array([row, broken])


@compiled
def number_names(text: Bytes, starts: Int64, stops: Int64, codes: Int64) -> Int64:
    """Number the different fields of a column in the order of first appearance; the first row of each number.

    A table of open addresses by a 64-bit hash (FNV-1a), which doubles when it is half full; hashes that agree are
    compared byte by byte.
    """
    size = 1 << 12
    table = np.full(size, -1, np.int64)
    first, hashes = np.empty(size, np.int64), np.empty(size, np.uint64)
    count = 0
    for row in range(len(starts)):
        state = np.uint64(14695981039346656037)
        for place in range(starts[row], stops[row]):
            state = (state ^ np.uint64(text[place])) * np.uint64(1099511628211)
        state ^= state >> np.uint64(32)
        slot = np.int64(state & np.uint64(size - 1))
        code = table[slot]
        while code >= 0 and not (hashes[code] == state and _same(text, starts, stops, first[code], row)):
            slot = (slot + 1) & (size - 1)
            code = table[slot]
        if code < 0:
            code = count
            table[slot], first[code], hashes[code] = code, row, state
            count += 1
            if 2 * count > size:
                size *= 2
                table = np.full(size, -1, np.int64)
                grown, again = np.empty(size, np.int64), np.empty(size, np.uint64)
                grown[:count], again[:count] = first[:count], hashes[:count]
                first, hashes = grown, again
                for each in range(count):
                    slot = np.int64(hashes[each] & np.uint64(size - 1))
                    while table[slot] >= 0:
                        slot = (slot + 1) & (size - 1)
                    table[slot] = each
        codes[row] = code
    return first[:count].copy()


@compiled
def _same(text: Bytes, starts: Int64, stops: Int64, one: int, other: int) -> bool:
    length = stops[one] - starts[one]
    same = length == stops[other] - starts[other]
    place = 0
    while same and place < length:
        same = text[starts[one] + place] == text[starts[other] + place]
        place += 1
    return bool(same)


@compiled
def parse_numbers(text: Bytes, starts: Int64, stops: Int64, values: Float64, states: Int64) -> None:
    """Numbers of a column: exact where at most 15 digits and a power of ten within 22 make it so, else left as hard."""
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        values[row] = np.nan
        if at == stop:
            states[row] = MISSING
            continue
        states[row] = HARD
        negative = text[at] == 45
        if text[at] == 45 or text[at] == 43:
            at += 1
        mantissa, digits, power = np.int64(0), 0, 0
        while at < stop and 48 <= text[at] <= 57 and mantissa < _EXACT:
            mantissa, digits, at = mantissa * 10 + (text[at] - 48), digits + 1, at + 1
        if at < stop and text[at] == 46:
            at += 1
            while at < stop and 48 <= text[at] <= 57 and mantissa < _EXACT:
                mantissa, digits, power, at = mantissa * 10 + (text[at] - 48), digits + 1, power - 1, at + 1
        if digits == 0 or at < stop or mantissa >= _EXACT or power < -22:
            continue
        value = mantissa / _POWERS[-power]
        values[row] = -value if negative else value
        states[row] = TAKEN
