"""Publishing: what comes out of the store is what the log and the tables hold, and what is broken changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import ClickprismError, DataError
from clickprism.log.engines.base import connect
from clickprism.log.features.snapshots import Snapshot, read_snapshot
from clickprism.log.features.windows import windows
from clickprism.log.ingest import ingest
from clickprism.log.settings import WindowSettings
from clickprism.log.store import LogStore
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.serve.settings import PublishSettings
from clickprism.serve.store import publish as module
from clickprism.serve.store.base import open_store
from clickprism.serve.store.publish import publish
from tests.log.raw_logs import random_files

AS_OF = datetime(2026, 3, 3, 12)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    ingest(random_files(folder / "raw", files=1, rows=200, seed=3), folder / "log", max_bad_ratio=1)
    with connect(memory="200MB", threads=1) as engine:
        windows(LogStore.open(folder / "log"), engine, AS_OF, settings=WindowSettings(k=0))
    return folder / "log"


@pytest.fixture(scope="module")
def snapshot(log: Path) -> Snapshot:
    return read_snapshot(LogStore.open(log))


def write(path: Path, rows: Sequence[tuple[object, ...]], names: list[str]) -> Path:
    columns = [pa.array(values) for values in zip(*rows, strict=True)]
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
    return path


def test_the_vectors_of_a_log(log: Path, snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 7)
    made = publish(tmp_path / "store", log=LogStore.open(log))
    expected = ClickVectors.from_snapshot(snapshot)
    store = open_store(tmp_path / "store")
    assert (store.info.fields, store.info.as_of, store.info.pairs) == (expected.fields, AS_OF, len(expected))
    assert (made.changed, made.queries) == (True, len(set(expected.query_ids)))
    assert len(expected) > 20
    for query in set(expected.query_ids.tolist()):
        mine = np.flatnonzero(expected.query_ids == query)[::-1]
        found = store.get(query, [*expected.document_ids[mine].tolist(), "never shown"])
        assert np.array_equal(found.x[:-1], expected.x[mine])
        assert np.array_equal(found.x[-1], expected.empty)
    again = publish(tmp_path / "store", log=LogStore.open(log))
    assert (again.changed, again.info.version) == (False, made.info.version)
    store.close()


def test_with_features_and_imputed_values(log: Path, snapshot: Snapshot, tmp_path: Path) -> None:
    vectors = ClickVectors.from_snapshot(snapshot)
    query, document = str(vectors.query_ids[0]), str(vectors.document_ids[0])
    rows = [(query, document, 1.5, 2), (query, "only features", None, 3), ("only features", document, 4.0, 5)]
    features = write(tmp_path / "f.parquet", rows, ["query_id", "document_id", "bm25", "length"])
    imputed = write(tmp_path / "i.parquet", [(query, document, 0.25)], ["query_id", "document_id", "imputation"])
    made = publish(tmp_path / "store", PublishSettings(features=features, imputed=imputed), log=LogStore.open(log))
    assert made.info.fields == (*vectors.fields, "bm25", "length", "imputed")
    assert made.info.pairs == len(vectors) + 2
    store = open_store(tmp_path / "store")
    x = store.get(query, [document, "only features", str(vectors.document_ids[1])]).x
    assert np.array_equal(x[0, :-3], vectors.x[0])
    assert x[0, -3:].tolist() == [1.5, 2, 0.25]
    assert np.array_equal(x[1], [*vectors.empty, np.nan, 3, np.nan], equal_nan=True)
    assert np.isnan(store.get("nothing", ["d"]).x[0, -3:]).all()
    assert np.array_equal(store.get("only features", [document]).x[0], [*vectors.empty, 4, 5, np.nan], equal_nan=True)
    other = publish(tmp_path / "store", PublishSettings(features=features, as_of=AS_OF))
    assert other.info.version != made.info.version
    store.close()
    store = open_store(tmp_path / "store")
    assert (store.info.fields, store.info.as_of, store.info.version) == (("bm25", "length"), AS_OF, other.info.version)
    store.close()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_ids_of_text_files_stay_text(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"f{suffix}"
    if suffix == ".csv":
        path.write_text("query_id,document_id,a\n007,01,1\n8,2,\n")
    else:
        path.write_text('{"query_id": "007", "document_id": "01", "a": 1}\n{"query_id": "8", "document_id": "2"}\n')
    publish(tmp_path / "store", PublishSettings(features=path))
    store = open_store(tmp_path / "store")
    assert store.get("007", ["01", "1"]).found.tolist() == [True, False]
    assert np.isnan(store.get("8", ["2"]).x).all()
    store.close()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("q", "d", 1.0), ("q", "d", 2.0)], "the pair of 'q' and 'd' comes twice"),
        ([("q", "d", 1e39)], "float32 cannot hold|out of range"),
        ([("q", None, 1.0)], "no query_id or no document_id"),
        ([("q", "d", "text")], r"has the column 'a' of VARCHAR\. Every column"),
    ],
)
def test_broken_tables_leave_the_store_as_it_is(rows: list[tuple[object, ...]], words: str, tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", [("q", "d", 1.0)], ["query_id", "document_id", "a"])
    version = publish(tmp_path / "store", PublishSettings(features=good)).info.version
    bad = write(tmp_path / "bad.parquet", rows, ["query_id", "document_id", "a"])
    with pytest.raises(ClickprismError, match=words):
        publish(tmp_path / "store", PublishSettings(features=bad))
    store = open_store(tmp_path / "store")
    assert store.info.version == version
    assert [path.name for path in (tmp_path / "store" / "snapshots").iterdir()] == [
        (tmp_path / "store" / "current").read_text()
    ]
    store.close()


def test_what_does_not_come_back_is_not_switched_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = write(tmp_path / "good.parquet", [("q", "d", 1.0)], ["query_id", "document_id", "a"])
    publish(tmp_path / "store", PublishSettings(features=good))
    monkeypatch.setattr("clickprism.serve.store.lmdb.pack", lambda *_: b"x" * 64)
    other = write(tmp_path / "other.parquet", [("q", "d", 2.0)], ["query_id", "document_id", "a"])
    with pytest.raises(DataError, match="damaged"):
        publish(tmp_path / "store", PublishSettings(features=other))
    store = open_store(tmp_path / "store")
    assert store.get("q", ["d"]).x.tolist() == [[1.0]]
    store.close()
