"""Tables of any width from CSV, TSV, JSON lines or Parquet, as columns of names and of numbers.

Rows are read in chunks and turned at once: a name is kept once and then counted on by its number, a number is eight
bytes. What a column holds is said by the caller, or told by its values: numbers if all of them are, names if none is.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from clickprism.data.files import PADDING, PARQUET, Bytes, decoded, expand, open_parquet, read_padded
from clickprism.data.vocabulary import Column, Names
from clickprism.errors import DataError
from clickprism.types import Float64, Int64

Kind: TypeAlias = Literal["names", "numbers", "either", "none"]
Values: TypeAlias = Sequence[Any]

LONGEST = 1000  # characters of a name
HIGHEST = float(np.finfo(np.float32).max)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|null", re.IGNORECASE | re.ASCII)
_MISSING = ("", "nan", "null")


class Builder:
    """One column as it comes: names by number, or numbers; undecided until its first value that is not missing."""

    def __init__(self, file: Path, name: str, kind: Kind, *, typed: bool) -> None:
        self.file, self.name, self.kind, self.typed = file, name, kind, typed
        self.numbers: dict[str, int] = {}
        self.codes: list[Int64] = []
        self.taken: list[Float64] = []
        self.inferred = False
        self.waiting = 0  # rows without a value, before the kind is known

    def absent(self, rows: int) -> None:
        """Rows in which the column is missing."""
        if rows and self.kind == "either":
            self.waiting += rows
        elif rows and self.kind == "names":
            self.codes.append(np.full(rows, self.numbers.setdefault("", len(self.numbers))))
        elif rows and self.kind == "numbers":
            self.taken.append(np.full(rows, np.nan))

    def add(self, values: Values, lines: list[int], faults: dict[int, str]) -> None:
        """Take the values of a chunk; what is wrong with a row goes to `faults`."""
        if self.kind == "none":
            return None
        rows = [row for row, value in enumerate(values) if value is not None]
        held = values if len(rows) == len(values) else [values[row] for row in rows]
        if self.kind == "either":
            self.decide(next((value for value in held if not is_missing(value)), None))
            if self.kind == "either":
                return self.absent(len(values))
            self.absent(self.waiting)
        found: dict[int, str] = {}
        at = lines if held is values else [lines[row] for row in rows]
        if self.kind == "numbers":
            numbers = np.full(len(values), np.nan)
            numbers[rows] = self.floats(held, at, found)
            self.taken.append(numbers)
        else:
            codes = np.full(len(values), self.numbers.setdefault("", len(self.numbers)) if held is not values else 0)
            codes[rows] = self._named(held, at, found)
            self.codes.append(codes)
        for row, reason in found.items():
            faults.setdefault(rows[row], reason)
        return None

    def decide(self, value: Any) -> None:
        """Take the column for what its first value is that is not missing."""
        if value is not None:
            self.kind = "numbers" if self._is_number(value) else "names"
            self.inferred = True

    def column(self) -> Column | None:
        """All of it; a column without any value holds nothing, and is no column."""
        if self.kind == "names":
            return Names(np.concatenate(self.codes).astype(np.int64), list(self.numbers))
        return np.concatenate(self.taken) if self.kind == "numbers" else None

    def _is_number(self, value: Any) -> bool:
        if self.typed:
            return isinstance(value, int | float) and not isinstance(value, bool)
        return _NUMBER.fullmatch(value.strip()) is not None

    def floats(self, values: Values, lines: list[int], faults: dict[int, str]) -> Float64:
        """Values as numbers, NaN where missing or at fault."""
        try:
            result = np.fromiter(map(float, values), np.float64, len(values))
            if (np.abs(result) <= HIGHEST).all() and (self.typed or not any("_" in value for value in values)):
                return result
        except (ValueError, TypeError, OverflowError):
            pass
        result = np.full(len(values), np.nan)
        for row, value in enumerate(values):
            if is_missing(value):
                continue
            if isinstance(value, bool) or (self._is_number(value) and abs(_float(value)) <= HIGHEST):
                result[row] = _float(value)
            elif self.inferred and not self._is_number(value):
                self._mixed(value, lines[row], "a number before")
            else:
                faults.setdefault(row, f"column {self.name!r} must hold a number within 3.4e38, got {_shown(value)}")
        return result

    def _named(self, values: Values, lines: list[int], faults: dict[int, str]) -> Int64:
        numbers = self.numbers
        if self.typed:
            odd = next((row for row, value in enumerate(values) if self.inferred and self._is_number(value)), None)
            if odd is not None:
                self._mixed(values[odd], lines[odd], "text before")
            texts = [_text(value) for value in values]
            for row in (row for row, text in enumerate(texts) if text is None):
                must = f"column {self.name!r} must hold text, numbers, or true and false"
                faults.setdefault(row, f"{must}, got {_shown(values[row])}")
            values = [text or "" for text in texts]
        known = len(numbers)
        codes = np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.int64, len(values))
        fresh = list(islice(numbers, known, None))
        first = dict(zip(codes[::-1].tolist(), range(len(codes) - 1, -1, -1), strict=True)) if fresh else {}
        self.check_names(fresh, [lines[first[numbers[value]]] for value in fresh])
        return codes

    def check_names(self, values: list[str], lines: list[int]) -> None:
        """What is wrong with any of these names, each first seen in this line."""
        for value, line in zip(values, lines, strict=True):
            if len(value) > LONGEST:
                where = f"column {self.name!r} has a value of {len(value):,} characters"
                raise DataError(where, file=self.file, line=line, remedy=f"{LONGEST:,} is the most")
            if "\0" in value:
                where = f"column {self.name!r} has {_shown(value)}, with a NUL character"
                raise DataError(where, file=self.file, line=line, remedy="Names are text without it; export it again")
            if self.inferred and not self.typed and not is_missing(value) and self._is_number(value):
                self._mixed(value, line, "text before")

    def _mixed(self, value: Any, line: int, before: str) -> None:
        name = shlex.quote(self.name)
        options = f"--categorical {name}, --ignore {name} or --numeric {name}"
        raise DataError(
            f"column {self.name!r} has {_shown(value)} and {before}",
            file=self.file,
            line=line,
            remedy=f"Leave the field empty where a number is missing, or say what the column is: {options} "
            f"(`train`: --data.impressions.ignore {name}). In a numeric column, rows without a number are broken",
        )


def is_missing(value: Any) -> bool:
    """Whether a value says that there is none."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _MISSING) or value != value  # noqa: PLR0124


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _text(value: Any) -> str | None:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


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
