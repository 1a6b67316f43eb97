"""Broken rows are shown with what is wrong, written out, mended, ingested and cleared; nothing is lost on the way."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.log.ingest import ingest
from clickprism.log.quarantine import Standing, clear, standing, write_raw
from clickprism.log.read import SourceSettings
from clickprism.log.settings import RowFilter
from clickprism.log.store import LogStore
from tests.conftest import run_command
from tests.faults.children import clear_rows
from tests.log.raw_logs import impression, stored, write_lines

GOOD = [impression(number) for number in range(4)]
NAMES = list(GOOD[0])


def csv_text(rows: list[dict[str, Any]], sign: str) -> str:
    lines = [NAMES, *([str(row[name]) for name in NAMES] for row in rows)]
    return "".join(sign.join(line) + "\n" for line in lines)


def ubi(number: int, **changes: Any) -> dict[str, Any]:
    place = {"object": {"object_id": f"d{number}"}, "position": {"ordinal": number}}
    row = {"action_name": "click", "query_id": "q", "client_id": "c", "timestamp": "2026-03-01T10:00:00Z"}
    return row | {"event_attributes": place} | changes


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "csv", "semicolon", "tsv.gz", "parquet", "ubi"])
def test_the_printed_remedy(form: str, tmp_path: Path) -> None:
    """Mended rows are those of a log that had them whole from the start."""
    wrong, right = '"position": "first"', '"position": 1'
    rows = [*GOOD[:3], GOOD[3] | {"position": "first"}]
    source = SourceSettings(ordinal_base=1) if form == "ubi" else None
    if form == "ubi":
        whole = [ubi(number) for number in range(1, 5)]
        rows = [
            *whole[:3],
            whole[3] | {"event_attributes": {"object": {"object_id": "d4"}, "position": {"ordinal": "x"}}},
        ]
        wrong, right = '"ordinal": "x"', '"ordinal": 4'
    else:
        whole = [*GOOD[:3], GOOD[3] | {"position": 1}]
    sign = {"csv": ",", "semicolon": ";", "tsv.gz": "\t"}.get(form, "")
    path = tmp_path / ("a.csv" if form == "semicolon" else f"a.{form}" if form != "ubi" else "a.jsonl")
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([row | {"position": str(row["position"])} for row in rows]), path)
        wrong, right = '"position":"first"', '"position":1'
    elif sign:
        text, (wrong, right) = csv_text(rows, sign), ("first", "1")
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    else:
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    log, out = tmp_path / "log", tmp_path / ("broken.csv" if sign else "broken.jsonl")
    ingest([path], log, source=source, max_bad_ratio=1)
    done = run_command("log", "quarantine", str(log), "--out", str(out), "--clear")
    words = done.stderr.partition("Next: clickprism ")[2].splitlines()[0].split()
    text = out.read_text(encoding="utf-8")
    assert text.count(wrong) == 1
    out.write_text(text.replace(wrong, right), encoding="utf-8")
    account = run_command(*words, "--json").json
    assert (account["rows_in"], account["accepted"], account["duplicate"]) == (1, 1, 0)
    never = write_lines(tmp_path / "whole.jsonl", whole)
    ingest([never], tmp_path / "never", source=source)
    assert stored(log) == stored(tmp_path / "never")
    assert standing(LogStore.open(log)) == Standing(quarantined=1, standing=0, cleared=1, forgotten=0)
    assert "No rows are in quarantine" in run_command("log", "quarantine", str(log)).stdout


def test_reasons_show_the_value_safely(tmp_path: Path) -> None:
    bad = [
        GOOD[0] | {"position": "\x1b[31mred\u202e" + "x" * 200},
        GOOD[1] | {"time": "yesterday\n"},
        GOOD[2] | {"dwell_ms": 10**14},
        GOOD[3] | {"kind": "visit"},
        {**GOOD[0], "documents": ["a", ""], "kind": "ranking"},
    ]
    path = write_lines(tmp_path / "a.jsonl", bad)
    with pytest.raises(
        DataError, match=r"line 1: wrong-type: .*\(position is '\\x1b\[31mred\\u202exx.*\.\.\.'\); line 2"
    ):
        ingest([path], tmp_path / "log")
    ingest([path], tmp_path / "log", max_bad_ratio=1)
    shown = run_command("log", "quarantine", str(tmp_path / "log")).stdout
    for text in ("position is '\\x1b[31mred\\u202exx", r"time is 'yesterday\n'", "dwell_ms is '100000000000000'"):
        assert text in shown
    assert "kind is 'visit'" in shown
    assert shown.replace("\n", "").isprintable()
    rows = LogStore.open(tmp_path / "log").table("quarantine").read(["field", "value"]).to_pylist()
    found = {row["field"]: row["value"] for row in rows}
    assert (found["time"], len(found["position"]), found["documents"][:2]) == ("yesterday\n", 80, "[a")


def test_rows_are_chosen_by_file_and_reason(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "one.jsonl", [GOOD[0], "{", GOOD[1] | {"position": 0}])
    second = write_lines(tmp_path / "two.jsonl", [GOOD[2], "["])
    (tmp_path / "three.csv").write_text(csv_text([GOOD[3] | {"position": "x"}], ","))
    log = tmp_path / "log"
    ingest([first, second, tmp_path / "three.csv"], log, max_bad_ratio=1)
    store = LogStore.open(log)
    with pytest.raises(
        DataError, match=r"rows of .* and three.csv do not fit in one file. Choose one of them with --file NAME"
    ):
        write_raw(store, tmp_path / "out.jsonl")
    with pytest.raises(SettingError, match=r"out must end in .csv"):
        write_raw(store, tmp_path / "out.jsonl", RowFilter(file="three.csv"))
    with pytest.raises(SettingError, match=r"reason must be .*did you mean 'not-json'"):
        RowFilter(reason="not-jsn")
    assert write_raw(store, tmp_path / "out.jsonl", RowFilter(file="*.jsonl", reason="not-json")) == 2
    assert (tmp_path / "out.jsonl").read_text() == "{\n[\n"
    assert clear(store, RowFilter(file=str(first), reason="position-range")) == 1
    assert clear(store, RowFilter(file=str(first), reason="position-range")) == 0
    assert clear(store, RowFilter(file="two.*")) == 1
    assert standing(store) == Standing(quarantined=4, standing=2, cleared=2, forgotten=0)
    told = run_command("log", "quarantine", str(log), "--clear", "--json").json
    assert (told["cleared_now"], told["total"]) == (2, {"quarantined": 4, "standing": 0, "cleared": 4, "forgotten": 0})
    rows = store.table("quarantine").read().to_pylist()
    assert {(row["raw"], row["value"]) for row in rows} == {(b"", None)}
    assert sorted(row["line"] for row in rows) == [2, 2, 2, 3]
    assert len([*store.table("quarantine").folder.glob("*.parquet")]) == len(store.table("quarantine").files())
    assert ingest([first, second], log, max_bad_ratio=1).known == 2


def test_rows_that_are_not_kept_whole_are_not_written(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [GOOD[0], json.dumps(GOOD[1] | {"query": "x" * 500}), "{"])
    ingest([path], tmp_path / "log", source=SourceSettings(max_line_bytes=400), max_bad_ratio=1)
    done = run_command("log", "quarantine", str(tmp_path / "log"), "--out", str(tmp_path / "out.jsonl"), "--clear")
    assert standing(LogStore.open(tmp_path / "log")) == Standing(quarantined=2, standing=1, cleared=1, forgotten=0)
    assert "1 rows were not written: they are too long" in done.stderr
    assert (tmp_path / "out.jsonl").read_text() == "{\n"


@pytest.mark.parametrize("point", ["quarantine-moved", "quarantine-committed"])
def test_a_quarantine_killed_while_it_is_cleared_is_cleared_by_the_next_run(
    point: str, killed: Callable[..., None], tmp_path: Path
) -> None:
    path, log = write_lines(tmp_path / "a.jsonl", [GOOD[0], "{", "["]), tmp_path / "log"
    ingest([path], log, max_bad_ratio=1)
    killed(clear_rows, str(log), point)
    store, left = LogStore.open(log), 2 if point == "quarantine-moved" else 0
    assert standing(store) == Standing(quarantined=2, standing=left, cleared=2 - left, forgotten=0)
    assert clear(store) == left
    assert standing(store) == Standing(quarantined=2, standing=0, cleared=2, forgotten=0)
    files = [str(file) for file in (log / "quarantine").rglob("*.parquet")]
    assert files == store.table("quarantine").files()
    assert ingest([path], log, max_bad_ratio=1).known == 1
