"""Tables of any width from CSV, TSV, JSON lines or Parquet, as columns of names and of numbers.

Rows are read in chunks and turned at once: a name is kept once and then counted on by its number, a number is eight
bytes. What a column holds is said by the caller, or told by its values: numbers if all of them are, names if none is.
"""

from __future__ import annotations

import codecs
import csv
import io
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from clickprism.data.columns import Builder, Kind, Values, is_missing
from clickprism.data.files import PADDING, PARQUET, Bytes, decoded, expand, open_parquet, read_padded
from clickprism.data.vocabulary import Column, Names
from clickprism.errors import DataError
from clickprism.types import Int64

CHUNK = 1 << 16
CHUNK_CELLS = 1 << 22  # of JSON, where rows with keys of their own make columns that are hardly ever filled
MOST_COLUMNS = 10_000
MOST_CELLS = 1 << 30  # of JSON and Parquet, 8 bytes each, in which what is missing takes nothing in the file


@dataclass(frozen=True, eq=False)
class Broken:
    """A row that cannot be used: its line from 1, why, and which row it is, from 0; None where it is not a row."""

    line: int
    reason: str
    row: int | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds.

    Attributes:
        file: where it came from.
        header: the names of all columns, in order.
        columns: by name, each with one value a row; of those that were asked for and have a value.
        lines: the line of each row, from 1.
        broken: what is wrong with rows, in order of their lines.
    """

    file: Path
    header: tuple[str, ...]
    columns: dict[str, Column]
    lines: Int64
    broken: list[Broken] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)


def read_table(path: Path | str, kind: Callable[[str], Kind]) -> Table:
    """Read a table; `kind` says what a column of this name holds, "either" to let its values tell.

    What is no row at all, such as a line with too few fields, is left out; a number that is none is NaN; both are among
    the broken. A column of which some values are numbers and others not is an error, as only the caller knows which are
    wrong.
    """
    file = Path(path)
    broken: list[Broken] = []
    chunks = _chunks(file, broken)
    if isinstance(chunks, _Delimited):
        fields = _fields(file, chunks)
        if fields is not None:
            return _read_fields(file, chunks.text, fields, kind)
        chunks = _delimited(file, chunks, broken)
    builders: dict[str, Builder] = {}
    lines = array("q")
    for chunk in chunks:
        faults: dict[int, str] = {}
        fresh = [name for name in chunk.columns if name not in builders]
        builders |= {name: Builder(file, name, kind(name), typed=chunk.typed) for name in fresh}
        _check_size(file, len(lines) + len(chunk.lines), sum(each.kind != "none" for each in builders.values()))
        for name in fresh:
            builders[name].absent(len(lines))
        for name, values in chunk.columns.items():
            builders[name].add(values, chunk.lines, faults)
        for name in builders.keys() - chunk.columns.keys():
            builders[name].absent(len(chunk.lines))
        broken += [Broken(chunk.lines[row], reason, len(lines) + row) for row, reason in faults.items()]
        lines.extend(chunk.lines)
    columns = {name: column for name, builder in builders.items() if (column := builder.column()) is not None}
    broken.sort(key=lambda each: each.line)
    return Table(file, tuple(builders), columns, np.array(lines, dtype=np.int64), broken)


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some rows; `typed` where values carry a type of their own (JSON, Parquet) and are not all text."""

    lines: list[int]
    columns: dict[str, Values]
    typed: bool


@dataclass(frozen=True, eq=False)
class _Delimited:
    """CSV or TSV: its bytes without a byte order mark and with a newline at the end, and which of the two it is."""

    text: Bytes
    tabs: bool

    @property
    def delimiter(self) -> str:
        return "\t" if self.tabs else ","


