"""`read_log`: any log in, the one log in memory out."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, Unpack

from clickprism.data.click_table import ColumnNames, Columns, read_click_table
from clickprism.data.frames import is_frame, to_arrow
from clickprism.data.logged import Logged
from clickprism.data.sources import is_database, is_table, read_source
from clickprism.errors import DataError, SettingError
from clickprism.log.logged import read_logged

Source: TypeAlias = Any
"""A frame, a path, the URL of a database, or a log that was read."""
EVENTS: Final = (".json", ".jsonl", ".ndjson")
PACKED: Final = (".gz", ".zst")


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
    text = str(source)
    if sql is not None or is_database(text) or is_click_table(text):
        return read_click_source(text, Columns.of(given), sql=sql)
    _refuse(given, sql, f"{text} has its own columns")
    if is_events(Path(text)):
        with TemporaryDirectory(prefix="clickprism-log-") as folder:
            return read_logged(ingest_events(text, Path(folder) / "log", note=note), note=note)
    return read_logged(Path(text), note=note)


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
