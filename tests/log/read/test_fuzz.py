"""Random bytes anywhere in a good file: every row that was not touched comes out, and nothing is raised."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.log.read.reading import impression, json_lines, lines_of, read

ROWS = [json_lines(impression(position=place, query=f"é {place}")) for place in range(1, 9)]
FIELDS = b"search_id,time,query,document_id,position\n"
RECORDS = [f's{place},2024-05-01,"a, {place}",d,{place}\n'.encode() for place in range(1, 9)]
FUZZ = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 100), st.binary(min_size=1, max_size=12)), max_size=4)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def touched(rows: list[bytes], changes: list[tuple[int, int, bytes]]) -> tuple[list[bytes], set[int]]:
    rows = list(rows)
    for row, place, data in changes:
        at = place % len(rows[row])
        rows[row] = rows[row][:at] + data + rows[row][at:]
    return rows, {row for row, _, _ in changes}


def positions(path: Path, data: bytes) -> set[int]:
    good, _, _ = read(path, data, schema="clickprism")
    assert lines_of(good) == sorted(set(lines_of(good)))
    return {row["position"] for row in good}


@settings(max_examples=25)
@given(changes=FUZZ, packed=st.booleans())
@example(changes=[(0, 5, b"\n\xff\n")], packed=False)
@example(changes=[(7, 0, b'{"a":')], packed=True)
def test_broken_json_lines_do_not_affect_the_others(
    folder: Path, changes: list[tuple[int, int, bytes]], packed: bool
) -> None:
    rows, broken = touched(ROWS, changes)
    data = b"".join(rows)
    found = positions(folder / "log.jsonl", gzip.compress(data) if packed else data)
    assert found >= {row + 1 for row in range(8) if row not in broken}


@settings(max_examples=25)
@given(changes=FUZZ.filter(lambda changes: sum(data.count(b'"') for _, _, data in changes) < 2))
@example(changes=[(2, 15, b'"')])
@example(changes=[(2, 0, b'"\n')])
@example(changes=[(0, 3, b"\r")])
def test_broken_csv_rows_do_not_affect_the_others(folder: Path, changes: list[tuple[int, int, bytes]]) -> None:
    rows, broken = touched(RECORDS, changes)
    found = positions(folder / "log.csv", FIELDS + b"".join(rows))
    assert found >= {row + 1 for row in range(8) if row not in broken}


@settings(max_examples=20)
@given(st.binary(max_size=300))
def test_rubbish_is_never_a_traceback(folder: Path, data: bytes) -> None:
    for name in ("rubbish.jsonl", "rubbish.parquet"):
        assert read(folder / name, data, schema="clickprism")[0] == []
