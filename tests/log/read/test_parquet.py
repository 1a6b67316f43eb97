"""Parquet: types of all sorts, broken groups, cut and flipped bytes."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import DataError
from clickprism.log.read import SourceSettings
from tests.log.read.reading import impression, lines_of, read, read_chunks

NOON = datetime(2024, 5, 1, 12)


def table(rows: int, **columns: Any) -> pa.Table:
    whole = {name: pa.array([value] * rows) for name, value in impression(time=NOON, click=...).items()}
    return pa.table(whole | columns)


def write(path: Path, made: pa.Table, **options: Any) -> Path:
    pq.write_table(made, path, **options)
    return path


def test_types_of_all_sorts(tmp_path: Path) -> None:
    made = table(
        2,
        search_id=pa.array(["a", "b"]).dictionary_encode(),
        document_id=pa.array([17, 18], pa.int64()),
        query=pa.array([b"q", b"r"], pa.binary()),
        time=pa.array([NOON, None], pa.timestamp("ms", tz="Europe/Paris")),
        position=pa.array([1.0, 2.0]),
        click=pa.array([True, None]),
        features=pa.array([{"x": 1.5}, None]),
        feature_y=pa.array([2, None], pa.int32()),
        agent=pa.nulls(2),
        line=pa.array([7, 7]),
    )
    good, bad, _ = read(write(tmp_path / "log.parquet", made))
    assert good == [
        {
            "kind": "impression", "time": NOON, "search_id": "a", "query": "q", "document_id": "17", "position": 1,
            "query_id": good[0]["query_id"], "click": True, "features": '{"x":1.5}', "line": 1,
        }
    ]  # fmt: skip
    assert bad == [(2, "missing", "time")]


def test_lists_and_structures(tmp_path: Path) -> None:
    made = pa.table(
        {
            "action_name": [None, "click"],
            "timestamp": [NOON, NOON],
            "query_id": ["Q", "Q"],
            "user_query": ["red", None],
            "query_response_hit_ids": pa.array([[1, 2], None]),
            "event_attributes": [None, {"object": {"object_id": 2}, "position": {"ordinal": 1}}],
        }
    )
    good, bad, _ = read(write(tmp_path / "log.parquet", made), ordinal_base=0)
    assert (good[0]["documents"], good[1]["document_id"], good[1]["position"], bad) == (["1", "2"], "2", 2, [])


def test_bad_rows_are_kept_as_json(tmp_path: Path) -> None:
    made = table(3, user_id=pa.array(["u", "a\0", "ok"]), position=[1, 1, 0])
    chunks = list(read_chunks(write(tmp_path / "log.parquet", made), SourceSettings()))
    bad = [row for chunk in chunks for row in chunk.bad.to_pylist()]
    assert [(row["line"], row["reason"][:8], row["field"]) for row in bad] == [
        (2, "nul-byte", "user_id"),
        (3, "position", "position"),
    ]
    assert b'"position":0' in bad[1]["raw"]


TEXTS = pa.array([b"a", b"\xff", b"b"]).view(pa.string())


@pytest.mark.parametrize(
    "documents",
    [
        pa.ListArray.from_arrays([0, 1, 2, 3], TEXTS),
        pa.LargeListArray.from_arrays([0, 1, 2, 3], TEXTS),
        pa.FixedSizeListArray.from_arrays(TEXTS, 1),
    ],
)
def test_texts_in_lists_are_utf8(documents: pa.Array, tmp_path: Path) -> None:
    made = table(3, documents=documents).drop_columns(["document_id", "position"])
    path = write(tmp_path / "log.parquet", made)
    good, bad, _ = read(path)
    assert ([row["documents"] for row in good], bad) == ([["a"], ["b"]], [(2, "not-utf8", None)])
    (raw,) = [raw for chunk in read_chunks(path, SourceSettings()) for raw in chunk.bad["raw"].to_pylist()]
    assert json.loads(raw)["documents"] == "\\xff"


def test_columns_that_are_not_asked_for_do_no_harm(tmp_path: Path) -> None:
    made = table(
        2,
        trace=pa.array([b"\xff", b"\x80"]),
        seen=pa.array([2**60, 1], pa.timestamp("us")),
        half=pa.array(np.array([1, 2], np.float16)),
        position=[1, 0],
    )
    path = write(tmp_path / "log.parquet", made)
    good, bad, _ = read(path)
    assert (lines_of(good), bad) == ([1], [(2, "position-range", "position")])
    (raw,) = [raw for chunk in read_chunks(path, SourceSettings()) for raw in chunk.bad["raw"].to_pylist()]
    assert json.loads(raw) | {"time": ""} == {
        "search_id": "s", "time": "", "query": "q", "document_id": "d", "position": 0, "trace": "\\x80",
        "seen": "1970-01-01 00:00:00.000001", "half": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (pa.timestamp("us"), 2**60, "time-unreadable"),
        (pa.timestamp("us", "UTC"), -(2**60), "time-unreadable"),
        (pa.timestamp("ms"), 2**60, "wrong-type"),
        (pa.date32(), 2**30, "time-unreadable"),
    ],
)
def test_times_that_no_calendar_has(kind: pa.DataType, value: int, code: str, tmp_path: Path) -> None:
    number = pa.int32() if kind == pa.date32() else pa.int64()
    noon = pa.array([NOON]).cast(kind, safe=False).cast(number)[0].as_py()
    path = write(tmp_path / "log.parquet", table(2, time=pa.array([value, noon], number).cast(kind)))
    good, bad, _ = read(path)
    assert (lines_of(good), bad) == ([2], [(1, code, "time")])


def test_whole_floats_are_ids_and_durations_are_milliseconds(tmp_path: Path) -> None:
    made = table(
        2,
        document_id=pa.array([5.0, 6.5]),
        user_id=pa.nulls(2, pa.list_(pa.string())),
        display_ms=pa.array([1_500_000, None], pa.duration("us")),
    )
    good, bad, _ = read(write(tmp_path / "log.parquet", made))
    assert ([row["document_id"] for row in good], good[0]["display_ms"], bad) == (["5", "6.5"], 1500, [])
    lists = table(1, documents=pa.array([[1.0, 2.0]])).drop_columns(["document_id", "position"])
    assert read(write(tmp_path / "log.parquet", lists))[0][0]["documents"] == ["1", "2"]


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    made = table(1)
    twice = pa.Table.from_arrays([*made.columns, made["query"]], names=[*made.column_names, "query"])
    with pytest.raises(DataError, match=r"log.parquet: there is more than one column 'query'. Write each column once"):
        read(write(tmp_path / "log.parquet", twice))


def test_groups_that_can_be_read_are(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", table(40), row_group_size=10, write_page_checksum=True, compression="none")
    data = bytearray(path.read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(1).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    data[start + group.total_compressed_size // 2 : start + group.total_compressed_size] = bytes(
        group.total_compressed_size - group.total_compressed_size // 2
    )
    good, bad, _ = read(path, bytes(data))
    assert lines_of(good) == [*range(1, 11), *range(21, 41)]
    assert bad == [(11, "unreadable", None)]


@pytest.mark.parametrize("checksum", [True, False])
def test_cut_and_flipped_files_are_read_as_far_as_they_can_be(checksum: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", table(8), row_group_size=4, write_page_checksum=checksum)
    data, numbers = path.read_bytes(), random.Random(1)
    for cut in numbers.sample(range(4, len(data)), 12):
        assert read(path, data[:cut])[:2] == ([], [(1, "unreadable", None)])
    for _ in range(25):
        flipped = bytearray(data)
        flipped[numbers.randrange(4, len(data))] ^= 1 << numbers.randrange(8)
        path.write_bytes(flipped)
        chunks = list(read_chunks(path, SourceSettings(schema="clickprism")))
        assert sum(len(chunk.good) + len(chunk.bad) + chunk.ignored for chunk in chunks) >= 1


def test_rows_do_not_depend_on_chunks(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", table(30), row_group_size=20)
    assert read(path, size=100) == read(path)


def test_no_rows(tmp_path: Path) -> None:
    assert read(write(tmp_path / "log.parquet", table(0))) == ([], [], 0)
