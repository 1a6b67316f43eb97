"""Rows that repeat an event, against a loop over all of them; and threads that work ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clickprism.log import again, firsts
from clickprism.log.again import NEW, SAME, VARIANT, Read, find_again
from clickprism.log.threads import ahead, mapped
from tests.waiting import LIMIT, until

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=30)


def table(pairs: list[tuple[int, int]]) -> pa.Table:
    """Keys that share one half or the other, and contents."""
    keys = [np.array([key // 3, key % 3], "<u8").tobytes() for key, _ in pairs]
    contents = [np.array([0, content], "<u8").tobytes() for _, content in pairs]
    return pa.table({"key": pa.array(keys, pa.binary()), "content": pa.array(contents, pa.binary())})


def columns(rows: pa.Table, size: int | None = None) -> Read:
    return lambda name: (batch[name] for batch in rows.to_batches(max_chunksize=size))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PAIRS, max_size=3), PAIRS, st.tuples(st.sampled_from([1, 4, 1 << 20]), st.integers(1, 7)))
def test_what_repeats_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stored: list[list[tuple[int, int]]],
    new: list[tuple[int, int]],
    sizes: tuple[int, int],
) -> None:
    monkeypatch.setattr(again, "KEYS", sizes[0])
    for number, pairs in enumerate(stored):
        pq.write_table(table(pairs), tmp_path / f"{number}.parquet")
    found = np.zeros(len(new), np.uint8)
    stored_files = [str(tmp_path / f"{number}.parquet") for number in range(len(stored))]
    find_again(columns(table(new), sizes[1]), stored_files, found)
    expected, seen = [], [pair for pairs in stored for pair in pairs]
    for pair in new:
        known = any(pair[0] == key for key, _ in seen)
        expected.append(NEW if not known else SAME if pair in seen else VARIANT)
        seen.append(pair)
    assert found.tolist() == expected


def test_keys_held_are_few_however_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    count, held = 2000, []
    halves = np.random.default_rng(0).integers(0, 1 << 62, (count, 2)).astype("<u8")
    rows = pa.table({"key": pa.array([each.tobytes() for each in halves], pa.binary())})

    def counted(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        held.append(len(keys))
        return np.arange(len(keys))

    monkeypatch.setattr(again, "KEYS", 400)
    monkeypatch.setattr(firsts, "firsts", counted)
    for threads in (1, 4):
        held.clear()
        find_again(columns(rows), [], np.zeros(count, np.uint8), threads=threads)
        assert sum(held) == count
        assert 2 * max(held) * threads < 3 * again.KEYS


def test_one_event_id_in_every_row_takes_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that differ are looked up by first words that differ, so that each is found at its first place."""
    count, lookups = 5_000, []
    real = firsts.firsts

    def recorded(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        lookups.append((len(np.unique(rows[:, 0])), len(np.unique(rows, axis=0))))
        return real(rows)

    monkeypatch.setattr(firsts, "firsts", recorded)
    contents = np.random.default_rng(0).integers(0, 1 << 62, 2 * count).astype("<u8").tobytes()
    rows = pa.table(
        {
            "key": pa.array([b"sixteen letters."] * count, pa.binary()),
            "content": pa.array([contents[at : at + 16] for at in range(0, 16 * count, 16)], pa.binary()),
        }
    )
    found = np.zeros(count, np.uint8)
    find_again(columns(rows), [], found)
    assert lookups == [(1, 1), (count, count)]
    assert found.tolist() == [NEW] + [VARIANT] * (count - 1)


def test_results_come_in_order_and_errors_where_they_belong() -> None:
    first = threading.Event()

    def slow(number: int) -> int:
        if number == 0:
            assert first.wait(LIMIT)
        elif number == 1:
            first.set()
        return 1 // (number - 3)

    results = mapped(slow, range(9), threads=2)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_taker_that_stops_stops_the_maker() -> None:
    made: list[int] = []

    def make() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            yield number

    taken = mapped(lambda number: number, ahead(make()), threads=2)
    assert next(taken) == 0
    taken.close()
    assert len(made) < 20
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("clickprism-")]


@pytest.mark.parametrize("held", [0, 2])
def test_as_much_is_made_ahead_as_may_be_held_and_no_more(held: int) -> None:
    made: list[int] = []
    beyond: list[int] = []
    taken = 0

    def make() -> Iterator[int]:
        for number in range(9):
            made.append(number)
            beyond.append(number - taken)
            yield number

    for number in ahead(make(), held=held):
        taken = number + 1
        until(lambda wanted: len(made) >= wanted, min(9, taken + held + 1))
    assert made == list(range(9))
    assert max(beyond) <= held + 1
