"""Rows as the documentation of OpenSearch UBI and of Metarank shows them, and as their own tools write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import run_command
from tests.log.read.reading import json_lines, read

CLIENT, SEARCH = "CLIENT-9a9968ac", "d194b734-70a4-41dc-b103-b26a56a277b5"
QUERY = {
    "query_response_id": "117d75fb-ea76-41dc-9d1d-1d7bba548bd8",
    "user_query": "laptop",
    "query_id": SEARCH,
    "application": "Chorus",
    "query_response_hit_ids": ["B076YX2LML", "B07S3T59VP"],
    "query_attributes": {},
    "client_id": CLIENT,
    "timestamp": "2025-01-23T13:18:22.274+0000",
}
HOVER = {
    "action_name": "product_hover",
    "client_id": CLIENT,
    "query_id": SEARCH,
    "page_id": "/",
    "message_type": "INFO",
    "message": "a memory card (undefined)",
    "timestamp": 1737638303669,
    "event_attributes": {
        "object": {
            "object_id_field": "product",
            "object_id": "1625640",
            "description": "a memory card",
            "object_detail": None,
        }
    },
}
LEAVING = {  # breaks its own schema: an object without an id, a position that is empty
    "action_name": "page_exit",
    "user_id": "1821196507152684",
    "query_id": "00112233-4455-6677-8899-aabbccddeeff",
    "session_id": "c3d22be7-6bdc-4250-91e1-fc8a92a9b1f9",
    "timestamp": "2024-05-16T12:34:56.789Z",
    "message": "On page /docs/latest/ for 3.35 seconds",
    "event_attributes": {"position": {}, "object": {"idleTimeoutMs": 5000, "timeElapsedCallbacks": []}},
}


def click(**changes: Any) -> dict[str, Any]:
    """An event of UBI 1.3 with all that its schema names."""
    row = {
        "application": "primary-search",
        "action_name": "click",
        "query_id": SEARCH,
        "session_id": "84266fdbd31d4c2c6d0665f7e8380fa3",
        "client_id": CLIENT,
        "user_id": "",
        "timestamp": "2025-01-23T13:18:29+00:00",
        "message_type": "CONVERSION",
        "message": "",
        "event_attributes": {
            "object": {"object_id": 123, "object_id_type": "product", "object_id_field": "ean", "internal_id": 7},
            "position": {"ordinal": 3, "xy": {"x": 10.5, "y": 20}},
        },
    }
    return row | changes


def test_ubi_as_documented(tmp_path: Path) -> None:
    nowhere = {"object": {"object_id": "ISBN 0-061-96436-0"}, "position": {"xy": {"x": 1.5, "y": 2}}}
    rows = [
        QUERY,
        QUERY | {"user_query": ""},  # what the plugin writes for a query that nobody typed
        {"user_query": "q", "query_id": "1234-user-5678", "timestamp": "2018-11-13T20:20:39", "client_id": "bot"},
        HOVER,
        click(),
        click(timestamp="2025-01-23T13:18:29", event_attributes=nowhere),
        click(action_name="impression", timestamp="2025-01-23T14:18:29+01:00"),
        LEAVING,
        {"action_name": "login", "timestamp": "2025-01-23T13:18:29Z"},
        click(action_name="add_to_cart", query_id=None),
    ]
    good, bad, ignored = read(tmp_path / "ubi.jsonl", json_lines(*rows), ordinal_base=1)
    assert (len(good), bad, ignored) == (7, [], 3)
    assert good[0]["documents"] == good[1]["documents"] == ["B076YX2LML", "B07S3T59VP"]
    assert good[0]["time"].isoformat() == "2025-01-23T13:18:22.274000"
    assert good[2] | {"documents": []} == good[2]
    assert [(row["action"], row["document_id"], row.get("position")) for row in good[3:]] == [
        ("product_hover", "1625640", None),
        ("click", "123", 3),
        ("click", "ISBN 0-061-96436-0", None),
        ("impression", "123", 3),
    ]
    assert {row["time"].isoformat() for row in good[4:]} == {"2025-01-23T13:18:29"}
    assert {row["user_id"] for row in good[3:]} == {CLIENT}


def test_ubi_as_its_generator_writes_it(tmp_path: Path) -> None:
    """Lines for the bulk loader between the rows, a rank from 0 in the place of an ordinal; or flat columns of CSV."""
    event = {
        "application": "esci_ubi_sample",
        "action_name": "impression",
        "query_id": SEARCH,
        "session_id": "s",
        "client_id": CLIENT,
        "timestamp": "2024-06-01T00:10:00.123Z",
        "message_type": None,
        "message": None,
        "event_attributes": {"object": {"object_id": "B07", "object_id_field": "product_id"}, "rank": 0},
    }
    query = {name: QUERY[name] for name in ("application", "query_id", "client_id", "user_query")}
    query |= {"query_attributes": {}, "timestamp": "2024-06-01T00:10:00.123Z"}
    rows = [{"index": {"_index": "ubi_queries", "_id": "1"}}, query, {"create": {"_index": "ubi_events"}}, event]
    good, bad, ignored = read(tmp_path / "ubi.ndjson", json_lines(*rows), ordinal_base=0)
    assert ([row["kind"] for row in good], bad, ignored) == (["ranking", "interaction"], [], 2)
    assert (good[1]["document_id"], good[1]["position"]) == ("B07", 1)
    header = "object_id,rank,object_id_field,application,action_name,query_id,session_id,client_id,timestamp\n"
    line = f"B07,0,product_id,esci_ubi_sample,impression,{SEARCH},s,{CLIENT},2024-06-01T00:10:00.123Z\n"
    flat, bad, _ = read(tmp_path / "ubi_events.csv", (header + line).encode(), ordinal_base=0)
    assert (flat, bad) == ([good[1] | {"line": 2}], [])


def test_metarank_as_documented(tmp_path: Path) -> None:
    ranking = {
        "event": "ranking",
        "id": "81f46c34-a4bb-469c-8708-f8127cd67d27",
        "timestamp": "1599391467000",
        "user": "user1",
        "session": "session1",
        "fields": [{"name": "query", "value": "cat"}, {"name": "source", "value": "search"}],
        "items": [{"id": "item3", "relevancy": 2.0}, {"id": "item1", "relevancy": 1.0}, {"id": "item2"}],
    }
    touch = {
        "event": "interaction",
        "id": "0f4c0036-04fb-4409-b2c6-7163a59f6b7d",
        "ranking": ranking["id"],
        "timestamp": "1599391467000",
        "user": "user1",
        "session": "session1",
        "type": "purchase",
        "item": "item1",
        "fields": [{"name": "count", "value": 1}, {"name": "shipping", "value": "DHL"}],
    }
    odd = [{"name": "tags", "value": ["a", "b"]}, {"name": "sizes", "value": [1, 2]}, {"name": "query", "value": 7}]
    rows = [
        ranking,
        ranking | {"id": 17, "timestamp": "2022-06-22T11:21:39Z", "user": None, "fields": odd, "items": [{"id": 5}]},
        {"event": "ranking", "id": "id1", "items": [{"id": "72998"}, {"id": "67197"}], "timestamp": 1661431886711},
        ranking | {"id": "e3", "items": [{"id": "p1", "fields": [{"name": "relevancy", "value": 1.0}], "label": None}]},
        touch,
        touch | {"ranking": None, "type": "like"},
        {"event": "item", "id": "x", "timestamp": "1599391467000", "item": "item1", "fields": odd, "tenant": "default"},
        {"event": "user", "id": "y", "timestamp": "1599391467000", "user": "user1", "fields": odd},
    ]
    good, bad, ignored = read(tmp_path / "events.jsonl", json_lines(*rows))
    assert (len(good), bad, ignored) == (5, [], 3)
    assert [row["documents"] for row in good[:4]] == [["item3", "item1", "item2"], ["5"], ["72998", "67197"], ["p1"]]
    assert [row.get("query") for row in good[:4]] == ["cat", "7", None, "cat"]
    assert [row.get("user_id") for row in good[:4]] == ["user1", "session1", None, "user1"]
    assert (good[1]["search_id"], good[1]["time"].isoformat()) == ("17", "2022-06-22T11:21:39")
    assert (good[4]["search_id"], good[4]["action"], good[4]["document_id"]) == (ranking["id"], "purchase", "item1")


def test_search_hits_are_read_as_their_source(tmp_path: Path) -> None:
    rows = [QUERY, click(event_attributes={"object": {"object_id": "B07S3T59VP"}, "position": {"ordinal": 2}}), HOVER]
    hits = [{"_index": "ubi", "_id": f"id {i}", "_score": 1.0, "_source": row} for i, row in enumerate(rows)]
    plain = read(tmp_path / "a.jsonl", json_lines(*rows), ordinal_base=1)
    wrapped = read(tmp_path / "b.jsonl", json_lines(*hits), ordinal_base=1)
    assert [row | {"event_id": f"id {i}"} for i, row in enumerate(plain[0])] == wrapped[0]
    assert plain[1:] == wrapped[1:] == ([], 0)
    mixed = json_lines(hits[0], rows[1] | {"_id": "no hit"}, hits[2], {"_id": "x", "_source": {"user_query": "a"}})
    good, bad, _ = read(tmp_path / "c.jsonl", mixed, ordinal_base=1)
    assert good == [wrapped[0][0], plain[0][1], wrapped[0][2]]
    assert bad == [(4, "missing", "query_id")]


def test_from_documented_rows_to_sessions(tmp_path: Path) -> None:
    rows = [QUERY, click(event_attributes={"object": {"object_id": "B07S3T59VP"}, "position": {"ordinal": 2}})]
    (tmp_path / "ubi.jsonl").write_bytes(json_lines(*rows))
    log = str(tmp_path / "log")
    run_command("log", "ingest", tmp_path / "ubi.jsonl", "--into", log, "--ordinal-base", "1")
    told = run_command("log", "sessions", log, "--json").json
    (day,) = told["rebuilt"]
    assert (day["day"], day["searches"], day["rows"], day["clicked"], day["unmatched"]) == ("2025-01-23", 1, 2, 1, 0)
