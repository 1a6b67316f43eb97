"""Compaction, by itself after an ingest or asked for: the same rows in fewer files, nothing derived made anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from clickprism.errors import SettingError
from clickprism.log.compact import compact
from clickprism.log.engines.base import Engine
from clickprism.log.features.schedule import DAY
from clickprism.log.features.windows import windows
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.quarantine import standing
from clickprism.log.sessions import update_sessions
from clickprism.log.settings import CompactSettings, WindowSettings
from clickprism.log.store import LogStore
from clickprism.log.table import SUM, by_day
from tests.faults.children import AS_OF, compact_log, run
from tests.faults.points import COMPACT_POINTS
from tests.log.raw_logs import everything, impression, random_files, write_lines


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four raw files, and the log that they came into one by one."""
    folder = tmp_path_factory.mktemp("prepared")
    for file in random_files(folder / "raw", files=4, rows=60, seed=3):
        ingest([file], folder / "log", max_bad_ratio=1)
    return folder


@pytest.fixture
def log(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared / "log", tmp_path / "log")


def events(store: LogStore) -> list[str]:
    return sorted(map(repr, store.table("events").read().to_pylist()))


def made(store: LogStore, engine: Engine) -> list[str]:
    found = windows(store, engine, AS_OF, settings=WindowSettings(k=0)).snapshot
    return sorted(map(repr, found.read().to_pylist()))


def test_the_same_rows_rebuild_nothing(duck: Engine, log: Path, prepared: Path, tmp_path: Path) -> None:
    store = LogStore.open(log)
    rows, snapshot = events(store), made(store, duck)
    sessions, days = store.table("sessions").files(), store.table("events").days()
    done = compact(store, CompactSettings(files=1))
    assert len(store.table("events").files()) == len(days)
    assert done.files_before > len(days) >= len(done.days) > 0
    assert done.rows <= len(rows)
    assert events(store) == rows
    again = windows(store, duck, AS_OF, settings=WindowSettings(k=0))
    assert (again.changed, again.sessions, again.partials) == (False, (), ())
    assert store.table("sessions").files() == sessions
    assert compact(store, CompactSettings(files=1)).days == ()
    store.table("sessions").commit_files({}, remove_days=days)
    assert update_sessions(store, duck) == days
    assert made(store, duck) == snapshot
    # what comes later is known as new, and what came before as known
    assert ingest([prepared / "raw"], log, max_bad_ratio=1).accepted == 0
    late = write_lines(tmp_path / "late.jsonl", [impression(999)])
    assert ingest([late], log).accepted == 1
    assert len(windows(store, duck, AS_OF, settings=WindowSettings(k=0)).sessions) in (1, 2)
    assert compact(store, CompactSettings(files=1)).days != ()
    assert windows(store, duck, AS_OF, settings=WindowSettings(k=0)).sessions == ()


@pytest.mark.parametrize("point", COMPACT_POINTS)
def test_a_killed_compaction_loses_no_row(point: str, killed: Callable[..., None], log: Path) -> None:
    rows = events(LogStore.open(log))
    killed(compact_log, str(log), point)
    store = LogStore.open(log)
    assert events(store) == rows
    compact(store, CompactSettings(files=1))
    assert events(store) == rows
    assert len(store.table("events").files()) == len(store.table("events").days())


def test_erasure_leaves_no_copy(duck: Engine, log: Path) -> None:
    """The files that were put into others are deleted too."""
    store = LogStore.open(log)
    user = next(name for name in store.table("events").read()["user_id"].to_pylist() if name)
    compact(store, CompactSettings(files=1))
    forget(store, duck, [user])
    held = {str(file) for file in store.table("events").folder.rglob("*.parquet") if "_delta_log" not in file.parts}
    assert held == set(store.table("events").files())
    assert user not in store.table("events").read()["user_id"].to_pylist()


def test_only_days_with_many_files(tmp_path: Path) -> None:
    for number in range(3):
        days = [1, 2] if number < 2 else [1]
        lines = [impression(10 * number + day, day=day) for day in days]
        ingest([write_lines(tmp_path / f"{number}.jsonl", lines)], tmp_path / "log")
    store = LogStore.open(tmp_path / "log")
    assert compact(store, CompactSettings(files=2)).days == (date(2026, 3, 1),)
    with pytest.raises(SettingError, match="files must be at least 1"):
        compact(store, CompactSettings(files=0))


