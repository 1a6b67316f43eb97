"""A column of a table as it comes: names by number, or numbers, told by the caller or by the values themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from clickprism.data.vocabulary import Column, Names
from clickprism.errors import DataError
from clickprism.types import Float64, Int64

Kind: TypeAlias = Literal["names", "numbers", "either", "none"]
Values: TypeAlias = Sequence[Any]

LONGEST = 1000  # characters of a name
HIGHEST = float(np.finfo(np.float32).max)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|null", re.IGNORECASE | re.ASCII)
_MISSING = ("", "nan", "null")


class Builder:
    """One column as it comes: names by number, or numbers; undecided until its first value that is not missing."""

    def __init__(self, file: Path, name: str, kind: Kind, *, typed: bool) -> None:
        self.file, self.name, self.kind, self.typed = file, name, kind, typed
        self.numbers: dict[str, int] = {}
        self.codes: list[Int64] = []
        self.taken: list[Float64] = []
        self.inferred = False
        self.waiting = 0  # rows without a value, before the kind is known

    def absent(self, rows: int) -> None:
        """Rows in which the column is missing."""
        if rows and self.kind == "either":
            self.waiting += rows
        elif rows and self.kind == "names":
            self.codes.append(np.full(rows, self.numbers.setdefault("", len(self.numbers))))
        elif rows and self.kind == "numbers":
            self.taken.append(np.full(rows, np.nan))

    def add(self, values: Values, lines: list[int], faults: dict[int, str]) -> None:
        """Take the values of a chunk; what is wrong with a row goes to `faults`."""
        if self.kind == "none":
            return None
        rows = [row for row, value in enumerate(values) if value is not None]
        held = values if len(rows) == len(values) else [values[row] for row in rows]
        if self.kind == "either":
            self.decide(next((value for value in held if not is_missing(value)), None))
            if self.kind == "either":
                return self.absent(len(values))
            self.absent(self.waiting)
        found: dict[int, str] = {}
        at = lines if held is values else [lines[row] for row in rows]
        if self.kind == "numbers":
            numbers = np.full(len(values), np.nan)
            numbers[rows] = self.floats(held, at, found)
            self.taken.append(numbers)
        else:
            codes = np.full(len(values), self.numbers.setdefault("", len(self.numbers)) if held is not values else 0)
            codes[rows] = self._named(held, at, found)
            self.codes.append(codes)
        for row, reason in found.items():
            faults.setdefault(rows[row], reason)
        return None

    def decide(self, value: Any) -> None:
        """Take the column for what its first value is that is not missing."""
        if value is not None:
            self.kind = "numbers" if self._is_number(value) else "names"
            self.inferred = True

    def column(self) -> Column | None:
        """All of it; a column without any value holds nothing, and is no column."""
        if self.kind == "names":
            return Names(np.concatenate(self.codes).astype(np.int64), list(self.numbers))
        return np.concatenate(self.taken) if self.kind == "numbers" else None

    def _is_number(self, value: Any) -> bool:
        if self.typed:
            return isinstance(value, int | float) and not isinstance(value, bool)
        return _NUMBER.fullmatch(value.strip()) is not None

    def floats(self, values: Values, lines: list[int], faults: dict[int, str]) -> Float64:
        """Values as numbers, NaN where missing or at fault."""
        try:
            result = np.fromiter(map(float, values), np.float64, len(values))
            if (np.abs(result) <= HIGHEST).all() and (self.typed or not any("_" in value for value in values)):
                return result
        except (ValueError, TypeError, OverflowError):
            pass
        result = np.full(len(values), np.nan)
        for row, value in enumerate(values):
            if is_missing(value):
                continue
            if isinstance(value, bool) or (self._is_number(value) and abs(_float(value)) <= HIGHEST):
                result[row] = _float(value)
            elif self.inferred and not self._is_number(value):
                self._mixed(value, lines[row], "a number before")
            else:
                faults.setdefault(row, f"column {self.name!r} must hold a number within 3.4e38, got {_shown(value)}")
        return result

    def _named(self, values: Values, lines: list[int], faults: dict[int, str]) -> Int64:
        numbers = self.numbers
        if self.typed:
            odd = next((row for row, value in enumerate(values) if self.inferred and self._is_number(value)), None)
            if odd is not None:
                self._mixed(values[odd], lines[odd], "text before")
            texts = [_text(value) for value in values]
            for row in (row for row, text in enumerate(texts) if text is None):
                must = f"column {self.name!r} must hold text, numbers, or true and false"
                faults.setdefault(row, f"{must}, got {_shown(values[row])}")
            values = [text or "" for text in texts]
        known = len(numbers)
        codes = np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.int64, len(values))
        fresh = list(islice(numbers, known, None))
        first = dict(zip(codes[::-1].tolist(), range(len(codes) - 1, -1, -1), strict=True)) if fresh else {}
        self.check_names(fresh, [lines[first[numbers[value]]] for value in fresh])
        return codes

    def check_names(self, values: list[str], lines: list[int]) -> None:
        """What is wrong with any of these names, each first seen in this line."""
        for value, line in zip(values, lines, strict=True):
            if len(value) > LONGEST:
                where = f"column {self.name!r} has a value of {len(value):,} characters"
                raise DataError(where, file=self.file, line=line, remedy=f"{LONGEST:,} is the most")
            if "\0" in value:
                where = f"column {self.name!r} has {_shown(value)}, with a NUL character"
                raise DataError(where, file=self.file, line=line, remedy="Names are text without it; export it again")
            if self.inferred and not self.typed and not is_missing(value) and self._is_number(value):
                self._mixed(value, line, "text before")

    def _mixed(self, value: Any, line: int, before: str) -> None:
        name = shlex.quote(self.name)
        options = f"--categorical {name}, --ignore {name} or --numeric {name}"
        raise DataError(
            f"column {self.name!r} has {_shown(value)} and {before}",
            file=self.file,
            line=line,
            remedy=f"Leave the field empty where a number is missing, or say what the column is: {options} "
            f"(`train`: --data.impressions.ignore {name}). In a numeric column, rows without a number are broken",
        )


def is_missing(value: Any) -> bool:
    """Whether a value says that there is none."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _MISSING) or value != value  # noqa: PLR0124


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _text(value: Any) -> str | None:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
