"""`read_log`: any log in, the one log in memory out."""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, Unpack, final

from clickprism._util.tables import Table
from clickprism.data.click_table import (
    NAMES,
    OTHERS,
    ColumnNames,
    Columns,
    event_table,
    parse_outcome,
    read_click_table,
    text_rows,
)
from clickprism.data.frames import is_database, is_frame, is_table, read_source, to_arrow
from clickprism.data.logged import Logged
from clickprism.data.ubi import PARQUET, is_ubi, read_ubi
from clickprism.errors import DataError, SettingError
from clickprism.log.logged import ReadSettings, read_logged

Source: TypeAlias = Any
"""A frame, a path, the URL of a database, or a log that was read."""
EVENTS: Final = (".json", ".jsonl", ".ndjson")
PACKED: Final = (".gz", ".zst")


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Which column of a table holds what, for logs that are tables: CSV, Parquet, databases.

    Attributes:
        map: Role and column of a table, such as position=rank; may be repeated. The roles are query, document,
            position, click, search, time, user, randomised, shown, ranker and page; any other name is an outcome. A
            role that is not given is looked for among the usual names.
        query: SQL query to a database, such as "select * from clicks". CSV and Parquet files are the table `log` in it.
        features: Column of a table that is a feature; may be repeated. By default all columns without a role.
        ignore: Column of a table that is not a feature; may be repeated.
        categorical: Feature of a table that is a category though it looks like a number; may be repeated.
    """

    map: tuple[str, ...] = ()
    query: str | None = None
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for each in self.map:
            role, _, column = each.partition("=")
            if not role or not column:
                raise SettingError("map", each, "be a role and a column, such as position=rank")

    def __bool__(self) -> bool:
        return self != TableSettings()

    def columns(self, outcome: str = "click") -> Columns:
        """Return the columns; names in the outcome that are not mapped are columns of the same name."""
        given = dict(each.split("=", 1) for each in self.map)
        outcomes = {name: column for name, column in given.items() if name not in NAMES}
        outcomes |= {name: name for name in parse_outcome(outcome) if name != "click" and name not in outcomes}
        return Columns.of(
            {
                **{role: column for role, column in given.items() if role in NAMES},
                "features": self.features or OTHERS,
                "ignore": self.ignore,
                "categorical": self.categorical,
                "outcomes": outcomes,
            }
        )


NO_TABLE: Final = TableSettings()


def open_source(
    source: str, table: TableSettings = NO_TABLE, *, outcome: str = "click", note: Callable[[str], None] | None = None
) -> Logged | None:
    """Read a log that is a table, a query or events; None for what clickprism has written itself.

    Args:
        source: A path, or the URL of a database.
        table: Which column holds what.
        outcome: Outcome that the log is read for.
        note: Called with what was assumed.
    """
    if files := ubi_files(source):
        logged = read_ubi_log(files, Columns.of({"features": table.features or None}), source=source)
    elif table.query is not None or is_database(source) or is_click_table(source):
        logged = read_click_source(source, table.columns(outcome), sql=table.query)
    elif table:
        field = next(name for name in ("map", "features", "ignore", "categorical") if getattr(table, name))
        raise SettingError(field, getattr(table, field), f"be omitted: {source} is not a table")
    else:
        return None
    tell = note or (lambda _: None)
    for sentence in logged.notes:
        tell(sentence)
    return logged


@final
@dataclass(frozen=True)
class GuessedColumns:
    """Which column of a table probably holds what.

    Attributes:
        source: The table.
        roles: Column of each role.
        features: Columns that would be features.
        rows: The first rows, by role.
        command: Command that uses the mapping.
    """

    source: str
    roles: Mapping[str, str]
    features: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    command: str

    def tables(self) -> list[Table]:
        """Return the mapping, five rows read by it, and the command."""
        roles = [[role, self.roles.get(role, "not found")] for role in NAMES]
        rows = [[row[role] for role in self.roles] for row in self.rows]
        return [
            Table(f"{self.source}: which column holds what", ["role", "column"], roles),
            Table("The first rows", list(self.roles), rows),
            Table("", ["features", ", ".join(self.features) or "none"], [["next", self.command]]),
        ]


def guess_columns(source: str, table: TableSettings) -> GuessedColumns:
    """Propose which column of a table holds what, by the names of the columns."""
    read = read_source(source, sql=table.query).table
    columns = table.columns().found_in(read.column_names, source)
    roles = columns.roles()
    maps = " ".join(f"--map {role}={shlex.quote(column)}" for role, column in roles.items())
    query = "" if table.query is None else f" --query {shlex.quote(table.query)}"
    command = f"clickprism auto {shlex.quote(source)}{query} {maps} --out runs/auto"
    features = tuple(columns.feature_names(read.column_names))
    return GuessedColumns(source, roles, features, tuple(text_rows(read, columns)), command)


@contextmanager
def exported_events(source: str, table: TableSettings, *, note: Callable[[str], None]) -> Iterator[str]:
    """Write a table as impressions that `ingest` reads to a temporary file, whose name it yields.

    The content of the file is the same whenever the table is the same, so that it is ingested once.
    """
    import pyarrow.parquet as pq

    events, notes = event_table(read_source(source, sql=table.query).table, table.columns(), source=source)
    for sentence in notes:
        note(sentence)
    with TemporaryDirectory(prefix="clickprism-table-") as folder:
        file = Path(folder) / f"{Path(source.partition('?')[0]).stem or 'table'}.parquet"
        pq.write_table(events, file)
        yield str(file)


def read_log(source: Source, *, note: Callable[[str], None] | None = None, **columns: Unpack[ColumnNames]) -> Logged:
    """Read a log of any kind.

    | source | what it is |
    |---|---|
    | a frame of pandas, polars, pyarrow or DuckDB, or a dictionary of arrays | one row for each result |
    | "log.csv", "log.parquet", a folder or pattern of such files | one row for each result |
    | "sqlite:///shop.db" or any URL of SQLAlchemy, "shop.duckdb", with `sql` | one row for each result |
    | "events.ndjson", "ubi.ndjson.gz" | events of OpenSearch UBI, Metarank or clickprism; they are ingested first |
    | the folder of an ingested log, a session file, a simulated log (.npz) | what clickprism has written |

    Args:
        source: The log.
        note: Called with messages about the progress.
        columns: Which column of a table holds what (`query`, `document`, `position`, `click`, `search`, `time`, `user`,
            `randomised`, `shown`, `ranker`, `page`), which columns are `features` (names, or "all others") and which of
            those are `categorical`, which are `outcomes`, and the query to a database (`sql`). A role without a name is
            looked for among the usual names. `notes` of the result says what was assumed.

    >>> rows = {"q": ["cat"] * 4, "sku": ["a", "b", "b", "a"], "rank": [1, 2, 1, 2], "clicked": [0, 1, 1, 0]}
    >>> log = read_log(rows, query="q", document="sku", position="rank", click="clicked")
    >>> log.clicks
    Clicks(2 ranked lists, 2 sessions, 2 clicks)
    >>> log.notes[0]
    'No column has the time: all rows count as one day.'
    """
    given: dict[str, Any] = {**columns}
    sql = given.pop("sql", None)
    if isinstance(source, Logged):
        _refuse(given, sql, "a log that was read has its columns")
        return source
    if is_frame(source):
        if sql is not None:
            raise SettingError("sql", sql, "be omitted: it is for databases and files")
        return read_click_table(to_arrow(source), Columns.of(given))
    if not isinstance(source, str | Path):
        raise TypeError(f"read_log takes a frame, a path or the URL of a database, not {type(source).__name__}")
    text = str(source)
    if files := ubi_files(text):
        return read_ubi_log(files, Columns.of(given), source=text)
    if sql is not None or is_database(text) or is_click_table(text):
        return read_click_source(text, Columns.of(given), sql=sql)
    _refuse(given, sql, f"{text} has its own columns")
    return _read_own(text, note)


def _read_own(source: str, note: Callable[[str], None] | None) -> Logged:
    """Read a log in a format of clickprism or Metarank: an ingested log, events, a session file, simulated clicks."""
    if is_events(Path(source)):
        with TemporaryDirectory(prefix="clickprism-log-") as folder:
            return read_logged(ingest_events(source, Path(folder) / "log", note=note), note=note)
    logged = read_logged(Path(source), settings=ReadSettings(on_error="quarantine"), note=note)
    broken = logged.account.get("lines quarantined", 0)
    lines = f"{broken:,} lines of {source} were not used: they are broken, or have a document twice."
    return replace(logged, notes=(*logged.notes, lines)) if broken else logged


def read_ubi_log(files: Sequence[Path], columns: Columns, *, source: str) -> Logged:
    """Read events of OpenSearch UBI: their impressions, clicks and outcomes."""
    ubi = read_ubi(files)
    outcomes = {name: name for name in ubi.outcomes}
    features = [name for name in ubi.table.column_names if name not in (*NAMES, *outcomes)]
    logged = read_click_table(
        ubi.table, replace(columns, outcomes=outcomes, features=columns.features or tuple(features)), source=source
    )
    account = {**ubi.account, **{name: count for name, count in logged.account.items() if name != "rows"}}
    return replace(logged, account=account, notes=(*ubi.notes, *logged.notes))


def read_click_source(source: str, columns: Columns, *, sql: str | None = None) -> Logged:
    """Read files or a query with one row for each result; lines that are no rows are counted."""
    read = read_source(source, sql=sql)
    logged = read_click_table(read.table, columns, source=source)
    if not read.broken:
        return logged
    account = {**logged.account, "lines not used, another number of fields": read.broken}
    note = f"{read.broken:,} lines of the files were not used, such as {read.example}."
    return replace(logged, account=account, notes=(*logged.notes, note))


def is_click_table(source: str) -> bool:
    """Return whether a path names tables with one row for each result, and no session file."""
    path = Path(source)
    if path.is_dir() and (path / "log.toml").exists():
        return False
    if not is_table(source):
        return False
    return path.is_dir() or not path.exists() or not {"documents", "clicks"} <= set(_first_line(path))


def is_events(path: Path) -> bool:
    """Return whether a path is a file of raw events, or a folder of them that is not an ingested log."""
    if path.is_dir():
        files = [each for each in path.iterdir() if each.is_file()]
        return not (path / "log.toml").exists() and bool(files) and all(map(is_events, files))
    return next((each for each in reversed(path.suffixes) if each not in PACKED), "") in EVENTS


def ubi_files(source: str) -> list[Path]:
    """Return the files of a log of OpenSearch UBI, JSON lines or Parquet; none of anything else."""
    path = Path(source)
    if not path.exists() or (path / "log.toml").exists():
        return []
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    known = bool(files) and all(is_events(each) or each.name.lower().endswith(PARQUET) for each in files)
    return files if known and is_ubi(files) else []


def ingest_events(source: str, folder: Path, *, note: Callable[[str], None] | None = None) -> Path:
    """Ingest raw events into a new log, and return its folder."""
    from clickprism.log.ingest import ingest

    ingest([source], folder, max_bad_ratio=1.0, note=note)
    return folder


def _first_line(path: Path) -> list[str]:
    """Return the names in the first line of a text file; none of another file."""
    if path.suffix not in (".csv", ".tsv", ".txt", *PACKED):
        return []
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            line = stream.readline(1 << 20).decode(errors="replace").strip()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None
    return line.split("\t" if "\t" in line else ",")


def _refuse(columns: dict[str, Any], sql: str | None, why: str) -> None:
    named = [name for name, value in (*columns.items(), ("sql", sql)) if value is not None]
    if named:
        raise SettingError(named[0], columns.get(named[0], sql), f"be omitted: {why}")
