"""Tables outside memory: files of CSV and Parquet, folders and patterns of them, and queries to a database.

`clickprism.data.frames` has the tables in memory.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism.errors import DataError, MissingExtraError, SettingError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BROKEN: Final = 0.1  # share of the lines of a file
NO_FILE: Final = "Name a folder that `clickprism log ingest` created, a CSV or Parquet file, or a pattern of files"
BATCH: Final = 50_000  # rows that a database sends at once
DUCKDB: Final = (".duckdb", ".ddb")
SQLITE: Final = (".db", ".sqlite", ".sqlite3")
TABLES: Final = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst", ".txt", ".txt.gz")
NULLS: Final = ("", "NULL", "null", "NaN", "nan", "None", "\\N", "NA")


def is_database(source: str) -> bool:
    """Return whether a source is read by a query: the URL of a database, or a file of DuckDB or SQLite."""
    return "://" in source.partition("?")[0] or source.lower().endswith((*DUCKDB, *SQLITE))


def is_table(source: str) -> bool:
    """Return whether a source is a file of CSV or Parquet, a folder or a pattern of such files."""
    if source.lower().endswith(TABLES):
        return True
    path = Path(source)
    files = [str(each) for each in path.iterdir()] if path.is_dir() else glob.glob(source)
    return bool(files) and all(each.lower().endswith(TABLES) for each in files)


@dataclass(frozen=True, eq=False)
class SourceTable:
    """The rows of a source, and how many lines of its files are no rows, with an example of the reason."""

    table: pa.Table
    broken: int = 0
    example: str = ""


def read_source(source: str, *, sql: str | None = None) -> SourceTable:
    """Read files or a query as one Arrow table.

    Args:
        source: A file, folder or pattern of CSV or Parquet files; a file of DuckDB or SQLite; or the URL of a database
            as SQLAlchemy writes it, such as sqlite:///shop.db.
        sql: The query to a database. Files are the table `log` in it.
    """
    if is_database(source):
        if sql is None:
            raise SettingError("sql", None, f"give the query to read {source} with: sql= or --query 'select ...'")
        return SourceTable(_duckdb(source, sql) if source.lower().endswith(DUCKDB) else _database(source, sql))
    read = read_files(source)
    return read if sql is None else replace(read, table=_duckdb(source, sql, read.table))


def read_files(source: str) -> SourceTable:
    """Read CSV and Parquet files with the same columns as one table."""
    import pyarrow as pa

    path = Path(source)
    if path.is_dir():
        files = sorted(str(each) for each in path.rglob("*") if each.name.lower().endswith(TABLES))
    else:
        files = [source] if path.exists() else sorted(glob.glob(source, recursive=True))
    if not files:
        raise DataError("there is no such file or folder", file=source, remedy=NO_FILE)
    parts = [_file(file) for file in files]
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


def _file(file: str) -> SourceTable:
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    try:
        if file.lower().endswith(".parquet"):
            return SourceTable(pq.read_table(file))
        with pa.input_stream(file, compression="detect") as stream:
            content = stream.read()
        delimiter = _delimiter(content)
        wrong: list[Any] = []

        def skip(row: Any) -> str:
            wrong.append(row)
            return "skip"

        table = pacsv.read_csv(
            pa.BufferReader(content),
            read_options=pacsv.ReadOptions(use_threads=False),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter,
                quote_char=False if delimiter == "\t" else '"',
                newlines_in_values=delimiter != "\t",
                invalid_row_handler=skip,
            ),
            convert_options=pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=True),
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"cannot be read ({error})", file=file) from None
    if not wrong:
        return SourceTable(table)
    first = wrong[0]
    example = f"{first.text[:40]!r}... with {first.actual_columns} fields instead of {first.expected_columns}"
    return SourceTable(table, len(wrong), example)


def _delimiter(content: bytes) -> str:
    """Return what separates the names of the first line: the most frequent of tab, comma, semicolon and bar."""
    first = content.partition(b"\n")[0].decode(errors="replace")
    return max("\t,;|", key=first.count)


def _duckdb(source: str, sql: str, table: pa.Table | None = None) -> pa.Table:
    """Run a query in a file of DuckDB, or over a table of the name `log`."""
    import duckdb

    try:
        with duckdb.connect(":memory:" if table is not None else source, read_only=table is None) as connection:
            if table is not None:
                connection.register("log", table)
            return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise _failed(source, sql, error) from None


def _database(source: str, sql: str) -> pa.Table:
    """Run a query by SQLAlchemy and read its rows in batches."""
    import pyarrow as pa

    batches = list(read_batches(source, sql))
    if not batches:
        raise DataError("the query returned no rows", file=source)
    return pa.concat_tables(batches, promote_options="permissive")


def read_batches(source: str, sql: str, *, rows: int = BATCH) -> Iterator[pa.Table]:
    """Yield the rows of a query to a database in tables of at most `rows` rows."""
    from clickprism.data.frames import to_arrow

    try:
        import sqlalchemy
    except ModuleNotFoundError:
        raise MissingExtraError("sql", f"reading {source}") from None
    url = source if "://" in source else f"sqlite:///{source}"
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///").partition("?")[0]).exists():
        raise DataError("there is no such file", file=url.removeprefix("sqlite:///"))
    try:
        engine = sqlalchemy.create_engine(url)
    except ModuleNotFoundError as error:
        problem = f"needs the driver {error.name}, which is not installed"
        raise DataError(problem, file=source, remedy=f"pip install {error.name}") from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise _failed(source, sql, error) from None
    try:
        with engine.connect().execution_options(stream_results=True, yield_per=rows) as connection:
            result = connection.execute(sqlalchemy.text(sql))
            names = list(result.keys())
            if len(set(names)) < len(names):
                raise DataError("the query names a column twice", file=source, remedy="Use `as` in the query")
            for part in result.partitions(rows):
                yield to_arrow(dict(zip(names, map(_values, zip(*part, strict=True)), strict=True)))
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise _failed(source, sql, error) from None
    finally:
        engine.dispose()


def _values(values: Sequence[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _failed(source: str, sql: str, error: Exception) -> DataError:
    why = str(getattr(error, "orig", None) or error).partition("\n")[0]
    return DataError(f"the query failed ({why})", file=source, remedy=f"The query was: {sql}")
