"""Pairs: their ids, clicks on randomised first results, and features in files."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ibis")

from clickprism.errors import DataError
from clickprism.log.engines.base import connect
from clickprism.log.features.windows import windows
from clickprism.log.ingest import ingest
from clickprism.log.settings import WindowSettings
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.relevance.pair_files import read_features
from clickprism.relevance.pairs import FirstSlot, distinct_pairs, find_pairs, read_first_slot
from tests.log.window_logs import make_log, session

NOON = datetime(2026, 3, 4, 12)
HOUR = timedelta(hours=1)
IDS = np.array(["q", "q", "r"]), np.array(["a", "b", "a"])


def test_counts_of_the_first_slot_agree_with_a_calculation_by_hand(tmp_path: Path) -> None:
    rows = [
        session(NOON - HOUR, search_id="a", randomised=True, clicks=1),
        session(NOON, search_id="b", randomised=True, clicks=2),
        session(NOON + HOUR, search_id="c", randomised=True),
        session(NOON + HOUR, search_id="d", randomised=True, position=2, clicks=1),
        session(NOON + HOUR, search_id="e", clicks=1),
        session(NOON + HOUR, search_id="f", randomised=True, filter="agent"),
        session(NOON + 24 * HOUR, search_id="g", randomised=True, document_id="e"),
    ]
    store = make_log(tmp_path, rows)
    slot = read_first_slot(store, since=NOON)
    assert slot.document_ids.tolist() == ["d", "e"]
    assert slot.clicks.tolist() == [1, 0]
    assert slot.impressions.tolist() == [2, 1]
    assert read_first_slot(store).impressions.tolist() == [3, 1]
    assert read_first_slot(store, until=NOON).clicks.tolist() == [1]
    with pytest.raises(DataError, match="no randomised first result"):
        read_first_slot(store, since=NOON + 48 * HOUR)
    with connect(threads=1, memory="500MB") as engine:
        snapshot = windows(store, engine, NOON, refresh=False, settings=WindowSettings(k=0)).snapshot
        later = windows(store, engine, NOON + HOUR, refresh=False, settings=WindowSettings(k=0)).snapshot
    x = ClickVectors.from_snapshot(snapshot).before(slot)
    shown = snapshot.fields.index("day.impressions")
    assert x[:, shown].tolist() == [1, 0]
    with pytest.raises(DataError, match="may be in the vectors"):
        ClickVectors.from_snapshot(later).before(slot)


def test_pairs_differ_by_both_ids() -> None:
    first, pair = distinct_pairs(np.array(["1", "11", "1"]), np.array(["11", "1", "11"]))
    assert sorted(first.tolist()) == [0, 1]
    assert pair[0] == pair[2] != pair[1]
    none = np.zeros(0, np.str_)
    assert find_pairs((none, none), IDS).tolist() == [-1, -1, -1]


def test_a_first_slot_with_impossible_counts_is_refused() -> None:
    with pytest.raises(DataError, match="at most one click per impression"):
        FirstSlot.of(*IDS, np.array([2, 0, 0]))
    with pytest.raises(DataError, match="a pair occurs twice"):
        FirstSlot(np.array(["q", "q"]), np.array(["a", "a"]), np.array([0, 0]), np.array([1, 1]))
    slot = FirstSlot.of(*IDS, np.array([1, 0, 0]), impressions=np.array([4, 0, 4]))
    assert len(slot) == 2
    assert slot.rate == 1 / 8


def test_features_that_are_wrong_are_named(tmp_path: Path) -> None:
    for name, text, words in (
        ("a.csv", "query_id,document_id,x\nq,a,1\nq,a,2\n", "has 2 rows for 1 pairs"),
        ("a.csv", "query_id,document_id,x\nq,a,1\nq,b,\n", r"a.csv:3: has no x"),
        ("a.csv", "query_id,document_id\nq,a\n", "has no column with features"),
        ("a.txt", "0 qid:1 1:0.5\n", "has rows without a document id"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=words):
            read_features(tmp_path / name)


def test_features_of_a_log_are_those_last_logged(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for minute, (document, features) in enumerate(
        [("b", {"x/y": 1, "a": 2.5}), ("a", {"x/y": 0, "a": 1}), ("b", {"x/y": 3, "a": -1})]
    ):
        event: dict[str, object] = {"search_id": f"s{minute}", "time": f"2026-03-01T10:0{minute}:00Z", "query_id": "q"}
        rows.append(event | {"document_id": document, "position": 1, "features": features})
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    ingest([file], tmp_path / "log")
    lists = read_features(tmp_path / "log")
    assert lists.document_ids is not None
    assert lists.document_ids.tolist() == ["a", "b"]
    assert lists.features.tolist() == [[1, 0], [-1, 3]]
    file.write_text(json.dumps(rows[0] | {"search_id": "t", "document_id": "c", "features": {"a": 1}}))
    ingest([file], tmp_path / "log")
    with pytest.raises(DataError, match="has no number for the feature 'x/y' of 'q', 'c'"):
        read_features(tmp_path / "log")
