"""Columns of names and numbers as one matrix of features: what each name is called, learned once, then frozen.

A name becomes a whole number: 0 for every name that was not learned, else its place among those that were, from 1. So
held-out data is coded as the training data was, and nothing in it can move a code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np

from clickprism._util.files import read_json, write_errors, write_file
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Float64, Int64, Text

FORMAT: Final = "clickprism vocabulary"
VERSION: Final = 1
UNKNOWN: Final = 0
MOST_INDICATORS: Final = 10_000
LARGEST: Final = 1 << 31  # bytes that the text of one column of ids may take
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

        One long name among many would fill memory, so that is an error, which calls them ids of `what`.
        """
        used = np.zeros(len(self.values), dtype=np.bool_)
        used[self.codes] = True
        values = [self.values[code] for code in np.flatnonzero(used).tolist()]
        longest = max(map(len, values), default=0)
        if 4 * longest * len(self) > LARGEST:
            problem = f"ids of {what} are too large: {len(self):,} of them, the longest of {longest:,} characters"
            raise DataError(problem, remedy="Number them, or shorten them")
        chosen: Text = np.array(values, dtype=np.str_)[np.cumsum(used)[self.codes] - 1]
        return chosen


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
    >>> vocabulary.for_ranker()
    {'categorical': (1,), 'categories': (3,)}
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

    def decode(self, matrix: Float32) -> dict[str, Column]:
        """The columns that `encode` made this matrix of; names that were unknown are empty ones."""
        return {
            name: matrix[:, place].astype(np.float64)
            if values is None
            else Names(matrix[:, place].astype(np.int64), ["", *values])
            for place, (name, values) in enumerate(self.columns.items())
        }

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

    @property
    def indicator_names(self) -> tuple[str, ...]:
        """What each column of `indicators` is: a column of numbers, or "topic=war"."""
        several = [
            [name] if values is None else [f"{name}={value}" for value in values]
            for name, values in self.columns.items()
        ]
        return tuple(each for names in several for each in names)

    def unknown(self, matrix: Float32) -> dict[str, int]:
        """In how many rows of a matrix the name is not known, by column of names."""
        return {name: int((matrix[:, place] == UNKNOWN).sum()) for name, place in self.places.items()}

    def for_ranker(self) -> dict[str, tuple[int, ...]]:
        """What a ranker that embeds names is told: the columns that hold codes, and how many codes each has."""
        sizes = [len(values) + 1 for values in self.columns.values() if values is not None]
        return {"categorical": self.categorical, "categories": tuple(sizes)}

    @property
    def categorical(self) -> tuple[int, ...]:
        """Which columns of the matrix hold codes, from 0."""
        return tuple(self.places.values())

    @property
    def places(self) -> dict[str, int]:
        """The columns of names, and where each stands in the matrix, from 0."""
        named = enumerate(self.columns.items())
        return {name: place for place, (name, values) in named if values is not None}

    @cached_property
    def _codes(self) -> dict[str, dict[str, int]]:
        return {
            name: {value: code for code, value in enumerate(values, start=UNKNOWN + 1)}
            for name, values in self.columns.items()
            if values is not None
        }

    @cached_property
    def hash(self) -> str:
        """BLAKE2b (128 bit, hexadecimal) of the columns and all names, in order."""
        return blake2b(self._text().encode(), digest_size=16).hexdigest()

    def save(self, path: Path | str) -> None:
        """Write it as JSON; `load` reads it back."""
        head = json.dumps({"format": FORMAT, "version": VERSION, "hash": self.hash})
        with write_errors(path):
            write_file(Path(path), f'{head[:-1]}, "columns": {self._text()}}}\n')

    @classmethod
    def load(cls, path: Path | str) -> Vocabulary:
        """Read what `save` wrote; a file that was changed since is refused."""
        found = read_json(Path(path), remedy="Make it anew")
        try:
            kind = found["format"], found["version"]
            vocabulary = cls({str(name): _names(values) for name, values in found["columns"]})
            whole = kind == (FORMAT, VERSION) and len(vocabulary.columns) == len(found["columns"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"is not a vocabulary ({error})", file=path, remedy="Make it anew") from None
        if not whole:
            raise DataError(f"is not a vocabulary of version {VERSION}", file=path, remedy="Make it anew")
        if vocabulary.hash != found.get("hash"):
            raise DataError("was changed after it was saved", file=path, remedy="Make it anew from the training data")
        return vocabulary

    def _text(self) -> str:
        return json.dumps(list(self.columns.items()), ensure_ascii=False, separators=(",", ":"))


def _names(values: Sequence[object] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("names must be text")
    return tuple(map(str, values))
