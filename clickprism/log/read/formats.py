"""Read JSON lines, CSV and Parquet, plain, gzip or zstd: each row becomes a JSON text with its row number.

Compression is recognised by the first bytes, not by the name. Files are read in blocks, so that neither a large file
nor a small one that expands to terabytes fills the memory. What can be read of a broken file is read.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from clickprism.errors import DataError
from clickprism.log.schema import literal
from clickprism.types import Int64

ZSTD: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE: Final = b"\x2a\x4d\x18"
STEP: Final = 1 << 17
ZSTD_STEP: Final = 1 << 12  # zstd may give 32 kB for each byte: a step of 4 kB is 128 MB at worst
ZSTD_WINDOW: Final = 1 << 28  # what it may look back, and hold: `zstd --long=28`
BOM: Final = b"\xef\xbb\xbf"
KEPT: Final = 4096
"""Bytes that are kept of a line that is too long."""
NOT_UTF8: Final = 50
"""Lines of a block that are not UTF-8, from which each line is looked at."""
MAGIC: Final = b"PAR1"
PARQUET_ROWS: Final = 1 << 17
FAULTS: Final = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
_NO_TEXTS: Final = pa.array([], pa.string())
ANSWER_BYTES: Final = 1 << 28
"""Maximum size of a file that is one JSON value; it is held in memory."""
_WHOLE: Final = "{0} = trunc({0}) and abs({0}) < 9007199254740992"
_NUMBER: Final = f"case when {_WHOLE} then to_json(cast({{0}} as bigint)) when isfinite({{0}}) then to_json({{0}}) end"


class Bad(NamedTuple):
    """A broken row: its line, the code of the reason, the field, its bytes, and the start of the value."""

    line: int
    code: str
    field: str | None
    raw: bytes
    value: str | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a file.

    Attributes:
        texts: The rows as JSON; they may end with a line end.
        numbers: Line of each row from 1; in Parquet its row.
        bad: Rows that could not be brought into this form.
        read: Bytes of the file that were read for these rows.
        raw: The lines of a CSV file; None for other formats, whose rows are the texts.
        header: First line of a CSV file, empty if it has none; None of other files.
    """

    texts: pa.Array
    numbers: Int64
    bad: list[Bad] = field(default_factory=list)
    read: int = 0
    raw: Sequence[bytes] | None = None
    header: str | None = None

    def raw_row(self, index: int) -> bytes:
        """Return the bytes of a row, without its line end."""
        return body(self.texts[index].as_py().encode()) if self.raw is None else self.raw[index]


class Block(NamedTuple):
    """Some text, the bytes of the file read so far, an error of the rest of the file, and whether the file ends."""

    data: bytes
    read: int
    problem: str | None = None
    last: bool = False


def blocks(path: Path, size: int) -> Iterator[Block]:
    """Yield the text of a file in blocks of at most `size` bytes; a fault of the file ends it with the last block."""
    held, problem = bytearray(), None
    try:
        with path.open("rb", buffering=0) as file:
            try:
                for data in _expanded(file, size):
                    held += data
                    while len(held) >= size:
                        yield Block(bytes(held[:size]), file.tell())
                        del held[:size]
            except EOFError:
                problem = "truncated"
            except (zlib.error, gzip.BadGzipFile, _ZstdError):
                problem = "corrupt"
            yield Block(bytes(held), os.fstat(file.fileno()).st_size, problem, last=True)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None


class _ZstdError(Exception):
    """A zstd file is corrupt."""


