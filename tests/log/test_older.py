"""Logs that were made by older versions."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.log.ingest import ingest
from clickprism.log.schema import EVENTS, TABLES
from clickprism.log.store import LogStore
from clickprism.log.table import LogTable
from tests.conftest import Done
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


def test_settings_of_older_versions_are_read_if_they_say_what_is_done_now(tmp_path: Path) -> None:
    ingest([write_lines(tmp_path / "a.jsonl", [impression(1)])], tmp_path / "log")
    file = tmp_path / "log" / "log.toml"
    edges = "edges_ms = [1000, 2000, 5000, 10000, 30000, 60000, 180000]"
    usual = file.read_text() + f"dwell_{edges}\ndisplay_{edges}\n"
    file.write_text(f'{usual}week_start = "monday"\n')
    assert LogStore.open(tmp_path / "log").settings.windows.k == 5
    file.write_text(f'{usual}week_start = "sunday"\n')
    with pytest.raises(SettingError, match=r"windows\.week_start must be a known setting"):
        _ = LogStore.open(tmp_path / "log").settings.windows


def test_the_error_of_a_log_of_version_0_1_names_the_command_that_converts_it(
    cli: Callable[..., Done], tmp_path: Path
) -> None:
    """Its keys were other hashes, and rows with the key of another were stored too, as variants."""
    rows = [impression(number, day=number % 2 + 1) for number in range(6)]
    ingest([write_lines(tmp_path / "a.jsonl", rows)], tmp_path / "log")
    made_old(LogStore.open(tmp_path / "log"))
    with pytest.raises(DataError, match=r"is a log of clickprism 0\.1\. Convert it with: clickprism") as caught:
        ingest([tmp_path / "a.jsonl"], tmp_path / "log")
    with pytest.raises(DataError, match=r"is a log of clickprism 0\.1"), LogStore.open(tmp_path / "log").write():
        pass
    words = shlex.split(str(caught.value).partition("clickprism log ")[2])
    assert words[-2:] == ["--into", "newlog"]
    new = tmp_path / "newlog"
    cli("log", *words[:-1], new)
    found = LogStore.open(new).table("events").read(["event_id"])["event_id"].to_pylist()
    assert sorted(found) == [f"e{number}" for number in range(6)]
    account = ingest([write_lines(tmp_path / "b.jsonl", [*rows, impression(9)])], new)
    assert (account.accepted, account.duplicate) == (1, 6)


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
