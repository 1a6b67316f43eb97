"""Engines run queries. Queries are ibis expressions, written once; DuckDB or Spark runs them, with equal values.

The rules that keep the values equal: no floats in sums, no `hash`, no regular expressions, nothing approximate, times
are UTC microseconds without a zone, text is compared by its bytes (reference: docs/guides/operations.md).
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
    """Reads files into tables, runs expressions on them and writes the results."""

    name: str
    batch_rows: int
    """Best number of rows of a query: days are joined up to it."""
    commit_rows: int
    """The same for a query that `write_days` runs day by day, or that needs little memory."""

    def read(self, files: Sequence[str | Path], schema: pa.Schema) -> Table:
        """Return Parquet files with these columns as one table; `day` comes from the folder `day=YYYY-MM-DD`."""

    def memory(self, table: pa.Table) -> Table:
        """Return a small table in memory as a table of the engine."""

    def collect(self, expression: Table) -> pa.Table:
        """Return the rows of a small result, in no order unless the expression has one."""

    def write(self, expression: Table, folder: Path, *, stem: str) -> list[Path]:
        """Write the rows to new Parquet files `<stem>-<unique>.parquet` in a folder; at least one, if without rows."""

    def write_days(self, expression: Table, folder: Path, *, stems: Mapping[date, str]) -> dict[date, list[Path]]:
        """Write the rows of each day to new Parquet files `day=YYYY-MM-DD/<stem>-<unique>.parquet` in a folder."""

    def held(self, expression: Table) -> AbstractContextManager[Table]:
        """Yield the rows of an expression that is used several times, computed once."""

    def write_batches(
        self, expression: Table, function: BatchFunction, schema: pa.Schema, folder: Path, *, stem: str
    ) -> list[Path]:
        """Write the rows of a function of the rows of the expression, one Arrow batch after another, as `write` does.

        On Spark the function runs on the executors, so it must not depend on which rows come in a batch.
        """

    def close(self) -> None:
        """Free what the engine holds, its tables included."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def by_rows(rows: Mapping[date, int], *, most: int) -> list[list[date]]:
    """Join days, in order, up to a number of rows; a day with more is alone.

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
    """Yield a temporary place in the folder of a table for files until they are complete."""
    draft = folder / f"unfinished-{uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def moved(files: Iterable[Path], folder: Path, *, stem: str) -> list[Path]:
    """Move files to a folder, under new names."""
    folder.mkdir(parents=True, exist_ok=True)
    return [file.rename(folder / f"{stem}-{uuid4().hex}.parquet") for file in sorted(files)]


def moved_days(draft: Path, folder: Path, *, stems: Mapping[date, str], schema: pa.Schema) -> dict[date, list[Path]]:
    """Move the files of a draft to the folder of each day, and return them; a day without files gets an empty one."""
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
    """Return the engine of this name.

    Args:
        engine: "duckdb", "local[*]" or "local[N]" for Spark on this machine, or "spark://host:port" for a cluster.
        threads: of DuckDB, by default the number of cores; Spark takes it from the name or the cluster.
        memory: maximum memory, such as "500MB"; for Spark that of the driver.
        temp: a folder for what does not fit; by default a temporary one.

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


def first_line(error: BaseException) -> str:
    """Return the first line of an error message."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
