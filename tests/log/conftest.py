"""The engines that tests of logs run on: DuckDB, and one Spark for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from clickprism.log.engines.base import Engine, connect
from clickprism.log.engines.spark import JAVA, SparkEngine, java

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


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of logs are listed in the cache folder: a test sees its own only."""
    monkeypatch.setenv("CLICKPRISM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of Spark first: then one worker of pytest-xdist runs all of them, with one session.

    A worker starts with the first tests of its share, and others take from the end.
    """
    items.sort(key=lambda item: not ("spark" in getattr(item, "fixturenames", ()) or _on_spark(item)))


def _on_spark(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("engine") == "spark"


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
