"""What every store does, the folder and the server alike."""

from __future__ import annotations

import gc
import threading
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.serve.store.base import (
    FeatureStore,
    StoreInfo,
    StoreUnavailableError,
    pack,
    unpack,
)
from clickprism.serve.store.base import open_store as opened
from clickprism.serve.store.publish import builder
from clickprism.serve.store.redis import PASSWORD_VARIABLE
from clickprism.types import Float32
from tests.serve.redis_server import redis_server
from tests.waiting import until

AS_OF = datetime(2026, 3, 1, 12)
EMPTY = np.array([0.0, np.nan, 24.0], np.float32)


@pytest.fixture(params=["folder", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "store")
    return f"{request.getfixturevalue('server')}?prefix={tmp_path.name}"


def info(version: str, pairs: int = 0) -> StoreInfo:
    return StoreInfo(version, AS_OF, ("a", "b", "c"), EMPTY, pairs)


def fill(place: str, version: str, queries: dict[str, dict[str, list[float]]], *, grace: float = 60) -> None:
    with builder(place, grace=grace) as target:
        for query, documents in queries.items():
            target.put(query, list(documents), np.array(list(documents.values()), np.float32))
        target.seal(info(version, sum(map(len, queries.values()))))
        target.switch()


def constant(value: float, queries: int = 3) -> dict[str, dict[str, list[float]]]:
    return {f"q{i}": {f"d{j}": [value, i, j] for j in range(5)} for i in range(queries)}


def follow(store: FeatureStore, version: str) -> None:
    until(lambda: store.info.version == version)


def same(one: Float32, other: object) -> bool:
    return np.array_equal(one, np.array(other, np.float32), equal_nan=True)


def test_rows_come_back_in_the_order_of_the_question(place: str) -> None:
    odd: dict[str, dict[str, list[float]]] = {
        "ü 漢\n": {"d,1": [1, 2, 3], "": [4, 5, 6], "a\0b": [8, 8, 8]},
        "": {"d": [7, np.nan, 9]},
        "x" * 3000: {"y" * 3000: [1, 1, 1]},
    }
    fill(place, "v1", odd)
    store = opened(place)
    found = store.get("ü 漢\n", ["", "none", "d,1", ""])
    assert found.found.tolist() == [True, False, True, True]
    assert same(found.x, [[4, 5, 6], EMPTY, [1, 2, 3], [4, 5, 6]])
    assert found.x.dtype == np.float32
    assert found.x.flags.writeable
    assert same(store.get("ü 漢\n", ["a\0b"]).x, [[8, 8, 8]])
    assert same(store.get("", ["d"]).x, [[7, np.nan, 9]])
    assert same(store.get("x" * 3000, ["y" * 3000, "y" * 2999]).x, [[1, 1, 1], EMPTY])
    assert same(store.get("nothing", ["d", "e"]).x, [EMPTY, EMPTY])
    assert store.get("", []).x.shape == (0, 3)
    assert (found.info.version, found.info.as_of, found.info.fields) == ("v1", AS_OF, ("a", "b", "c"))
    assert (store.info.pairs, same(store.info.empty, EMPTY)) == (5, True)
    store.close()


def test_a_query_with_very_many_documents(place: str) -> None:
    count = 30_000
    rows = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
    with builder(place, grace=60) as target:
        target.put("q", [f"document {i}" for i in range(count)], rows)
        target.seal(info("v1", count))
        target.switch()
    store = opened(place)
    picked = np.random.default_rng(0).integers(0, count, 50)
    found = store.get("q", [f"document {i}" for i in picked] + ["", f"document {count}"])
    assert found.found.tolist() == [True] * 50 + [False] * 2
    assert same(found.x[:50], rows[picked])
    assert same(found.x[50:], [EMPTY, EMPTY])
    store.close()


def test_open_readers_follow_and_never_mix(place: str) -> None:
    """Two threads ask while new snapshots come: all rows of an answer are of the version that it names."""
    fill(place, "0", constant(0))
    store, stop, seen, wrong = opened(place), threading.Event(), set(), []

    def ask() -> None:
        while not stop.is_set():
            found = store.get("q1", ["d0", "d4", "d2"])
            seen.add(found.info.version)
            if set(found.x[:, 0].tolist()) != {float(found.info.version)} or not found.found.all():
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        fill(place, str(number), constant(number), grace=1)
        follow(store, str(number))
    until(lambda: "5" in seen)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    store.close()


def test_nothing_is_there_before_the_switch(place: str) -> None:
    with pytest.raises(StoreUnavailableError, match="clickprism store publish"):
        opened(place)
    fill(place, "v1", constant(1))
    with builder(place, grace=60) as target:
        target.put("q0", ["d0"], np.full((1, 3), 2, np.float32))
        target.seal(info("v2"))
    store = opened(place)
    assert store.get("q0", ["d0"]).x[0, 0] == 1
    with pytest.raises(ZeroDivisionError), builder(place, grace=60):
        raise ZeroDivisionError
    assert store.info.version == "v1"
    store.close()


def test_the_age_of_features() -> None:
    assert info("v").age(AS_OF.replace(hour=13)) == 3600.0
    assert info("v").age(AS_OF.replace(hour=11)) == 0.0
    assert info("v").as_of_text == "2026-03-01T12:00:00Z"


def test_a_server_that_is_away(server: str) -> None:
    del server
    with pytest.raises(StoreUnavailableError, match=r"redis://127.0.0.1:1/0\?prefix=clickprism: "):
        opened("redis://me@127.0.0.1:1/0")


def test_the_password_of_a_server_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server("--requirepass", "secret") as place:
        monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
        with pytest.raises(StoreUnavailableError, match="authenticated"):
            opened(place)
        monkeypatch.setenv(PASSWORD_VARIABLE, "secret")
        fill(place, "v1", constant(1))
        assert opened(place).get("q1", ["d0"]).found.all()
        monkeypatch.setenv(PASSWORD_VARIABLE, "wrong")
        with pytest.raises(StoreUnavailableError, match="invalid username-password"):
            opened(place)
        with pytest.raises(SettingError, match="must not contain a password"):
            opened(place.replace("redis://", "redis://:secret@"))


def test_a_damaged_value_in_redis_is_an_error(server: str) -> None:
    import redis

    place = f"{server}?prefix=damaged"
    fill(place, "v1", constant(1))
    with redis.Redis.from_url(server) as client:
        for key in client.scan_iter("damaged:*:qq1"):
            client.setrange(key, 60, b"\x00\x01\x02")
    store = opened(place)
    with pytest.raises(DataError, match=r"prefix=damaged: the query 'q1': is damaged.*clickprism store publish"):
        store.get("q1", ["d0"])
    assert store.get("q2", ["d0"]).found.all()
    store.close()


def test_old_snapshots_expire_in_redis(server: str) -> None:
    import redis

    place = f"{server}?prefix=old"
    fill(place, "v1", constant(1), grace=9000)
    with redis.Redis.from_url(server) as client:
        old = set(client.scan_iter("old:*")) - {b"old:current"}
        assert {client.ttl(key) for key in old} == {-1}
        fill(place, "v2", constant(2), grace=9000)
        assert all(0 < client.ttl(key) <= 9000 for key in old)
        new = set(client.scan_iter("old:*")) - old
        assert {client.ttl(key) for key in new} == {-1}
    assert (len(old), len(new)) == (4, 5)


def test_of_two_builders_of_redis_the_last_to_switch_is_current(server: str) -> None:
    place = f"{server}?prefix=two"
    with builder(place, grace=60) as first, builder(place, grace=60) as second:
        for number, target in enumerate((first, second)):
            target.put("q", ["d"], np.full((1, 3), number, np.float32))
            target.seal(info(str(number), 1))
        second.switch()
        first.switch()
    store = opened(place)
    assert (store.info.version, store.get("q", ["d"]).x[0, 0]) == ("0", 0)
    store.close()


def test_rows_that_are_not_aligned_are_copied() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = pack(["a", "b"], rows)
    for shift in range(4):
        moved = memoryview(bytes(shift) + value)[shift:]
        block = unpack(moved, fields=3)
        assert block is not None
        assert block.rows.flags.aligned
        np.testing.assert_array_equal(block.rows, rows)


def test_rows_outlive_their_snapshot(tmp_path: Path) -> None:
    def fill(version: int) -> None:
        with builder(str(tmp_path / "store"), grace=1) as target:
            target.put("q", ["a", "b"], np.full((2, 700), version, np.float32))
            fields = tuple(f"f{place}" for place in range(700))
            target.seal(StoreInfo(str(version), datetime(2026, 3, 1), fields, np.zeros(700, np.float32), 2))
            target.switch()

    fill(1)
    store = opened(tmp_path / "store")
    found = store.get("q", ["b", "a"])
    for version in (2, 3):
        fill(version)
    store.close()
    del store
    gc.collect()
    assert (found.x == 1).all()
