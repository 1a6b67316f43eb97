"""Lines of a text, in blocks of any size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.log.read.formats import KEPT, Block, body, read_lines


def in_blocks(text: bytes, size: int) -> Iterator[Block]:
    whole = len(text) - len(text) % size
    for place in range(0, whole, size):
        yield Block(text[place : place + size], place + size)
    yield Block(text[whole:], len(text), last=True)


def read(text: bytes, size: int, *, max_line: int = 20) -> tuple[list[tuple[int, bytes]], list[tuple[int, str, bytes]]]:
    good, bad = [], []
    for lines in read_lines(in_blocks(text, size), max_line=max_line):
        rows = zip(lines.numbers.tolist(), (body(each.encode()) for each in lines.values.to_pylist()), strict=True)
        good += [row for row in rows if row[1]]
        bad += [(each.line, each.code, each.raw) for each in lines.bad]
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


def test_lines_do_not_depend_on_blocks() -> None:
    for size in range(1, len(TEXT) + 2):
        good, bad = read(TEXT, size)
        assert (good, sorted(bad)) == (GOOD, BAD), size


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

    parts = list(read_lines(endless(), max_line=1 << 20))
    assert [(each.code, len(each.raw)) for part in parts for each in part.bad] == [("too-long", KEPT)]
    assert [each for part in parts for each in part.values.to_pylist()] == ["end\n"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=6).filter(lambda value: not {*value} & {0, 10, 13}), max_size=12))
def test_broken_text_is_what_does_not_decode(values: list[bytes]) -> None:
    good, bad = read(b"".join(value + b"\n" for value in values), 7)
    decodes = {
        number: value for number, value in enumerate(values, start=1) if value.decode(errors="ignore").encode() == value
    }
    assert dict(good) == {
        number: value.removeprefix(b"\xef\xbb\xbf") for number, value in decodes.items() if value != b"\xef\xbb\xbf"
    }
    assert [line for line, _, _ in bad] == [number for number in range(1, len(values) + 1) if number not in decodes]
