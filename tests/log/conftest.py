"""The engines that tests of logs run on: DuckDB, and one Spark for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from clickprism.log.engine import Engine, connect
from clickprism.log.spark_engine import JAVA, SparkEngine, java

QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}
"""Small data is done before its code is compiled; values do not depend on it."""


def need_java() -> None:
    """Skip a test of Spark where there is no Java; in CI that is a failure."""
    if java() is None:
        if os.environ.get("CI"):
            pytest.fail(JAVA)
        pytest.skip(JAVA)


@pytest.fixture(scope="session")
def duck() -> Iterator[Engine]:
    with connect(threads=1, memory="500MB") as engine:
        yield engine


@pytest.fixture(scope="session")
def spark() -> Iterator[Engine]:
    need_java()
    with SparkEngine("local[2]", memory="1GB", options=QUICK) as engine:
        yield engine


@pytest.fixture(scope="session", params=["duckdb", "spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.getfixturevalue({"duckdb": "duck", "spark": "spark"}[request.param])
    return made
