"""The tables of a log: files join and leave by one commit, keys commit once, the lock excludes."""

from __future__ import annotations

import os
import shutil
import threading
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.log.ingest import ingest
from clickprism.log.settings import LogSettings
from clickprism.log.store import LogStore
from clickprism.log.table import LogTable
from tests.log.raw_logs import impression, write_lines
from tests.waiting import LIMIT

SCHEMA = pa.schema([pa.field("value", pa.int64()), pa.field("day", pa.date32(), nullable=False)])
MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)


def file_of(path: Path, *values: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"value": pa.array(values, pa.int64())}), path)
    return path


def replace(table: LogTable, files: list[Path]) -> int:
    """Commit these files as all that Monday has."""
    return table.commit_files({MONDAY: files}, remove_days=[MONDAY])


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore.open(tmp_path / "a log, 100% odd", create=True)


@pytest.fixture
def table(store: LogStore) -> LogTable:
    return store.table("values", schema=SCHEMA)


def values_of(table: LogTable, *days: date) -> list[int]:
    return sorted(value for file in table.files(days or None) for value in pq.read_table(file)["value"].to_pylist())


def test_files_join_and_leave_by_one_commit(store: LogStore, table: LogTable, tmp_path: Path) -> None:
    assert table.version is None
    assert (table.files(), table.days(), table.rows()) == ([], [], 0)
    outside = file_of(store.folder / "staging" / "x.parquet", 1, 2)
    inside = file_of(table.day_folder(TUESDAY) / "y.parquet", 3)
    version = table.commit_files({MONDAY: [outside], TUESDAY: [inside]}, metadata={"why": "first"})
    assert not outside.exists()
    assert table.days() == [MONDAY, TUESDAY]
    assert [Path(file).name for file in table.files([MONDAY])] == ["x.parquet"]
    assert values_of(table) == [1, 2, 3]
    assert table.rows() == 3
    assert table.rows_of([MONDAY, TUESDAY]) == {MONDAY: 2, TUESDAY: 1}
    delta = table.latest()
    assert delta is not None
    assert delta.history(1)[0]["why"] == "first"
    assert sorted(table.read().to_pylist(), key=str) == [
        {"value": 1, "day": MONDAY},
        {"value": 2, "day": MONDAY},
        {"value": 3, "day": TUESDAY},
    ]
    assert table.read(["day"])["day"].to_pylist().count(MONDAY) == 2
    assert replace(table, [file_of(tmp_path / "z.parquet", 9)]) == version + 1
    assert values_of(table, MONDAY) == [9]
    assert values_of(table, TUESDAY) == [3]
    table.commit_files({}, remove=table.files([TUESDAY]))
    assert table.days() == [MONDAY]
    left = LogTable(table.folder, schema=SCHEMA).files([MONDAY])
    assert [Path(file).name for file in left] == ["z.parquet"]


def test_a_reader_keeps_its_files_until_vacuum(table: LogTable, tmp_path: Path) -> None:
    replace(table, [file_of(tmp_path / "a.parquet", 1)])
    seen = table.files()
    replace(table, [file_of(tmp_path / "b.parquet", 2)])
    assert Path(seen[0]).exists()
    table.vacuum(hours=0)
    assert not Path(seen[0]).exists()
    assert values_of(table) == [2]


def test_a_key_commits_once(table: LogTable, tmp_path: Path) -> None:
    assert table.committed(["file"]) == {}
    table.commit_files({MONDAY: [file_of(tmp_path / "a.parquet", 1)]}, keys={"file": 7, "other": 0})
    assert table.committed(["file", "other", "none"]) == {"file": 7, "other": 0}
    again = LogTable(table.folder, schema=SCHEMA)
    with pytest.raises(DataError, match="committed by another run"):
        again.commit_files({MONDAY: [file_of(tmp_path / "b.parquet", 2)]}, keys={"file": 7})
    assert values_of(table) == [1]


