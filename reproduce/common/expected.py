"""`expected.csv`: a paper's figures beside those of our last full run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from clickprism._util.files import write_file
from clickprism.errors import DataError

OURS = ("paper", "paper_mark", "ours", "se", "seeds")


class Figure(Protocol):
    """A row of summary.json: a frozen dataclass."""

    @property
    def table(self) -> str:
        """Which table or figure it is of."""

    @property
    def mean(self) -> float:
        """What it came to."""

    @property
    def se(self) -> float | None:
        """The error of that."""

    @property
    def seeds(self) -> int:
        """Over how many draws."""

    @property
    def mark(self) -> str:
        """Its significance; empty for none."""

    def plain(self) -> dict[str, Any]:
        """As in summary.json."""


F = TypeVar("F", bound=Any)


@dataclass(frozen=True)
class Expected:
    """The file and its columns.

    Attributes:
        file: where it is.
        place: the columns that say what a row is about.
        beside: columns of ours that stand beside, such as settings that were tuned.
        numbers: which of `place` and `beside` are numbers.
        kept: the tables whose rows of ours are written.
    """

    file: Path
    place: tuple[str, ...]
    beside: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def header(self) -> tuple[str, ...]:
        """Return all columns: the measure, then its figures."""
        return (*self.place[:-1], *self.beside, self.place[-1], *OURS)

    def load(self, path: Path | None = None) -> list[dict[str, Any]]:
        """The rows, with numbers as numbers and None for what is not there."""
        path = path or self.file
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != self.header:
                remedy = f"They are {', '.join(self.header)}"
                raise DataError("does not have the expected columns", file=path, line=1, remedy=remedy)
            return [self._typed(row, path, reader.line_num) for row in reader]

    def _typed(self, row: dict[str, Any], path: Path, line: int) -> dict[str, Any]:
        for name in (*self.numbers, "paper", "ours", "se", "seeds"):
            try:
                row[name] = None if row[name] in ("", None) else int(row[name]) if name == "seeds" else float(row[name])
            except ValueError:
                remedy = "Write a number, or nothing"
                raise DataError(f"{name} is {row[name]!r}", file=path, line=line, remedy=remedy) from None
        return row

    def place_of(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """What a row is about."""
        return tuple(row[name] for name in self.place)

    def with_paper(self, rows: Iterable[F], expected: Sequence[dict[str, Any]]) -> list[F]:
        """Our rows with the paper's figure, where the paper has one for the same data."""
        known = {self.place_of(row): row["paper"] for row in expected}
        return [replace(row, paper=known.get(self.place_of(row.plain()))) for row in rows]

    def merged(self, expected: Sequence[dict[str, Any]], rows: Iterable[Figure]) -> list[dict[str, Any]]:
        """The expected rows with our figures filled in; rows that the paper does not have come last."""
        found = {self.place_of(row.plain()): row for row in rows if row.table in self.kept}
        result = []
        for row in expected:
            ours = found.pop(self.place_of(row), None)
            result.append(row if ours is None else row | self._ours(ours))
        blank = dict.fromkeys(self.header)
        for place, other in found.items():
            result.append({**blank, **dict(zip(self.place, place, strict=True)), **self._ours(other)})
        return result

    def _ours(self, row: Figure) -> dict[str, Any]:
        values = row.plain()
        error = None if row.se is None else round(row.se, 4)
        return {name: values[name] for name in self.beside} | {
            "ours": round(row.mean, 4),
            "se": error,
            "seeds": row.seeds,
        }

    def write(self, rows: Sequence[dict[str, Any]], path: Path | None = None) -> None:
        """Replace the file in one step."""
        path = path or self.file
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.header, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(row[name]) for name in self.header} for row in rows)
        write_file(path, text.getvalue())


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
