"""Power cuts during ingest, windows, erasure, compaction and quarantine: what was acknowledged is there, what was
erased does not come back, and the log can be used as before."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from clickprism.log.compact import compact
from clickprism.log.engines.base import Engine, connect
from clickprism.log.features.windows import windows
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.quarantine import clear
from clickprism.log.settings import CompactSettings, WindowSettings
from clickprism.log.store import LogStore
from tests.faults.children import AS_OF
from tests.faults.disks import Disk
from tests.log.raw_logs import BROKEN, impression, write_lines
from tests.log.scanning import files_with

CUTS = 20
GONE = "user-gone"
EACH = 12


@dataclass(frozen=True)
class Cut:
    """An image of the disk at a moment, and what had been acknowledged by then."""

    folder: Path
    done: tuple[str, ...]


def rows(file: int) -> list[dict[str, object]]:
    numbers = range(file * EACH, (file + 1) * EACH)
    users = {number: GONE if number % 5 == 0 else f"u{number % 5}" for number in numbers}
    return [impression(number, day=number % 2 + 1, user_id=users[number], search_id=f"s{number}") for number in numbers]


def story(log: Path, raw: list[Path], engine: Engine) -> list[tuple[str, Callable[[], object]]]:
    """Everything that happens to the log, in order."""
    small = WindowSettings(k=0)
    store = LogStore.open(log)
    return [
        ("ingest", lambda: ingest([raw[1]], log, max_bad_ratio=1, threads=1)),
        ("windows", lambda: windows(store, engine, AS_OF, settings=small)),
        ("clear", lambda: clear(store)),
        ("forget", lambda: forget(store, engine, [GONE])),
        ("compact", lambda: compact(store, CompactSettings(files=1))),
        ("windows again", lambda: windows(store, engine, AS_OF, settings=small)),
        ("more", lambda: ingest([raw[2]], log, max_bad_ratio=1, threads=1)),
    ]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("raw")
    others = [row for row in rows(2) if row["user_id"] != GONE]
    return [
        write_lines(folder / "0.jsonl", rows(0)),
        write_lines(folder / "1.jsonl", [*rows(1), BROKEN.replace('"s"', f'"{GONE}"'), BROKEN]),
        write_lines(folder / "2.jsonl", others),
    ]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect(threads=1, memory="500MB") as made:
        yield made


@pytest.fixture(scope="module")
def cuts(raw: list[Path], engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> list[Cut]:
    """Images at moments that a seed chooses among all syncs, renames and deletions."""
    folder, draw = tmp_path_factory.mktemp("cuts"), random.Random(4)
    first = folder / "first"
    ingest([raw[0]], first, threads=1)
    moments, whole = told(shutil.copytree(first, folder / "counted"), raw, engine, (), draw)
    chosen = draw.sample(range(moments), CUTS)
    _, found = told(shutil.copytree(first, folder / "cut"), raw, engine, chosen, draw)
    assert len(found) > CUTS // 2
    return [*whole, *found]


def told(
    log: Path, raw: list[Path], engine: Engine, chosen: Collection[int], draw: random.Random
) -> tuple[int, list[Cut]]:
    """Tell the story; return the number of moments, and images at those chosen and at the end."""
    moments, done, made = count(), list[str](), list[Cut]()

    def moment() -> None:
        if (number := next(moments)) in chosen:
            made.append(Cut(disk.image(log.with_name(f"image-{number}"), draw), tuple(done)))

    disk = Disk(log, moment)
    with pytest.MonkeyPatch.context() as monkeypatch, disk.watched(monkeypatch):
        for step, run in story(log, raw, engine):
            run()
            done.append(step)
    made.append(Cut(disk.image(log.with_name(f"image-{log.name}"), draw), tuple(done)))
    disk.close()
    return next(moments), made


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.long] if number % 3 else []) for number in range(CUTS + 2)]
)
def test_nothing_acknowledged_is_lost_and_nothing_erased_comes_back(
    number: int, cuts: list[Cut], raw: list[Path], engine: Engine, tmp_path: Path
) -> None:
    cut = cuts[number % len(cuts)]
    folder = shutil.copytree(cut.folder, tmp_path / "log")
    store = LogStore.open(folder)
    with store.write():  # finishes an erasure that was interrupted
        pass
    expected = {row["event_id"] for file in (0, 1) for row in rows(file) if file == 0 or "ingest" in cut.done}
    theirs = {row["event_id"] for file in (0, 1) for row in rows(file) if row["user_id"] == GONE}
    expected |= {f"e{n}" for n in range(2 * EACH, 3 * EACH) if n % 5} if "more" in cut.done else set()
    found = {row["event_id"] for row in store.table("events").read(["event_id"]).to_pylist()}
    assert found >= expected - theirs
    if "forget" in cut.done:
        assert files_with(folder, GONE) == []
    else:
        assert found >= expected or not found & theirs
    ingest(raw, folder, max_bad_ratio=1, threads=1)
    ids = [row["event_id"] for row in store.table("events").read(["event_id"]).to_pylist()]
    assert len(ids) == len(set(ids)) >= 3 * EACH - 8 - len(theirs)
    compact(store, CompactSettings(files=1))
    assert windows(store, engine, AS_OF, settings=WindowSettings(k=0)).snapshot.rows() > 0
    forget(store, engine, [GONE])
    assert files_with(folder, GONE) == []
