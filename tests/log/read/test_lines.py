"""Lines of a text, in blocks of any size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.log.read.lines import KEPT, MOST, Block, broken_text, joined, split


def in_blocks(text: bytes, size: int) -> Iterator[Block]:
    whole = len(text) - len(text) % size
    for place in range(0, whole, size):
        yield Block(text[place : place + size], place + size)
    yield Block(text[whole:], len(text), last=True)


def read(text: bytes, size: int, *, max_line: int = 20) -> tuple[list[tuple[int, bytes]], list[tuple[int, str, bytes]]]:
    good, bad = [], []
    for lines in split(in_blocks(text, size), max_line=max_line):
        good += [(int(lines.numbers[index]), lines.raw(index)) for index in range(len(lines))]
        bad += [(each.line, each.code, each.raw) for each in lines.bad]
        assert [each.rstrip("\r\n").encode() for each in lines.text().to_pylist()] == [
            lines.raw(index).rstrip(b"\r") for index in range(len(lines))
        ]
    return good, bad


TEXT = (
    b"\xef\xbb\xbfone\r\n\n\r\ntw\xc3\xa9\nb\0d\n\xff\n"
    + b"x" * 21
    + b"\n"
    + b"y" * 20
    + b"\r\n"
    + b"z" * 300
    + b"\nlast"
)
GOOD = [(1, b"one"), (4, b"tw\xc3\xa9"), (8, b"y" * 20), (10, b"last")]
BAD = [(5, "nul-byte", b"b\0d"), (6, "not-utf8", b"\xff"), (7, "too-long", b"x" * 20), (9, "too-long", b"z" * 20)]


@pytest.mark.parametrize("most", [1, 2, 3, 1000])
def test_lines_do_not_depend_on_blocks(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickprism.log.read.lines.MOST", most)
    for size in range(1, len(TEXT) + 2):
        good, bad = read(TEXT, size)
        assert (good, sorted(bad)) == (GOOD, BAD), size


def test_no_more_lines_at_a_time_than_can_be_held() -> None:
    parts = list(split(in_blocks(b"x\n" * (2 * MOST + 5), 1 << 20), max_line=9))
    assert [len(part) for part in parts] == [MOST, MOST, 5]
    assert sum(part.read for part in parts) == 4 * MOST + 10


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_files_with_byte_order_marks_put_together(size: int) -> None:
    bom = b"\xef\xbb\xbf"
    text = bom + b"a\n" + bom + b"b\r\n" + bom + b"\n" + b"c" + bom + b"\n" + bom
    assert read(text, size) == ([(1, b"a"), (2, b"b"), (4, b"c" + bom)], [])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_last_line_that_is_too_long(size: int) -> None:
    assert read(b"a\n" + b"b" * 50, size) == ([(1, b"a")], [(2, "too-long", b"b" * 20)])


def test_a_long_line_is_not_held() -> None:
    def endless() -> Iterator[Block]:
        for _ in range(3000):
            yield Block(b"x" * 100_000, 0)
        yield Block(b"\nend\n", 0, last=True)

    parts = list(split(endless(), max_line=1 << 20))
    assert [(each.code, len(each.raw)) for part in parts for each in part.bad] == [("too-long", KEPT)]
    assert [part.raw(0) for part in parts if len(part)] == [b"end"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=6), max_size=12))
def test_broken_text_is_what_does_not_decode(values: list[bytes]) -> None:
    def decodes(value: bytes) -> bool:
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
        return True

    values = [value + b"\n" for value in values]
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - [len(value) for value in values]
    assert broken_text(b"".join(values), starts.astype(np.int64), ends).tolist() == [not decodes(v) for v in values]


@pytest.mark.parametrize("chosen", [[1], [0, 1], [1, 3], []])
def test_lines_alone_keep_no_text_of_others(chosen: list[int]) -> None:
    text = b"\xef\xbb\xbfone\r\ntwo\nthree\r\nfour"
    (lines,) = split(in_blocks(text, 100), max_line=20)
    alone = lines.take(np.array(chosen, np.int64)).alone()
    words = [b"one", b"two", b"three", b"four"]
    assert [alone.raw(index) for index in range(len(alone))] == [words[each] for each in chosen]
    assert alone.data.split() == [words[each] for each in chosen]
    both = joined([alone, lines])
    assert [both.raw(index) for index in range(len(both))] == [*(words[each] for each in chosen), *words]
