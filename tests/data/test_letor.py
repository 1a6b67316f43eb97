"""The rules of LETOR text, each on a file small enough to read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import zstandard

from clickprism.data import letor
from clickprism.data.letor import read_letor, scan_letor
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, JudgedLists


def write(folder: Path, text: str | bytes, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(folder: Path, text: str | bytes) -> JudgedLists:
    return read_letor(write(folder, text), cache=None)


def problem(folder: Path, text: str | bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        read(folder, text)
    return caught.value


def test_dense_lines_become_lists_of_features(tmp_path: Path) -> None:
    judged = read(tmp_path, "2 qid:1 1:0.5 2:3\n0 qid:1 1:-1 2:0\n1 qid:b 1:7 2:8\n")
    assert judged.lists.features.tolist() == [[0.5, 3], [-1, 0], [7, 8]]
    assert judged.grades.tolist() == [2, 0, 1]
    assert judged.lists.offsets.tolist() == [0, 2, 3]
    assert judged.lists.query_ids.tolist() == ["1", "b"]
    assert judged.lists.document_ids is None


def test_sparse_lines_may_count_features_from_one_or_from_zero(tmp_path: Path) -> None:
    assert read(tmp_path, "1 qid:1 3:1\n0 qid:1 1:2\n0 qid:1\n").lists.features.tolist() == [
        [0, 0, 1],
        [2, 0, 0],
        [0, 0, 0],
    ]
    assert read(tmp_path, "1 qid:1 3:1\n0 qid:1 0:2\n").lists.features.tolist() == [[0, 0, 0, 1], [2, 0, 0, 0]]


def test_base_and_features_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "1 qid:1 1:5\n")
    assert read_letor(path, base=0, cache=None).lists.features.tolist() == [[0, 5]]
    assert read_letor(path, features=3, cache=None).lists.features.tolist() == [[5, 0, 0]]
    assert read_letor(path, features=3, base=0, cache=None).lists.features.tolist() == [[0, 5, 0]]
    with pytest.raises(DataError, match=r"data.txt:1:9: expected feature ids from 1"):
        read_letor(write(tmp_path, "1 qid:1 0:5\n"), base=1, cache=None)
    with pytest.raises(DataError, match=r":1:13: expected a feature id up to 2, as features=2"):
        read_letor(write(tmp_path, "1 qid:1 1:5 3:1\n"), features=2, cache=None)
    with pytest.raises(DataError, match=r":1:13: expected a feature id up to 1, as features=2"):
        read_letor(write(tmp_path, "1 qid:1 0:5 2:1\n"), features=2, cache=None)


@pytest.mark.parametrize(
    ("field", "value"), [("features", 0), ("base", 2), ("missing", "drop"), ("on_error", "ignore")]
)
def test_settings_are_checked(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        read_letor(write(tmp_path, "1 qid:1 1:5\n"), cache=None, **{field: value})  # type: ignore[arg-type]


def test_blank_lines_comments_tabs_and_any_end_of_line_are_read(tmp_path: Path) -> None:
    text = (
        b"\xef\xbb\xbf# a comment\r\n\r\n \t\n1\tqid:1\t1:0.5  2:1 \r\n   0 qid:1 1:2#x y\r\n#2 qid:1 1:1\n2 qid:1 2:4"
    )
    judged = read(tmp_path, text)
    assert judged.lists.features.tolist() == [[0.5, 1], [2, 0], [0, 4]]
    assert judged.grades.tolist() == [1, 0, 2]


def test_numbers_of_every_shape_are_read(tmp_path: Path) -> None:
    text = "2.0 qid:1 1:1e3 2:-1.5E-2 3:+.5 4:5. 5:0012 6:1e+2 7:123456789012345678901234567890 8:-0\n"
    judged = read(tmp_path, text)
    expected = [1000, -0.015, 0.5, 5, 12, 100, 123456789012345678901234567890.0, 0]
    assert judged.lists.features.tolist() == [np.array(expected, np.float32).tolist()]
    assert judged.grades.tolist() == [2]


def test_numbers_beyond_float32_are_clipped(tmp_path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    judged = read(tmp_path, "0 qid:1 1:1.79769e+308 2:-1e99 3:1e-60 4:3.4028235677973366e38 5:1e999999999999\n")
    assert judged.lists.features.tolist() == [[largest, -largest, 0, largest, largest]]


@pytest.mark.parametrize("grade", ["-1", "0.5", "a", "1e9", "nan", "1x", "+", "."])
def test_grades_are_whole_and_not_negative(tmp_path: Path, grade: str) -> None:
    error = problem(tmp_path, f"0 qid:1 1:1\n {grade} qid:1 1:1\n")
    assert "expected a grade" in str(error)
    assert (error.line, error.column) == (2, 2)


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("1 1:1", 3, "expected qid:<id>"),
        ("1 qid: 1:1", 7, "expected an id"),
        ("1 qid:a\x01 1:1", 8, "expected an id"),
        ("1 qid:" + "x" * 201, 7, "expected an id of 1 to 200"),
        ("1 qid:1 1:1 1:2", 13, "larger feature id"),
        ("1 qid:1 2:1 1:2", 13, "larger feature id"),
        ("1 qid:1 5:1 x", 13, "expected a feature as <id>:<value>"),
        ("1 qid:1 1", 9, "expected a feature as <id>:<value>"),
        ("1 qid:1 a:1", 9, "expected a feature as <id>:<value>"),
        ("1 qid:1 -1:1", 9, "expected a feature as <id>:<value>"),
        ("1 qid:1 1:1 qid:1", 13, "expected a feature as <id>:<value>"),
        ("1 qid:1 1:", 11, "expected a finite decimal number"),
        ("1 qid:1 1:x", 11, "expected a finite decimal number"),
        ("1 qid:1 1:1e", 11, "expected a finite decimal number"),
        ("1 qid:1 1:1.2.3", 11, "expected a finite decimal number"),
        ("1 qid:1 1:1:2", 11, "expected a finite decimal number"),
        ("1 qid:1 1:inf", 11, "expected a finite decimal number"),
        ("1 qid:1 1:nan", 11, "found a missing value"),
        ("1 qid:1 1:NULL", 11, "found a missing value"),
        ("1 qid:1 1000001:1", 9, "expected a feature id up to 1000000"),
        ("1 qid:1 99999999999999999999:1", 9, "expected a feature id up to 1000000"),
    ],
)
def test_broken_lines_say_where_and_what(tmp_path: Path, line: str, column: int, expected: str) -> None:
    error = problem(tmp_path, f"0 qid:1 1:1\n\n{line}\n0 qid:1 1:1\n")
    assert expected in str(error)
    assert (Path(str(error.file)).name, error.line, error.column) == ("data.txt", 3, column)


def test_missing_values_can_be_kept(tmp_path: Path) -> None:
    judged = read_letor(write(tmp_path, "0 qid:1 1:nan 2:NULL 3:1\n"), missing="nan", cache=None)
    assert np.isnan(judged.lists.features).tolist() == [[True, True, False]]


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# only\n", b"x\ny\n", b"\xff\xfe1\x00", b"1 qid:1\n0 qid:1\n"])
def test_files_without_data_are_refused(tmp_path: Path, text: bytes) -> None:
    assert "data.txt" in str(problem(tmp_path, text))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_letor(tmp_path / "none.txt", cache=None)
    with pytest.raises(DataError, match="cannot be read"):
        read_letor(tmp_path, cache=tmp_path / "cache")
    with pytest.raises(DataError, match="no file"):
        read_letor([], cache=None)


def test_document_ids_are_read_from_comments(tmp_path: Path) -> None:
    judged = read(
        tmp_path,
        "0 qid:1 1:1 #docid = GX1 inc = 1 prob = 0.1\n"
        "0 qid:1 1:1 # alone\n"
        "0 qid:1 1:1 # two words\n"
        "0 qid:1 1:1\n"
        "0 qid:1 1:1 # docid=é:1\n"
        "0 qid:1 1:1 # docid\n",
    )
    assert judged.lists.document_ids is not None
    assert judged.lists.document_ids.tolist() == ["GX1", "alone", "", "", "é:1", "docid"]


def test_lists_split_over_the_file_are_joined(tmp_path: Path) -> None:
    judged = read(tmp_path, "0 qid:b 1:1 # a\n1 qid:a 1:2 # b\n2 qid:b 1:3 # c\n0 qid:bb 1:4 # d\n1 qid:a 1:5 # e\n")
    assert judged.lists.query_ids.tolist() == ["b", "a", "bb"]
    assert judged.lists.offsets.tolist() == [0, 2, 4, 5]
    assert judged.lists.features.ravel().tolist() == [1, 3, 2, 5, 4]
    assert judged.grades.tolist() == [0, 2, 1, 1, 0]
    assert judged.lists.document_ids is not None
    assert judged.lists.document_ids.tolist() == ["a", "c", "b", "e", "d"]


def test_several_files_are_one(tmp_path: Path) -> None:
    first = write(tmp_path, "1 qid:1 1:1\n0 qid:2 1:2\n", "a.txt")
    second = write(tmp_path, "2 qid:3 2:3 # x\n1 qid:1 1:4 # y\n", "b.txt")
    judged = read_letor([first, second], cache=None)
    assert judged.lists.query_ids.tolist() == ["1", "2", "3"]
    assert judged.lists.features.tolist() == [[1, 0], [4, 0], [2, 0], [0, 3]]
    assert judged.lists.document_ids is not None
    assert judged.lists.document_ids.tolist() == ["", "y", "", "x"]


def test_several_files_share_the_base(tmp_path: Path) -> None:
    first = write(tmp_path, "1 qid:1 1:1\n", "a.txt")
    second = write(tmp_path, "2 qid:3 0:3\n", "b.txt")
    assert read_letor([first, second], cache=None).lists.features.tolist() == [[0, 1], [3, 0]]


def test_files_of_list_lengths_replace_query_ids(tmp_path: Path) -> None:
    path = write(tmp_path, "1 1:1\n0 1:2\n2 1:3\n", "rank.train.txt")
    write(tmp_path, "1\n\n2\n", "rank.train.query")
    judged = read_letor(path, cache=None)
    assert judged.lists.offsets.tolist() == [0, 1, 3]
    assert judged.lists.query_ids.tolist() == ["1", "2"]
    packed = write(tmp_path, gzip.compress(path.read_bytes()), "rank.train.gz")
    twice = read_letor([path, packed], cache=None)
    assert twice.lists.query_ids.tolist() == ["1", "2", "3", "4"]


def test_named_and_numbered_lists_are_not_mixed(tmp_path: Path) -> None:
    named = write(tmp_path, "1 qid:1 1:1\n0 qid:2 1:2\n", "named.txt")
    numbered = write(tmp_path, "1 1:1\n0 1:2\n", "numbered.txt")
    write(tmp_path, "1\n1\n", "numbered.query")
    for files in ([named, numbered], [numbered, named]):
        with pytest.raises(
            DataError, match=r"numbered\.txt: .* file of lengths, but .*named\.txt from qid:.*Read them"
        ):
            read_letor(files, cache=None)


def test_files_of_list_lengths_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "1 1:1\n0 1:2\n2 1:3\n")
    with pytest.raises(DataError, match=r"no qid: and no file of list lengths.*data\.query or data\.group"):
        read_letor(path, cache=None)
    groups = write(tmp_path, "1\n1\n", "data.txt.query")
    with pytest.raises(DataError, match=r"add up to 2, but data\.txt has 3 lines"):
        read_letor(path, cache=None)
    groups.write_text("1\n-2\n")
    with pytest.raises(DataError, match=r"query:2:1: expected the length of a list"):
        read_letor(path, cache=None)
    write(tmp_path, "1 qid:1 1:1\n")
    assert len(read_letor(path, cache=None)) == 1, "qid: comes first where both are there"


def test_quarantine_keeps_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, "1 qid:1 1:1\nx qid:1 1:2\r\n2 qid:1 2:3\n0 qid:1 9:y 10:\xff\n1 qid:2 1:4\n")
    reading = scan_letor(path, on_error="quarantine", cache=None)
    assert reading.judged.lists.features.tolist() == [[1, 0], [0, 3], [4, 0]]
    assert reading.judged.grades.tolist() == [1, 2, 1]
    assert [(bad.line, bad.column) for bad in reading.quarantined] == [(2, 1), (4, 11)]
    assert reading.quarantined[0].raw == b"x qid:1 1:2"
    lines = [json.loads(bad.to_json()) for bad in reading.quarantined]
    assert lines[0] == {
        "file": str(path),
        "line": 2,
        "column": 1,
        "reason": "expected a grade, a whole number from 0 to 1000",
        "raw": "x qid:1 1:2",
    }
    assert lines[1]["raw"].encode("latin-1") == reading.quarantined[1].raw


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for a thousand values."""

    def matrix(lines: int, width: int) -> Float32:
        if lines * width > 1000:
            raise MemoryError
        return np.zeros((lines, width), np.float32)

    monkeypatch.setattr(letor, "matrix", matrix)


