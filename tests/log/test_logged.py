"""Any log as `Logged`: by hand, and in words where it cannot be."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.data.clicks import save_clicks
from clickprism.errors import DataError, SettingError
from clickprism.log.engines.base import Engine
from clickprism.log.forget import forget
from clickprism.log.open_log import ReadSettings, read_log, read_logged
from clickprism.log.store import LogStore, record_result
from clickprism.types import Clicks, Lists
from tests.log.event_logs import NOON, Row, event
from tests.log.raw_logs import impression, write_lines
from tests.log.test_sessions import log

LATER = NOON + timedelta(days=2)
HEAD = "query\tdocuments\tclicks"


def shown(search: str, *documents: str, clicked: str = "", first: int = 1, **values: Any) -> list[Row]:
    """A search with an impression of each document."""
    same: dict[str, Any] = {"query_id": "q", "time": NOON} | values
    features = same.pop("features", {})
    return [
        event(
            "impression",
            search,
            document_id=name,
            position=place,
            click=name == clicked,
            features=json.dumps(features[name]) if name in features else None,
            **same,
        )
        for place, name in enumerate(documents, start=first)
    ]


def test_an_ingested_log_by_hand(tmp_path: Path) -> None:
    rows = [
        *shown("s1", "a", "b", clicked="b", ranker="old"),
        *shown("s2", "a", "b", clicked="b", ranker="old"),
        *shown("s3", "a", "b", clicked="b", ranker="new"),
        *shown("s4", "a", "b", clicked="b", ranker="old", time=LATER),
        *shown("s5", "a", "b", clicked="b", ranker="old", randomised=True),
        *shown("s6", "c", first=4, query_id="p", agent="a crawler"),
        *shown("s7", "c", first=4, query_id="p"),
        event("impression", "s7", query_id="p", document_id="z", position=4, time=NOON),
    ]
    found = read_logged(log(tmp_path, rows).folder)
    clicks, lists = found.clicks, found.clicks.lists
    assert lists.query_ids.tolist() == ["p", "q"]
    assert lists.document_ids is not None
    assert lists.document_ids.tolist() == ["c", "z", "a", "b"]
    assert clicks.impressions.tolist() == [2, 1, 1, 1, 1, 1]
    assert clicks.rows.tolist() == [2, 3, 2, 3, 2, 3, 0, 1, 2, 3]
    assert clicks.positions.tolist() == [1, 2, 1, 2, 1, 2, 4, 4, 1, 2]
    assert clicks.clicks.tolist() == [0, 2, 0, 1, 0, 1, 0, 0, 0, 1]
    assert found.days is not None
    assert found.days.tolist() == [0, 0, 0, 0, 0, 2]
    assert found.policy is not None
    assert [found.policies[each] for each in found.policy] == ["old", "new", "old", "not named", "not named", "old"]
    assert found.randomised is not None
    assert found.randomised.tolist() == [False] * 4 + [True] * 2 + [False] * 4
    assert found.notes[0].startswith("1 searches have several documents at one position")
    assert found.account["impressions filtered, agent"] == 1
    assert found.account["rows without ranker"] == 3
    assert not found.has_features


def test_a_search_of_two_queries_is_two_lists(tmp_path: Path) -> None:
    rows = [*shown("s", "a", query_id="p"), *shown("s", "b", "c", clicked="c", query_id="q", ranker="r")]
    rows += [event("impression", "s", query_id="q", document_id="d", position=3, time=NOON, ranker="t")]
    found = read_logged(log(tmp_path, rows).folder)
    assert found.clicks.offsets.tolist() == [0, 1, 4]
    assert found.randomised is None
    assert found.policy is not None
    assert [found.policies[each] for each in found.policy] == ["not named", "several rankers"]


def test_features_are_those_last_shown_and_gaps_are_said(tmp_path: Path) -> None:
    early = {"a": {"x": 1, "y": True}, "b": {"x": 5, "y": False, "word": "w"}, "c": {"x": "7"}}
    rows = [
        *shown("s1", "a", "b", "c", "d", features=early),
        *shown("s2", "a", "b", features={"a": {"x": 3, "y": True}}, time=LATER),
    ]
    found = read_logged(log(tmp_path, rows).folder)
    assert found.feature_names == ("x", "y", "y is missing")
    nan = np.nan
    expected = np.array([[3, 1, 0], [5, 0, 0], [7, nan, 1], [nan, nan, 1]], np.float32)
    np.testing.assert_array_equal(found.clicks.lists.features, expected)
    assert found.account["documents without features"] == 1
    assert any("like an id or a free text: word" in note for note in found.notes)


def test_features_of_every_kind_are_read_from_an_ingested_log(tmp_path: Path) -> None:
    """They become what the same columns of a table become."""
    features = {
        name: {"brand": "acme" if at % 2 else "bolt", "price": at, "vector": [at, 1.5], "size": 7 if at else "XL"}
        for at, name in enumerate("abcd")
    }
    found = read_logged(log(tmp_path, shown("s", *"abcd", features=features)).folder)
    assert found.encoding is not None
    assert found.encoding.encode_rows([{"brand": "bolt", "price": 9, "vector": [1, 2]}]).shape[1] == len(
        found.feature_names
    )
    assert found.feature_names == ("brand=acme", "brand=bolt", "price", "size=7", "vector[0]", "vector[1]")
    assert found.clicks.lists.features.tolist()[0] == [0, 1, 0, 0, 0, 1.5]
    assert found.clicks.lists.features.tolist()[3] == [1, 0, 3, 1, 3, 1.5]


def test_features_that_most_documents_lack_are_dropped(tmp_path: Path) -> None:
    rows = shown("s", "a", "b", "c", features={"a": {"x": 1}})
    found = read_logged(log(tmp_path, rows).folder)
    assert not found.has_features
    assert found.account["documents without features"] == 2


def test_a_folder_without_searches_or_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a click log. Create one with: clickprism log ingest"):
        read_logged(tmp_path)
    store = log(tmp_path / "log", shown("s", "a", agent="a crawler"))
    with pytest.raises(DataError, match=r"has no searches that count. Ingest files with impressions, or see the robo"):
        read_logged(store.folder)


def test_sessions_with_columns(tmp_path: Path) -> None:
    file = tmp_path / "log.tsv"
    rows = ["q\ta,b\tb\t2026-02-28T09:00\t1", "q\ta,b\tb\t2026-03-01\t0", "q\tb\t\t2026-03-01\t0"]
    file.write_text("\n".join([f"{HEAD}\ttime\trandomised", *rows]))
    found = read_logged(file, roles={"ranker": "time"})
    assert found.days is not None
    assert found.randomised is not None
    assert (found.days.tolist(), found.randomised.tolist()) == ([0, 1, 1], [True, True, False, False, False])
    assert found.policies == ("2026-02-28T09:00", "2026-03-01")
    assert found.account == {"sessions": 3}
    assert read_logged(file, roles={"time": "randomised"}).days is not None


@pytest.mark.parametrize(
    ("name", "values", "days"),
    [
        ("date", ("20260228", "20260301"), [0, 1]),
        ("day", ("7", "4"), [3, 0]),
        ("time", ("1772323200", "1772409600"), None),
        ("day", ("Monday", "Tuesday"), None),
        ("device", ("2026-01-01", "2026-01-02"), None),
    ],
)
def test_what_counts_as_a_day(tmp_path: Path, name: str, values: tuple[str, str], days: list[int] | None) -> None:
    file = tmp_path / "log.csv"
    file.write_text(f"query,documents,clicks,{name}\nq,a,,{values[0]}\nq,a,,{values[1]}\n")
    found = read_logged(file).days
    assert (None if found is None else found.tolist()) == days


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    file = tmp_path / "log.tsv"
    file.write_text(f"{HEAD}\tweek\tshuffled\nq\ta\t\tone\tperhaps\n")
    with pytest.raises(DataError, match=r"has no column 'dat' for the time. It has week, shuffled"):
        read_log(file, time="dat")
    with pytest.raises(SettingError, match=r"query must be omitted: .* a session file has the roles time, ranker, ra"):
        read_log(file, query="week")
    with pytest.raises(DataError, match=r"column 'week' has a value that is not a day: 'one'. Give days as 2026-03-01"):
        read_log(file, time="week")
    with pytest.raises(DataError, match=r"column 'shuffled' has 'perhaps', which is neither 1 nor 0"):
        read_log(file, randomised="shuffled")
    events = tmp_path / "events.parquet"
    with pytest.raises(DataError, match=r"is a file of events, not a log. Ingest it first: clickprism log ingest"):
        read_logged(events)


def test_raw_events_are_ingested_into_a_copy_that_names_its_results(duck: Engine, tmp_path: Path) -> None:
    rows = [impression(number, user_id=f"u{number}", click=number == 1) for number in range(4)]
    file, copy, out = write_lines(tmp_path / "a.jsonl", rows), tmp_path / "out" / "log", tmp_path / "out"
    found = read_logged(file)
    for _ in range(2):  # a second time the copy is used as it is
        assert read_logged(file, settings=ReadSettings(copy=copy)).clicks.clicks.sum() == found.clicks.clicks.sum() == 1
    record_result(copy, out, "clickprism auto a.jsonl")
    erased = forget(LogStore.open(copy), duck, ["u1"])
    assert (erased.rows, erased.outputs) == (1, ((str(out), "clickprism auto a.jsonl"),))
    assert read_logged(file, settings=ReadSettings(copy=copy)).clicks.clicks.sum() == 0
    other = write_lines(tmp_path / "b.jsonl", rows[:2])
    with pytest.raises(DataError, match=r"was made from other files than .*b\.jsonl\. Choose another --out or --copy"):
        read_logged(other, settings=ReadSettings(copy=copy))


def test_a_file_of_simulate_with_its_documents_or_bare(tmp_path: Path) -> None:
    lists = Lists(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 3]), np.array(["q"]))
    rows, places = np.array([2, 0, 2, 0, 1]), np.array([1, 2, 1, 2, 4], np.int32)
    clicks = Clicks(lists, np.array([0, 2, 4, 5]), rows, places, np.array([0, 1, 0, 1, 0]), np.ones(3, np.int64))
    save_clicks(clicks, tmp_path / "clicks.npz")
    whole, bare = read_logged(tmp_path / "clicks.npz", lists=lists), read_logged(tmp_path / "clicks.npz")
    assert whole.has_features
    assert not bare.has_features
    assert whole.clicks.impressions.tolist() == bare.clicks.impressions.tolist() == [2, 1]
    assert whole.clicks.clicks.tolist() == [0, 2, 0]
    with pytest.raises(DataError, match=r"has no column 'r' for the ranker"):
        read_log(tmp_path / "clicks.npz", ranker="r")


def test_features_of_interactions_are_of_the_query_of_their_search(tmp_path: Path) -> None:
    rows = [event("ranking", "s", query_id="q", documents=["a", "b"], time=NOON)]
    rows += [
        event("interaction", "s", document_id=name, action="impression", features=json.dumps({"x": value}), time=NOON)
        for name, value in (("a", 1), ("b", 2))
    ]
    found = read_logged(log(tmp_path, rows).folder)
    assert found.clicks.lists.features.tolist() == [[1], [2]]
