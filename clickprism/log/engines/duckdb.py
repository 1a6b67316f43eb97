"""DuckDB, in this process: the engine by default."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.errors import EngineError
from clickprism.log.engines.base import BatchFunction, Engine, first_line
from clickprism.log.schema import literal

if TYPE_CHECKING:
    from ibis.expr.types import Table

_BATCH: Final = 100_000
_GROUP_ROWS: Final = 20_480
"""Rows of a row group of wide rows: each thread holds one while it writes."""
_TOGETHER: Final = 4
"""Maximum number of days that are computed at a time: each holds its sums in memory."""


class DuckEngine(Engine):
    """An engine in this process; see `connect`.

    >>> with DuckEngine() as engine:
    ...     engine.collect(engine.memory(pa.table({"a": [1]}))).to_pylist()
    [{'a': 1}]
    """

    name = "duckdb"
    batch_rows = 500_000
    commit_rows = 20_000_000

    def __init__(self, *, threads: int | None = None, memory: str = "2GB", temp: Path | None = None) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="clickprism-", dir=temp))
        config: dict[str, Any] = {"memory_limit": memory, "temp_directory": str(self._own / "spill")}
        config |= {} if threads is None else {"threads": threads}
        with failing():
            self._connection = ibis.duckdb.connect(preserve_insertion_order=False, **config)
            self._threads = int(self._connection.con.execute("SELECT current_setting('threads')").fetchall()[0][0])

    def read(self, files: Sequence[str | Path], schema: pa.Schema) -> Table:
        """Return Parquet files as one table; see `Engine`."""
        if not files:
            return self.memory(schema.empty_table())
        paths = [str(file) for file in files]
        day = len(str(Path(paths[0]).parent.parent)) + len("/day=") + 1
        columns = [
            f"CAST(substr(filename, {day}, 10) AS DATE) AS day" if name == "day" else f'"{name}"'
            for name in schema.names
        ]
        listed = ", ".join(literal(path) for path in paths)
        source = f"read_parquet([{listed}], hive_partitioning = false, filename = true)"
        name = f"view_{uuid4().hex}"
        with failing():
            self._connection.raw_sql(f"CREATE VIEW {name} AS SELECT {', '.join(columns)} FROM {source}")  # noqa: S608
            return self._connection.table(name)

    def memory(self, table: pa.Table) -> Table:
        """Return a small table in memory as a table of the engine."""
        with failing():
            name = f"memory_{uuid4().hex}"
            self._connection.con.register(f"arrow_{name}", table)
            self._connection.raw_sql(f"CREATE TABLE {name} AS SELECT * FROM arrow_{name}")  # noqa: S608
            self._connection.con.unregister(f"arrow_{name}")
            return self._connection.table(name)

    def collect(self, expression: Table) -> pa.Table:
        """Return the rows of a small result."""
        with failing():
            return self._connection.to_pyarrow(expression)

    def write(self, expression: Table, folder: Path, *, stem: str) -> list[Path]:
        """Write the rows to one new Parquet file."""
        path = _new(folder, stem)
        with failing():
            self._run([_copy(self._connection.compile(expression), path, f", ROW_GROUP_SIZE {_GROUP_ROWS}")])
        return [path]

    def write_days(self, expression: Table, folder: Path, *, stems: Mapping[date, str]) -> dict[date, list[Path]]:
        """Write the rows of each day to a new Parquet file; see `Engine`.

        Each day is one query on the files of that day: small tables of sums are faster than a large one. DuckDB
        estimates one row for a day, so the optimizer that swaps the sides of a join is off: the larger one is left.
        """
        made = {day: _new(folder / f"day={day.isoformat()}", stem) for day, stem in stems.items()}
        with failing(), self._set("disabled_optimizers", "build_side_probe_side", after=""):
            query = f"SELECT * EXCLUDE (day) FROM ({self._connection.compile(expression)}) WHERE day = DATE "  # noqa: S608
            self._run([_copy(f"{query} '{day.isoformat()}'", path) for day, path in made.items()])
        return {day: [path] for day, path in made.items()}

    def _run(self, queries: Sequence[str]) -> None:
        """Run queries, each on one core: this is faster than one query after another on all cores."""
        workers = min(self._threads, len(queries), _TOGETHER)
        if workers < 2:
            for query in queries:
                self._connection.raw_sql(query)
            return
        left = deque(queries)
        cursors = [self._connection.con.cursor() for _ in range(workers)]

        def work(cursor: duckdb.DuckDBPyConnection) -> None:
            with cursor:
                while left:
                    cursor.execute(left.popleft())

        with (
            self._set("threads", 1 + self._threads - workers, after=self._threads),
            ThreadPoolExecutor(workers) as pool,
        ):
            try:
                for done in [pool.submit(work, cursor) for cursor in cursors]:
                    done.result()
            except BaseException:
                left.clear()
                for cursor in cursors:
                    cursor.interrupt()
                raise

    @contextmanager
    def _set(self, name: str, value: str | int, *, after: str | int) -> Iterator[None]:
        self._connection.raw_sql(f"SET {name} = '{value}'")
        try:
            yield
        finally:
            self._connection.raw_sql(f"SET {name} = '{after}'")

    @contextmanager
    def held(self, expression: Table) -> Iterator[Table]:
        """Yield the rows of an expression, computed once."""
        name = f"held_{uuid4().hex}"
        with failing():
            query = self._connection.compile(expression)
            self._connection.raw_sql(f"CREATE TABLE {name} AS {query}")
            table = self._connection.table(name)
        try:
            yield table
        finally:
            with failing():
                self._connection.raw_sql(f"DROP TABLE {name}")

    def write_batches(
        self, expression: Table, function: BatchFunction, schema: pa.Schema, folder: Path, *, stem: str
    ) -> list[Path]:
        """Write the rows of a function of the rows of the expression to one new Parquet file."""
        path = folder / f"{stem}-{uuid4().hex}.parquet"
        with failing(), pq.ParquetWriter(path, schema, compression="zstd") as writer:
            query = self._connection.compile(expression)
            for batch in self._connection.con.sql(query).to_arrow_reader(_BATCH):
                writer.write_batch(function(batch).select(schema.names).cast(schema))
        return [path]

    def close(self) -> None:
        """Close the connection and delete what it put on disk."""
        self._connection.disconnect()
        shutil.rmtree(self._own, ignore_errors=True)


@contextmanager
def failing() -> Iterator[None]:
    """Turn errors of DuckDB into one line, with a remedy where one is known; ignore warnings about ibis."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except duckdb.OutOfMemoryException as error:
        raise EngineError(f"DuckDB has too little memory ({first_line(error)}). Give it more by --memory 4GB") from None
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        raise EngineError(f"DuckDB failed: {first_line(error)}") from None


def _new(folder: Path, stem: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{stem}-{uuid4().hex}.parquet"


def _copy(query: str, path: Path, options: str = "") -> str:
    return f"COPY ({query}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION snappy{options})"