def _expanded(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the decompressed content of a file; a truncated file raises EOFError."""
    start = file.read(4)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from iter(lambda: unpacked.read1(min(size, STEP)), b"")
    elif start == ZSTD or (start[1:] == SKIPPABLE and start[0] >> 4 == 5):
        import zstandard

        given = file.read(ZSTD_STEP)
        while given:
            frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
            while not frame.eof:
                if not given and not (given := file.read(ZSTD_STEP)):
                    raise EOFError
                try:
                    yield frame.decompress(given)
                except zstandard.ZstdError:
                    raise _ZstdError from None
                given = b""
            given = frame.unused_data or file.read(ZSTD_STEP)
    else:
        yield from iter(lambda: file.read(size), b"")


def body(line: bytes) -> bytes:
    r"""Return a line without its end.

    >>> body(b"a\r\n"), body(b"a")
    (b'a', b'a')
    """
    return line.removesuffix(b"\n").removesuffix(b"\r")


@dataclass(frozen=True, eq=False)
class Lines:
    """Some lines of a text with their ends, all UTF-8 without NUL, and the lines that are not."""

    values: pa.Array
    numbers: Int64
    bad: list[Bad]
    read: int


def read_lines(parts: Iterator[Block], *, max_line: int) -> Iterator[Lines]:
    """Cut blocks into lines. Lines that are too long, not UTF-8 or contain NUL, and a cut last line, are bad.

    A line that is too long is never held completely. A byte order mark at the start of a line is removed.
    """
    tail, number, read, skipped = b"", 1, 0, b""
    for block in parts:
        data, bad = tail + block.data, list[Bad]()
        whole = block.last and not block.problem
        if skipped:
            end = data.find(b"\n") + 1
            if end or whole:
                bad.append(Bad(number, "too-long", None, skipped))
                number, skipped = number + 1, b""
            data = data[end:] if end else b""
        cut = len(data) if whole else data.rfind(b"\n") + 1
        data, tail = data[:cut], data[cut:]
        if len(tail) > max_line + 2 + len(BOM):
            skipped, tail = tail.removeprefix(BOM)[: min(KEPT, max_line)], b""
        lines = _lines(data, number, max_line)
        number += lines.read
        if block.problem:
            bad.append(Bad(number, block.problem, None, skipped or tail))
        yield Lines(lines.values, lines.numbers, [*bad, *lines.bad], block.read - read)
        read = block.read


def _lines(data: bytes, number: int, max_line: int) -> Lines:
    """Return the lines of a text; `read` is their number. Only lines that may be broken become Python objects."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
    if data and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    values = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    good, bad, changed = np.ones(len(ends), dtype=np.bool_), list[Bad](), dict[int, bytes]()
    for place in _suspects(data, ends, max_line):
        text = values[place].as_py().removeprefix(BOM)
        if code := _line_fault(body(text), max_line):
            kept = body(text)[: min(KEPT, max_line)] if code == "too-long" else body(text)
            bad.append(Bad(number + place, code, None, kept))
            good[place] = False
        else:
            changed[place] = text
    if changed:
        mask = np.isin(np.arange(len(ends)), list(changed))
        values = pc.replace_with_mask(values, pa.array(mask), pa.array(list(changed.values()), pa.binary()))
    if bad:
        values = values.filter(pa.array(good))
    return Lines(values.cast(pa.string()), number + np.flatnonzero(good), bad, len(ends))


def _suspects(data: bytes, ends: Int64, max_line: int) -> list[int]:
    """Return the places of lines that may be too long, have a NUL, not be UTF-8 or start with a byte order mark.

    Decoding starts again after each line that is not UTF-8; from the 50th on all lines are looked at one by one.
    """
    found = np.flatnonzero(np.diff(ends, prepend=0) > max_line).tolist()
    marks = np.flatnonzero(np.frombuffer(data, np.uint8) == 0).tolist()
    marks += [each.start() for each in re.finditer(BOM, data)] if BOM in data else []
    found += np.searchsorted(ends, marks, side="right").tolist()
    view, start = memoryview(data), 0
    while start < len(data):
        try:
            codecs.utf_8_decode(view[start:], "strict", True)
            break
        except UnicodeDecodeError as error:
            place = int(np.searchsorted(ends, start + error.start, side="right"))
            found.append(place)
            start = int(ends[place])
            if len(found) >= NOT_UTF8:
                found += range(place, len(ends))
                break
    return sorted(set(found))


def _line_fault(line: bytes, max_line: int) -> str | None:
    if len(line) > max_line:
        return "too-long"
    if b"\0" in line:
        return "nul-byte"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not-utf8"
    return None


@dataclass(frozen=True)
class Dialect:
    """How the fields of CSV are separated and quoted, and their names if the file has no header."""

    delimiter: str = ","
    quote: bool = True
    names: tuple[str, ...] = ()

    def fields(self, line: str) -> list[str]:
        """Return the fields of one line.

        >>> Dialect().fields('a,"b,c"')
        ['a', 'b,c']
        """
        if self.quote:
            try:
                return next(csv.reader([line], delimiter=self.delimiter), [])
            except csv.Error:
                pass
        return line.split(self.delimiter)

    def header(self, names: Sequence[str]) -> str:
        """Return the line that names these columns; empty if files have none."""
        if self.names:
            return ""
        if not self.quote:
            return self.delimiter.join(names)
        line = io.StringIO()
        csv.writer(line, delimiter=self.delimiter, lineterminator="").writerow(names)
        return line.getvalue()

    def fault(self, record: bytes, fields: int) -> str | None:
        """Return the code of the error in a record, or None."""
        delimiter = self.delimiter.encode()
        if not self.quote or b'"' not in record:
            if b"\r" in record:
                return "stray-return"
            return None if record.count(delimiter) == fields - 1 else "field-count"
        exact, any_count, any_return = _patterns(delimiter, fields)
        if exact.fullmatch(record):
            return None
        if not any_return.fullmatch(record):
            return "stray-quote"
        return "field-count" if any_count.fullmatch(record) else "stray-return"


@lru_cache(maxsize=16)
def _patterns(delimiter: bytes, fields: int) -> list[re.Pattern[bytes]]:
    """Return patterns: a record of this number of fields, of any number, and with a carriage return outside of quotes.

    A quote opens a field at its start and closes it at its end; a doubled one is part of the field.
    """
    sign, times = re.escape(delimiter), b"{%d}" % (fields - 1)
    field, loose = (rb'(?:"(?:[^"]++|"")*+"|[^"%b%b]*+)' % (other, sign) for other in (rb"\r", b""))
    return [
        re.compile(rb"%b(?:%b%b)%b" % (each, sign, each, count))
        for each, count in ((field, times), (field, b"*+"), (loose, b"*+"))
    ]


@dataclass(eq=False)
class Records:
    """Records of CSV: a record is a line, or several if a quoted field goes on over lines.

    A stray quote must not swallow the good rows behind it. So a line with an odd number of quotes opens a record that
    goes on only to the next such line, and only if all of it is a valid record; else the line alone is broken.
    `max_line` is the maximum number of bytes of a record.
    """

    dialect: Dialect
    max_line: int
    file: Path
    names: tuple[str, ...] = ()
    _open: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = self.dialect.names

    def take(self, lines: Lines, *, last: bool = False) -> tuple[list[int], list[bytes], list[Bad]]:
        """Return the records that end in these lines: numbers and bytes, and the broken ones."""
        numbers, records, bad = list[int](), list[bytes](), list(lines.bad)
        queue = deque(zip(lines.numbers.tolist(), (each.encode() for each in lines.values.to_pylist()), strict=True))
        while queue or (last and self._open):
            if not queue or self._ends_here(*queue[0]):  # the opening line is stray; look at the others again
                number, line = self._open.pop(0)
                bad.append(Bad(number, "stray-quote", None, body(line)))
                queue.extendleft(reversed(self._open))
                self._open = []
                continue
            number, line = queue.popleft()
            record, odd = body(line), self.dialect.quote and line.count(b'"') % 2
            if not self.names:
                self._read_header(number, record, lines.bad)
            elif self._open:
                self._open.append((number, line))
                if odd:
                    numbers.append(self._open[0][0])
                    records.append(body(b"".join(text for _, text in self._open)))
                    self._open = []
            elif odd:
                self._open = [(number, line)]
            elif record:
                if code := self.dialect.fault(record, len(self.names)):
                    bad.append(Bad(number, code, None, record))
                else:
                    numbers.append(number)
                    records.append(record)
        if not self.names and lines.bad:
            self._read_header(max(each.line for each in lines.bad) + 1, b"", lines.bad)
        return numbers, records, bad

    def _ends_here(self, number: int, line: bytes) -> bool:
        """Return whether the open record cannot go on with this line."""
        if not self._open:
            return False
        whole = b"".join([*(text for _, text in self._open), line]) if line.count(b'"') % 2 else b""
        if number != self._open[-1][0] + 1 or sum(len(text) for _, text in self._open) + len(line) > self.max_line + 2:
            return True
        return bool(whole) and self.dialect.fault(body(whole), len(self.names)) is not None

    def _read_header(self, number: int, record: bytes, bad: Sequence[Bad]) -> None:
        broken = [each.line for each in bad if each.code not in ("truncated", "corrupt") and each.line < number]
        remedy = "The first line names the columns; a mapping can name them with header = [...]"
        if broken:
            raise DataError("the header cannot be read", file=self.file, line=min(broken), remedy=remedy)
        names = tuple(name.strip() for name in self.dialect.fields(record.decode())) if record else ()
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"the header has {twice!r} more than once", file=self.file, line=number, remedy=remedy)
        self.names = names


