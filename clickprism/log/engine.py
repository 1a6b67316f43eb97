"""Engines: what runs a query. Queries are ibis expressions, written once; DuckDB or Spark runs them, with equal values.

The rules that keep the values equal: no floats in sums, no `hash`, no regular expressions, nothing approximate, times
are UTC microseconds without a zone, text is compared by its bytes (reference: docs/operations.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pyarrow as pa

from clickprism.errors import SettingError

if TYPE_CHECKING:
    from ibis.expr.types import Table

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
SPARK: Final = re.compile(r"local(\[(\*|[1-9]\d*)\])?|spark://\S+")
_MEMORY: Final = re.compile(r"[1-9]\d*(MB|GB)")


class Engine(Protocol):
    """What reads files into tables, runs expressions on them and writes the results."""

    name: str

    def read(self, files: Sequence[str | Path], schema: pa.Schema) -> Table:
        """Parquet files with these columns as one table; a column `day` comes from the folder `day=YYYY-MM-DD`."""

    def memory(self, table: pa.Table) -> Table:
        """A small table in memory as a table of the engine."""

    def collect(self, expression: Table) -> pa.Table:
        """The rows of a small result, in no order unless the expression has one."""

    def write(self, expression: Table, folder: Path, *, stem: str) -> list[Path]:
        """Write the rows to new Parquet files `<stem>-<unique>.parquet` in a folder; at least one, if without rows."""

    def held(self, expression: Table) -> AbstractContextManager[Table]:
        """The rows of an expression that is used several times, worked out once; they may lie on disk."""

    def map_batches(self, expression: Table, function: BatchFunction, schema: pa.Schema) -> Table:
        """The rows that a function gives for those of the expression, one Arrow batch after another.

        On Spark the function runs on the executors, so it must not depend on which rows come in a batch.
        """

    def close(self) -> None:
        """Free what the engine holds. Tables made by it are of no use any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_memory(memory: str) -> None:
    """An error if this is no amount of memory that any engine understands."""
    if not _MEMORY.fullmatch(memory):
        raise SettingError("memory", memory, "be such as 500MB or 2GB")


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
    check_memory(memory)
    made: Any
    if engine == "duckdb":
        from clickprism.log.duckdb_engine import DuckEngine

        made = DuckEngine(threads=threads, memory=memory, temp=temp)
    elif SPARK.fullmatch(engine):
        from clickprism.log.spark_engine import SparkEngine

        made = SparkEngine(engine, memory=memory, temp=temp)
    else:
        raise SettingError("engine", engine, "be duckdb, local[*], local[N] or spark://host:port")
    connected: Engine = made
    return connected
