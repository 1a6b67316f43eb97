"""Logs that were made by older versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError
from clickprism.log.engines.base import Engine
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.schema import EVENTS, TABLES
from clickprism.log.sessions import update_sessions
from clickprism.log.store import LogStore
from clickprism.log.table import LogTable
from tests.log.raw_logs import impression, write_lines


@pytest.mark.parametrize(
    ("name", "column", "remedy"),
    [
        ("quarantine", "header", "Ingest your files into a new folder"),
        ("partials", "skips", "Delete .*partials: it is"),
    ],
)
def test_tables_of_older_versions_are_refused_in_words(name: str, column: str, remedy: str, tmp_path: Path) -> None:
    schema = pa.schema([each for each in TABLES[name] if each.name != column])
    store = LogStore.open(tmp_path / "log", create=True)
    store.table(name, schema=schema).commit_files({})
    words = rf"{name}: the table was made by an older version of clickprism, without the column '{column}'\. {remedy}"
    with pytest.raises(DataError, match=words):
        LogStore(tmp_path / "log").table(name)
    store.write_settings(store.settings)
    if name == "quarantine":
        (tmp_path / "a.jsonl").write_text("{}\n")
        with pytest.raises(DataError, match=words):
            ingest([tmp_path / "a.jsonl"], tmp_path / "log", max_bad_ratio=1)


def test_a_log_of_version_0_1_opens_and_is_rewritten(duck: Engine, tmp_path: Path) -> None:
    """Its keys were other hashes, and rows with the key of another were stored too, as variants."""
    rows = [impression(number, day=number % 2 + 1) for number in range(6)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    ingest([path], tmp_path / "log")
    store = LogStore.open(tmp_path / "log")
    expected = store.table("events").read().to_pylist()
    made_old(store)
    old = LogStore.open(store.folder)
    assert len(old.table("events").read().to_pylist()) == 2 * len(expected)
    notes: list[str] = []
    with LogStore.open(store.folder, note=notes.append).write():
        pass
    assert notes == ["Rewrote the events of a log of clickprism 0.1 for this version"]
    new = LogStore.open(store.folder, note=pytest.fail)
    assert sorted(new.table("events").read().to_pylist(), key=repr) == sorted(expected, key=repr)
    again = write_lines(tmp_path / "b.jsonl", [*rows, impression(9)])
    account = ingest([path, again], store.folder)
    assert (account.known, account.accepted, account.duplicate) == (1, 1, 6)
    assert update_sessions(new, duck)


def test_an_erasure_in_a_log_of_version_0_1(duck: Engine, tmp_path: Path) -> None:
    rows = [impression(number, day=number % 2 + 1, user_id=f"u{number % 3}") for number in range(6)]
    ingest([write_lines(tmp_path / "a.jsonl", rows)], tmp_path / "log")
    made_old(LogStore.open(tmp_path / "log"))
    store = LogStore.open(tmp_path / "log")
    forget(store, duck, ["u0"])
    with store.write():
        pass
    users = LogStore.open(tmp_path / "log").table("events").read(["user_id"])["user_id"].to_pylist()
    assert sorted(users) == ["u1", "u1", "u2", "u2"]


def made_old(store: LogStore) -> None:
    """Give a log the table `events` that version 0.1 would have written."""
    columns = [each for each in EVENTS if each.name not in ("file_id", "day")]
    columns += [pa.field("content", pa.binary(), nullable=False), pa.field("variant", pa.bool_(), nullable=False)]
    schema = pa.schema([*columns, EVENTS.field("file_id"), EVENTS.field("day")])
    rows = store.table("events").read()
    keys = pa.array([f"old key {number:08}".encode() for number in range(len(rows))], pa.binary())
    rows = rows.set_column(rows.schema.get_field_index("key"), "key", keys).append_column("content", keys)
    shutil.rmtree(store.folder / "events")
    table = LogTable(store.folder / "events", schema=schema)
    for variant in (False, True):
        for day in rows["day"].unique().to_pylist():
            own = rows.filter(pc.equal(rows["day"], day)).append_column("variant", pa.repeat(variant, 3))
            path = table.day_folder(day) / f"{variant}.parquet"
            pq.write_table(own.select([each.name for each in schema if each.name != "day"]), path)
            table.commit_files({day: [path]})
