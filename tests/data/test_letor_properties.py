"""What holds for every file: numbers as Python reads them, round trips, and no error but ours."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clickprism.data.letor import read_letor, scan_letor
from clickprism.errors import DataError
from tests.shared_data import shared_data

LARGEST = float(np.finfo(np.float32).max)


def read_text(text: bytes, **options: object) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.txt")
        path.write_bytes(text)
        return scan_letor(path, cache=None, **options)  # type: ignore[arg-type]


def values(texts: list[str]) -> list[float]:
    line = " ".join(f"{number}:{text}" for number, text in enumerate(texts, start=1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.txt")
        path.write_text(f"0 qid:1 {line}\n")
        row: list[float] = read_letor(path, cache=None).lists.features[0].tolist()
    return row


def python(text: str) -> float:
    return float(np.float32(np.clip(float(text), -LARGEST, LARGEST)))


decimals = st.from_regex(r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", fullmatch=True)
printed = st.floats(allow_nan=False, allow_infinity=False).map(repr)
printed32 = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(decimals, printed, printed32), min_size=1, max_size=20))
@example(
    ["16777217", "16777219.0000000000000001", "0.1", "9007199254740993", "1e22", "1e23", "8.5e-46", "1.17549429e-38"]
)
@example(["33554433.99999999999999999", "1.000000059604644775390625", "1.00000005960464477539062499999", "7e-46"])
def test_numbers_are_what_python_reads(texts: list[str]) -> None:
    assert values(texts) == [python(text) for text in texts]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 12))
    width = data.draw(st.integers(1, 6))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    matrix = np.array(
        data.draw(st.lists(st.lists(number, min_size=width, max_size=width), min_size=rows, max_size=rows))
    )
    grades = data.draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    queries = data.draw(st.lists(st.sampled_from("abcd"), min_size=rows, max_size=rows))
    sparse = data.draw(st.booleans())
    lines = []
    for row in range(rows):
        tokens = [f"{i + 1}:{value!r}" for i, value in enumerate(matrix[row].tolist()) if value != 0 or not sparse]
        lines.append(f"{grades[row]} qid:{queries[row]} {' '.join(tokens)} # docid = {row}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.txt")
        path.write_text("\n".join(lines))
        judged = read_letor(path, features=width, base=1, cache=None)
    names = list(dict.fromkeys(queries))
    order = [row for name in names for row in range(rows) if queries[row] == name]
    assert judged.lists.query_ids.tolist() == names
    assert np.array_equal(judged.lists.features, matrix[order].astype(np.float32))
    assert judged.grades.tolist() == [grades[row] for row in order]
    assert judged.lists.document_ids is not None
    assert judged.lists.document_ids.tolist() == [str(row) for row in order]
    assert judged.lists.lengths.tolist() == [queries.count(name) for name in names]


pieces = st.lists(
    st.sampled_from(
        [
            b"1",
            b"0",
            b" ",
            b"qid:",
            b":",
            b"#",
            b"\n",
            b"\r",
            b"\t",
            b".",
            b"e",
            b"-",
            b"nan",
            b"docid",
            b"=",
            b"9" * 20,
        ]
    ),
    max_size=60,
).map(b"".join)
magic = st.sampled_from(
    [b"", b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"\xef\xbb\xbf"]
)


@settings(max_examples=200, deadline=None)
@given(magic, st.one_of(st.binary(max_size=200), pieces), st.sampled_from(["raise", "quarantine"]))
def test_only_data_errors_come_out(start: bytes, rest: bytes, on_error: str) -> None:
    with contextlib.suppress(DataError):
        read_text(start + rest, on_error=on_error)


@pytest.mark.parametrize("name", ["mq2008/S1.txt.gz", "lightgbm-rank/rank.train.gz"])
def test_real_files_equal_sklearn(name: str) -> None:
    path = shared_data(name)
    from sklearn.datasets import load_svmlight_file

    judged = read_letor(path, cache=None)
    matrix, grades, queries = load_svmlight_file(str(path), query_id=True, dtype=np.float32)
    assert np.array_equal(judged.lists.features, matrix.toarray())
    assert judged.grades.tolist() == grades.tolist()
    if "mq2008" in name:
        assert judged.lists.query_ids[judged.lists.list_of].astype(int).tolist() == queries.tolist()


def test_the_ranking_files_of_lightgbm_are_read() -> None:
    for part, lists, documents in (("train", 201, 3005), ("test", 50, 768)):
        judged = read_letor(shared_data(f"lightgbm-rank/rank.{part}.gz"), cache=None)
        assert (len(judged), judged.lists.features.shape) == (lists, (documents, 300))
