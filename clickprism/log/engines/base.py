"""Engines: what runs a query. Queries are ibis expressions, written once; DuckDB or Spark runs them, with equal values.

The rules that keep the values equal: no floats in sums, no `hash`, no regular expressions, nothing approximate, times
are UTC microseconds without a zone, text is compared by its bytes (reference: docs/operations.md).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.errors import SettingError
from clickprism.log.settings import EngineSettings

if TYPE_CHECKING:
    from ibis.expr.types import Table

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]


class Engine(Protocol):
    """What reads files into tables, runs expressions on them and writes the results."""

    name: str
    batch_rows: int
    """How many rows a query is best given: days are put together until they have so many."""
    commit_rows: int
    """The same of a query that `write_days` does day by day, or that needs little memory."""

    def read(self, files: Sequence[str | Path], schema: pa.Schema) -> Table:
        """Parquet files with these columns as one table; a column `day` comes from the folder `day=YYYY-MM-DD`."""

    def memory(self, table: pa.Table) -> Table:
        """A small table in memory as a table of the engine."""

    def collect(self, expression: Table) -> pa.Table:
        """The rows of a small result, in no order unless the expression has one."""

    def write(self, expression: Table, folder: Path, *, stem: str) -> list[Path]:
        """Write the rows to new Parquet files `<stem>-<unique>.parquet` in a folder; at least one, if without rows."""

    def write_days(self, expression: Table, folder: Path, *, stems: Mapping[date, str]) -> dict[date, list[Path]]:
        """Write the rows of each day to new Parquet files `day=YYYY-MM-DD/<stem>-<unique>.parquet` in a folder.

        Args:
            expression: with a column `day`, of these days; the files lack it.
            folder: of the table.
            stems: by day. Each gets at least one file, if without rows.
        """

    def held(self, expression: Table) -> AbstractContextManager[Table]:
        """The rows of an expression that is used several times, worked out once; they may lie on disk."""

    def map_batches(self, expression: Table, function: BatchFunction, schema: pa.Schema) -> Table:
        """The rows that a function gives for those of the expression, one Arrow batch after another.

        On Spark the function runs on the executors, so it must not depend on which rows come in a batch.
        """

    def write_batches(
        self, expression: Table, function: BatchFunction, schema: pa.Schema, folder: Path, *, stem: str
    ) -> list[Path]:
        """Write what `map_batches` would give to new Parquet files, as `write` does."""

    def close(self) -> None:
        """Free what the engine holds. Tables made by it are of no use any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def by_rows(rows: Mapping[date, int], *, most: int) -> list[list[date]]:
    """Days put together, in order, until they have the most rows that they may; a day of more is alone.

    >>> [len(days) for days in by_rows({date(2026, 3, day): 3 * day for day in range(1, 5)}, most=10)]
    [2, 1, 1]
    """
    found: list[list[date]] = []
    size = 0
    for day in sorted(rows):
        if not found or size + rows[day] > most:
            found.append([])
            size = 0
        found[-1].append(day)
        size += rows[day]
    return found


@contextmanager
def draft_folder(folder: Path) -> Iterator[Path]:
    """A place in the folder of a table for files until they are whole; it is gone at the end."""
    draft = folder / f"unfinished-{uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def moved(files: Iterable[Path], folder: Path, *, stem: str) -> list[Path]:
    """Files in a folder under new names."""
    folder.mkdir(parents=True, exist_ok=True)
    return [file.rename(folder / f"{stem}-{uuid4().hex}.parquet") for file in sorted(files)]


def moved_days(draft: Path, folder: Path, *, stems: Mapping[date, str], schema: pa.Schema) -> dict[date, list[Path]]:
    """The files of a draft in the folders of their days; a day that has none gets one without rows."""
    found = {}
    for day, stem in stems.items():
        place = draft / f"day={day.isoformat()}"
        if not place.is_dir():
            place.mkdir(parents=True)
            columns = pa.schema([field for field in schema if field.name != "day"])
            pq.write_table(columns.empty_table(), place / "empty.parquet")
        found[day] = moved(place.glob("*.parquet"), folder / place.name, stem=stem)
    return found


def connect(
    engine: str = "duckdb", *, threads: int | None = None, memory: str = "2GB", temp: Path | None = None
) -> Engine:
    """The engine of this name.

    Args:
        engine: "duckdb", "local[*]" or "local[N]" for Spark on this machine, or "spark://host:port" for a cluster.
        threads: of DuckDB; of Spark by its name or by the cluster. None: as many as there are cores.
        memory: what the engine may hold at a time, such as "500MB"; of Spark, the driver.
        temp: a folder for what does not fit; None makes one that is gone at the end.

    >>> with connect(memory="200MB") as engine:
    ...     table = engine.memory(pa.table({"clicks": [1, 2]}))
    ...     engine.collect(table.aggregate(clicks=table.clicks.sum()))["clicks"].to_pylist()
    [3]
    """
    if threads is not None and threads < 1:
        raise SettingError("threads", threads, "be at least 1")
    settings = EngineSettings(engine=engine, memory=memory)
    made: Any
    if settings.engine == "duckdb":
        from clickprism.log.engines.duckdb import DuckEngine

        made = DuckEngine(threads=threads, memory=memory, temp=temp)
    else:
        from clickprism.log.engines.spark import SparkEngine

        made = SparkEngine(engine, memory=memory, temp=temp)
    connected: Engine = made
    return connected
