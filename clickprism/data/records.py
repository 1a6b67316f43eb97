"""What the compiled parser is told, where it stands, and what it fills."""

from __future__ import annotations

from typing import NamedTuple

from clickprism.types import Float32, Int32, Int64


class How(NamedTuple):
    """How lines are read.

    Attributes:
        named: lists have a `qid:`.
        base: where feature ids start.
        auto: whether that is a guess, which an id 0 proves wrong.
        limit: the largest feature id.
        missing: whether a value may be missing.
    """

    named: bool
    base: int
    auto: bool
    limit: int
    missing: bool


class Place(NamedTuple):
    """Where reading stands: the byte, the line from 1, the row to fill, the largest feature id so far."""

    at: int
    line: int
    row: int
    top: int


class Out(NamedTuple):
    """What is filled, row by row; ids as spans of the text; `hard` as feature column and span, for one row."""

    features: Float32
    grades: Int32
    queries: Int64
    documents: Int64
    hard: Int64
