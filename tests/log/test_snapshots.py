"""Snapshots: found by time and version, kept for a while, exported; readers see a whole one."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError
from clickprism.log.engine import connect
from clickprism.log.follow import follow
from clickprism.log.partials import WindowSettings
from clickprism.log.snapshots import find_snapshots, read_snapshot
from clickprism.log.windows import windows
from tests.log.window_logs import as_dict, by_hand, make_log, random_rows

NOW = datetime(2026, 3, 4, 15, 30)
HOUR = timedelta(hours=1)


def test_found_by_time_and_version(tmp_path: Path) -> None:
    rows = random_rows(5, count=60, end=NOW)
    store = make_log(tmp_path / "log", rows)
    small = WindowSettings(k=1)
    with pytest.raises(DataError, match=r"there is no snapshot\. Make one by: clickprism windows DIR"):
        read_snapshot(store)
    with connect(memory="500MB", threads=1) as running:
        later, earlier = (
            windows(store, running, time, settings=small, refresh=False).snapshot for time in (NOW, NOW - HOUR)
        )
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


def test_old_ones_go_by_the_settings(tmp_path: Path) -> None:
    store = make_log(tmp_path / "log", random_rows(5, count=20, end=NOW))
    with connect(memory="500MB", threads=1) as running:
        first, second = (
            windows(store, running, time, settings=WindowSettings(k=1, keep_hours=0), refresh=False).snapshot
            for time in (NOW, NOW + HOUR)
        )
        assert not first.kept
        with pytest.raises(DataError, match="is no longer kept"):
            first.read()
        assert read_snapshot(store) == second
        again = windows(store, running, NOW, settings=WindowSettings(k=1, keep_hours=0), refresh=False)
    assert again.changed


def test_export_has_a_column_for_each_field(tmp_path: Path) -> None:
    store = make_log(tmp_path / "log", random_rows(6, count=80, end=NOW))
    with connect(memory="500MB", threads=1) as running:
        made = windows(store, running, NOW, settings=WindowSettings(k=1), refresh=False).snapshot
    made.export(tmp_path / "out" / "features.parquet")
    table = pq.read_table(tmp_path / "out" / "features.parquet")
    assert table.column_names == ["query_id", "document_id", "users", "as_of", *made.fields]
    expected = as_dict(made.read())
    for row in table.to_pylist():
        assert [row[name] for name in made.fields] == expected[row["query_id"], row["document_id"]]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["features.parquet"]


def test_a_reader_sees_a_whole_snapshot(tmp_path: Path) -> None:
    """While snapshots are replaced, each that is read is the one by hand of its time."""
    rows = random_rows(7, count=50, end=NOW)
    store, times = make_log(tmp_path / "log", rows), [NOW + number * HOUR for number in range(6)]
    expected = {time: by_hand(rows, time, k=1, examination=False) for time in times}
    seen, done = [], threading.Event()

    def look() -> None:
        reader = make_log_reader(tmp_path / "log")
        while not done.is_set():
            found = read_snapshot(reader)
            seen.append(as_dict(found.read()) == expected[found.as_of])

    with connect(memory="500MB", threads=1) as running:
        windows(store, running, times[0], settings=WindowSettings(k=1), refresh=False)
        thread = threading.Thread(target=look)
        thread.start()
        for time in times[1:]:
            windows(store, running, time, settings=WindowSettings(k=1), refresh=False)
        done.set()
        thread.join()
    assert seen
    assert all(seen)


def make_log_reader(folder: Path):  # type: ignore[no-untyped-def]
    from clickprism.log.store import LogStore

    return LogStore.open(folder)


def test_following_wakes_by_the_hour_and_by_the_log() -> None:
    times = iter([NOW, NOW, NOW + timedelta(minutes=10), NOW + HOUR, NOW + HOUR])
    states = iter([1, 1, 2, 2, 2])
    made: list[datetime] = []
    waits: list[float] = []
    follow(
        made.append, state=lambda: next(states), clock=lambda: next(times), sleep=waits.append, rounds=5, poll_seconds=9
    )
    assert made == [NOW.replace(minute=0), NOW.replace(minute=0), NOW.replace(minute=0) + HOUR]
    assert waits == [9, 9]


def test_following_sleeps_no_longer_than_to_the_hour() -> None:
    waits: list[float] = []
    late = NOW.replace(minute=59, second=58)
    follow(lambda _: None, state=lambda: 0, clock=lambda: late, sleep=waits.append, rounds=2)
    assert waits == [2.0]
