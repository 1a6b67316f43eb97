"""Compaction: the same rows in fewer files, nothing derived made anew, killed at its commit points."""

from __future__ import annotations

import multiprocessing
import signal
from datetime import date
from pathlib import Path

import pytest

from clickprism.errors import SettingError
from clickprism.log.compact import compact
from clickprism.log.engine import Engine
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.partials import WindowSettings
from clickprism.log.sessions import update_sessions
from clickprism.log.store import LogStore
from clickprism.log.windows import windows
from tests.faults.children import AS_OF, compact_log
from tests.log.raw_logs import impression, random_files, write_lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that came in four parts."""
    for file in random_files(tmp_path / "raw", files=4, rows=60, seed=3):
        ingest([file], tmp_path / "log", max_bad_ratio=1)
    return tmp_path / "log"


def events(store: LogStore) -> list[str]:
    return sorted(map(repr, store.table("events").read().to_pylist()))


def made(store: LogStore, engine: Engine) -> list[str]:
    found = windows(store, engine, AS_OF, settings=WindowSettings(k=0)).snapshot
    return sorted(map(repr, found.read().to_pylist()))


def test_the_same_rows_and_nothing_is_made_anew(duck: Engine, log: Path, tmp_path: Path) -> None:
    store = LogStore.open(log)
    rows, snapshot = events(store), made(store, duck)
    sessions, days = store.table("sessions").files(), store.table("events").days()
    done = compact(store, duck, files=1)
    assert len(store.table("events").files()) == len(days)
    assert done.before > len(days) >= len(done.days) > 0
    assert done.rows <= len(rows)
    assert events(store) == rows
    again = windows(store, duck, AS_OF, settings=WindowSettings(k=0))
    assert (again.changed, again.sessions, again.partials) == (False, (), ())
    assert store.table("sessions").files() == sessions
    assert compact(store, duck, files=1).days == ()
    store.table("sessions").commit_files({}, remove_days=days)
    assert update_sessions(store, duck) == days
    assert made(store, duck) == snapshot
    # what comes later is known as new, and what came before as known
    assert ingest([tmp_path / "raw"], log, max_bad_ratio=1).accepted == 0
    late = write_lines(tmp_path / "late.jsonl", [impression(999)])
    assert ingest([late], log).accepted == 1
    assert len(windows(store, duck, AS_OF, settings=WindowSettings(k=0)).sessions) in (1, 2)
    assert compact(store, duck, files=1).days != ()
    assert windows(store, duck, AS_OF, settings=WindowSettings(k=0)).sessions == ()


@pytest.mark.parametrize("point", ["events-moved", "events-committed"])
def test_killed(point: str, duck: Engine, log: Path) -> None:
    rows = events(LogStore.open(log))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.children"])
    process = context.Process(target=compact_log, args=(str(log), point))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    store = LogStore.open(log)
    assert events(store) == rows
    compact(store, duck, files=1)
    assert events(store) == rows
    assert len(store.table("events").files()) == len(store.table("events").days())


def test_erasure_leaves_no_copy(duck: Engine, log: Path) -> None:
    """The files that were put into others are deleted too."""
    store = LogStore.open(log)
    user = next(name for name in store.table("events").read()["user_id"].to_pylist() if name)
    compact(store, duck, files=1)
    forget(store, duck, [user])
    held = {str(file) for file in store.table("events").folder.rglob("*.parquet") if "_delta_log" not in file.parts}
    assert held == set(store.table("events").files())
    assert user not in store.table("events").read()["user_id"].to_pylist()


def test_only_days_with_many_files(duck: Engine, tmp_path: Path) -> None:
    for number in range(3):
        days = [1, 2] if number < 2 else [1]
        lines = [impression(10 * number + day, day=day) for day in days]
        ingest([write_lines(tmp_path / f"{number}.jsonl", lines)], tmp_path / "log")
    store = LogStore.open(tmp_path / "log")
    assert compact(store, duck, files=2).days == (date(2026, 3, 1),)
    with pytest.raises(SettingError, match="--files must be at least 1"):
        compact(store, duck, files=0)