def json_rows(path: Path, *, size: int, max_line: int) -> Iterator[Rows]:
    """Yield the lines of a file of JSON lines."""
    for part in read_lines(blocks(path, size), max_line=max_line):
        yield Rows(part.values, part.numbers, part.bad, part.read)


def answer_rows(path: Path, *, size: int) -> Iterator[Rows]:
    """Yield the rows of a file that is one JSON value: a list of rows, or the answer of a search, with its hits."""
    data, problem = bytearray(), None
    for block in blocks(path, size):
        data += block.data
        problem = block.problem
        if len(data) > ANSWER_BYTES:
            remedy = "Write one row per line"
            raise DataError(f"is one JSON value of more than {ANSWER_BYTES:,} bytes", file=path, remedy=remedy)
    try:
        rows = [json.dumps(row, ensure_ascii=False) for row in _hits(json.loads(bytes(data).removeprefix(BOM)))]
    except (ValueError, RecursionError):
        yield _no_rows([Bad(1, problem or "not-json", None, bytes(data[:KEPT]))], path.stat().st_size)
        return
    yield Rows(pa.array(rows, pa.string()), np.arange(1, len(rows) + 1), read=path.stat().st_size)


def _hits(value: Any) -> list[Any]:
    while isinstance(value, dict) and "hits" in value:
        value = value["hits"]
    return value if isinstance(value, list) else [value]


