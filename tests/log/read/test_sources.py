"""UBI, Metarank, Yandex sessions and mappings."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from clickprism.errors import DataError, SettingError
from clickprism.log.read import SourceSettings, detect
from clickprism.log.settings import ColumnMapping, read_mapping
from clickprism.settings import build, plain
from tests.log.read.reading import impression, json_lines, lines_of, read

MS = 1714564800250


def event(action: str, **changes: Any) -> dict[str, Any]:
    row = {"action_name": action, "timestamp": MS, "query_id": "Q", "client_id": "c"}
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


def at(ordinal: Any, **more: Any) -> dict[str, Any]:
    return {"object": {"object_id": 17, "object_id_field": "sku"}, "position": {"ordinal": ordinal}, **more}


def test_ubi(tmp_path: Path) -> None:
    query = {"timestamp": "2024-05-01T12:00:00.250Z", "query_id": "Q", "user_query": "red", "client_id": "c"}
    rows = [
        query | {"query_response_hit_ids": ["1", 2]},
        query | {"query_response_hit_ids": '["1", "2"]'},
        query,
        event("click", event_attributes=at(0, dwell_ms=40, display_ms=9, page_skipped=False)),
        event("VIEW", **{"event_attributes.object.object_id": "x", "event_attributes.position.ordinal": 2}),
        event("page_load"),
        event("click"),
        event("click", query_id=..., event_attributes=at(1)),
        event("click", event_attributes=at("x")),
        event("click", event_attributes=at(-1)),
        {"timestamp": MS, "query_id": "Q"},
        query | {"user_query": ""},
    ]
    good, bad, ignored = read(tmp_path / "log.jsonl", json_lines(*rows), ordinal_base=0)
    assert lines_of(good) == [1, 2, 3, 4, 5]
    assert [row["documents"] for row in good[:3]] == [["1", "2"], ["1", "2"], []]
    assert {"kind": "ranking", "search_id": "Q", "query": "red", "user_id": "c"}.items() <= good[0].items()
    click = {
        "kind": "interaction",
        "action": "click",
        "search_id": "Q",
        "document_id": "17",
        "position": 1,
        "dwell_ms": 40,
    }
    assert (click | {"display_ms": 9, "page_skipped": False}).items() <= good[3].items()
    assert {"action": "impression", "document_id": "x", "position": 3}.items() <= good[4].items()
    assert ignored == 1
    assert bad == [
        (7, "missing", "event_attributes.object.object_id"),
        (8, "missing", "query_id"),
        (9, "wrong-type", "event_attributes.position.ordinal"),
        (10, "position-range", "event_attributes.position.ordinal"),
        (11, "unknown-kind", "kind"),
        (12, "unknown-kind", "kind"),
    ]


def test_ubi_positions_need_a_base(tmp_path: Path) -> None:
    rows = json_lines(
        event("click", event_attributes={"object": {"object_id": 1}}), event("click", event_attributes=at(0))
    )
    with pytest.raises(DataError, match=r"log.jsonl:2: event_attributes.position.ordinal .* Give --ordinal-base 0 if"):
        read(tmp_path / "log.jsonl", rows)
    one, zero = (read(tmp_path / "log.jsonl", rows, ordinal_base=base) for base in (1, 0))
    assert (len(one[0]), one[1], len(zero[0])) == (1, [(2, "position-range", "event_attributes.position.ordinal")], 2)


def test_ubi_in_columns(tmp_path: Path) -> None:
    text = (
        "action_name,timestamp,query_id,client_id,event_attributes.object.object_id,event_attributes.position.ordinal\n"
    )
    (row,), bad, _ = read(tmp_path / "log.csv", f"{text}click,{MS},Q,c,17,3\n".encode(), ordinal_base=1)
    assert (row["document_id"], row["position"], bad) == ("17", 3, [])
    nested = 'action_name,timestamp,query_id,event_attributes\nclick,2024-05-01,Q,"{""object"": {""object_id"": 17}}"\n'
    (row,), bad, _ = read(tmp_path / "log.csv", nested.encode())
    assert (row["document_id"], bad) == ("17", [])


def test_an_empty_field_gives_way_to_the_next(tmp_path: Path) -> None:
    rows = "query_id,timestamp,client_id,user_id,user_query\nQ,2024-05-01,,u,q\nQ,2024-05-01,c,u,q\n"
    good, bad, _ = read(tmp_path / "log.csv", rows.encode(), schema="ubi")
    assert ([row["user_id"] for row in good], bad) == (["u", "c"], [])
    dotted = event("click", event_attributes={"object": {"object_id": ""}}) | {"event_attributes.object.object_id": "x"}
    (row,), bad, _ = read(tmp_path / "log.jsonl", json_lines(dotted))
    assert (row["document_id"], bad) == ("x", [])


def test_metarank_interactions_without_ids(tmp_path: Path) -> None:
    touch = {"event": "interaction", "timestamp": MS, "type": "click", "item": "a", "ranking": "r"}
    (row,), bad, _ = read(tmp_path / "log.jsonl", json_lines(touch))
    assert (row["search_id"], bad) == ("r", [])


def test_metarank(tmp_path: Path) -> None:
    ranking = {"event": "ranking", "id": "r", "timestamp": str(MS), "user": "u", "session": "s"}
    touch = {
        "event": "interaction",
        "id": "i",
        "timestamp": MS,
        "user": "u",
        "type": "click",
        "item": "a",
        "ranking": "r",
    }
    fields = [{"name": "device", "value": "phone"}, {"name": "query", "value": "jeans"}]
    rows = [
        ranking | {"fields": fields, "items": [{"id": "a", "relevancy": 1}, {"id": 2}]},
        touch,
        {"event": "item", "id": "x", "item": "a", "timestamp": MS, "fields": []},
        {"event": "user", "id": "y", "user": "u", "timestamp": MS},
        {name: value for name, value in touch.items() if name != "ranking"},
        ranking | {"items": [{"id": "a"}, {"name": "b"}]},
        ranking | {"items": "a"},
        ranking | {"event": "purchase"},
    ]
    good, bad, ignored = read(tmp_path / "log.jsonl", json_lines(*rows))
    assert lines_of(good) == [1, 2]
    wanted = {"event_id": "r", "search_id": "r", "query": "jeans", "documents": ["a", "2"], "user_id": "u"}
    assert wanted.items() <= good[0].items()
    assert {"event_id": "i", "search_id": "r", "document_id": "a", "action": "click"}.items() <= good[1].items()
    assert ignored == 2
    assert bad == [
        (5, "missing", "ranking"),
        (6, "wrong-type", "items"),
        (7, "wrong-type", "items"),
        (8, "unknown-kind", "event"),
    ]


def test_yandex(tmp_path: Path) -> None:
    text = b'query\tdocuments\tclicks\n9_1\t1,2\t2,7\n9_1\t1,"2\t\n\t1\t1\n9\t1,,2\t\n9\t1\n'
    good, bad, _ = read(tmp_path / "real.tsv", text, start="2003-02-01T10:00")
    assert [(row["documents"], row["clicked"]) for row in good] == [(["1", "2"], ["2", "7"]), (["1", '"2'], [])]
    name = hashlib.sha256(text).hexdigest()[:16]
    assert [row["search_id"] for row in good] == [f"{name}:2", f"{name}:3"]
    assert (good[0]["query_id"], good[0]["time"].isoformat()) == ("9_1", "2003-02-01T10:00:00")
    assert bad == [(4, "missing", "query"), (5, "wrong-type", "documents"), (6, "field-count", None)]


MAPPING = """
[columns]
search_id = "visit.id"
query = "it's"
document_id = "sku"
position = "rank"
click = "hit"
time = "when"
[constants]
ranker = "v3"
randomised = true
[values]
click = { yes = true, no = false }
[times]
unit = "s"
"""


def test_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(MAPPING, encoding="utf-8")
    mapping = read_mapping(tmp_path / "map.toml")
    row = {"visit": {"id": 5}, "it's": "q", "sku": "d", "rank": 0, "hit": "yes", "when": 1714564800}
    rows = json_lines(row, row | {"hit": "perhaps"}, row | {"rank": -1}, row | {"visit": 5})
    good, bad, _ = read(tmp_path / "log.jsonl", rows, mapping=mapping, ordinal_base=0)
    wanted = {"search_id": "5", "document_id": "d", "position": 1, "click": True, "ranker": "v3", "randomised": True}
    assert wanted.items() <= good[0].items()
    assert lines_of(good) == [1]
    assert bad == [(2, "wrong-type", "hit"), (3, "position-range", "rank"), (4, "missing", "visit.id")]
    settings = SourceSettings(mapping=mapping, ordinal_base=0)
    assert build(SourceSettings, plain(settings)) == settings


def test_a_mapping_names_the_columns_of_a_file_without_a_header(tmp_path: Path) -> None:
    mapping = build(
        ColumnMapping, {"columns": {"time": "at"}, "header": ["at", "search_id", "query_id", "doc_id", "position"]}
    )
    (row,), bad, _ = read(tmp_path / "log.csv", b"2024-05-01;s;q;d;4\n", mapping=mapping, delimiter=";")
    assert (row["document_id"], row["position"], row["line"], bad) == ("d", 4, 1, [])


def test_errors_of_mappings_name_the_field(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text('[columns]\ndocumentid = "sku"\n', encoding="utf-8")
    with pytest.raises(
        SettingError, match=r"columns.documentid must be a known field \(did you mean 'document_id'\?\)"
    ):
        read_mapping(path)
    path.write_text('[times]\nunit = "hours"\n', encoding="utf-8")
    with pytest.raises(SettingError, match=r"times.unit must be one of auto, iso, s, ms, us, ns"):
        read_mapping(path)


def test_a_mapping_has_no_words_for_lists() -> None:
    with pytest.raises(SettingError, match=r"values.documents must not be of a list"):
        ColumnMapping(values={"documents": {"a": "b"}})
    with pytest.raises(SettingError, match=r"constants.documents must not be of a list"):
        ColumnMapping(constants={"documents": "a"})


OTHER = {"position": "p", "time": "t"}


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"search_id": "ID", "document_id": "id", "query": "q"}, b'"ID": "S", "id": "D", "q": "Q"'),
        ({"search_id": "s", "document_id": "q.d", "query": "q"}, b'"s": "S", "q": "Q", "q.d": "D"'),
        ({"search_id": "q.s", "document_id": "q.d.e", "query": "q.d"}, b'"q": {"s": "S", "d": "Q"}, "q.d.e": "D"'),
        ({"search_id": "s", "document_id": "a/b", "query": "q"}, b'"s": "S", "a\\/b": "D", "q": "Q"'),
        ({"search_id": "s", "document_id": "\u0437", "query": "q"}, b'"s": "S", "\\u0437": "D", "q": "Q"'),
    ],
)
def test_names_within_and_like_others_and_written_in_other_ways(
    columns: dict[str, str], line: bytes, tmp_path: Path
) -> None:
    rows = b"{" + line + b', "p": 1, "t": 1714564800}\n{"q": \n'
    (row,), bad, _ = read(tmp_path / "log.jsonl", rows, mapping=ColumnMapping(columns=columns | OTHER))
    assert (row["search_id"], row["document_id"], row["query"]) == ("S", "D", "Q")
    assert bad == [(2, "not-json", None)]


@pytest.mark.parametrize(
    ("name", "data", "schema"),
    [
        ("a.jsonl", b'x\n{"search_id": 1}\n', "clickprism"),
        ("a.jsonl", b'{"event": "item"}\n', "metarank"),
        ("a.jsonl", b'{"user_query": "q", "client_id": 1}\n', "ubi"),
        ("a.csv", b"query_id,action_name\n", "ubi"),
        ("a.tsv", b"query\tdocuments\tclicks\n", "yandex"),
        ("a.jsonl", b"rubbish\n", "clickprism"),
    ],
)
def test_the_schema_is_detected(name: str, data: bytes, schema: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert detect(tmp_path / name, SourceSettings()).schema == schema


OWN = ["search_id", "time", "query", "document_id", "position"]
VALUES = ["s", "2024-05-01T12:00:00Z", "q", "d", "1"]


@pytest.mark.parametrize("name", ["a.csv", "a.log", "a.csv.gz"])
@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected_from_the_header(sign: str, name: str, tmp_path: Path) -> None:
    data = f'{sign.join(OWN)}{sign}"a note, or; two"\n{sign.join(VALUES)}{sign}"x{sign}y"\n'.encode()
    (row,), bad, _ = read(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    assert (row["search_id"], row["position"], bad) == ("s", 1, [])


def test_an_ambiguous_delimiter_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.csv:1: .* separated by ',' or ';'. Choose one: --source.delimiter '\",\"'"):
        read(tmp_path / "a.csv", b"one,two;three\n1,2;3\n")
    mapping = ColumnMapping(header=("search_id", "time", "query", "document_id", "position"))
    line = b"s;2024-05-01T12:00:00Z;red, large;d;1\n"
    (row,), bad, _ = read(tmp_path / "a.csv", line, mapping=mapping)
    assert (row["query"], bad) == ("red, large", [])
    (row,), bad, _ = read(tmp_path / "a.csv", b"cut,off;\n" + line, mapping=mapping)
    assert (row["line"], bad) == (2, [(1, "field-count", None)])
    with pytest.raises(DataError, match=r"separated by ',' or ';'"):
        read(tmp_path / "a.csv", b"a,b,c,d,e;1;2;3;4\n", mapping=mapping)
    assert read(tmp_path / "a.csv", b"a,b;c\n", mapping=mapping)[:2] == ([], [(1, "field-count", None)])
    good, bad, _ = read(tmp_path / "a.csv", b"search_id,time;query\n", delimiter=";", schema="clickprism")
    assert (good, bad) == ([], [])


def test_an_odd_row_condemns_only_itself(tmp_path: Path) -> None:
    """The schema is that of most rows, each looked at by itself."""
    odd = impression(action_name="click", query_response_hit_ids=["a"], user_query="q", client_id="c", event="item")
    del odd["search_id"]
    rows = [impression(position=number + 1) for number in range(300)]
    for place in (0, 50):
        mixed = [*rows[:place], odd, *rows[place:]]
        good, bad, _ = read(tmp_path / "log.jsonl", json_lines(*mixed))
        assert len(good) == len(rows)
        assert [line for line, _, _ in bad] == [place + 1]
