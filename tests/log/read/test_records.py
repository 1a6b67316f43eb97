"""Records of CSV: quotes that hold lines together, and quotes that must not."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.errors import DataError
from clickprism.log.read.formats import Block, Dialect, Lines, Records, _table, read_lines

HEADER = "a,b,c\n"


def read(text: str, size: int = 1000, *, dialect: Dialect | None = None) -> tuple[list[Any], list[tuple[int, str]]]:
    data = text.encode()
    parts = [Block(data[place : place + size], place) for place in range(0, len(data), size)] + [
        Block(b"", 0, last=True)
    ]
    good, bad = list[Any](), list[tuple[int, str]]()
    reader = Records(dialect or Dialect(), 200, Path("log.csv"))
    lines = [(each, False) for each in read_lines(iter(parts), max_line=200)]
    for part, last in [*lines, (Lines(pa.array([], pa.string()), np.empty(0, np.int64), [], 0), True)]:
        numbers, records, broken = reader.take(part, last=last)
        if records:
            table = _table(records, reader.dialect, len(reader.names))
            good += zip(numbers, zip(*(column.to_pylist() for column in table.columns), strict=True), strict=True)
        bad += [(each.line, each.code) for each in broken]
    return good, sorted(bad)


TRICKY = [
    ('1,2,3\n"x","y,z","q""r"\n', [(2, ("1", "2", "3")), (3, ("x", "y,z", 'q"r'))], []),
    ('1,"two\n\nlines",3\n4,5,6\n', [(2, ("1", "two\n\nlines", "3")), (5, ("4", "5", "6"))], []),
    ('1,"2,3\n4,5,6\n7,8,9', [(3, ("4", "5", "6")), (4, ("7", "8", "9"))], [(2, "stray-quote")]),
    ('1,2,3"\n4,5,6\n7,8,"9\n', [(3, ("4", "5", "6"))], [(2, "stray-quote"), (4, "stray-quote")]),
    ('a","b,c\n4,5,6\n', [(3, ("4", "5", "6"))], [(2, "stray-quote")]),
    ('1,5" pipe,3\n4,"5\n5",6\n7,8,9\n', [(3, ("4", "5\n5", "6")), (5, ("7", "8", "9"))], [(2, "stray-quote")]),
    ("1,2\n1,2,3,4\n4,5,6\n", [(4, ("4", "5", "6"))], [(2, "field-count"), (3, "field-count")]),
    ("1,2\r3,4\n4,5,6\r\n", [(3, ("4", "5", "6"))], [(2, "stray-return")]),
    ('"1\r2",,\n\n\r\n,,\n', [(2, ("1\r2", "", "")), (5, ("", "", ""))], []),
    (
        '"' + "x" * 150 + "\n" + "y" * 90 + '",2,3\n4,5,6\n',
        [(4, ("4", "5", "6"))],
        [(2, "stray-quote"), (3, "stray-quote")],
    ),
]


@pytest.mark.parametrize(("text", "good", "bad"), TRICKY)
def test_records_by_hand_whatever_the_blocks(text: str, good: list[Any], bad: list[Any]) -> None:
    for size in range(1, len(text) + len(HEADER) + 1, 1 if len(text) < 80 else 13):
        assert read(HEADER + text, size) == (good, bad), size


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(*[st.text(st.sampled_from('ab,"\n\r é'), max_size=6)] * 3).filter(any), max_size=8),
    st.integers(1, 60),
)
def test_what_is_written_is_read(rows: list[tuple[str, ...]], size: int) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    rows = [row for row in rows if len(",".join(row)) < 100]
    good, bad = read(HEADER + text.getvalue(), size)
    assert ([fields for _, fields in good], bad) == (rows, [])


def test_quotes_can_be_ordinary_characters() -> None:
    assert read('a\tb\n1"\t"2\n', dialect=Dialect("\t", quote=False)) == ([(2, ('1"', '"2'))], [])


def test_names_of_a_file_without_a_header() -> None:
    assert read("1,2\n", dialect=Dialect(names=("x", "y"))) == ([(1, ("1", "2"))], [])


def test_a_header_that_cannot_be_used() -> None:
    with pytest.raises(DataError, match=r"log.csv:1: the header has 'a' more than once. The first line names"):
        read("a,b,a\n1,2,3\n")
    for size in (1, 6, 1000):
        with pytest.raises(DataError, match=r"log.csv:2: the header cannot be read"):
            read("\na,\0,a\n" + "b" * 201 + "\n1,2,3\n", size)