def csv_rows(
    path: Path, connection: duckdb.DuckDBPyConnection, *, dialect: Dialect, size: int, max_line: int
) -> Iterator[Rows]:
    """Yield the records of a CSV file; features that are numbers become numbers."""
    reader, last = Records(dialect, max_line, path), Lines(pa.array([], pa.string()), np.empty(0, np.int64), [], 0)
    for part in chain(read_lines(blocks(path, size), max_line=max_line), [last]):
        numbers, records, bad = reader.take(part, last=part is last)
        texts = _NO_TEXTS
        if records:
            columns = [(name, _csv_value(f"c{at}", name)) for at, name in enumerate(reader.names)]
            texts = _as_json(_table(records, dialect, len(reader.names)), columns, connection)
        yield Rows(texts, np.array(numbers, np.int64), bad, part.read, records, dialect.header(reader.names))


def _csv_value(column: str, name: str) -> str:
    if not name.startswith("feature_"):
        return column
    number = f"try_cast({column} as double)"
    return f"case when isfinite({number}) then to_json({number}) else to_json(nullif({column}, '')) end"


def _table(records: Sequence[bytes], dialect: Dialect, fields: int) -> pa.Table:
    """Return the fields of valid records as texts, in columns c0, c1, ..."""
    names = [f"c{column}" for column in range(fields)]
    data = b"\n".join(records) + b"\n"
    return pacsv.read_csv(
        pa.py_buffer(data),
        read_options=pacsv.ReadOptions(column_names=names, block_size=max(1 << 20, 2 * max(map(len, records)))),
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


def _as_json(table: pa.Table, columns: Sequence[tuple[str, str]], connection: duckdb.DuckDBPyConnection) -> pa.Array:
    """Return rows as JSON texts; `columns` holds the name of each column and the SQL of its value."""
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in columns)
    with connection.cursor() as cursor:
        cursor.register("rows_of_file", table)
        query = " ".join(["from rows_of_file select", f"cast(json_object({pairs}) as varchar) as text"])
        return cursor.sql(query).to_arrow_table()["text"].combine_chunks().cast(pa.string())


