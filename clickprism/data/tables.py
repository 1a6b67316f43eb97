"""Tables of ids and numbers in files: CSV, TSV, JSON lines and Parquet, plain or compressed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from clickprism.data.encoding import texts_of
from clickprism.data.frames import read_file
from clickprism.errors import DataError
from clickprism.types import Float64, Text

Kind: TypeAlias = Literal["names", "numbers", "none"]

LONGEST_IDS = 1 << 31  # bytes that the ids of one column may take
NUMBERS = ("", "nan", "null")


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file that were asked for.

    Attributes:
        file: The file.
        header: Names of all of its columns.
        names: Columns of ids, by name; a missing id is empty.
        numbers: Columns of numbers, by name; a missing number is nan.
        rows: Number of rows.
    """

    file: Path
    header: tuple[str, ...]
    names: dict[str, Text]
    numbers: dict[str, Float64]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def line(self, row: int) -> int:
        """Return the line of a row, counted from 0, in a file with one row a line."""
        name = self.file.name.lower()
        return row + (1 if ".parquet" in name or ".json" in name else 2)


def read_table(path: Path | str, kind: Callable[[str], Kind]) -> Table:
    """Read a table; `kind` says what the column of a name holds. A value that is no number is an error."""
    file = Path(path)
    if not file.is_file():
        raise DataError("there is no such file", file=file, remedy="Name a CSV, TSV, JSON lines or Parquet file")
    read = read_file(str(file), text=lambda name: kind(name) != "none")
    header = tuple(map(str, read.table.column_names))
    table = Table(file, header, {}, {}, len(read.table))
    if read.broken:
        raise DataError(f"has {read.broken:,} broken lines, such as {read.example}", file=file, remedy="Correct them")
    for name in header:
        if kind(name) == "names":
            codes, texts = texts_of(read.table[name])
            table.names[name] = text_array(["", *texts], codes + 1, what=f"column {name!r}", file=file)
        elif kind(name) == "numbers":
            table.numbers[name] = _numbers(table, name, read.table[name])
    return table


def text_array(values: list[str], codes: Any = None, *, what: str, file: Path | None = None) -> Text:
    """Return texts, or `values[codes]`, as a vector, in which each takes as much memory as the longest.

    One long text among many would fill memory, so that is an error.
    """
    longest = max(map(len, values), default=0)
    size = len(values) if codes is None else max(len(codes), len(values))
    if 4 * longest * size > LONGEST_IDS:
        problem = f"{what} is too large: {size:,} texts, the longest of {longest:,} characters"
        raise DataError(problem, file=file, remedy="Number them, shorten them, or leave that column out")
    texts: Text = np.array(values, dtype=np.str_)
    return texts if codes is None else texts[codes]


def _numbers(table: Table, name: str, column: Any) -> Float64:
    """Return a column as numbers, nan where there is none."""
    codes, texts = texts_of(column)
    numbers = np.full(len(texts) + 1, np.nan)
    for code, text in enumerate(texts):
        try:
            numbers[code] = float({"true": "1", "false": "0"}.get(text, text))
        except ValueError:
            if text.strip().lower() in NUMBERS:
                continue
            row = int(np.argmax(codes == code))
            problem = f"column {name!r} must hold a number, got {text[:40]!r}"
            raise DataError(problem, file=table.file, line=table.line(row), remedy="Correct the row") from None
    values: Float64 = numbers[codes]
    return values