def _chunks(file: Path, broken: list[Broken]) -> Iterator[_Chunk] | _Delimited:
    padded = read_padded(file)
    if padded[:4].tobytes() == PARQUET:
        return _parquet(file)
    raw = expand(padded, file=file)[:-PADDING].tobytes()
    text = decoded(raw, file=file)
    start = text[:4096].lstrip()
    if not start:
        raise DataError("is empty", file=file, remedy="The first line names the columns, and a row follows")
    if start.startswith("{"):
        return _json_lines(file, raw, broken)
    if start.startswith("["):
        raise DataError("is one JSON array", file=file, line=1, remedy="Write one object a line (JSON lines)")
    tabs = "\t" in text[: text.find("\n") + 1 or None]
    bare = raw.removeprefix(codecs.BOM_UTF8)
    return _Delimited(np.frombuffer(bare if bare.endswith(b"\n") else bare + b"\n", np.uint8), tabs)


@dataclass(frozen=True, eq=False)
class _Fields:
    """Where the fields of a delimited text are, [rows, columns], the line of each row, and lines that are no rows."""

    header: list[str]
    starts: Int64
    stops: Int64
    lines: Int64
    broken: list[Broken]


def _fields(file: Path, rows: _Delimited) -> _Fields | None:
    """The fields by compiled loops; None for text with quotes within quotes, or with line ends of the old Macintosh."""
    from clickprism.data.fields import split_rows

    text, quotes = rows.text, not rows.tabs
    if np.count_nonzero(text == 13) != np.count_nonzero((text[:-1] == 13) & (text[1:] == 10)):
        return None
    start, line = 0, 1
    while text[start] in b"\r\n":
        line += int(text[start] == 10)
        start += 1
    end = start + int(np.argmax(text[start:] == 10))
    first = text[start:end].tobytes().decode().removesuffix("\r")
    if quotes and '"' in first:
        return None
    header = first.split(rows.delimiter)
    _check_header(file, header, line)
    most = int(np.count_nonzero(text[end + 1 :] == 10)) + 1
    sound = min(most, len(text) // len(header)) + 1  # a sound row has a byte a field at least, what ends it
    starts, stops = np.empty((2, sound, len(header)), np.int64)
    lines = np.empty((2, most), np.int64)
    sound, wrong = split_rows(text, (ord(rows.delimiter), end + 1, line + 1, quotes), starts, stops, lines).tolist()
    if sound < 0:
        return None
    broken = [_too_few(number, found, len(header)) for number, found in lines[:, most - wrong :].T.tolist()]
    return _Fields(header, starts[:sound], stops[:sound], lines[0, :sound].copy(), broken)


def _read_fields(file: Path, text: Bytes, fields: _Fields, kind: Callable[[str], Kind]) -> Table:
    """The same as by chunks, by compiled loops: about ten times as fast."""
    from clickprism.data.fields import HARD, number_names, parse_numbers

    lines, broken, sound = fields.lines, fields.broken, len(fields.lines)
    columns: dict[str, Column] = {}

    def value(place: int, row: int) -> str:
        return text[fields.starts[row, place] : fields.stops[row, place]].tobytes().decode()

    for place, name in enumerate(fields.header):
        builder = Builder(file, name, kind(name), typed=False)
        if builder.kind == "either":
            filled = (each for row in range(sound) if not is_missing(each := value(place, row)))
            builder.decide(next(filled, None))
        starts, stops = fields.starts[:, place].copy(), fields.stops[:, place].copy()
        if builder.kind == "names":
            codes = np.empty(sound, np.int64)
            first = number_names(text, starts, stops, codes).tolist()
            names = [value(place, row) for row in first]
            builder.check_names(names, [int(lines[row]) for row in first])
            columns[name] = Names(codes, names)
        elif builder.kind == "numbers":
            values, states = np.empty(sound), np.empty(sound, np.int64)
            parse_numbers(text, starts, stops, values, states)
            hard = np.flatnonzero(states == HARD)
            faults: dict[int, str] = {}
            values[hard] = builder.floats([value(place, row) for row in hard.tolist()], lines[hard].tolist(), faults)
            broken += [Broken(int(lines[hard[at]]), reason, int(hard[at])) for at, reason in faults.items()]
            columns[name] = values
    broken.sort(key=lambda each: each.line)
    return Table(file, tuple(fields.header), columns, lines, broken)


def _too_few(line: int, found: int, wanted: int) -> Broken:
    return Broken(line, f"{found} fields where the first line has {wanted}")


def _delimited(file: Path, table: _Delimited, broken: list[Broken]) -> Iterator[_Chunk]:
    tabs = table.tabs
    stream = io.StringIO(table.text.tobytes().decode(), newline="")
    reader = csv.reader(stream, csv.excel_tab, quoting=csv.QUOTE_NONE) if tabs else csv.reader(stream, strict=True)
    header: list[str] = []
    try:
        header = next((fields for fields in reader if fields), [])
        _check_header(file, header, reader.line_num)
        while rows := list(islice(_numbered(reader), CHUNK)):
            for line, fields in rows:
                if len(fields) != len(header):
                    broken.append(_too_few(line, len(fields), len(header)))
            sound = [(line, fields) for line, fields in rows if len(fields) == len(header)]
            if sound:
                lines, body = zip(*sound, strict=True)
                turned = zip(*body, strict=True)
                yield _Chunk(list(lines), dict(zip(header, turned, strict=True)), typed=False)
    except csv.Error as error:
        raise DataError(f"is not {'TSV' if tabs else 'CSV'} ({error})", file=file, line=reader.line_num) from None


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    return ((reader.line_num, fields) for fields in reader if fields)


def _check_header(file: Path, header: list[str], line: int) -> None:
    split = next((each for each in ";|" if each in header[0]), None)
    if len(header) == 1 and split:
        remedy = f"Columns are split by tabs, or by commas as in CSV, not by {split!r}"
        raise DataError("has one column only", file=file, line=line, remedy=remedy)
    _check_width(file, len(header), line)
    counts = Counter(header)
    twice = next((name for name in header if counts[name] > 1), None)
    if twice is not None:
        raise DataError(f"names the column {twice!r} twice", file=file, line=line, remedy="Give each its own name")


def _check_width(file: Path, width: int, line: int | None = None) -> None:
    if width > MOST_COLUMNS:
        remedy = "Leave columns out; what differs from row to row is a value, not the name of a column"
        raise DataError(f"has more than {MOST_COLUMNS:,} columns", file=file, line=line, remedy=remedy)


def _check_size(file: Path, rows: int, width: int) -> None:
    if rows * width > MOST_CELLS:
        problem = f"has {width:,} columns of {rows:,} rows or more, over {MOST_CELLS:,} values with those missing"
        raise DataError(problem, file=file, remedy="Ignore columns that are seldom filled, or give fewer rows")


def _json_lines(file: Path, raw: bytes, broken: list[Broken]) -> Iterator[_Chunk]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    known: set[str] = set()
    names: dict[str, None] = {}
    lines: list[int] = []
    records: list[dict[str, Any]] = []
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = decode(line.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, RecursionError) as error:
            broken.append(Broken(number, f"is not one JSON object ({error})"))
            continue
        known.update(record)
        _check_width(file, len(known), number)
        names |= dict.fromkeys(record)
        records.append(record)
        lines.append(number)
        if len(records) >= CHUNK or len(records) * len(names) >= CHUNK_CELLS:
            yield _turned(lines, records, names)
            lines, records, names = [], [], {}
    if records:
        yield _turned(lines, records, names)


def _turned(lines: list[int], records: list[dict[str, Any]], names: Iterable[str]) -> _Chunk:
    columns: dict[str, list[Any]] = {name: [None] * len(records) for name in names}
    for row, record in enumerate(records):
        for name, value in record.items():
            columns[name][row] = value
    return _Chunk(lines, dict(columns), typed=True)


def _parquet(file: Path) -> Iterator[_Chunk]:
    done = 0
    with open_parquet(file) as opened:
        _check_width(file, len(opened.schema_arrow.names))
        for batch in opened.iter_batches(batch_size=CHUNK):
            columns = {name: batch.column(place).to_pylist() for place, name in enumerate(batch.schema.names)}
            lines = list(range(done + 1, done + len(batch) + 1))
            done += len(batch)
            yield _Chunk(lines, columns, typed=True)
