"""Events of OpenSearch UBI: bulk files, answers of a search, Parquet, in one file or in two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickprism as cp
from clickprism.data.logged import ONLY_CLICKS
from clickprism.errors import DataError
from clickprism.log.ingest import ingest
from tests.shared_data import shared_data

QUERIES: list[dict[str, Any]] = [
    {"query_id": "s1", "user_query": "Soundbar ", "client_id": "u1", "timestamp": "2026-03-01T10:00:00Z"},
    {"query_id": "s2", "user_query": "soundbar", "client_id": "u2", "timestamp": "2026-03-01T10:00:00Z"}
    | {"query_response_hit_ids": ["a", "b"]},
]


def event(action: str, search: str | None, document: str | None, ordinal: int | None = None) -> dict[str, Any]:
    attributes = {"object": {"object_id": document}, "position": {"ordinal": ordinal}}
    return {"action_name": action, "query_id": search, "event_attributes": attributes, "timestamp": 1_772_359_200_000}


EVENTS = [
    event("impression", "s1", "a", 0),
    event("impression", "s1", "b", 1),
    event("click", "s1", "b"),
    event("click", "s1", "b") | {"timestamp": 1_772_359_201_000},
    event("click", "s1", "c"),
    event("click", "s2", "a"),
    event("click", None, "a"),
    event("add_to_cart", "s2", "a"),
    event("scroll", "s1", None),
]


def bulk(rows: list[dict[str, Any]]) -> str:
    return "".join(f'{{"index": {{"_index": "ubi"}}}}\n{json.dumps(row)}\n' for row in rows)


def check(log: Any, bulk_rows: int = 0) -> None:
    """Two lists of one query: a and b, b clicked; a and b, a clicked and put into the cart."""
    assert log.clicks.lists.query_ids.tolist() == ["soundbar"]
    assert log.clicks.rows.tolist() == [0, 1, 0, 1]
    assert log.clicks.positions.tolist() == [1, 2, 1, 2]
    assert log.clicks.clicks.tolist() == [0, 1, 1, 0]
    assert log.outcomes.rows.tolist() == [1, 0]
    assert log.outcomes.values["cart"].tolist() == [0, 1]
    assert log.account["click events"] == 4
    assert log.account["click events counted"] == 2
    assert log.account["click events not counted, repeated on one result"] == 1
    assert log.account["click events not counted, without an impression of the document in the search"] == 1
    assert log.account["rows broken, missing"] == log.account["rows quarantined"] == 1  # a click without a search
    assert log.account["rows not of a click event"] == 1 + bulk_rows  # scroll, and the lines of the bulk loader
    assert log.account["rows in"] == 11 + bulk_rows


def test_a_bulk_file_with_queries_and_events(tmp_path: Path) -> None:
    (tmp_path / "ubi.ndjson").write_text(bulk([*QUERIES, *EVENTS]))
    check(cp.read_log(tmp_path / "ubi.ndjson"), bulk_rows=11)


def test_two_files_in_a_folder_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(bulk(EVENTS))
    (tmp_path / "b.ndjson").write_text(bulk(QUERIES))
    check(cp.read_log(tmp_path), bulk_rows=11)


def test_the_answer_of_a_search(tmp_path: Path) -> None:
    hits = [{"_index": "ubi", "_id": str(number), "_source": row} for number, row in enumerate([*EVENTS, *QUERIES])]
    (tmp_path / "answer.json").write_text(json.dumps({"took": 3, "hits": {"total": 11, "hits": hits}}, indent=1))
    check(cp.read_log(tmp_path / "answer.json"))


def test_ubi_in_parquet_files_is_read(tmp_path: Path) -> None:
    # the last query has all fields, which Arrow takes from the first row
    pq.write_table(pa.Table.from_pylist(QUERIES[::-1]), tmp_path / "queries.parquet")
    pq.write_table(pa.Table.from_pylist(EVENTS), tmp_path / "events.parquet")
    check(cp.read_log(tmp_path))


def test_attributes_as_text(tmp_path: Path) -> None:
    rows = [row | {"event_attributes": json.dumps(row["event_attributes"])} for row in EVENTS]
    (tmp_path / "ubi.ndjson").write_text(bulk([*QUERIES, *rows]))
    check(cp.read_log(tmp_path / "ubi.ndjson"), bulk_rows=11)


def test_a_log_read_directly_and_ingested_is_the_same(tmp_path: Path) -> None:
    rows = [row | {"event_attributes": json.dumps(row["event_attributes"])} for row in EVENTS]
    (tmp_path / "ubi.ndjson").write_text(bulk([*QUERIES, *rows]))
    direct = cp.read_log(tmp_path / "ubi.ndjson")
    ingest([tmp_path / "ubi.ndjson"], tmp_path / "log", max_bad_ratio=1)
    ingested = cp.read_log(tmp_path / "log")
    assert (direct.account, direct.notes) == (ingested.account, ingested.notes)
    for name in ("rows", "positions", "clicks", "impressions"):
        assert getattr(direct.clicks, name).tolist() == getattr(ingested.clicks, name).tolist()


def test_a_log_of_clicks_says_what_is_not_known(tmp_path: Path) -> None:
    """A click proves that its document was shown, if its position is known."""
    (tmp_path / "ubi.ndjson").write_text(bulk([QUERIES[0], event("click", "s1", "a", 0)]))
    log = cp.read_log(tmp_path / "ubi.ndjson")
    assert log.clicks.clicks.tolist() == [1]
    assert ONLY_CLICKS in log.notes


def test_a_log_without_impressions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ubi.ndjson").write_text(bulk([QUERIES[0], event("click", "s1", "a")]))
    with pytest.raises(DataError, match=r"has no impressions.*Log impressions with their position"):
        cp.read_log(tmp_path / "ubi.ndjson")


def test_a_broken_line_condemns_only_itself(tmp_path: Path) -> None:
    (tmp_path / "ubi.ndjson").write_text(bulk([*QUERIES, *EVENTS]) + "{broken\n")
    log = cp.read_log(tmp_path / "ubi.ndjson")
    assert (log.account["rows broken, not-json"], log.account["click events counted"]) == (1, 2)


def test_a_broken_answer_is_quarantined(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text('{\n "hits": [{"_source": {"query_id": "s1"')
    account = ingest([tmp_path / "answer.json"], tmp_path / "log", max_bad_ratio=1)
    assert (account.rows_in, account.quarantined) == (1, {"not-json": 1})


def test_every_click_of_the_sample_of_opensearch_is_counted_or_has_a_reason() -> None:
    log = cp.read_log(shared_data("ubi-chorus/ubi_queries_events.ndjson.gz"))
    clicks = {name: count for name, count in log.account.items() if name.startswith("click events ")}
    assert sum(clicks.values()) == log.account["click events"] == 287
    assert int(log.clicks.clicks.sum()) == clicks["click events counted"] == 186
    assert "ps4" in log.clicks.lists.query_ids.tolist()


def test_other_events_with_broken_lines_are_not_taken_for_ubi(tmp_path: Path) -> None:
    """Their broken lines go into quarantine, also if they come first."""
    row = {"search_id": "s", "query": "q", "time": "2026-03-01", "document_id": "a", "position": 1, "click": True}
    (tmp_path / "events.jsonl").write_bytes(b"{broken\n\xff\n" + json.dumps(row).encode() + b"\n")
    log = cp.read_log(tmp_path / "events.jsonl")
    assert (log.clicks.sessions, log.account["rows quarantined"]) == (1, 2)


def test_an_empty_file_of_events_is_named(tmp_path: Path) -> None:
    """The error does not name the temporary log into which it was ingested."""
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(DataError, match=rf"^{tmp_path}/events\.jsonl: has no searches that count"):
        cp.read_log(tmp_path / "events.jsonl")
