"""Columns of names and numbers as one matrix of features: what each name is called, learned once, then frozen.

A name becomes a whole number: 0 for every name that was not learned, else its place among those that were, from 1. So
held-out data is coded as the training data was, and nothing in it can move a code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias, final

import numpy as np

from clickprism.data.tables import text_array
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Float64, Int64, Text

UNKNOWN: Final = 0
MOST_INDICATORS: Final = 10_000
LONGEST: Final = 1000  # characters of a name
MOST: Final = (1 << 24) - 1  # names of a column: float32 holds every whole number up to 2^24


@dataclass(frozen=True, eq=False)
class Names:
    """A column of names: `values[codes]`.

    Attributes:
        codes: one a row.
        values: each name that occurs, once.
    """

    codes: Int64
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Names:
        """These rows only; names that no longer occur stay known."""
        return Names(self.codes[rows], self.values)

    def texts(self, what: str) -> Text:
        """The names row by row, as a vector in which each takes as much as the longest of them.

        One long name among many would fill memory, so that is an error, which names the ids of `what`.
        """
        used = np.zeros(len(self.values), dtype=np.bool_)
        used[self.codes] = True
        values = [self.values[code] for code in np.flatnonzero(used).tolist()]
        return text_array(values, np.cumsum(used)[self.codes] - 1, what=f"the column of {what}")


Column: TypeAlias = Names | Float64


def take(column: Column, rows: Any) -> Column:
    """These rows of a column."""
    return column.take(rows) if isinstance(column, Names) else column[rows]


@final
@dataclass(frozen=True)
class Vocabulary:
    """The columns of a matrix of features, in order, and the names that each column of names knows.

    Attributes:
        columns: by name of the column: the names it knows, those of code 1 first; None for a column of numbers.

    >>> columns = {"age": np.array([3.0, 9.0]), "topic": Names(np.array([0, 1]), ["sport", "war"])}
    >>> vocabulary = Vocabulary.learn(columns)
    >>> vocabulary.encode({"age": np.array([5.0]), "topic": Names(np.array([0]), ["film"])}).tolist()
    [[5.0, 0.0]]
    """

    columns: Mapping[str, tuple[str, ...] | None]

    def __post_init__(self) -> None:
        for name, values in self.columns.items():
            if values is not None and len(values) > MOST:
                remedy = "Learn it with a higher least_count, or leave the column out"
                raise DataError(f"column {name!r} has {len(values):,} names, more than {MOST:,}", remedy=remedy)
            if values is not None and len(set(values)) < len(values):
                raise DataError(f"column {name!r} of a vocabulary has a name twice")

    @classmethod
    def learn(cls, columns: Mapping[str, Column], *, least_count: int = 1) -> Vocabulary:
        """Take the names that occur at least so often, the most frequent first, ties by the alphabet.

        With `least_count` of 2 or more the rare names of the training data are unknown too, and so a ranker learns what
        to make of an unknown one.
        """
        if least_count < 1:
            raise SettingError("least_count", least_count, "be at least 1")
        learned: dict[str, tuple[str, ...] | None] = {}
        for name, column in columns.items():
            if not isinstance(column, Names):
                learned[name] = None
                continue
            counts = np.bincount(column.codes, minlength=len(column.values)).tolist()
            known = [(-count, value) for value, count in zip(column.values, counts, strict=True) if count]
            learned[name] = tuple(value for count, value in sorted(known) if -count >= least_count)
        return cls(learned)

    def encode(self, columns: Mapping[str, Column]) -> Float32:
        """The matrix of features of these columns, [rows, features]; columns that are not known are left out."""
        length = len(next(iter(columns.values()), ()))
        matrix = np.empty((length, len(self.columns)), np.float32)
        for place, (name, values) in enumerate(self.columns.items()):
            if name not in columns:
                has = ", ".join(columns) or "none"
                raise DataError(f"has no column {name!r}, which the vocabulary knows", remedy=f"It has {has}")
            column = columns[name]
            if isinstance(column, Names) != (values is not None):
                here, there = ("names", "numbers") if values is None else ("numbers", "names")
                raise DataError(f"column {name!r} holds {here}, where the vocabulary has {there}")
            if isinstance(column, Names):
                known = self._codes[name]
                matrix[:, place] = np.array([known.get(each, UNKNOWN) for each in column.values], np.float32)[
                    column.codes
                ]
            else:
                matrix[:, place] = column
        return matrix

    def indicators(self, matrix: Float32) -> Float32:
        """The matrix with a column of 0 and 1 for each name instead of codes, for a ranker that cannot embed them.

        They stand where the codes stood; an unknown name is 0 in all of them.
        """
        if self.width > MOST_INDICATORS:
            remedy = (
                "Learn names with a higher least_count, ignore columns, or take a ranker that embeds codes (attention)"
            )
            problem = f"indicators of all names would be {self.width:,} features, more than {MOST_INDICATORS:,}"
            raise DataError(problem, remedy=remedy)
        result = np.zeros((len(matrix), self.width), np.float32)
        start, rows = 0, np.arange(len(matrix))
        for place, values in enumerate(self.columns.values()):
            if values is None:
                result[:, start] = matrix[:, place]
                start += 1
                continue
            codes = matrix[:, place].astype(np.int64)
            known = codes != UNKNOWN
            result[rows[known], start + codes[known] - 1] = 1
            start += len(values)
        return result

    @property
    def width(self) -> int:
        """How many features `indicators` makes."""
        return sum(1 if values is None else len(values) for values in self.columns.values())

    @property
    def indicator_places(self) -> tuple[int, ...]:
        """Which columns of `indicators` stand for names."""
        sizes = [(1, False) if values is None else (len(values), True) for values in self.columns.values()]
        return tuple(np.flatnonzero([named for size, named in sizes for _ in range(size)]).tolist())

    @cached_property
    def _codes(self) -> dict[str, dict[str, int]]:
        return {
            name: {value: code for code, value in enumerate(values, start=UNKNOWN + 1)}
            for name, values in self.columns.items()
            if values is not None
        }
