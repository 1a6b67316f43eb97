"""Files and tables of any kind: whole files as bytes, text or rows; frames, files and queries as Arrow tables.

`read_source` reads a log that is a table, `read_table` a file of ids and numbers. Compression is recognised by content.
"""

from __future__ import annotations

import codecs
import csv
import glob
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from clickprism.data.encoding import texts_of
from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.types import Float64, Text

if TYPE_CHECKING:
    import pyarrow as pa

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
LONGEST_FIELD: Final = (1 << 31) - 1  # characters of a CSV field


def read_bytes(path: Path) -> bytes:
    """Return all bytes of a file, without decompression."""
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise DataError(
            "cannot be read (it is a folder, and a file is needed)", file=path, remedy="Name the files in it"
        ) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None


@contextmanager
def broken_files(file: Path) -> Iterator[None]:
    """Turn errors of Arrow about a file in the block into a `DataError`."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if file.is_file() and not file.stat().st_size:
            raise DataError("is empty", file=file, remedy="Export the file again") from None
        remedy = "Convert it to UTF-8" if "UTF8" in str(error) else "Export the file again"
        raise DataError(f"cannot be read ({str(error).rstrip('.')})", file=file, remedy=remedy) from None


def expand(raw: bytes, *, file: Path) -> bytes:
    """Return the content of a file: decompressed if its first bytes say gzip or zstd, else unchanged."""
    zstd = raw.startswith(ZSTD) or (raw[1:4] == ZSTD_SKIPPABLE and raw[0] >> 4 == 5)
    if not zstd and not raw.startswith(GZIP):
        return raw
    import pyarrow as pa

    kind = "zstd" if zstd else "gzip"
    try:
        with pa.CompressedInputStream(pa.BufferReader(raw), kind) as stream:
            content: bytes = stream.read()
    except OSError as error:
        raise DataError(
            f"is not a complete {kind} file: {error}", file=file, remedy="Copy or download it again"
        ) from None
    return content


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed; an error names the first line that is not UTF-8."""
    raw = expand(read_bytes(path), file=path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError("is not UTF-8 text", file=path, line=line, remedy="Convert it to UTF-8") from None
    if "\0" in text:
        line, remedy = text.count("\n", 0, text.index("\0")) + 1, "Export it again as UTF-8"
        raise DataError("has a NUL character, so it is not a text file", file=path, line=line, remedy=remedy)
    return text


def delimited_rows(text: str, *, file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number, from 1, and the fields of each line that is not empty; TSV if the first has a tab, else CSV."""
    if "\t" in text.lstrip("\r\n").partition("\n")[0]:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip("\r"):
                yield number, line.removesuffix("\r").split("\t")
        return
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise DataError(f"is not CSV ({error})", file=file, line=reader.line_num, remedy="Export it again") from None


MOST_BROKEN: Final = 0.1  # share of the lines of a file
NO_FILE: Final = "Name a folder that `clickprism log ingest` created, a CSV or Parquet file, or a pattern of files"
BATCH: Final = 50_000  # rows that a database sends at once
DUCKDB: Final = (".duckdb", ".ddb")
SQLITE: Final = (".db", ".sqlite", ".sqlite3")
TABLES: Final = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst", ".txt", ".txt.gz")
JSON: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")
NULLS: Final = ("", "NULL", "null", "NaN", "nan", "None", "\\N", "NA")

IsText: TypeAlias = Callable[[str], bool]
"""Whether the column of a name is text, also if it looks like numbers; such as ids, where 007 is not 7."""


def is_frame(source: object) -> bool:
    """Return whether a value is a table in memory: of pandas, polars, pyarrow or DuckDB, or a dictionary of arrays."""
    return isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__")


def to_arrow(source: Any) -> pa.Table:
    """Return a table in memory as an Arrow table.

    Args:
        source: A DataFrame of pandas or polars, a table or reader of pyarrow, a relation of DuckDB, any other value
            with the Arrow C stream interface, or a dictionary of arrays, one for each column. A matrix is a column of
            vectors.

    >>> to_arrow({"q": np.array(["a", "b"]), "vector": np.zeros((2, 3))}).schema.names
    ['q', 'vector']
    """
    import pyarrow as pa

    if type(source).__module__.startswith("pandas."):
        source = {str(name): source[name] for name in source.columns}
    if not isinstance(source, Mapping):
        table = pa.table(source)
        for place, field in enumerate(table.schema):  # most functions of Arrow do not take views
            if pa.types.is_string_view(field.type):
                table = table.set_column(place, field.name, table[place].cast(pa.large_string()))
        return table
    columns = {str(name): _column(name, values) for name, values in source.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns have different lengths: {lengths}", remedy="Give one value for each row")
    return pa.table(columns)


def in_the_type_of(source: Any, values: Float64, name: str) -> Any:
    """Return one value per row as a column of the library of a frame: a pandas Series with its index, and so on."""
    library = type(source).__module__.partition(".")[0]
    if library == "pandas":
        import pandas as pd

        return pd.Series(values, index=source.index, name=name)
    if library == "polars":
        import polars as pl

        return pl.Series(name, values)
    if library == "pyarrow":
        import pyarrow as pa

        return pa.chunked_array([values])
    return values


def _column(name: object, values: Any) -> pa.Array:
    import pyarrow as pa

    if not hasattr(values, "dtype"):
        ragged = any(isinstance(value, list | tuple | np.ndarray) or value is None for value in values)
        values = np.asarray(values, dtype=object if ragged else None)
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise DataError(f"column {name!r} has {values.ndim} dimensions", remedy="Give a vector, or a matrix of vectors")
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # values of several types
        absent = [value is None or (isinstance(value, float) and np.isnan(value)) for value in values]
        return pa.array([None if no else str(value) for value, no in zip(values, absent, strict=True)], pa.string())


def is_database(source: str) -> bool:
    """Return whether a source is read by a query: the URL of a database, or a file of DuckDB or SQLite."""
    return "://" in source.partition("?")[0] or source.lower().endswith((*DUCKDB, *SQLITE))


def is_table(source: str) -> bool:
    """Return whether a source is a file of CSV or Parquet, a folder or a pattern of such files."""
    if source.lower().endswith(TABLES):
        return True
    path = Path(source)
    if path.is_dir():
        files = [str(each) for each in path.rglob("*") if each.is_file()]
    else:
        files = glob.glob(source, recursive=True)
    return bool(files) and all(each.lower().endswith(TABLES) for each in files)


@dataclass(frozen=True, eq=False)
class SourceTable:
    """The rows of a source, and how many lines of its files are no rows, with an example of the reason."""

    table: pa.Table
    broken: int = 0
    example: str = ""


def read_source(source: str, *, sql: str | None = None, text: IsText = lambda _: False) -> SourceTable:
    """Read files or a query as one Arrow table.

    Args:
        source: A file, folder or pattern of CSV or Parquet files; a file of DuckDB or SQLite; or the URL of a database
            as SQLAlchemy writes it, such as sqlite:///shop.db.
        sql: The query to a database. Files are the table `log` in it.
        text: Whether a column of CSV is text.
    """
    import pyarrow as pa

    if is_database(source) and sql is None:
        raise SettingError("query", None, f"be given, to read {source} by SQL (sql= in Python)")
    if is_database(source) and not source.lower().endswith(DUCKDB):
        batches = list(read_batches(source, str(sql)))
        if not batches:
            raise DataError("the query returned no rows", file=source)
        return SourceTable(pa.concat_tables(batches, promote_options="permissive"))
    read = SourceTable(pa.table({})) if is_database(source) else _read_files(source, text)
    if sql is None:
        return read
    import duckdb

    place = source if is_database(source) else ":memory:"
    with _query_errors(source, sql, duckdb.Error), duckdb.connect(place, read_only=is_database(source)) as connection:
        if not is_database(source):
            connection.register("log", read.table)
        return replace(read, table=connection.sql(sql).to_arrow_table())


def _read_files(source: str, text: IsText) -> SourceTable:
    """Read CSV and Parquet files with the same columns as one table."""
    import pyarrow as pa

    path = Path(source)
    if path.is_dir():
        files = sorted(str(each) for each in path.rglob("*") if each.name.lower().endswith(TABLES))
    else:
        files = [source] if path.exists() else sorted(glob.glob(source, recursive=True))
    if not files:
        problem = "has no CSV or Parquet file" if path.exists() else "there is no such file or folder"
        raise DataError(problem, file=source, remedy=NO_FILE)
    parts = [read_file(file, text=text) for file in files]
    try:
        table = pa.concat_tables([part.table for part in parts], promote_options="permissive")
    except pa.ArrowInvalid as error:
        raise DataError(f"has files whose columns do not fit together ({error})", file=source) from None
    broken = sum(part.broken for part in parts)
    example = next((part.example for part in parts if part.broken), "")
    if broken > MOST_BROKEN * (broken + len(table)):
        problem = f"{broken:,} of {broken + len(table):,} rows are broken, such as {example}"
        remedy = "Check the delimiter, and that each quotation mark is closed, and export the file again"
        raise DataError(problem, file=source, remedy=remedy)
    return SourceTable(table, broken, example)


def read_file(file: str, *, text: IsText = lambda _: False) -> SourceTable:
    """Read a CSV, TSV, JSON lines or Parquet file; lines with a different number of fields are counted."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.json as pajson
    import pyarrow.parquet as pq

    wrong: list[Any] = []

    def skip(row: Any) -> str:
        wrong.append(row)
        return "skip"

    with broken_files(Path(file)):
        if file.lower().endswith(".parquet"):
            return SourceTable(pq.read_table(file))
        with pa.input_stream(file, compression="detect") as stream:
            content = stream.read()
        if file.lower().endswith(JSON):
            whole = pajson.ReadOptions(block_size=len(content) + 1)
            return SourceTable(pajson.read_json(pa.BufferReader(content), whole))
        first = content.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n").partition(b"\n")[0].decode(errors="replace")
        delimiter = max("\t,;|", key=first.count)
        header = next(csv.reader([first.rstrip("\r")], delimiter=delimiter), [])
        table = pacsv.read_csv(
            pa.BufferReader(content),
            read_options=pacsv.ReadOptions(use_threads=False),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter,
                quote_char=False if delimiter == "\t" else '"',
                newlines_in_values=delimiter != "\t",
                invalid_row_handler=skip,
            ),
            convert_options=pacsv.ConvertOptions(
                null_values=NULLS,
                strings_can_be_null=True,
                column_types={name: pa.string() for name in header if text(name)},
            ),
        )
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise DataError(f"names the column {twice!r} twice", file=file, line=1, remedy="Give each its own name")
    if not wrong:
        return SourceTable(table)
    fields = f"with {wrong[0].actual_columns} fields instead of {wrong[0].expected_columns}"
    example = f"row {wrong[0].number}, {wrong[0].text[:40]!r}... {fields}"
    return SourceTable(table, len(wrong), example)


def read_batches(source: str, sql: str, *, rows: int = BATCH) -> Iterator[pa.Table]:
    """Yield the rows of a query to a database, read by SQLAlchemy, in tables of at most `rows` rows."""
    try:
        import sqlalchemy
    except ModuleNotFoundError:
        raise MissingExtraError("sql", f"reading {source}") from None
    url = source if "://" in source else f"sqlite:///{source}"
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///").partition("?")[0]).exists():
        raise DataError("there is no such file", file=url.removeprefix("sqlite:///"))
    with _query_errors(source, sql, sqlalchemy.exc.SQLAlchemyError):
        try:
            engine = sqlalchemy.create_engine(url)
        except ModuleNotFoundError as error:
            problem = f"needs the driver {error.name}, which is not installed"
            raise DataError(problem, file=source, remedy=f"pip install {error.name}") from None
        try:
            with engine.connect().execution_options(stream_results=True, yield_per=rows) as connection:
                result = connection.execute(sqlalchemy.text(sql))
                names = list(result.keys())
                if len(set(names)) < len(names):
                    raise DataError("the query names a column twice", file=source, remedy="Use `as` in the query")
                for part in result.partitions(rows):
                    columns = (np.fromiter(values, object, len(part)) for values in zip(*part, strict=True))
                    yield to_arrow(dict(zip(names, columns, strict=True)))
        finally:
            engine.dispose()


@contextmanager
def _query_errors(source: str, sql: str, kind: type[Exception]) -> Iterator[None]:
    """Turn an error of a database in the block into a `DataError` with the query."""
    try:
        yield
    except kind as error:
        why = str(getattr(error, "orig", None) or error).partition("\n")[0]
        raise DataError(f"the query failed ({why})", file=source, remedy=f"The query was: {sql}") from None


Kind: TypeAlias = Literal["names", "numbers", "none"]

LONGEST_IDS = 1 << 31  # bytes that the ids of one column may take
NUMBERS = ("", "nan", "null")


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file that were asked for.

    Attributes:
        file: The file.
        header: Names of all of its columns.
        names: Columns of ids, by name; a missing id is empty.
        numbers: Columns of numbers, by name; a missing number is nan.
        rows: Number of rows.
    """

    file: Path
    header: tuple[str, ...]
    names: dict[str, Text]
    numbers: dict[str, Float64]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def line(self, row: int) -> int:
        """Return the line of a row, counted from 0, in a file with one row a line."""
        name = self.file.name.lower()
        return row + (1 if ".parquet" in name or ".json" in name else 2)


def read_table(path: Path | str, kind: Callable[[str], Kind]) -> Table:
    """Read a table; `kind` says what the column of a name holds. A value that is not a number is an error."""
    file = Path(path)
    if not file.is_file():
        raise DataError("there is no such file", file=file, remedy="Name a CSV, TSV, JSON lines or Parquet file")
    read = read_file(str(file), text=lambda name: kind(name) != "none")
    header = tuple(map(str, read.table.column_names))
    table = Table(file, header, {}, {}, len(read.table))
    if read.broken:
        raise DataError(f"has {read.broken:,} broken lines, such as {read.example}", file=file, remedy="Correct them")
    for name in header:
        if kind(name) == "names":
            codes, texts = texts_of(read.table[name])
            table.names[name] = text_array(["", *texts], codes + 1, what=f"column {name!r}", file=file)
        elif kind(name) == "numbers":
            table.numbers[name] = _numbers(table, name, read.table[name])
    return table


def text_array(values: list[str], codes: Any = None, *, what: str, file: Path | None = None) -> Text:
    """Return texts, or `values[codes]`, as a vector, in which each takes as much memory as the longest.

    One long text among many would fill memory, so that is an error.
    """
    longest = max(map(len, values), default=0)
    size = len(values) if codes is None else max(len(codes), len(values))
    if 4 * longest * size > LONGEST_IDS:
        problem = f"{what} is too large: {size:,} texts, the longest of {longest:,} characters"
        raise DataError(problem, file=file, remedy="Number them, shorten them, or leave that column out")
    texts: Text = np.array(values, dtype=np.str_)
    return texts if codes is None else texts[codes]


def _numbers(table: Table, name: str, column: Any) -> Float64:
    """Return a column as numbers, nan where there is none."""
    codes, texts = texts_of(column)
    numbers = np.full(len(texts) + 1, np.nan)
    for code, text in enumerate(texts):
        try:
            numbers[code] = float({"true": "1", "false": "0"}.get(text, text))
        except ValueError:
            if text.strip().lower() in NUMBERS:
                continue
            row = int(np.argmax(codes == code))
            problem = f"column {name!r} must hold a number, got {text[:40]!r}"
            raise DataError(problem, file=table.file, line=table.line(row), remedy="Correct the row") from None
    values: Float64 = numbers[codes]
    return values