@pytest.mark.usefixtures("scarce")
def test_a_huge_id_in_a_broken_line_needs_no_memory(tmp_path: Path) -> None:
    text = "1 qid:1 1:1 3:0.1234567890123456789\n" * 9 + "1 qid:1 2:5 999999:x\n0 qid:2 2:7\n"
    path = write(tmp_path, text)
    reading = scan_letor(path, on_error="quarantine", cache=None)
    assert reading.judged.lists.features.tolist()[8:] == [[1, 0, np.float32(0.1234567890123456789)], [0, 7, 0]]
    assert (reading.largest_id, reading.judged.lists.offsets.tolist()) == (3, [0, 9, 10])
    assert [(bad.line, bad.column) for bad in reading.quarantined] == [(10, 20)]
    with pytest.raises(DataError, match=r"data\.txt:10:20: expected a finite decimal number"):
        read_letor(path, cache=None)
    zero = write(tmp_path, "1 qid:1 0:1 2:1\n1 qid:1 999999:x\n")
    assert scan_letor(zero, on_error="quarantine", cache=None).judged.lists.features.tolist() == [[1, 0, 1]]


@pytest.mark.usefixtures("scarce")
def test_a_huge_id_in_a_good_line_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "\n1 qid:1 1:1\n1 qid:1 999999:x\n1 qid:1 2:5\t999999:3 # d\n1 qid:1 1:1\n")
    problem = r"data\.txt:4:13: 4 rows of 999999 features .* features=N"
    with pytest.raises(DataError, match=problem):
        scan_letor(path, on_error="quarantine", cache=None)
    reading = scan_letor(path, features=5, on_error="quarantine", cache=None)
    assert [(bad.line, bad.column) for bad in reading.quarantined] == [(3, 9), (4, 13)]
    assert reading.judged.lists.features.shape == (2, 5)
    with pytest.raises(DataError, match=r"data\.txt: 4 rows of 600 features .* Split the file"):
        scan_letor(path, features=600, on_error="quarantine", cache=None)