def parquet_rows(path: Path, connection: duckdb.DuckDBPyConnection, *, size: int) -> Iterator[Rows]:
    """Yield the rows of a Parquet file, a row group at a time; a group that cannot be read is one bad row."""
    total, done, first = path.stat().st_size, 0, 1
    try:
        opened = pa.OSFile(os.fsencode(path))
        file = pq.ParquetFile(opened, page_checksum_verification=True, pre_buffer=False)
    except FAULTS:
        with path.open("rb") as start:
            yield _no_rows([Bad(1, "unreadable", None, start.read(256))], total)
        return
    with opened, file:
        names = file.schema_arrow.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"there is more than one column {twice!r}", file=path, remedy="Write each column once")
        for group in range(file.num_row_groups):
            about, seen = file.metadata.row_group(group), 0
            share = max(1, size * max(1, about.num_rows) // max(1, about.total_byte_size))
            try:
                for batch in file.iter_batches(batch_size=min(share, PARQUET_ROWS), row_groups=[group]):
                    texts, numbers, bad = _converted(batch, first + seen, connection)
                    seen += batch.num_rows
                    read = total * (first - 1 + seen) // max(1, file.metadata.num_rows)
                    yield Rows(texts, np.array(numbers, np.int64), bad, read - done)
                    done = read
            except FAULTS:
                words = f"row group {group + 1} of {file.num_row_groups}, {about.num_rows - seen} rows"
                yield _no_rows([Bad(first + seen, "unreadable", None, words.encode())], 0)
            first += about.num_rows
    yield _no_rows([], total - done)


def _no_rows(bad: list[Bad], read: int) -> Rows:
    return Rows(_NO_TEXTS, np.empty(0, np.int64), bad, read)


def parquet_columns(path: Path) -> pa.Schema:
    """Return the columns of a Parquet file; none if it cannot be read."""
    try:
        with pa.OSFile(os.fsencode(path)) as file:
            return pq.read_schema(file)
    except FAULTS:
        return pa.schema([])


def _converted(
    batch: pa.RecordBatch, start: int, connection: duckdb.DuckDBPyConnection
) -> tuple[pa.Array, list[int], list[Bad]]:
    """Return rows as JSON, their numbers, and those that cannot be converted, which are found by halving.

    Bytes become text in which those that are not UTF-8 are escaped, a whole number that is a float loses its decimal
    point, NaN becomes null, and a duration is in milliseconds.
    """
    try:
        batch.validate(full=True)
        return _texts(batch, connection), [*range(start, start + len(batch))], []
    except (pa.ArrowException, duckdb.Error, ValueError):
        if len(batch) == 1:
            return _NO_TEXTS, [], [_broken_row(batch, start)]
    middle = len(batch) // 2
    one, other = (
        _converted(batch.take(pa.array(range(first, last))), start + first, connection)
        for first, last in ((0, middle), (middle, len(batch)))
    )
    return pa.concat_arrays([one[0], other[0]]), one[1] + other[1], one[2] + other[2]


def _texts(batch: pa.RecordBatch, connection: duckdb.DuckDBPyConnection) -> pa.Array:
    columns = [_readable(column) for column in batch.columns]
    table = pa.table({f"c{at}": column for at, column in enumerate(columns)})
    values = [(name, _sql(f"c{at}", columns[at].type)) for at, name in enumerate(batch.schema.names)]
    return _as_json(table, values, connection)


def json_texts(table: pa.Table) -> pa.ChunkedArray:
    """Return each row of a table as a JSON text; a number that is not finite is null."""
    with duckdb.connect(config={"threads": 1}) as connection:
        parts = [_texts(batch, connection) for batch in table.to_batches(max_chunksize=PARQUET_ROWS)]
    return pa.chunked_array(parts, pa.string())


def _readable(values: pa.Array) -> pa.Array:
    """Return the same values in a type of DuckDB."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _readable(values.cast(kind.value_type))
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns")
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("ms"), safe=False).cast(pa.int64())
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    return values.cast(pa.float32()) if pa.types.is_float16(kind) else values


def _sql(column: str, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return _NUMBER.format(column)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_floating(kind.value_type):
        return f"list_transform({column}, lambda x: {_NUMBER.format('x')})"
    return f"cast({column} as varchar)" if pa.types.is_temporal(kind) or pa.types.is_binary(kind) else column


def _broken_row(row: pa.RecordBatch, number: int) -> Bad:
    """Return a row that cannot be converted, with the field of the first value to blame."""
    values, code, blamed = dict[str, Any](), "wrong-type", None
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = _readable(column).to_pylist()[0]
        except UnicodeDecodeError as error:
            values[name], code = error.object.decode("utf-8", "backslashreplace"), "not-utf8"
        except (pa.ArrowException, ValueError, OverflowError):
            values[name], blamed = str(getattr(column[0], "value", column.type)), blamed or name
    raw = json.dumps(values, default=str, ensure_ascii=False).encode("utf-8", "replace")
    return Bad(number, code, None if code == "not-utf8" else blamed, raw)
