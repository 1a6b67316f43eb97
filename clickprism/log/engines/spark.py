"""Spark: on this machine (`local[*]`) or on a standalone cluster (`spark://host:port`).

The log must have one path for the driver and all workers, and each worker needs clickprism installed for the Python of
PYSPARK_PYTHON (by default the driver's); see docs/guides/scale.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import ibis
import pyarrow as pa

from clickprism.errors import EngineError, missing_extra
from clickprism.log.engines.base import BatchFunction, Engine, draft_folder, moved, moved_days

if TYPE_CHECKING:
    from ibis.expr.types import Table

JAVA: Final = (
    "Spark needs Java 17 or later, and there is no `java` here. Install one, on Debian by `apt-get install "
    "openjdk-17-jre-headless`, or set JAVA_HOME; the engine duckdb needs none"
)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.constraintPropagation.enabled": "false",  # else planning takes up to twice as long
}


class SparkEngine(Engine):
    """An engine on Spark; see `connect`. A process can have one at a time."""

    batch_rows = 10_000_000
    commit_rows = 20_000_000

    def __init__(
        self, master: str, *, memory: str = "2GB", temp: Path | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        if java() is None:
            raise EngineError(JAVA)
        self.name = master
        hosts = _hosts(master)
        if hosts and not any(_answers(host, port) for host, port in hosts):
            raise EngineError(f"no Spark master answers at {master}. Start one, see docs/guides/scale.md")
        self._own = Path(tempfile.mkdtemp(prefix="clickprism-", dir=temp))
        local = not hosts or all(host in _LOOPBACK for host, _ in hosts)
        settings = _SETTINGS | {
            "spark.driver.memory": memory.replace("GB", "g").replace("MB", "m"),
            "spark.local.dir": str(self._own),
            "spark.sql.warehouse.dir": str(self._own / "warehouse"),
        }
        if not hosts:
            count = master.removeprefix("local").strip("[]") or "1"
            cores = int(count) if count.isdecimal() else os.cpu_count() or 1
            settings["spark.sql.shuffle.partitions"] = str(2 * cores)
        if local:
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings |= options or {}
        try:
            with _errors(self._own / "spark.log"):
                self._session, self._java = _start(master, settings, self._own / "spark.log", local=local)
                self._connection = ibis.pyspark.connect(self._session)
        except BaseException:
            shutil.rmtree(self._own, ignore_errors=True)
            raise

    def read(self, files: Sequence[str | Path], schema: pa.Schema) -> Table:
        """Return Parquet files as one table; see `Engine`."""
        if not files:
            return self.memory(schema.empty_table())
        paths = [f"file://{Path(file).absolute()}" for file in files]
        with _errors():
            reader = self._session.read.schema(_spark_schema(schema)).option("__globPaths__", "false")
            if "day" in schema.names:
                reader = reader.option("basePath", str(Path(paths[0]).parent.parent).replace("file:/", "file:///", 1))
            return self._view(reader.parquet(*paths).select(*schema.names))

    def memory(self, table: pa.Table) -> Table:
        """Return a small table in memory as a table of the engine."""
        with _errors():
            return self._view(self._session.createDataFrame(table, _spark_schema(table.schema)))

    def collect(self, expression: Table) -> pa.Table:
        """Return the rows of a small result."""
        with _errors():
            return self._frame(expression).toArrow().cast(expression.schema().to_pyarrow())

    def write(self, expression: Table, folder: Path, *, stem: str) -> list[Path]:
        """Write the rows to new Parquet files; the executors write them."""
        with draft_folder(folder) as draft:
            with _errors():
                self._frame(expression).write.parquet(f"file://{draft.absolute()}")
            return moved(draft.glob("part-*.parquet"), folder, stem=stem)

    def write_days(self, expression: Table, folder: Path, *, stems: Mapping[date, str]) -> dict[date, list[Path]]:
        """Write the rows of each day to new Parquet files; see `Engine`. Spark cuts a large day in several."""
        with draft_folder(folder) as draft:
            with _errors():
                frame = self._frame(expression).hint("rebalance", "day")
                frame.write.partitionBy("day").parquet(f"file://{draft.absolute()}")
            return moved_days(draft, folder, stems=stems, schema=expression.schema().to_pyarrow())

    @contextmanager
    def held(self, expression: Table) -> Iterator[Table]:
        """Yield the rows of an expression, computed once; the executors hold them."""
        with _errors():
            frame = self._frame(expression).localCheckpoint()
            table = self._view(frame)
        try:
            yield table
        finally:
            with _errors():
                self._session.catalog.dropTempView(table.get_name())

    def write_batches(
        self, expression: Table, function: BatchFunction, schema: pa.Schema, folder: Path, *, stem: str
    ) -> list[Path]:
        """Write the rows of a function of the rows of the expression to new Parquet files; the executors run it."""
        names = schema.names

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield function(batch).select(names).cast(schema)

        with _errors():
            rows = self._view(self._frame(expression).mapInArrow(run, _spark_schema(schema)))
        return self.write(rows, folder, stem=stem)

    def close(self) -> None:
        """Stop Spark and delete what it put on disk."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._session.stop()
                if gateway is not None:
                    gateway.shutdown()
            except Exception:  # noqa: S110 - a JVM that is gone already is what is wanted
                pass
        SparkContext._gateway = SparkContext._jvm = None
        if self._java.stdin is not None:
            self._java.stdin.close()
        self._java.wait()
        shutil.rmtree(self._own, ignore_errors=True)

    def _frame(self, expression: Table) -> Any:
        return self._session.sql(self._connection.compile(expression))

    def _view(self, frame: Any) -> Table:
        name = f"view_{uuid4().hex}"
        frame.createOrReplaceTempView(name)
        return self._connection.table(name)


