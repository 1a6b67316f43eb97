"""Snapshots: found by time and version, kept for a while, exported; readers see a whole one."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.log.engines.base import Engine
from clickprism.log.features.snapshots import find_snapshots, read_snapshot
from clickprism.log.features.windows import windows
from clickprism.log.settings import WindowSettings
from tests.log.window_logs import Thirds, as_dict, by_hand, make_log, random_rows, session, write_sessions

NOW = datetime(2026, 3, 4, 15, 30)
HOUR = timedelta(hours=1)


def test_found_by_time_and_version(duck: Engine, tmp_path: Path) -> None:
    rows = random_rows(5, count=60, end=NOW)
    store = make_log(tmp_path / "log", rows)
    small = WindowSettings(k=1)
    with pytest.raises(DataError, match=r"there is no snapshot\. Compute one with: clickprism log features log"):
        read_snapshot(store)
    later, earlier = (windows(store, duck, time, settings=small, refresh=False).snapshot for time in (NOW, NOW - HOUR))
    assert read_snapshot(store) == later
    assert read_snapshot(store, as_of=NOW - timedelta(minutes=1)) == earlier
    assert read_snapshot(store, version=earlier.version) == earlier
    assert [each.as_of for each in find_snapshots(store)] == [NOW - HOUR, NOW]
    for found in (later, earlier):
        assert as_dict(found.read()) == by_hand(rows, found.as_of, k=1, examination=False)
    with pytest.raises(DataError, match="no snapshot of version 99"):
        read_snapshot(store, version=99)
    with pytest.raises(DataError, match="no snapshot as of 2020"):
        read_snapshot(store, as_of=datetime(2020, 1, 1))


def test_old_ones_go_by_the_settings(duck: Engine, tmp_path: Path) -> None:
    store = make_log(tmp_path / "log", random_rows(5, count=20, end=NOW))
    first, second = (
        windows(store, duck, time, settings=WindowSettings(k=1, keep_hours=0), refresh=False).snapshot
        for time in (NOW, NOW + HOUR)
    )
    assert not first.kept
    for use in (first.read, first.rows, lambda: first.export(tmp_path / "x.parquet")):
        with pytest.raises(DataError, match=r"is no longer kept.*--as-of 2026-03-04T15:30:00"):
            use()
    assert read_snapshot(store) == second
    again = windows(store, duck, NOW, settings=WindowSettings(k=1, keep_hours=0), refresh=False)
    assert again.changed


def test_what_was_asked_for_last_is_found(duck: Engine, tmp_path: Path) -> None:
    """A stricter k, or no model, holds although the same was made before and replaced."""
    store = make_log(tmp_path / "log", [session(NOW - 9 * HOUR)])
    strict, open_ = WindowSettings(k=5), WindowSettings(k=0)
    made = [windows(store, duck, NOW, settings=each, refresh=False) for each in (strict, open_, strict, strict)]
    assert [each.changed for each in made] == [True, True, True, False]
    assert read_snapshot(store, as_of=NOW) == made[2].snapshot == made[3].snapshot
    assert store.table("snapshots").rows() == read_snapshot(store).rows() == 0
    for examiner in (None, Thirds(), None):
        last = windows(store, duck, NOW, settings=open_, examiner=examiner, refresh=False).snapshot
        assert read_snapshot(store) == last
        assert (len(last.fields), store.table("snapshots").rows()) == (180 if examiner else 144, 1)


def test_an_earlier_time_does_not_replace_the_current_snapshot(duck: Engine, tmp_path: Path) -> None:
    """Readers of the delta table see the snapshot that `read_snapshot` calls in force."""
    store = make_log(tmp_path / "log", [session(NOW - 9 * HOUR)])
    for hours in (0, 200):
        settings = WindowSettings(k=0, keep_hours=hours)
        late = windows(store, duck, NOW, settings=settings, refresh=False).snapshot
        early = windows(store, duck, NOW - timedelta(days=2), settings=settings, refresh=False).snapshot
        assert read_snapshot(store) == late
        assert (late.rows(), early.rows()) == (1, 0)
        assert store.table("snapshots").files() == list(late.files)
        assert read_snapshot(store, as_of=NOW - HOUR) == early
        assert not windows(store, duck, early.as_of, settings=settings, refresh=False).changed


def test_no_snapshot_of_the_future(duck: Engine, tmp_path: Path) -> None:
    store = make_log(tmp_path / "log", [])
    words = r"as_of must not be after now \(2026-03-04 15:30 UTC\), got '9999-12-31 00:00:00'"
    with pytest.raises(SettingError, match=words):
        windows(store, duck, datetime(9999, 12, 31), clock=lambda: NOW)
    assert find_snapshots(store) == []
    assert windows(store, duck, NOW, clock=lambda: NOW).changed


def test_replaced_files_of_all_derived_tables_go(duck: Engine, tmp_path: Path) -> None:
    """So do files that a crash kept from joining; what is kept for hours stays."""
    rows = random_rows(5, count=20, end=NOW)
    store = make_log(tmp_path / "log", rows)
    (store.table("partials").day_folder(NOW.date()) / "never-joined.parquet").write_bytes(b"half")
    for hours, left in ((200, True), (0, False)):
        for k in (1, 2):
            settings = WindowSettings(k=k, keep_hours=hours)
            windows(store, duck, NOW, settings=settings, refresh=False)
            write_sessions(store, rows)
        windows(store, duck, NOW, settings=settings, refresh=False)
        for name in ("sessions", "partials", "week", "month", "snapshots"):
            table = store.table(name)
            assert ({*map(str, table.folder.rglob("*.parquet"))} > {*table.files()}) is left, name
            assert {*map(str, table.folder.rglob("*.parquet"))} >= {*table.files()}, name


def test_export_has_a_column_for_each_field(duck: Engine, tmp_path: Path) -> None:
    store = make_log(tmp_path / "log", random_rows(6, count=80, end=NOW))
    made = windows(store, duck, NOW, settings=WindowSettings(k=1), refresh=False).snapshot
    made.export(tmp_path / "out" / "features.parquet")
    table = pq.read_table(tmp_path / "out" / "features.parquet")
    assert table.column_names == ["query_id", "document_id", "users", "as_of", *made.fields]
    expected = as_dict(made.read())
    for row in table.to_pylist():
        assert [row[name] for name in made.fields] == expected[row["query_id"], row["document_id"]]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["features.parquet"]


def test_a_reader_sees_a_whole_snapshot(duck: Engine, tmp_path: Path) -> None:
    """While snapshots are replaced, each that is read is the one by hand of its time."""
    rows = random_rows(7, count=50, end=NOW)
    store, times = make_log(tmp_path / "log", rows), [NOW + number * HOUR for number in range(6)]
    expected = {time: by_hand(rows, time, k=1, examination=False) for time in times}
    seen: list[bool] = []
    done = threading.Event()

    def look() -> None:
        reader = make_log_reader(tmp_path / "log")
        while not (seen and done.is_set()):
            found = read_snapshot(reader)
            seen.append(as_dict(found.read()) == expected[found.as_of])

    windows(store, duck, times[0], settings=WindowSettings(k=1), refresh=False)
    thread = threading.Thread(target=look)
    thread.start()
    for time in times[1:]:
        windows(store, duck, time, settings=WindowSettings(k=1), refresh=False)
    done.set()
    thread.join()
    assert all(seen)


def make_log_reader(folder: Path):  # type: ignore[no-untyped-def]
    from clickprism.log.store import LogStore

    return LogStore.open(folder)
