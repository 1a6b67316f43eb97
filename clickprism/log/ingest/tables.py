"""Tables and queries as events that `ingest` reads: which column holds what, and which rows are new."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.files import read_json, write_file
from clickprism._util.tables import Table
from clickprism.data.click_table import NAMES, Columns, TableRows, TableSettings, text_rows
from clickprism.data.encoding import texts_of
from clickprism.data.tables import read_source
from clickprism.errors import DataError, SettingError
from clickprism.log.read.formats import json_texts
from clickprism.log.schema import literal
from clickprism.log.store import WATERMARKS

if TYPE_CHECKING:
    import pyarrow as pa


NO_TIME: Final = "2000-01-02T00:00:00Z"
"""Time of rows without one."""


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
            *([Table("The first rows", list(self.roles), rows)] if self.roles else []),
            Table("", ["features", ", ".join(self.features) or "none"], [["next", self.command]]),
        ]


def guess_columns(source: str, table: TableSettings) -> GuessedColumns:
    """Propose which column of a table holds what, by the names of the columns."""
    read = read_source(source, sql=table.query, text=table.columns().is_id).table
    columns = table.columns().found_in(read.column_names, source)
    roles = columns.roles()
    query = "" if table.query is None else f" --query {shlex.quote(table.query)}"
    maps = "".join(f" --map {role}={shlex.quote(column)}" for role, column in roles.items())
    unnamed = "".join(f" --map {role}=COLUMN" for role in ("document", "click") if role not in roles)
    features = tuple(columns.feature_names(read.column_names))
    task, out = ("auto", "runs/auto") if features else ("relevance estimate", "estimates.parquet")
    command = f"clickprism {task} {shlex.quote(source)}{query}{maps}{unnamed} --out {out}"
    return GuessedColumns(source, roles, features, tuple(text_rows(read, columns)), command)


def event_table(table: pa.Table, columns: Columns, *, source: object = None) -> tuple[pa.Table, tuple[str, ...]]:
    """Return a table as the impressions of an ingested log (docs/reference/datamodel.md), and what was assumed.

    A row without an event id is identified by a hash of the table and its number, so that repeated impressions are not
    duplicates, and the same table is not stored twice. An outcome that followed a click, such as a cart, is an
    interaction; its amount is not kept.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = TableRows(table, columns, source)
    digest = hashlib.sha256(repr(rows.columns).encode())
    for batch in table.combine_chunks().to_batches():
        digest.update(batch.serialize())
    columns, lists = rows.columns, rows.list_of_rows()
    positions = rows.positions(lists)
    used = np.flatnonzero((rows.reason == 0) & (lists >= 0))
    if not len(used):
        raise DataError("has no usable row", file=source, remedy=rows.unused())
    if lost := [name for role in ("seen", "grade", "weight") if (name := getattr(columns, role)) is not None]:
        rows.notes.append(f"An ingested log does not store {', '.join(lost)}.")
    chosen = table.take(used)

    def texts(name: str) -> pa.Array:
        codes, names = texts_of(chosen[name])
        return pa.array(names, pa.string()).take(pa.array(codes, mask=codes < 0))

    def named(values: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(digest.hexdigest()[:16], values.cast(pa.string()), "-")

    fields: dict[str, Any] = {
        "event_id": named(pa.array(used)),
        "search_id": named(pa.array(lists[used])) if columns.search is None else texts(columns.search),
        "query": pa.array(rows.queries, pa.string()).take(pa.array(rows.query[used])),
        "document_id": pa.array(rows.documents, pa.string()).take(pa.array(rows.document[used])),
        "position": positions[used],
        "click": rows.click[used],
        "time": pa.repeat(NO_TIME, len(used)) if columns.time is None else chosen[columns.time],
    }
    fields |= {
        name: texts(column)
        for role, name in (("user", "user_id"), ("ranker", "ranker"))
        if (column := getattr(columns, role)) is not None
    }
    if columns.randomised is not None:
        fields["randomised"] = rows.flag("randomised")[used]
    if names := columns.feature_names(table.column_names):
        fields["features"] = json_texts(chosen.select(names))
    impressions = pa.table(fields)
    parts = [impressions]
    for name in columns.outcomes:
        followed = impressions.filter(pa.array((rows.outcome(name, used) > 0) & rows.click[used]))
        acted = followed.select(["search_id", "document_id", "time"])
        ids = pc.binary_join_element_wise(followed["event_id"], name, "-")
        parts.append(acted.append_column("event_id", ids).append_column("action", pa.repeat(name, len(acted))))
    if unused := len(table) - len(used):
        rows.notes.append(f"{unused:,} of {len(table):,} rows were not used. {rows.unused()}.")
    return pa.concat_tables(parts, promote_options="default"), tuple(rows.notes)


@contextmanager
def exported_events(
    source: str, table: TableSettings, *, note: Callable[[str], None], watermark: Watermark | None = None
) -> Iterator[str | None]:
    """Write a table as impressions that `ingest` reads to a temporary file, whose name it yields; None without rows.

    The content of the file is the same whenever the table is the same, so that it is ingested once.
    """
    import pyarrow.parquet as pq

    sql = table.query if watermark is None else watermark.query()
    if watermark is not None:
        count = read_source(source, sql=f"SELECT count(*) AS new_rows FROM ({sql}) AS counted")  # noqa: S608
        if not count.table["new_rows"][0].as_py():
            note("The query has no new rows")
            yield None
            return
    rows = read_source(source, sql=sql, text=table.columns().is_id).table
    if watermark is not None:
        watermark.begin(rows)
    events, notes = event_table(rows, table.columns(), source=source)
    for sentence in notes:
        note(sentence)
    with TemporaryDirectory(prefix="clickprism-table-") as folder:
        file = Path(folder) / f"{Path(source.partition('?')[0]).stem or 'table'}.parquet"
        pq.write_table(events, file)
        yield str(file)
    if watermark is not None:
        watermark.finish()


@final
class Watermark:
    """Which rows of a query a log has read: those up to a value of a column that grows, such as an id or a time.

    The log keeps the value in `watermarks.json`. An interrupted run is repeated with the same limits, so that its rows
    make the same file, which is ingested once.

    Args:
        column: Column of the query.
        sql: The query.
        source: URL of the database.
        log: Folder of the log.
    """

    def __init__(self, column: str, sql: str | None, *, source: str, log: Path) -> None:
        if sql is None or not column.isidentifier():
            raise SettingError("watermark", column, "be the name of a column, and be given with --query")
        self._column, self._sql = column, sql.strip().rstrip(";")
        self._path = log / WATERMARKS
        self._key = hashlib.sha256("\n".join([source, self._sql, column]).encode()).hexdigest()
        known = read_json(self._path, remedy="Delete it to read all rows again") if self._path.exists() else {}
        self._last, self._next = known.get(self._key, [None, None])

    def query(self) -> str:
        """Return the query for the new rows."""
        limits = [(">", self._last), ("<=", self._next)]
        where = [
            f"{self._column} {sign} {value if isinstance(value, int | float) else literal(value)}"
            for sign, value in limits
            if value is not None
        ]
        query = f"SELECT * FROM ({self._sql}) AS new_rows {'WHERE ' if where else ''}{' AND '.join(where)}"  # noqa: S608
        return f"{query} ORDER BY {self._column}"

    def begin(self, rows: Any) -> None:
        """Store the limits of a run before any of its rows is ingested."""
        if self._column not in rows.column_names:
            raise SettingError("watermark", self._column, f"be a column of the query ({', '.join(rows.column_names)})")
        if rows[self._column].null_count:
            raise DataError(f"the column {self._column!r} is empty in a row", remedy="Choose a column without nulls")
        highest = max(rows[self._column].to_pylist())
        self._next = highest if isinstance(highest, int | float) else str(highest)
        self._write(self._last, self._next)

    def finish(self) -> None:
        """Move on, after the rows were ingested."""
        self._write(self._next, None)

    def _write(self, last: object, following: object) -> None:
        known = read_json(self._path) if self._path.exists() else {}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._path, json.dumps({**known, self._key: [last, following]}))
