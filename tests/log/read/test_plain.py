"""The quick way for plain lines reads what the query of `rows` reads, and leaves to it all that it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickprism.log import read as readers
from clickprism.log.read import Chunk, SourceSettings, read_chunks
from clickprism.log.read.lines import blocks, split
from clickprism.log.read.scan import read_plain

ROW = {"search_id": "s", "time": "2024-05-01T12:00:00Z", "query_id": "q", "document_id": "d", "position": 1}


def whole(chunks: Iterable[Chunk]) -> Chunk:
    """All chunks as one, in the order of lines."""
    good, bad, ignored, read = zip(
        *((each.good, each.bad, each.ignored, each.bytes_read) for each in chunks), strict=True
    )
    tables = [pa.concat_tables(each).sort_by("line") for each in (good, bad)]
    return Chunk(tables[0], tables[1], sum(ignored), sum(read))


def both(path: Path, monkeypatch: pytest.MonkeyPatch, source: SourceSettings) -> tuple[Chunk, Chunk]:
    read = []
    for worth in (0, 1 << 40):
        monkeypatch.setattr(readers, "WORTH", worth)
        read.append(whole(read_chunks(path, source)))
    return read[0], read[1]


def taken(path: Path, source: SourceSettings | None = None) -> list[bool]:
    (lines,) = split(blocks(path, 1 << 20), max_line=1 << 20)
    _, left = read_plain(lines, source or SourceSettings(schema="clickprism"))
    return [number not in left.numbers for number in lines.numbers]


def write(path: Path, lines: list[str | dict[str, Any]]) -> Path:
    path.write_text(
        "".join((each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)) + "\n" for each in lines)
    )
    return path


PLAIN: list[str | dict[str, Any]] = [
    ROW,
    ROW | {"time": "2024-02-29 23:59:59.5"},
    ROW | {"time": "2000-03-01T00:00:00.123456Z"},
    ROW | {"time": 1714564800},
    ROW | {"time": "1714564800123"},
    ROW | {"time": 1714564800123456, "position": "7", "document_id": 17},
    ROW | {"query_id": None, "query": "東京"},
    ROW | {"query_id": "", "query": "b", "click": True, "page_skipped": 0, "randomised": 1, "dwell_ms": 0, "kind": ""},
    ROW
    | {"display_ms": 24 * 3_600_000, "user_id": "u", "agent": None, "user_agent": "x", "other": 12, "documents": None},
    {**ROW, "action": "click", "position": None, "query_id": None},
    ROW | {"kind": "impression", "action": "click"},
    ROW | {"kind": "interaction", "action": "buy"},
    '\t{ "search_id" :"s","doc_id":"d" , "position": 2,"query":"q","timestamp":"2024-05-01T12:00:00"} ',
]
LEFT: list[str | dict[str, Any]] = [
    *(ROW | {"time": time} for time in ("2023-02-29T00:00:00Z", "2024-05-01T24:00:00Z", "2024-05-01", -1, 1.5, True)),
    *(ROW | {"time": time} for time in ("2024-05-01T12:00:00+02:00", "1999-12-31T23:59:59Z", "2999-01-01T00:00:00Z")),
    *(ROW | {"time": time} for time in ("2024-05-01T12:00:00.", "2024-05-01T12:00:00.1234567Z", "2024-05-01T12:0:00Z")),
    *(ROW | {"position": position} for position in (0, -1, 1.0, 10_001, "x", None, True, [1])),
    *(ROW | {"click": click} for click in ("yes", 2, "true", 1.0)),
    *(ROW | {"dwell_ms": dwell} for dwell in (-1, 1.5, 24 * 3_600_000 + 1, 2**62, 10**18, "x")),
    *(ROW | {name: None} for name in ("search_id", "time", "query_id", "document_id")),
    ROW | {"feature_a": 1},
    ROW | {"features": {}},
    ROW | {"documents": ["a"]},
    ROW | {"kind": "ranking"},
    ROW | {"kind": "impressioN"},
    ROW | {"user_id": {"a": 1}},
    ROW | {"user_id": True},
    ROW | {"query": 'a "b"'},
    ROW | {"doc_id": "e"},
    ROW | {"other": 1e3},
    json.dumps(ROW)[:-1],
    json.dumps(ROW) + "}",
    json.dumps(ROW)[:-1] + ",}",
    json.dumps(ROW)[:-1] + ', "click": nul}',
    json.dumps(ROW)[:-1] + ', "other": 01}',
    json.dumps(ROW)[:-1] + ', "position": 2}',
    json.dumps(ROW).replace('"q"', '"q\x01"'),
    "{}",
    "[]",
    "null",
    '{"a',
]


def test_both_ways_know_the_same_last_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = ["2024-05-01T12:00:00.000001Z", "2024-05-01T12:00:00.000002Z"]
    path = write(tmp_path / "a.jsonl", [ROW | {"time": time} for time in times])
    source = SourceSettings(schema="clickprism", latest="2024-05-01T12:00:00.000001")
    assert taken(path, source) == [True, False]
    for chunk in both(path, monkeypatch, source):
        assert (chunk.good["line"].to_pylist(), chunk.bad["line"].to_pylist()) == ([1], [2])
        assert chunk.bad["reason"][0].as_py().startswith("time-late")


@pytest.mark.parametrize("form", ["quick", "slow", "csv", "parquet"])
def test_durations_that_nobody_believes(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "WORTH", 0 if form == "quick" else 1 << 40)
    longest = 7_200_000
    rows = [ROW | {"display_ms": ms, "dwell_ms": other} for ms, other in ((longest, 0), (longest + 1, 0), (0, 2**62))]
    rows += [ROW | {"display_ms": -1, "dwell_ms": 2**62}]
    if form != "parquet":  # which has no room for more than 64 bits
        rows += [ROW | {"display_ms": ms, "dwell_ms": 0} for ms in (2**63, 10**40, -(2**63) - 1, "1e25")]
    path = tmp_path / {"csv": "a.csv", "parquet": "a.parquet"}.get(form, "a.jsonl")
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "csv":
        write(
            path,
            [",".join(ROW | {"display_ms": 0, "dwell_ms": 0}), *(",".join(map(str, row.values())) for row in rows)],
        )
    else:
        write(path, [*rows])
    chunk = whole(read_chunks(path, SourceSettings(max_duration_hours=2)))
    assert chunk.good["display_ms"].to_pylist() == [longest]
    said = [(row["reason"].partition(":")[0], row["field"]) for row in chunk.bad.to_pylist()]
    expected = [("duration-range", "display_ms"), ("duration-range", "dwell_ms"), ("negative", "display_ms")]
    beyond = [(code, "display_ms") for code in ("duration-range", "duration-range", "negative", "duration-range")]
    assert said == expected + (beyond if form != "parquet" else [])


def test_plain_lines_are_taken_and_all_others_left(tmp_path: Path) -> None:
    lines = taken(write(tmp_path / "plain.jsonl", PLAIN)), taken(write(tmp_path / "left.jsonl", LEFT))
    assert [PLAIN[i] for i, each in enumerate(lines[0]) if not each] == []
    assert [LEFT[i] for i, each in enumerate(lines[1]) if each] == []


@pytest.mark.parametrize("unit", ["auto", "iso", "s", "ms", "us", "ns"])
def test_both_ways_read_the_same(unit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = [line for pair in zip([*PLAIN, *PLAIN, *PLAIN, *PLAIN], LEFT, strict=False) for line in pair]
    path = write(tmp_path / "a.jsonl", mixed)
    quick, slow = both(path, monkeypatch, SourceSettings(schema="clickprism", time_unit=unit))
    assert quick.good.to_pylist() == slow.good.to_pylist()
    assert quick.bad.equals(slow.bad)
    assert (quick.rows, quick.bytes_read) == (slow.rows, slow.bytes_read)


NAMES = ["kind", "event_id", "time", "timestamp", "search_id", "query_id", "query", "document_id", "doc_id", "position"]
NAMES += ["action", "click", "display_ms", "dwell_ms", "page_skipped", "user_id", "agent", "randomised", "x", "clicked"]
VALUES: list[Any] = [None, "", "a", "é", 0, 1, 5, 12, True, False, 1.5, -3, "7", "true", 1714564800, "2024-05-01", '"']
VALUES += ["2024-05-01T12:00:00Z", "2024-12-31T23:59:59.999Z", "9" * 18, ["a"], {"a": 1}]
VALUES += ["click", "impression", "interaction", "ranking"]
LINES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4).map(lambda changed: ROW | changed)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, min_size=1, max_size=20), st.booleans(), st.sampled_from(["", " ", "\r", "}", ","]))
def test_any_lines_are_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], ascii_only: bool, end: str
) -> None:
    lines: list[str | dict[str, Any]] = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    path = write(tmp_path / "a.jsonl", [*lines, str(lines[0]) + end])
    quick, slow = both(path, monkeypatch, SourceSettings(schema="clickprism"))
    assert quick.good.to_pylist() == slow.good.to_pylist()
    assert quick.good.schema == slow.good.schema
    assert pa.Table.equals(quick.bad, slow.bad)