def lines(tmp_path: Path, numbers: Iterable[int]) -> Path:
    numbers = list(numbers)
    return write_lines(tmp_path / f"{numbers[0]}.jsonl", [impression(number) for number in numbers])


def test_small_files_are_compacted_after_an_ingest(duck: Engine, tmp_path: Path) -> None:
    """Small files of a day that got rows, once they are more than so many; others, and other days, stay."""
    log, store = tmp_path / "log", None
    for number in range(3):
        ingest([lines(tmp_path, [number])], log, many=3)
        store = LogStore.open(log)
        assert len(store.table("events").files()) == number + 1
    assert store is not None
    made(store, duck)
    assert ingest([lines(tmp_path, [3])], log, many=3, dry_run=True).accepted == 1
    assert len(store.table("events").files()) == 3
    assert ingest([lines(tmp_path, [3, 2])], log, many=3).duplicate == 1
    (file,) = store.table("events").files()
    assert Path(file).name.startswith(SUM)
    rebuilt = windows(store, duck, AS_OF, settings=WindowSettings(k=0))
    assert len(rebuilt.sessions) == len({*rebuilt.sessions}) > 0
    assert update_sessions(store, duck) == []
    assert ingest([tmp_path / "3.jsonl"], log, many=3).known == 1
    assert len(events(store)) == 4


def test_large_files_stay(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for first in range(0, 12, 3):
        ingest([lines(tmp_path, range(first, first + 3))], log)
    ingest([lines(tmp_path, [20])], log)
    ingest([lines(tmp_path, [21])], log)
    store = LogStore.open(log)
    before = store.table("events").file_rows()
    done = compact(store, CompactSettings(files=1), small=3)
    assert (done.files_before, done.rows) == (2, 2)
    after = store.table("events").file_rows()
    assert {day: sorted(rows.values()) for day, rows in after.items()} == {day: [2, 3, 3, 3, 3] for day in before}
    assert compact(store, CompactSettings(files=1), small=3, days=before).days == ()
    assert compact(store, CompactSettings(files=1), days=[]).days == ()


@pytest.mark.parametrize("point", COMPACT_POINTS)
def test_an_ingest_killed_while_it_compacts_loses_no_row(
    point: str, killed: Callable[..., None], log: Path, prepared: Path, tmp_path: Path
) -> None:
    files = [str(write_lines(tmp_path / "new.jsonl", [impression(number) for number in range(900, 906)]))]
    other = LogStore.open(shutil.copytree(prepared / "log", tmp_path / "undisturbed"))
    ingest(files, other.folder)
    killed(run, files, str(log), fault=point, many=1)
    assert everything(log) == everything(other.folder)
    assert ingest(files, log, many=1).known == 1
    more = write_lines(tmp_path / "more.jsonl", [impression(999)])
    for folder in (log, other.folder):
        ingest([more], folder, many=1)
    store = LogStore.open(log)
    assert everything(log) == everything(other.folder)
    assert len(by_day(store.table("events").files())[AS_OF.date().replace(day=1)]) == 1


def test_what_is_older_than_keep_days_expires(duck: Engine, log: Path) -> None:
    """Events, sessions, quarantine and snapshots; each is counted."""
    store = LogStore.open(log)
    made(store, duck)
    days, rows = store.table("events").days(), store.table("events").rows_of(store.table("events").days())
    broken = store.table("quarantine").rows()
    noon = datetime(2026, 3, 5, 12)

    def clock() -> datetime:
        return noon

    kept = compact(store, CompactSettings(keep_days=30), clock=clock)
    assert (kept.expired_days, kept.expired_rows, kept.expired_snapshots) == ((), 0, 0)
    first = compact(store, CompactSettings(keep_days=3), clock=clock)
    assert (first.expired_days, first.expired_rows) == ((days[0],), rows[days[0]])
    assert store.table("events").days() == store.table("sessions").days() == days[1:]
    later = compact(store, CompactSettings(keep_days=1), clock=lambda: datetime.now(UTC).replace(tzinfo=None) + 2 * DAY)
    assert (later.expired_days, later.expired_quarantined, later.expired_snapshots) == (tuple(days[1:]), broken, 1)
    assert standing(store).cleared == broken > 0
    assert not [
        file
        for name in ("events", "sessions", "snapshots")
        for file in (log / name).rglob("*.parquet")
        if "_delta_log" not in file.parts
    ]
    assert compact(store, CompactSettings(keep_days=1)).expired_days == ()
    with pytest.raises(SettingError, match="keep_days must be at least 1"):
        CompactSettings(keep_days=-1)
