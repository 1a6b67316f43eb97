"""Tables as Arrow: frames in memory of any library, CSV and Parquet files, and queries to a database."""

from __future__ import annotations

import codecs
import csv
import glob
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from clickprism.data.files import broken_files
from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.types import Float64

if TYPE_CHECKING:
    import pyarrow as pa

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
        raise SettingError("sql", None, f"give the query to read {source} with: sql= or --query 'select ...'")
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
        raise DataError("there is no such file or folder", file=source, remedy=NO_FILE)
    parts = [read_file(file, text=text) for file in files]
    try:
        table = pa.concat_tables([part.table for part in parts], promote_options="permissive")
    except pa.ArrowInvalid as error:
        raise DataError(f"has files whose columns do not fit together ({error})", file=source) from None
    broken = sum(part.broken for part in parts)
    example = next((part.example for part in parts if part.broken), "")
    if broken > MOST_BROKEN * (broken + len(table)):
        problem = f"{broken:,} of {broken + len(table):,} lines are broken, such as {example}"
        raise DataError(problem, file=source, remedy="Export the file again")
    return SourceTable(table, broken, example)


def read_file(file: str, *, text: IsText = lambda _: False) -> SourceTable:
    """Read a CSV, TSV, JSON lines or Parquet file; lines with another number of fields are counted."""
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
    example = f"{wrong[0].text[:40]!r}... with {wrong[0].actual_columns} fields instead of {wrong[0].expected_columns}"
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
