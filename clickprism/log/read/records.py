"""Records of CSV text: a record is a line, or several where a quoted field goes on over lines.

A stray quote must not swallow the good rows behind it. So a line with an odd number of quotes opens a record that goes
on only to the next such line, and only if all of it is a record as it should be; else the line alone is broken.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from clickprism.errors import DataError
from clickprism.log.read.lines import Lines, joined
from clickprism.log.read.validate import Bad
from clickprism.types import Int64

QUOTE: Final = 34
ENDS: Final = ("truncated", "corrupt")  # these are faults of the file, not of a line
CODES: Final = ("", "field-count", "stray-quote", "stray-return")


@dataclass(frozen=True)
class Dialect:
    """How fields are parted and quoted, and their names if the file has no header."""

    delimiter: str = ","
    quote: bool = True
    names: tuple[str, ...] = ()

    def header(self, names: Sequence[str]) -> str:
        """The line that names these columns; empty if files have none.

        >>> Dialect().header(["a", "b,c"]), Dialect(";", names=("a", "b")).header(["a", "b"])
        ('a,"b,c"', '')
        """
        if self.names:
            return ""
        if not self.quote:
            return self.delimiter.join(names)
        made = io.StringIO()
        csv.writer(made, delimiter=self.delimiter, lineterminator="").writerow(names)
        return made.getvalue()


def read_records(
    parts: Iterator[Lines], dialect: Dialect, *, max_line: int, file: Path
) -> Iterator[tuple[pa.Table, tuple[str, ...], Lines]]:
    """The records of each part: their fields as text (columns c0, c1, ...), the header, and the lines they are."""
    names = dialect.names
    held: Lines | None = None
    for part, last in _with_last(parts):
        lines = part if held is None else joined([held, part])
        held = None
        if not names:
            lines, names = _header(lines, dialect, file)
        if names:
            lines, held = _records(lines, dialect, len(names), max_line=max_line, last=last)
        yield _parsed(lines, dialect, len(names)), names, lines


def split_fields(text: str, dialect: Dialect) -> list[str]:
    """The fields of one line.

    >>> split_fields('a,"b,c"', Dialect())
    ['a', 'b,c']
    """
    if not dialect.quote:
        return text.split(dialect.delimiter)
    try:
        return next(csv.reader([text], delimiter=dialect.delimiter), [])
    except csv.Error:
        return text.split(dialect.delimiter)


def _with_last(parts: Iterator[Lines]) -> Iterator[tuple[Lines, bool]]:
    before: Lines | None = None
    for part in parts:
        if before is not None:
            yield before, False
        before = part
    if before is not None:
        yield before, True


def _header(lines: Lines, dialect: Dialect, file: Path) -> tuple[Lines, tuple[str, ...]]:
    filled = np.flatnonzero(lines.ends > lines.starts)
    broken = [bad.line for bad in lines.bad if bad.code not in ENDS]
    remedy = "The first line names the columns; a mapping can name them with header = [...]"
    if broken and (not len(filled) or min(broken) < lines.numbers[filled[0]]):
        raise DataError("the header cannot be read", file=file, line=min(broken), remedy=remedy)
    if not len(filled):
        return lines.take(filled), ()
    number = int(lines.numbers[filled[0]])
    names = tuple(name.strip() for name in split_fields(lines.raw(int(filled[0])).decode(), dialect))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"the header has {twice!r} more than once", file=file, line=number, remedy=remedy)
    return lines.take(np.arange(filled[0] + 1, len(lines))), names


def _records(lines: Lines, dialect: Dialect, fields: int, *, max_line: int, last: bool) -> tuple[Lines, Lines | None]:
    """Good records as lines, of which some are several; what may go on in the next part is held back."""
    held = None
    if dialect.quote and b'"' in lines.data:
        lines, held = _paired(lines, dialect, fields, max_line=max_line, last=last)
    lines = lines.take(lines.ends > lines.starts)
    codes = _faults(lines.data, lines.starts, lines.ends, dialect, fields)
    for code, name in enumerate(CODES[1:], start=1):
        chosen = codes == code
        lines, codes = lines.without(chosen, name), codes[~chosen]
    return lines, held


def _paired(lines: Lines, dialect: Dialect, fields: int, *, max_line: int, last: bool) -> tuple[Lines, Lines | None]:
    quotes = np.flatnonzero(np.frombuffer(lines.data, np.uint8) == QUOTE)
    counts = np.searchsorted(quotes, lines.stops) - np.searchsorted(quotes, lines.starts)
    odd = np.flatnonzero(counts % 2)
    if not len(odd):
        return lines, None
    opens, closes = odd[:-1], odd[1:]
    whole = (lines.numbers[closes] - lines.numbers[opens] == closes - opens) & (
        lines.ends[closes] - lines.starts[opens] <= max_line
    )
    whole &= _faults(lines.data, lines.starts[opens], lines.ends[closes], dialect, fields) == 0
    merged: list[int] = []
    stray: list[int] = []
    place = 0
    good = whole.tolist()
    while place < len(odd) - 1:
        (merged if good[place] else stray).append(place)
        place += 2 if good[place] else 1
    held = None
    keep = np.ones(len(lines), bool)
    if place == len(odd) - 1:
        opener = int(odd[-1])
        if last or lines.ends[-1] - lines.starts[opener] > max_line:
            stray.append(place)
        else:
            rest = np.arange(len(lines)) >= opener
            held, keep = replace(lines.take(rest), data=lines.data[lines.starts[opener] :], bad=[], read=0), ~rest
            shift = lines.starts[opener]
            held = replace(held, starts=held.starts - shift, ends=held.ends - shift, stops=held.stops - shift)
    bad = [Bad(int(lines.numbers[odd[each]]), "stray-quote", None, lines.raw(int(odd[each]))) for each in stray]
    keep[odd[stray]] = False
    ends, stops = lines.ends.copy(), lines.stops.copy()
    for each in merged:
        ends[opens[each]], stops[opens[each]] = lines.ends[closes[each]], lines.stops[closes[each]]
        keep[opens[each] + 1 : closes[each] + 1] = False
    return replace(lines, ends=ends, stops=stops, bad=[*lines.bad, *bad]).take(keep), held


def _faults(data: bytes, starts: Int64, ends: Int64, dialect: Dialect, fields: int) -> Int64:
    """What is wrong with each of these records, as an index of CODES."""
    from clickprism.log.read.scan import judge

    view = np.frombuffer(data, np.uint8)
    return judge(view, starts, ends, (ord(dialect.delimiter), QUOTE if dialect.quote else -1), fields)


def _parsed(lines: Lines, dialect: Dialect, fields: int) -> pa.Table:
    names = [f"c{column}" for column in range(fields)]
    if not len(lines):
        return pa.table({name: pa.array([], pa.string()) for name in names})
    breaks = np.flatnonzero(lines.stops[:-1] != lines.starts[1:]) + 1
    firsts, lasts = np.append(0, breaks), np.append(breaks, len(lines)) - 1
    spans = zip(lines.starts[firsts].tolist(), lines.stops[lasts].tolist(), strict=True)
    data = b"".join(lines.data[start:stop] for start, stop in spans)
    longest = int((lines.stops - lines.starts).max())
    table = pacsv.read_csv(
        pa.py_buffer(data),
        read_options=pacsv.ReadOptions(column_names=names, block_size=max(1 << 20, 2 * longest)),
        parse_options=pacsv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char='"' if dialect.quote else False,
            newlines_in_values=dialect.quote and b'"' in data,
            ignore_empty_lines=False,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[], strings_can_be_null=False
        ),
    )
    if len(table) != len(lines):
        raise DataError(f"{len(lines)} CSV records were read as {len(table)}", remedy="Please report it with the file")
    return table