def test_quarantine_counts_in_group_files(tmp_path: Path) -> None:
    path = write(tmp_path, "1 1:1\nbad\n2 1:3\n0 x\n1 1:4\n")
    write(tmp_path, "2\n1\n1\n1\n", "data.query")
    reading = scan_letor(path, on_error="quarantine", cache=None)
    assert reading.judged.lists.query_ids.tolist() == ["1", "2", "4"]
    assert reading.judged.lists.features.ravel().tolist() == [1, 3, 4]
    assert len(reading.quarantined) == 2


def test_zero_in_a_broken_line_does_not_set_the_base(tmp_path: Path) -> None:
    path = write(tmp_path, "1 qid:1 0:x\n1 qid:1 0:1 0:1\n1 qid:1 1:7\n")
    reading = scan_letor(path, on_error="quarantine", cache=None)
    assert (reading.base, reading.judged.lists.features.tolist()) == (1, [[7]])


def test_nothing_valid_is_an_error_even_in_quarantine(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.txt:1:1: has no valid line"):
        read_letor(write(tmp_path, "x\ny\n"), on_error="quarantine", cache=None)


@pytest.mark.parametrize("name", ["data.txt", "data.gz", "data.zst"])
@pytest.mark.parametrize("kind", ["plain", "gzip", "two gzip", "zstd", "two zstd"])
def test_compression_is_detected_by_content(tmp_path: Path, kind: str, name: str) -> None:
    head, tail = b"1 qid:1 1:0.5\n", b"0 qid:1 1:2"
    pack = zstandard.ZstdCompressor().compress
    packed = {
        "plain": head + tail,
        "gzip": gzip.compress(head + tail),
        "two gzip": gzip.compress(head) + gzip.compress(tail),
        "zstd": pack(head + tail),
        "two zstd": pack(head) + pack(tail),
    }[kind]
    judged = read_letor(write(tmp_path, packed, name), cache=None)
    assert judged.lists.features.ravel().tolist() == [0.5, 2]


def test_broken_compression_is_refused(tmp_path: Path) -> None:
    text = "".join(f"1 qid:{i} 1:{i * 7919 % 1000}\n" for i in range(3000)).encode()
    for kind, packed in (("gzip", gzip.compress(text)), ("zstd", zstandard.ZstdCompressor().compress(text))):
        for cut in (8, len(packed) // 2, len(packed) - 1):
            assert f"not a complete {kind} file" in str(problem(tmp_path, packed[:cut]))
        garbled = bytearray(packed)
        garbled[len(packed) // 2 : len(packed) // 2 + 40] = b"\xaa" * 40
        assert isinstance(problem(tmp_path, bytes(garbled)), DataError)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, Path()):
        with pytest.raises(DataError, match="it is a folder, and a file is needed"):
            read_letor(folder, cache=None)