def test_two_tables_at_once_lose_nothing(table: LogTable, tmp_path: Path) -> None:
    def many(name: str) -> None:
        mine = LogTable(table.folder, schema=SCHEMA)
        for i in range(5):
            mine.commit_files({MONDAY: [file_of(tmp_path / f"{name}{i}.parquet", i)]})

    threads = [threading.Thread(target=many, args=[name]) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values_of(table) == sorted([*range(5)] * 3)


def test_many_create_a_table_at_once(store: LogStore, tmp_path: Path) -> None:
    start, errors = threading.Barrier(8), list[BaseException]()

    def commit(number: int) -> None:
        mine, file = LogTable(store.folder / "new", schema=SCHEMA), tmp_path / f"{number}.parquet"
        file_of(file, number)
        start.wait(LIMIT)
        try:
            mine.commit_files({MONDAY: [file]})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=commit, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert values_of(LogTable(store.folder / "new", schema=SCHEMA)) == [*range(8)]


def test_rows_of_a_small_table(store: LogStore) -> None:
    rows = pa.table(
        {"file_id": ["f"], "file": ["log.csv"], "header": ["a,b"], "line": [3], "reason": ["x"], "field": [None]}
        | {"value": [None], "raw": [b"\0\xff"], "cleared_at": [None]}
    )
    store.table("quarantine").append(rows)
    assert store.table("quarantine").read(["line", "raw"]).to_pylist() == [{"line": 3, "raw": b"\0\xff"}]
    with pytest.raises(DataError, match="has no column 'file'"):
        store.table("quarantine").append(rows.drop_columns(["file"]))


def test_the_lock_excludes_and_nests(store: LogStore) -> None:
    order: list[str] = []
    asked = threading.Event()
    other = LogStore(store.folder, note=lambda _: asked.set())

    def wait() -> None:
        with other.lock():
            order.append("second")

    thread = threading.Thread(target=wait)
    with store.lock(), store.lock():
        thread.start()
        assert asked.wait(LIMIT)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_write_waits_for_another_writer_with_a_message(store: LogStore) -> None:
    notes: list[str] = []
    asked, order = threading.Event(), list[str]()

    def note(text: str) -> None:
        notes.append(text)
        asked.set()

    def write() -> None:
        with LogStore.open(store.folder, create=True, note=note).write():
            order.append("second")

    thread = threading.Thread(target=write)
    with store.write():
        thread.start()
        assert asked.wait(LIMIT)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert notes == ["Another process is writing to this log: waiting for it"]


def test_write_provides_an_engine_and_a_folder_until_it_ends(store: LogStore) -> None:
    with store.write(memory="200MB") as writer:
        assert writer.temp.is_dir()
        assert "engine" not in vars(writer)
        assert writer.engine is writer.engine
        assert writer.engine.name == "duckdb"
    assert not writer.temp.exists()


def test_write_that_is_not_exclusive_lets_others_write(store: LogStore) -> None:
    other = LogStore(store.folder, note=pytest.fail)
    with store.write(exclusive=False), other.lock():
        pass


def test_write_refuses_memory_before_it_waits(store: LogStore) -> None:
    with store.lock(), pytest.raises(SettingError, match="memory must be such as"), store.write(memory="much"):
        pass


def test_a_commit_is_on_disk(store: LogStore, table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(table, [file_of(store.folder / "staging" / "a.parquet", 1)])
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name))
    version = replace(table, [file_of(store.folder / "staging" / "b.parquet", 2)])
    commit = f"{version:020}.json"
    assert {"b.parquet", "day=2026-03-02", "values", commit, "_delta_log"} <= {*synced}
    assert synced.index("b.parquet") < synced.index(commit) < synced.index("_delta_log")
    assert "a.parquet" not in synced


@pytest.mark.parametrize("left", [b"", b"{", None])
def test_a_commit_that_a_power_cut_left_incomplete_is_removed(
    table: LogTable, tmp_path: Path, left: bytes | None
) -> None:
    """None: cut between two lines, so that each line is whole."""
    replace(table, [file_of(tmp_path / "a.parquet", 1)])
    version = replace(table, [file_of(tmp_path / "b.parquet", 2)])
    commit = table.folder / "_delta_log" / f"{version:020}.json"
    commit.write_bytes(commit.read_bytes().splitlines()[0] + b"\n" if left is None else left)
    again = LogTable(table.folder, schema=SCHEMA)
    again.repair()
    assert (again.version, values_of(again)) == (version - 1, [1])
    again.repair()
    assert again.version == version - 1


def test_a_checkpoint_that_a_power_cut_left_incomplete_is_removed(
    table: LogTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clickprism.log.table._CHECKPOINT", 2)
    for number in range(3):
        table.commit_files({MONDAY: [file_of(tmp_path / f"{number}.parquet", number)]})
    (checkpoint,) = (table.folder / "_delta_log").glob("*.checkpoint.parquet")
    assert values_of(LogTable(table.folder, schema=SCHEMA)) == [0, 1, 2]
    checkpoint.write_bytes(b"")
    again = LogTable(table.folder, schema=SCHEMA)
    again.repair()
    assert not checkpoint.exists()
    assert values_of(again) == [0, 1, 2]


def test_staging_is_private_and_dead_ones_are_cleared(store: LogStore) -> None:
    dead = store.folder / "staging" / "1-dead"
    dead.mkdir(parents=True)
    (dead / ".alive").touch()
    with store.staging() as first, LogStore(store.folder).staging() as second:
        assert first.is_dir()
        assert second.is_dir()
        assert not dead.exists()
    assert not first.exists()
    assert not second.exists()


def test_folders_that_are_no_log(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a click log"):
        LogStore.open(tmp_path)
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(DataError, match=r"holds 'holiday\.jpg'"):
        LogStore.open(tmp_path, create=True)
    with pytest.raises(DataError, match="cannot be written"):
        LogStore.open(tmp_path / "holiday.jpg" / "log", create=True)
    for name in ("a%41b", os.fsdecode(b"log\xff")):
        with pytest.raises(DataError, match="has a name that tables cannot be kept under"):
            LogStore.open(tmp_path / name, create=True)
        assert not (tmp_path / name).exists()


def test_settings_are_read_back(store: LogStore) -> None:
    store.write_settings(LogSettings({"source": {"schema": "ubi"}}))
    assert store.settings.values == {"source": {"schema": "ubi"}}
    (store.folder / "log.toml").write_text("[robot]\n", encoding="utf-8")
    with pytest.raises(SettingError, match="robots"):
        _ = store.settings


def test_a_log_that_lost_its_events_is_refused(tmp_path: Path) -> None:
    """Its files are known, so that they would never come back."""
    path = write_lines(tmp_path / "a.jsonl", [impression(1)])
    ingest([path], tmp_path / "log")
    shutil.rmtree(tmp_path / "log" / "events")
    with pytest.raises(
        DataError, match=r"log: has lost its table events. Restore it from a copy, or ingest your files"
    ):
        ingest([path], tmp_path / "log")
