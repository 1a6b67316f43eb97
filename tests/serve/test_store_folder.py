"""The store in a folder: builders that are killed, other processes that follow, damage, and what is cleared away."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.serve.store.base import open_store
from clickprism.serve.store.lmdb import POINTS, LmdbBuilder, LmdbStore, open_snapshot
from tests.serve.store_children import DOCUMENTS, QUERIES, build, read
from tests.waiting import LIMIT

KILLS = int(os.environ.get("CLICKPRISM_KILLS", "3"))


def whole(place: str, version: int) -> bool:
    """Whether every pair is there, and of this version."""
    store = open_store(place)
    names = [f"d{number}" for number in range(DOCUMENTS)]
    found = [store.get(f"q{query}", names) for query in range(QUERIES)]
    store.close()
    return all(each.found.all() and (each.x == version).all() and each.info.version == str(version) for each in found)


def snapshots(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "snapshots").iterdir())


@pytest.mark.parametrize("point", POINTS)
def test_a_builder_killed_at_a_commit_point_leaves_a_whole_store(
    point: str, killed: Callable[..., None], tmp_path: Path
) -> None:
    place = str(tmp_path / "store")
    build(place, 1)
    killed(build, place, 2, point)
    assert whole(place, 2 if point == "store-switched" else 1)
    build(place, 3)
    assert whole(place, 3)
    left = snapshots(tmp_path / "store")
    assert not [name for name in left if name.startswith(".")]


@pytest.mark.parametrize("point", ["store-begun", "store-filled", "store-switched"])
def test_a_killed_builder_of_redis_leaves_a_whole_store(
    point: str, killed: Callable[..., None], server: str, tmp_path: Path
) -> None:
    import redis

    place = f"{server}?prefix={tmp_path.name}"
    build(place, 1)
    killed(build, place, 2, point)
    assert whole(place, 2 if point == "store-switched" else 1)
    with redis.Redis.from_url(server) as client:
        assert client.ttl(f"{tmp_path.name}:lock") <= 600
        client.delete(f"{tmp_path.name}:lock")
        build(place, 3)
        lasting = [key for key in client.scan_iter(f"{tmp_path.name}:*") if client.ttl(key) == -1]
    assert whole(place, 3)
    assert len(lasting) == QUERIES + 2


@pytest.mark.long
def test_a_builder_killed_at_random_moments(forks: ForkServerContext, tmp_path: Path) -> None:
    place, rng, last = str(tmp_path / "store"), random.Random(5), 1
    started = time.monotonic()
    build(place, 1)
    took = time.monotonic() - started
    for number in range(2, 2 + KILLS):
        process = forks.Process(target=build, args=(place, number))
        process.start()
        time.sleep(rng.uniform(0, 2 * took))
        process.kill()
        process.join(LIMIT)
        now = int(LmdbStore(Path(place)).info.version)
        assert now in (last, number)
        assert whole(place, now)
        last = now


def test_a_reader_in_another_process_follows(forks: ForkServerContext, tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    build(place, 1)
    ours, theirs = forks.Pipe()
    process = forks.Process(target=read, args=(place, theirs))
    process.start()
    assert ours.recv() == "1"
    for number in range(2, 10):
        build(place, number)
        assert ours.recv() == str(number)
    assert ours.recv() == 0, "answers with rows of two versions"
    process.join(LIMIT)


def test_a_forked_process_reads_on_and_follows(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    build(place, 1)
    store = LmdbStore(Path(place), poll_seconds=0)
    assert store.get("q1", ["d1"]).x.tolist() == [[1, 1]]
    child = os.fork()
    if child == 0:
        before = store.get("q2", ["d1"]).x.tolist() == [[1, 1]]
        build(place, 2)
        os._exit(0 if before and store.get("q1", ["d1"]).x.tolist() == [[2, 2]] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("q1", ["d1"]).x.tolist() == [[2, 2]]
    (tmp_path / "store" / "current").unlink()
    assert store.get("q1", ["d1"]).x.tolist() == [[2, 2]]
    assert "holds no published store" in str(store.problem)


def test_what_is_old_is_cleared_away_but_stays_readable(tmp_path: Path) -> None:
    place = tmp_path / "store"
    build(str(place), 1)
    reader = open_snapshot(place / "snapshots" / (place / "current").read_text())
    build(str(place), 2)
    build(str(place), 3)
    assert [name[0] for name in snapshots(place)] == ["1", "2", "3"]
    for path in (place / "snapshots").iterdir():
        os.utime(path, (0, 0))
    build(str(place), 4)
    assert [name[0] for name in snapshots(place)] == ["3", "4"], "the one that was just replaced has its grace"
    assert reader.get("q1", ["d1"]).x.tolist() == [[1, 1]]
    assert whole(str(place), 4)


def test_damage_is_reported_and_the_old_version_stays_current(tmp_path: Path) -> None:
    place = tmp_path / "store"
    build(str(place), 1)
    store = LmdbStore(place, poll_seconds=0)
    build(str(place), 2)
    data = place / "snapshots" / (place / "current").read_text() / "data.mdb"
    size = data.stat().st_size
    with data.open("r+b") as file:
        file.truncate(size - 4096)
    assert store.info.version == "1"
    assert "bytes, not" in str(store.problem)
    with pytest.raises(DataError, match=r"data.mdb: has .* bytes, not .*\. Publish it again"):
        LmdbStore(place)
    build(str(place), 3)
    assert (store.info.version, store.problem) == ("3", None)
    data = place / "snapshots" / (place / "current").read_text() / "data.mdb"
    content = data.read_bytes().replace(np.full(4, 3, "<f4").tobytes(), np.full(4, 3.5, "<f4").tobytes())
    copied = tmp_path / "copied"
    (copied / "snapshots").mkdir(parents=True)
    (copied / "current").write_text("one")
    shutil.copytree(data.parent, copied / "snapshots" / "one")
    (copied / "snapshots" / "one" / "data.mdb").write_bytes(content)
    with pytest.raises(DataError, match=r"the query .*damaged.*clickprism store publish"):
        whole(str(copied), 3)
    (copied / "current").write_text("../one")
    with pytest.raises(DataError, match="does not name a snapshot"):
        LmdbStore(copied)


def data_file(place: Path) -> Path:
    return place / "snapshots" / (place / "current").read_text() / "data.mdb"


def test_a_damaged_page_is_reported_at_every_lookup_and_affects_no_other(tmp_path: Path) -> None:
    """LMDB refuses a whole transaction after it met a page of no known kind."""
    place, page = tmp_path / "store", 4096
    build(str(place), 1)
    data = data_file(place)
    content = bytearray(data.read_bytes())
    leaves = [at for at in range(0, len(content), page) if content[at + 10 : at + 12] == b"\x02\x00"]
    assert len(leaves) > 2
    content[leaves[0] + 10 : leaves[0] + 12] = b"\x00\x00"
    data.write_bytes(content)
    store = LmdbStore(place)
    outcomes: dict[str, set[str]] = {}
    for query in [f"q{number}" for number in range(QUERIES)] * 3:
        try:
            told = str(store.get(query, ["d1"]).x.tolist())
        except DataError as error:
            told = str(error)
        outcomes.setdefault(query, set()).add(told)
    right, damaged = "[[1.0, 1.0]]", r".*data\.mdb: has a damaged page .*clickprism store publish"
    assert all(len(each) == 1 for each in outcomes.values()), "the same answer each time"
    answers = [each.pop() for each in outcomes.values()]
    assert all(each == right or re.fullmatch(damaged, each) for each in answers)
    assert 0 < answers.count(right) < QUERIES


def test_queries_that_are_lost_are_counted(tmp_path: Path) -> None:
    place = tmp_path / "store"
    build(str(place), 1)
    info = data_file(place).with_name("store.json")
    info.write_text(info.read_text().replace(f'"queries": {QUERIES}', f'"queries": {QUERIES + 1}'))
    with pytest.raises(DataError, match=rf"has {QUERIES} queries, not {QUERIES + 1}.*Publish it again"):
        LmdbStore(place)


def test_a_query_that_comes_twice_and_a_folder_of_others(tmp_path: Path) -> None:
    rows = np.zeros((1, 2), np.float32)
    with LmdbBuilder(tmp_path / "store", grace=60) as target:
        target.put("q", ["a"], rows)
        target.put("q", ["b"], rows)
        with pytest.raises(DataError, match="the query b'q' comes twice"):
            target._commit()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters.txt").touch()
    with (
        pytest.raises(DataError, match=r"holds 'letters.txt', not an online store"),
        LmdbBuilder(tmp_path / "other", grace=60),
    ):
        pass
