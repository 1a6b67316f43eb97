"""What flows: checks at construction, selection, and the exactness of merging."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism import types
from clickprism._util import grouping
from clickprism.errors import DataError
from clickprism.types import Clicks, Int64, JudgedLists, Lists, Simulation, Truth, concatenate


def lists_of(lengths: list[int]) -> Lists:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    features = np.arange(int(offsets[-1]) * 2, dtype=np.float32).reshape(-1, 2)
    return Lists(features, offsets, np.array([f"q{i}" for i in range(len(lengths))]))


def sessions_of(lists: Lists, shown: list[list[int]], clicked: list[list[int]]) -> Clicks:
    lengths = [len(session) for session in shown]
    return Clicks(
        lists,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([row for session in shown for row in session], dtype=np.int64),
        np.array([place for session in shown for place in range(1, len(session) + 1)], dtype=np.int32),
        np.array([click for session in clicked for click in session], dtype=np.int64),
        np.ones(len(shown), dtype=np.int64),
    )


def test_lists_know_their_rows() -> None:
    lists = lists_of([2, 0, 3])
    assert len(lists) == 3
    assert lists.documents == 5
    assert lists.lengths.tolist() == [2, 0, 3]
    assert lists.list_of.tolist() == [0, 0, 2, 2, 2]


def test_take_keeps_order_and_copies_features() -> None:
    lists = lists_of([2, 1, 3])
    taken = lists.take([2, 0])
    assert taken.query_ids.tolist() == ["q2", "q0"]
    assert taken.features[:, 0].tolist() == [6.0, 8.0, 10.0, 0.0, 2.0]
    assert lists.take(np.array([False, True, False])).query_ids.tolist() == ["q1"]


def test_with_relevant_drops_lists_without() -> None:
    judged = JudgedLists(lists_of([2, 1, 0, 2]), np.array([0, 0, 3, 0, 1], dtype=np.int32))
    assert judged.with_relevant().lists.query_ids.tolist() == ["q1", "q3"]
    assert judged.with_relevant().grades.tolist() == [3, 0, 1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"offsets": np.array([0, 3, 2])}, "offsets must run from 0 to 5"),
        ({"offsets": np.array([0, 6, 2, 5])}, "offsets must not decrease"),
        ({"features": np.zeros((5, 2))}, "features must be float32"),
        ({"query_ids": np.array(["a"])}, "2 lists but 1 query ids"),
        ({"document_ids": np.array(["a"])}, "5 documents, 1 document ids"),
    ],
)
def test_broken_lists_are_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        replace(lists_of([2, 3]), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": np.array([0, 1, 9])}, "rows must be below 5"),
        ({"rows": np.array([0, -1, 1])}, "rows must not be negative"),
        ({"positions": np.array([0, 1, 2], dtype=np.int32)}, "positions start from 1"),
        ({"positions": np.array([2, 1, 1], dtype=np.int32)}, "positions must increase"),
        ({"clicks": np.array([0, 2, 0])}, "more sessions than showed it"),
        ({"clicks": np.array([0, -1, 0])}, "must not be negative"),
        ({"clicks": np.array([0, 0.5, 0])}, "clicks must be whole numbers, got float64"),
        ({"rows": np.array([0, 2, 1])}, "must be of one query"),
        ({"impressions": np.array([1, 0])}, "shown at least once"),
        ({"impressions": np.array([1])}, "2 ranked lists, 1 impressions"),
    ],
)
def test_broken_clicks_are_refused(change: dict[str, object], problem: str) -> None:
    good = sessions_of(lists_of([2, 3]), [[0, 1], [2]], [[1, 0], [0]])
    with pytest.raises(DataError, match=problem):
        replace(good, **change)  # type: ignore[arg-type]


def test_a_page_may_start_below_the_top_and_lists_may_be_empty() -> None:
    lists = lists_of([3])
    offsets = np.array([0, 0, 2, 2, 3])
    clicks = Clicks(
        lists,
        offsets,
        np.array([0, 1, 2]),
        np.array([11, 13, 1], dtype=np.int32),
        np.array([0, 1, 1]),
        np.ones(4, dtype=np.int64),
    )
    assert clicks.max_position == 13
    assert len(clicks.merge()) == 3


def test_merge_adds_sessions_of_the_same_list() -> None:
    lists = lists_of([3])
    clicks = sessions_of(lists, [[0, 1], [1, 0], [0, 1], [0, 1, 2]], [[1, 0], [0, 1], [1, 1], [0, 0, 0]])
    merged = clicks.merge()
    assert merged.offsets.tolist() == [0, 2, 4, 7]
    assert merged.rows.tolist() == [0, 1, 1, 0, 0, 1, 2]
    assert merged.clicks.tolist() == [2, 1, 0, 1, 0, 0, 0]
    assert merged.impressions.tolist() == [2, 1, 1]
    assert merged.list_impressions.tolist() == [2, 2, 1, 1, 1, 1, 1]


def test_merge_by_pattern_keeps_what_was_clicked_together() -> None:
    lists = lists_of([2])
    clicks = sessions_of(lists, [[0, 1]] * 3, [[1, 0], [1, 1], [1, 0]])
    merged = clicks.merge(by="pattern")
    assert merged.clicks.tolist() == [2, 0, 1, 1]
    assert merged.impressions.tolist() == [2, 1]
    assert merged.merge(by="pattern").clicks.tolist() == [2, 0, 1, 1]
    with pytest.raises(DataError, match="cannot be split by pattern"):
        clicks.merge().merge(by="pattern")


@given(st.lists(st.tuples(st.permutations([0, 1, 2]), st.integers(0, 3), st.integers(0, 7)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_merging_loses_and_invents_nothing(drawn: list[tuple[list[int], int, int]]) -> None:
    shown = [order[:length] for order, length, _ in drawn]
    clicked = [[bits >> place & 1 for place in range(length)] for _, length, bits in drawn]
    clicks = sessions_of(lists_of([3]), shown, clicked)
    expected: dict[tuple[int, ...], list[int]] = {}
    for session, marks in zip(shown, clicked, strict=True):
        total = expected.setdefault(tuple(session), [0] * (len(session) + 1))
        for place, mark in enumerate(marks):
            total[place] += mark
        total[-1] += 1
    merged = clicks.merge()
    found = {
        tuple(merged.rows[a:b].tolist()): [*merged.clicks[a:b].tolist(), int(merged.impressions[i])]
        for i, (a, b) in enumerate(zip(merged.offsets[:-1], merged.offsets[1:], strict=True))
    }
    assert found == expected
    assert list(found) == list(expected)
    again = merged.merge()
    assert again.clicks.tolist() == merged.clicks.tolist()


def test_merge_does_not_trust_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = grouping._hash

    def colliding(columns: grouping.Columns, salt: int, result: Int64) -> None:
        hashed(columns, salt, result)
        if salt < 2:
            result[:] = 0

    monkeypatch.setattr(grouping, "_hash", colliding)
    lists = lists_of([3])
    clicks = sessions_of(lists, [[0, 1], [1, 0], [0, 1], [2]], [[1, 0], [0, 1], [1, 1], [1]])
    merged = clicks.merge()
    assert merged.rows.tolist() == [0, 1, 1, 0, 2]
    assert merged.clicks.tolist() == [2, 1, 0, 1, 1]


def test_merged_order_of_rows_matters() -> None:
    clicks = sessions_of(lists_of([4]), [[0, 3], [3, 0], [1, 2]], [[0, 0], [0, 0], [0, 0]])
    assert len(clicks.merge()) == 3


def test_concatenate_and_with_clicks() -> None:
    lists = lists_of([3])
    first, second = sessions_of(lists, [[0, 1]], [[0, 0]]), sessions_of(lists, [[2]], [[1]])
    both = concatenate([first, second])
    assert both.offsets.tolist() == [0, 2, 3]
    assert both.with_clicks().rows.tolist() == [2]
    with pytest.raises(DataError, match="same documents"):
        concatenate([first, sessions_of(lists_of([3]), [[0]], [[0]])])


def test_observation_of_a_simulation_is_the_share_seen() -> None:
    lists = lists_of([2])
    clicks = Clicks(
        lists,
        np.array([0, 2, 3]),
        np.array([0, 1, 1]),
        np.array([1, 2, 1], dtype=np.int32),
        np.array([1, 0, 0]),
        np.array([4, 6]),
    )
    truth = Truth(observed=np.array([4, 1, 2]), attracted=np.array([4, 4, 6]))
    assert Simulation(clicks, truth).observation.tolist() == [6 / 10, 1 / 4]


def test_wrong_selections_and_ways_to_merge_are_refused() -> None:
    lists = lists_of([2, 3])
    for chosen, words in (([2], "from 0 to 1"), ([-1], "from 0 to 1"), (np.array([True]), "a mask over 2 lists")):
        with pytest.raises(DataError, match=words):
            lists.take(chosen)
    with pytest.raises(DataError, match="not by 'patern'"):
        sessions_of(lists, [[0]], [[0]]).merge(by="patern")  # type: ignore[arg-type]
    clicks = sessions_of(lists, [[0, 1]], [[0, 0]])
    with pytest.raises(DataError, match="2 entries but observed of shape"):
        Simulation(clicks, Truth(indices([1]), indices([1, 0])))


def indices(values: list[int]) -> Int64:
    return np.array(values, dtype=np.int64)


def test_no_lists_have_no_slices() -> None:
    entries, ends = types.slices(indices([0, 2]), indices([]))
    assert entries.tolist() == []
    assert ends.tolist() == [0]
