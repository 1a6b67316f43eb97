"""Compiled loops over the bytes of LETOR text: what a line is made of, and nothing about files.

A text is a `uint8` vector padded with newlines, so no loop has to ask whether it is at the end. Numbers come out
equal to `numpy.float32(float(text))`, clipped to the range of float32: up to 18 digits go into an integer that is
scaled by an exact power of ten; the few numbers whose rounding that leaves in doubt are handed back as `hard`.

All loops that call each other stand in this one file: compiled code is cached by the file of the caller.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.data.files import PADDING, Bytes
from clickprism.types import Float32, Int32, Int64


class How(NamedTuple):
    """How lines are read.

    Attributes:
        named: lists have a `qid:`.
        base: where feature ids start.
        auto: whether that is a guess, which an id 0 proves wrong.
        limit: the largest feature id.
        missing: whether a value may be missing.
    """

    named: bool
    base: int
    auto: bool
    limit: int
    missing: bool


class Place(NamedTuple):
    """Position of the parser: the byte, the line from 1, the row to fill, the largest feature id so far."""

    at: int
    line: int
    row: int
    top: int


class Out(NamedTuple):
    """What is filled, row by row; ids as spans of the text; `hard` as feature column and span, for one row."""

    features: Float32
    grades: Int32
    queries: Int64
    documents: Int64
    hard: Int64


LARGEST = float(np.finfo(np.float32).max)
LONGEST_ID = 200  # bytes of a query or document id
LARGEST_ID = 1_000_000  # of a feature
LARGEST_GRADE = 1000

END, GRADE, NO_QUERY, UNWANTED_QUERY, QUERY, FEATURE, ORDER, BELOW, ABOVE, NUMBER, MISSING, HARD, ZERO = range(13)

NEWLINE, TAB, RETURN, SPACE, HASH, PLUS, MINUS, DOT, COLON, EQUALS = 10, 9, 13, 32, 35, 43, 45, 46, 58, 61
POWERS = np.array([float(f"1e{power}") for power in range(81)])
TENS = np.array([10**power for power in range(9)])
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
ZEROS, BELOW_TEN = np.uint64(0x3030303030303030), np.uint64(0x4646464646464646)
NEWLINES, HASHES = np.uint64(0x0A0A0A0A0A0A0A0A), np.uint64(0x2323232323232323)
BLANK = np.isin(np.arange(256), (SPACE, TAB, RETURN))
ENDS = np.isin(np.arange(256), (SPACE, TAB, RETURN, NEWLINE, HASH))


@compiled
def skip(text: Bytes, at: int) -> int:
    """The first place from `at` on that is not blank."""
    while BLANK[text[at]]:
        at += 1
    return at


@compiled
def token_end(text: Bytes, at: int) -> int:
    """Where the token at `at` ends: at a blank, a comment or the end of the line."""
    while not ENDS[text[at]]:
        at += 1
    return at


@compiled
def word(text: Bytes, at: int) -> np.uint64:
    """Eight bytes as one number, the first byte lowest; compiles to one load."""
    place = np.uint64(at)
    result = np.uint64(text[place])
    result |= np.uint64(text[place + np.uint64(1)]) << np.uint64(8)
    result |= np.uint64(text[place + np.uint64(2)]) << np.uint64(16)
    result |= np.uint64(text[place + np.uint64(3)]) << np.uint64(24)
    result |= np.uint64(text[place + np.uint64(4)]) << np.uint64(32)
    result |= np.uint64(text[place + np.uint64(5)]) << np.uint64(40)
    result |= np.uint64(text[place + np.uint64(6)]) << np.uint64(48)
    result |= np.uint64(text[place + np.uint64(7)]) << np.uint64(56)
    return result


@compiled
def eight(text: Bytes, at: int) -> tuple[int, int]:
    """How many of the next eight bytes are leading digits, and the number that they make, without a branch."""
    bytes_ = word(text, at)
    other = ((bytes_ + BELOW_TEN) | (bytes_ - ZEROS)) & TOPS
    before = (other & (~other + np.uint64(1))) - np.uint64(1)
    count = (((before & TOPS) >> np.uint64(7)) * ONES) >> np.uint64(56)
    half = np.uint64(32) - np.uint64(4) * count
    value = ((bytes_ ^ ZEROS) << half) << half
    value = ((value & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(10 * 2**8 + 1)) >> np.uint64(8)
    value = ((value & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100 * 2**16 + 1)) >> np.uint64(16)
    value = ((value & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)
    return int(np.int64(count)), int(np.int64(value))


@compiled
def has_byte(bytes_: np.uint64, pattern: np.uint64) -> bool:
    """Whether one of eight bytes equals the byte that `pattern` repeats."""
    difference = bytes_ ^ pattern
    return bool(((difference - ONES) & ~difference & TOPS) != np.uint64(0))


@compiled
def line_end(text: Bytes, at: int) -> int:
    """The place of the newline that ends the line."""
    while not has_byte(word(text, at), NEWLINES):
        at += 8
    while text[at] != NEWLINE:
        at += 1
    return at


@compiled
def content_end(text: Bytes, at: int) -> int:
    """The place of the newline or comment that ends what a line says."""
    bytes_ = word(text, at)
    while not (has_byte(bytes_, NEWLINES) or has_byte(bytes_, HASHES)):
        at += 8
        bytes_ = word(text, at)
    while text[at] != NEWLINE and text[at] != HASH:
        at += 1
    return at


@compiled
def digits(text: Bytes, at: int, mantissa: int) -> tuple[int, int, int]:
    """Read decimal digits: where they end, the mantissa with them, and how many it had no room for."""
    dropped = 0
    while True:
        count, value = eight(text, at)
        if mantissa < 10**10:
            mantissa = mantissa * TENS[count] + value
        else:
            for place in range(at, at + count):
                if mantissa < 10**17:
                    mantissa = mantissa * 10 + int(text[place] - 48)
                else:
                    dropped += 1
        at += count
        if count < 8:
            return at, mantissa, dropped


@compiled
def scale(mantissa: int, exponent: int) -> tuple[float, bool]:
    """The float64 value of mantissa * 10^exponent, and whether its rounding to float32 is in doubt."""
    if mantissa == 0 or exponent < -80:
        return 0.0, False
    if exponent > 60:
        return LARGEST, False
    value = mantissa * POWERS[exponent] if exponent >= 0 else mantissa / POWERS[-exponent]
    exact = mantissa <= 2**53 and -22 <= exponent <= 22
    doubt = not exact and np.float32(value * (1 - 6e-16)) != np.float32(value * (1 + 6e-16))
    return min(value, LARGEST), doubt


@compiled
def number(text: Bytes, at: int) -> tuple[float, int, bool]:
    """Read a decimal number: its value, where it ends (-1 if there is none), and whether it is hard."""
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    stop, mantissa, exponent = digits(text, at, 0)
    count = stop - at
    at = stop
    if text[at] == DOT:
        at += 1
        stop, mantissa, dropped = digits(text, at, mantissa)
        count += stop - at
        exponent += dropped - (stop - at)
        at = stop
    if count == 0:
        return 0.0, -1, False
    if text[at] | 32 == 101:
        at += 1
        down = text[at] == MINUS
        if down or text[at] == PLUS:
            at += 1
        stop, power, _ = digits(text, at, 0)
        if stop == at:
            return 0.0, -1, False
        power = min(power, 10**9)
        exponent += -power if down else power
        at = stop
    value, hard = scale(mantissa, exponent)
    return -value if negative else value, at, hard


@compiled
def ordinary(text: Bytes, at: int) -> tuple[float, int]:
    """Read a number such as 12, -0.5 or 1234567.1234567 without a branch; it ends at -1 if it is of another kind."""
    negative = int(text[at] == MINUS)
    count, mantissa = eight(text, at + negative)
    at += negative + count
    dot = int(text[at] == DOT)
    fraction, more = eight(text, at + dot)
    fraction *= dot
    mantissa = mantissa * TENS[fraction] + more * dot
    at += dot + fraction
    fits = int((count + fraction > 0) & (mantissa <= 2**53) & ENDS[text[at]])
    return np.divide(mantissa - 2 * negative * mantissa, POWERS[fraction]), at * fits + fits - 1


@compiled
def missing_end(text: Bytes, at: int) -> int:
    """Where `nan` or `null`, in any case, ends; -1 if neither is here."""
    if text[at] | 32 != 110:
        return -1
    if text[at + 1] | 32 == 97 and text[at + 2] | 32 == 110:
        return at + 3
    if text[at + 1] | 32 == 117 and text[at + 2] | 32 == 108 and text[at + 3] | 32 == 108:
        return at + 4
    return -1


@compiled
def read_grade(text: Bytes, at: int) -> tuple[int, int, int]:
    """Read a whole number from 0: a code, where it ends (or is wrong), the grade."""
    value, stop, _ = number(text, at)
    if stop < 0 or not ENDS[text[stop]] or not (0 <= value <= LARGEST_GRADE) or value != np.floor(value):
        return GRADE, at, 0
    return END, stop, int(value)


@compiled
def has_query(text: Bytes, at: int) -> bool:
    """Whether `qid:` stands here."""
    return bool(text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == COLON)


@compiled
def read_query(text: Bytes, at: int, named: bool) -> tuple[int, int, int]:
    """Read `qid:<id>` where lists are named: a code, where the id ends (or is wrong), where it starts."""
    at = skip(text, at)
    if not named:
        return UNWANTED_QUERY if has_query(text, at) else END, at, at
    if not has_query(text, at):
        return NO_QUERY, at, at
    start = at + 4
    stop = token_end(text, start)
    if stop == start or stop - start > LONGEST_ID:
        return QUERY, start, start
    for place in range(start, stop):
        if text[place] < SPACE or text[place] == 127:
            return QUERY, place, start
    return END, stop, start


@compiled
def read_value(text: Bytes, at: int, missing: bool) -> tuple[int, float, int, bool]:
    """Read a number of any kind, or a missing one: a code, the value, where it ends, whether it is hard."""
    value, stop, hard = number(text, at)
    if stop < 0:
        stop = missing_end(text, at)
        value = np.nan
    if stop < 0 or not ENDS[text[stop]]:
        return NUMBER, 0.0, at, False
    if np.isnan(value) and not missing:
        return MISSING, 0.0, at, False
    return END, value, stop, hard


@compiled
def read_features(text: Bytes, at: int, values: Float32, hard: Int64, how: How) -> tuple[int, int, int, int, bool]:
    """Read `id:value ...` into `values`: a code, the end (or what is wrong), the last id, hard numbers, any id 0."""
    base = how.base
    last, hards, zero = -1, 0, False
    while True:
        at = skip(text, at)
        if text[at] == NEWLINE or text[at] == HASH:
            return END, at, last, hards, zero
        stop, feature, dropped = digits(text, at, 0)
        code = END
        if stop == at or text[stop] != COLON:
            code = FEATURE
        elif feature <= last:
            code = ORDER
        elif feature < base and not how.auto:
            code = BELOW
        elif feature > how.limit or dropped > 0:
            code = ABOVE
        if code != END:
            return code, at, last, hards, zero
        doubt = False
        value, end = ordinary(text, stop + 1)
        if end < 0:
            code, value, end, doubt = read_value(text, stop + 1, how.missing)
        if code != END:
            return code, end, last, hards, zero
        zero = zero or feature < base
        if base <= feature < base + len(values):  # a larger id than any that ends a line is in a broken line
            values[feature - base] = value
            if doubt:
                hard[hards, 0], hard[hards, 1], hard[hards, 2] = feature - base, stop + 1, end
                hards += 1
        last, at = feature, end


@compiled
def document_id(text: Bytes, at: int) -> tuple[int, int]:
    """Where the document id of a comment is: `docid = X`, or else its only token; an empty span if there is none."""
    start = skip(text, at)
    stop = start
    while not (BLANK[text[stop]] or text[stop] in (NEWLINE, EQUALS, COLON)):
        stop += 1
    named = stop - start == 5 and text[start] == 100 and text[start + 1] == 111 and text[start + 2] == 99
    named = named and text[start + 3] == 105 and text[start + 4] == 100
    after = skip(text, stop)
    if named and (text[after] == EQUALS or text[after] == COLON):
        start = skip(text, after + 1)
    stop = start
    while not (BLANK[text[stop]] or text[stop] == NEWLINE):
        if text[stop] < SPACE or text[stop] == 127:
            return start, start
        stop += 1
    alone = text[skip(text, stop)] == NEWLINE
    if stop - start > LONGEST_ID or not (named or alone):
        return start, start
    return start, stop


@compiled
def last_feature(text: Bytes, start: int, stop: int) -> int:
    """The feature id of the last token between two places, 0 if that is no feature."""
    while stop > start and BLANK[text[stop - 1]]:
        stop -= 1
    token = stop
    while token > start and not BLANK[text[token - 1]]:
        token -= 1
    colon, feature, dropped = digits(text, token, 0)
    if text[colon] != COLON:
        return 0
    return LARGEST_ID if dropped > 0 else min(feature, LARGEST_ID)


@compiled
def measure(text: Bytes, at: int) -> tuple[int, int, bool]:
    """How many lines hold data, the largest feature id that ends a line, and whether any list is named."""
    lines, widest, named = 0, 0, False
    while at < len(text) - PADDING:
        stop = content_end(text, at)
        start = skip(text, at)
        if start < stop:
            lines += 1
            widest = max(widest, last_feature(text, start, stop))
            named = named or has_query(text, skip(text, token_end(text, start)))
        at = line_end(text, stop) + 1
    return lines, widest, named


@compiled
def fill(text: Bytes, place: Place, out: Out, how: How) -> tuple[int, Place, int, int]:
    """Read lines into row after row, until the end or until something needs a decision.

    Returns a code, the place to go on from, the byte that is wrong, and how many hard numbers the row before has.
    The place of a wrong line is its own.
    """
    at, line, row, top = place
    while at < len(text) - PADDING:
        start = skip(text, at)
        if text[start] == NEWLINE or text[start] == HASH:
            at = line_end(text, start) + 1
            line += 1
            continue
        code, stop, grade = read_grade(text, start)
        last, hards, zero = -1, 0, False
        if code == END:
            code, stop, query = read_query(text, stop, how.named)
            out.queries[row, 0], out.queries[row, 1] = query, stop
        if code == END:
            code, stop, last, hards, zero = read_features(text, stop, out.features[row], out.hard, how)
        if code == END and zero:
            code = ZERO
        if code != END:
            return code, Place(at, line, row, top), stop, 0
        out.grades[row] = grade
        top = max(top, last)
        if text[stop] == HASH:
            out.documents[row, 0], out.documents[row, 1] = document_id(text, stop + 1)
        at = line_end(text, stop) + 1
        line += 1
        row += 1
        if hards > 0:
            return HARD, Place(at, line, row, top), stop, hards
    return END, Place(at, line, row, top), at, 0


@compiled
def run_starts(text: Bytes, spans: Int64) -> Int64:
    """The rows whose span of text differs from that of the row before, the first row included."""
    starts = np.empty(len(spans), np.int64)
    count = 0
    for row in range(len(spans)):
        start, length = spans[row, 0], spans[row, 1] - spans[row, 0]
        same = row > 0 and length == spans[row - 1, 1] - spans[row - 1, 0]
        if same:
            before = spans[row - 1, 0]
            for place in range(length):
                same = same and text[start + place] == text[before + place]
        if not same:
            starts[count] = row
            count += 1
    return starts[:count].copy()


@compiled
def gather(text: Bytes, spans: Int64, out: Bytes) -> None:
    """Copy each span of text to the start of its row of `out`."""
    for row in range(len(spans)):
        start = spans[row, 0]
        for place in range(spans[row, 1] - start):
            out[row, place] = text[start + place]
