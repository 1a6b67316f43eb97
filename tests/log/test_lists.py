"""Lists with clicks of a log, for estimators of positions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from clickprism.log.load import read_store
from tests.conftest import Done
from tests.log.event_logs import NOON, event
from tests.log.test_sessions import log

ROWS = [
    event("ranking", "s", query_id="q", documents=["b", "a"], clicked=["a"], ranker="r2"),
    event("ranking", "s", query_id="q", documents=["c"], time=NOON + timedelta(days=1), randomised=True),
    event("ranking", "t", query_id="p", documents=["a"], agent="curl/8"),
    event("impression", "u", query_id="p", document_id="z", position=4, click=True),
    event("impression", "u", query_id="p", document_id="b", position=4),
    event("impression", "u", query_id="p", document_id="a", position=2),
]


def test_lists_by_hand(tmp_path: Path) -> None:
    store = log(tmp_path, ROWS)
    found = read_store(store.folder, merge=False)
    clicks, lists = found.clicks, found.clicks.lists
    assert lists.query_ids.tolist() == ["p", "q"]
    assert lists.offsets.tolist() == [0, 3, 6]
    assert lists.document_ids is not None
    assert lists.document_ids.tolist() == ["a", "b", "z", "a", "b", "c"]
    shown = [lists.document_ids[row] for row in clicks.rows]
    assert clicks.offsets.tolist() == [0, 2, 4, 5, 6]
    assert shown == ["b", "a", "a", "b", "z", "c"]  # the second document at position 4 is a list of its own
    assert clicks.positions.tolist() == [1, 2, 2, 4, 4, 1]
    assert clicks.clicks.tolist() == [0, 1, 0, 0, 1, 0]
    assert clicks.impressions.tolist() == [1, 1, 1, 1]
    assert found.policy is not None
    assert found.randomised is not None
    assert [found.policies[each] for each in found.policy] == ["r2", *["not named"] * 3]
    assert found.randomised.tolist() == [False] * 5 + [True]
    assert len(read_store(store.folder, days=[NOON.date()]).clicks) == 3


def test_bias_position_reads_a_log(tmp_path: Path, cli: Callable[..., Done]) -> None:
    """The robot and the clicks on hidden documents do not count; the second position gets half of the clicks."""
    rows = [
        event("ranking", f"{search}", query_id="q", documents=order, clicked=order if search % 2 else order[:1])
        for search, order in enumerate([["a", "b"], ["b", "a"]] * 10)
    ]
    store = log(tmp_path, [*ROWS, *rows])
    found = cli("bias", "position", store.folder, "--depth", 2, "--resamples", 0, "--json").json
    assert (found["sessions"], found["queries"], found["clicks"]) == (23, 2, 31)
    assert found["curve"]["values"] == pytest.approx([1, 0.5], abs=0.15)