def java() -> str | None:
    """Return the path of Java, or None."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def _start(master: str, settings: Mapping[str, str], log: Path, *, local: bool) -> tuple[Any, Any]:
    """Return a Spark session, and the process of its JVM, whose output goes to a file."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    if SparkContext._active_spark_context is not None:
        raise EngineError("this process already has a Spark session, and can have only one. Close it first")
    conf = SparkConf().setMaster(master).setAppName("clickprism").setAll(list(settings.items()))
    words = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    words |= {"SPARK_LOCAL_IP": "127.0.0.1"} if local else {}
    for name, value in words.items():
        os.environ.setdefault(name, value)
    with log.open("wb") as stream:
        gateway = launch_gateway(conf, {"stdout": stream, "stderr": stream})  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(conf=conf, gateway=gateway)), gateway.proc


def _hosts(master: str) -> list[tuple[str, int]]:
    """Return the addresses of the masters of a cluster; none for Spark on this machine."""
    if not master.startswith("spark://"):
        return []
    found = []
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal():
            raise EngineError(f"{master} is not the address of a Spark master. Example: spark://host:7077")
        found.append((host.strip("[]"), int(port)))
    return found


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError:
        return False
    return True


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([field.with_nullable(True) for field in schema]), prefer_timestamp_ntz=True)


@contextmanager
def _errors(log: Path | None = None) -> Iterator[None]:
    """Turn errors of Spark into an EngineError of one line that names the cause."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    except (Py4JError, PySparkException, ConnectionError) as error:
        said = log.read_text(errors="replace") if log is not None and log.exists() else ""
        raise EngineError(f"Spark failed: {_cause(error, said)}") from None


def _cause(error: BaseException, said: str) -> str:
    """Return the first line of the innermost error."""
    java_error = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error)
    try:
        while java_error is not None:
            text = str(java_error.toString())
            java_error = java_error.getCause()
    except Exception:  # noqa: S110 - the JVM may be gone; use the error found so far
        pass
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback" in text and lines:
        return next((line for line in reversed(lines) if not line.startswith(("at ", "File ", "SQLSTATE"))), lines[0])[
            :300
        ]
    errors = [line.strip() for line in said.splitlines() if "rror" in line or "xception" in line]
    return (errors[0] if errors else lines[0] if lines else type(error).__name__)[:300]
