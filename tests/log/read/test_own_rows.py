"""Our own rows: every field, every way to break it, in JSON lines and CSV."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.log.read import SourceSettings
from clickprism.log.settings import ColumnMapping
from tests.log.read.reading import impression, json_lines, lines_of, read, read_chunks

NOON = datetime(2024, 5, 1, 12)
FULL = {
    "event_id": "e1",
    "time": "2024-05-01T12:00:00.123456+02:00",
    "search_id": "s",
    "query_id": "Q",
    "query": "rôle",
    "document_id": 17,
    "position": 3,
    "click": False,
    "display_ms": 1200,
    "dwell_ms": 3.6,
    "page_skipped": 1,
    "user_id": "u",
    "user_agent": "curl/8",
    "ranker": "v2",
    "randomised": "true",
    "features": {"bm25": 1.5},
}
READ = {
    "kind": "impression",
    "event_id": "e1",
    "time": NOON.replace(hour=10, microsecond=123456),
    "search_id": "s",
    "query_id": "Q",
    "query": "rôle",
    "document_id": "17",
    "position": 3,
    "click": False,
    "display_ms": 1200,
    "dwell_ms": 4,
    "page_skipped": True,
    "user_id": "u",
    "agent": "curl/8",
    "ranker": "v2",
    "randomised": True,
    "features": '{"bm25":1.5}',
    "line": 1,
}


def test_every_field_is_read(tmp_path: Path) -> None:
    ranking = impression(document_id=..., position=..., click=..., documents=["a", 2], clicked=["a"], query_id="x")
    action = impression(position=..., click=..., query=..., action="click")
    good, bad, ignored = read(tmp_path / "log.jsonl", json_lines(FULL, ranking, action))
    assert good[0] == READ
    assert good[1] == {
        "kind": "ranking", "time": NOON, "search_id": "s", "query_id": "x", "query": "q", "documents": ["a", "2"],
        "clicked": ["a"], "line": 2,
    }  # fmt: skip
    assert good[2] == {
        "kind": "interaction", "time": NOON, "search_id": "s", "document_id": "d", "action": "click", "line": 3,
    }  # fmt: skip
    assert (bad, ignored) == ([], 0)


BROKEN: list[tuple[Any, str, str | None]] = [
    (impression(position=0), "position-range", "position"),
    (impression(position=10_001), "position-range", "position"),
    (impression(position=2**63 - 1), "position-range", "position"),
    (impression(position=10**30), "wrong-type", "position"),
    (impression(position=1.5), "wrong-type", "position"),
    (impression(position=[1]), "wrong-type", "position"),
    (impression(position="first"), "wrong-type", "position"),
    (impression(position=None), "missing", "position"),
    (impression(search_id=""), "missing", "search_id"),
    (impression(search_id={"a": 1}), "wrong-type", "search_id"),
    (impression(document_id=["d"]), "wrong-type", "document_id"),
    (impression(query=...), "missing", "query_id"),
    (impression(time=...), "missing", "time"),
    (impression(time="yesterday"), "time-unreadable", "time"),
    (impression(time="2024-02-30"), "time-unreadable", "time"),
    (impression(time=10**40), "time-unreadable", "time"),
    (impression(time="infinity"), "time-unreadable", "time"),
    (impression(time=-1), "time-early", "time"),
    (impression(time="1999-12-31T23:59:59Z"), "time-early", "time"),
    (impression(time="9999-12-31"), "time-late", "time"),
    (impression(time=(datetime.now(UTC) + timedelta(hours=25)).isoformat()), "time-late", "time"),
    (impression(click="maybe"), "wrong-type", "click"),
    (impression(click=2), "wrong-type", "click"),
    (impression(dwell_ms=-1), "negative", "dwell_ms"),
    (impression(display_ms="long"), "wrong-type", "display_ms"),
    (impression(display_ms=float("nan")), "wrong-type", "display_ms"),
    (impression(features=3), "wrong-type", "features"),
    (impression(kind="purchase"), "unknown-kind", "kind"),
    (impression(documents="a"), "wrong-type", "documents"),
    (impression(documents=["a", None]), "wrong-type", "documents"),
    (impression(user_id="a\0b"), "nul-byte", "user_id"),
    (b"a\0b", "nul-byte", None),
    (b'{"search_id": "\xff"}', "not-utf8", None),
    (b'{"search_id": ', "not-json", None),
    (b'{"search_id": "\\ud800"}', "not-json", None),
    (b"[1]", "not-object", None),
    (b"17", "not-object", None),
    (b"[" * 100_000, "not-json", None),
]


def test_each_broken_row_has_its_reason_and_no_good_row_is_lost(tmp_path: Path) -> None:
    rows = [each for row, _, _ in BROKEN for each in (impression(), row)]
    good, bad, _ = read(tmp_path / "log.jsonl", json_lines(*rows))
    assert lines_of(good) == list(range(1, len(rows), 2))
    assert bad == [(2 * place, code, field) for place, (_, code, field) in enumerate(BROKEN, start=1)]


@pytest.mark.parametrize("size", [2, 150, 5000])
def test_chunks_do_not_matter(size: int, tmp_path: Path) -> None:
    data = json_lines(*(each for row, _, _ in BROKEN[30:37] for each in (impression(), row)), b"  ", b"") + b'{"cut'
    path = tmp_path / "log.jsonl"
    assert read(path, data, size=size) == read(path)


def test_raw_bytes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(json_lines(impression()) + b"\xff\xfe \r\n{\n")
    (chunk,) = read_chunks(path, SourceSettings())
    assert chunk.bad.to_pylist() == [
        {"line": 2, "reason": "not-utf8: the bytes are not UTF-8", "field": None, "value": None, "raw": b"\xff\xfe "},
        {"line": 3, "reason": "not-json: the line is not JSON", "field": None, "value": None, "raw": b"{"},
    ]


@pytest.mark.parametrize(
    ("time", "unit", "seconds"),
    [
        (1714564800, "auto", 0.0),
        ("1714564800.25", "auto", 0.25),
        (1714564800250, "auto", 0.25),
        (1714564800250000, "auto", 0.25),
        (1714564800250000123, "auto", 0.25),
        (1714564800250, "ms", 0.25),
        ("2024-05-01 12:00:00.250", "ms", 0.25),
        ("2024-05-01T14:00:00.250+0200", "auto", 0.25),
        ("2024-05-01T06:30:00-05:30", "iso", 0.0),
        ("2024-05-01t12:00:00,25z", "auto", 0.25),
        (1714564800123456999, "auto", 0.123456),
        ("1714564800.1234567", "auto", 0.123456),
    ],
)
def test_times_are_read_in_every_form_and_unit(time: Any, unit: Any, seconds: float, tmp_path: Path) -> None:
    (row,), bad, _ = read(tmp_path / "log.jsonl", json_lines(impression(time=time)), time_unit=unit)
    assert (row["time"], bad) == (NOON + timedelta(seconds=seconds), [])


def test_times_without_a_zone_are_utc_wherever_the_machine_is(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(json_lines(impression(time="2024-05-01T03:00:00")))
    script = (
        "import sys; from pathlib import Path; from clickprism.log.read import SourceSettings;"
        "from tests.log.read.reading import read_chunks;"
        "print(next(read_chunks(Path(sys.argv[1]), SourceSettings())).good['time'][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log.jsonl")],
        env={**os.environ, "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "2024-05-01 03:00:00"


def test_a_list_ends_where_positions_do(tmp_path: Path) -> None:
    rows = [impression(document_id=..., position=..., click=..., documents=["d"] * count) for count in (2, 3)]
    good, bad, _ = read(tmp_path / "log.jsonl", json_lines(*rows), max_position=2)
    assert (lines_of(good), bad) == ([1], [(2, "position-range", "documents")])


def test_a_stated_unit_is_not_guessed(tmp_path: Path) -> None:
    rows = json_lines(impression(time=1714564800250), impression(time=1714564800))
    assert read(tmp_path / "log.jsonl", rows, time_unit="s")[1] == [(1, "time-unreadable", "time")]
    assert read(tmp_path / "log.jsonl", rows, time_unit="ms")[1] == [(2, "time-early", "time")]
    assert len(read(tmp_path / "log.jsonl", rows, time_unit="iso")[1]) == 2


def test_query_ids_and_features(tmp_path: Path) -> None:
    rows = [
        impression(feature_b=1, **{"feature_a/x": "y"}),
        impression(query=..., query_id=5),
        impression(feature_b=None),
        impression(query=" Q "),  # blanks and capital letters do not make another query
    ]
    good, bad, _ = read(tmp_path / "log.jsonl", json_lines(*rows))
    assert good[0]["query_id"] == hashlib.md5(b"q").hexdigest()  # noqa: S324
    assert (good[3]["query_id"], good[3]["query"]) == (good[0]["query_id"], " Q ")
    assert [row.get("features") for row in good] == ['{"a/x":"y","b":1}', None, '{"b":null}', None]
    assert (good[1]["query_id"], bad) == ("5", [])


def test_csv_rows_are_read_and_broken_ones_reported(tmp_path: Path) -> None:
    text = "search_id,time,query,document_id,position,click,feature_x,documents,clicked\n"
    text += 's,2024-05-01,"a, b",d,1,TRUE,1.50,,\ns,2024-05-01,q,,,,,"[""a"", ""b""]","[]"\ns,2024-05-01,q,d,0,,,,\ns\n'
    good, bad, _ = read(tmp_path / "log.csv", b"\xef\xbb\xbf" + text.encode())
    assert [row["kind"] for row in good] == ["impression", "ranking"]
    assert (good[0]["query"], good[0]["click"], good[0]["features"]) == ("a, b", True, '{"x":1.5}')
    assert (good[1]["documents"], good[1]["clicked"]) == (["a", "b"], [])
    assert bad == [(4, "position-range", "position"), (5, "field-count", None)]


def test_formats_are_detected_without_names(tmp_path: Path) -> None:
    assert len(read(tmp_path / "one.log", json_lines(impression()))[0]) == 1
    table = "search_id\ttime\tquery\tdocument_id\tposition\ns\t2024-05-01\tq\td\t1\n"
    assert len(read(tmp_path / "two", table.encode())[0]) == 1
    assert read(tmp_path / "empty.jsonl", b"") == ([], [], 0)
    assert read(tmp_path / "empty.csv", b"\n\n") == ([], [], 0)


def test_unknown_fields_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"fields of no known schema. It has sku, when. See .*: clickprism log ingest log.jsonl --guess"
    ):
        read(tmp_path / "log.jsonl", json_lines({"sku": 1, "when": 2}))
    table = (
        r"ingest good.csv --guess. Or .*: clickprism log ingest good.csv --map query=q --map document=sku .*--into LOG"
    )
    with pytest.raises(DataError, match=table):
        read(tmp_path / "good.csv", b"q,sku,rank,clicked\ncat,a,1,0\n")
    with pytest.raises(DataError, match=r"It has clicked, sku. Write one row per line"):
        read(tmp_path / "list.json", b'[{"sku": "a", "clicked": 0}]')


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match=r"schema must be 'mapping' or 'auto' where a mapping is given"):
        SourceSettings(schema="ubi", mapping=ColumnMapping(columns={"document_id": "sku"}))
    with pytest.raises(SettingError, match=r"earliest must be a date or a time"):
        SourceSettings(earliest="long ago")
    with pytest.raises(SettingError, match=r"delimiter must be one ASCII character"):
        SourceSettings(delimiter="é")


ROW = {"search_id": "s", "time": "2024-05-01T12:00:00Z", "query_id": "q", "document_id": "d", "position": 1}


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_durations_that_nobody_believes(form: str, tmp_path: Path) -> None:
    longest = 7_200_000
    rows = [ROW | {"display_ms": ms, "dwell_ms": other} for ms, other in ((longest, 0), (longest + 1, 0), (0, 2**62))]
    rows += [ROW | {"display_ms": -1, "dwell_ms": 2**62}]
    if form != "parquet":  # which has no room for more than 64 bits
        rows += [ROW | {"display_ms": ms, "dwell_ms": 0} for ms in (2**63, 10**40, -(2**63) - 1, "1e25")]
    path = tmp_path / {"csv": "a.csv", "parquet": "a.parquet"}.get(form, "a.jsonl")
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "csv":
        header = ",".join(ROW | {"display_ms": 0, "dwell_ms": 0})
        path.write_text("\n".join([header, *(",".join(map(str, row.values())) for row in rows)]))
    else:
        path.write_bytes(json_lines(*rows))
    good, bad, _ = read(path, max_duration_hours=2)
    assert [row["display_ms"] for row in good] == [longest]
    said = [(code, field) for _, code, field in bad]
    expected = [("duration-range", "display_ms"), ("duration-range", "dwell_ms"), ("negative", "display_ms")]
    beyond = [(code, "display_ms") for code in ("duration-range", "duration-range", "negative", "duration-range")]
    assert said == expected + (beyond if form != "parquet" else [])


def test_the_last_time_is_exact(tmp_path: Path) -> None:
    rows = [impression(time=f"2024-05-01T12:00:00.00000{number}Z") for number in (1, 2)]
    good, bad, _ = read(tmp_path / "log.jsonl", json_lines(*rows), latest="2024-05-01T12:00:00.000001")
    assert (lines_of(good), bad) == ([1], [(2, "time-late", "time")])
