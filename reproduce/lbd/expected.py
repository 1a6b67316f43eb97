"""`expected.csv`: the paper's figures beside those of our last full run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clickprism.errors import DataError
from clickprism.evaluation.report import write_whole
from reproduce.lbd.rows import Row

FILE = Path(__file__).with_name("expected.csv")
PLACE = ("table", "data", "ranker", "method", "coupling", "measure")
HEADER = (*PLACE[:-1], "lambda", "t", "measure", "paper", "paper_mark", "ours", "se", "seeds")
KEPT = ("table 1", "table 3", "table 4", "figure 3a", "figure 3b", "figure 3c", "claims")


def load(path: Path = FILE) -> list[dict[str, Any]]:
    """The rows, with numbers as numbers and None for what is not there."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != HEADER:
            raise DataError(
                "does not have the expected columns", file=path, line=1, remedy=f"They are {', '.join(HEADER)}"
            )
        return [_typed(row, path, reader.line_num) for row in reader]


def _typed(row: dict[str, Any], path: Path, line: int) -> dict[str, Any]:
    for name in ("coupling", "lambda", "t", "paper", "ours", "se", "seeds"):
        try:
            row[name] = None if row[name] in ("", None) else int(row[name]) if name == "seeds" else float(row[name])
        except ValueError:
            remedy = "Write a number, or nothing"
            raise DataError(f"{name} is {row[name]!r}", file=path, line=line, remedy=remedy) from None
    return row


def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is about, as `Row.place`."""
    return tuple(row[name] for name in PLACE)


def with_paper(rows: Iterable[Row], expected: Sequence[dict[str, Any]]) -> list[Row]:
    """Our rows with the paper's figure, where the paper has one for the same data."""
    known = {place_of(row): row["paper"] for row in expected}
    return [replace(row, paper=known.get(row.place)) for row in rows]


def merged(expected: Sequence[dict[str, Any]], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The expected rows with our figures filled in; rows that the paper does not have come last."""
    found = {row.place: row for row in rows if row.table in KEPT}
    result = []
    for row in expected:
        ours = found.pop(place_of(row), None)
        result.append(row if ours is None else row | _ours(ours))
    blank = dict.fromkeys(HEADER)
    for place, other in found.items():
        result.append({**blank, **dict(zip(PLACE, place, strict=True)), **_ours(other)})
    return result


def _ours(row: Row) -> dict[str, Any]:
    values = row.plain()
    return {
        "lambda": values["lambda"],
        "t": values["t"],
        "ours": round(row.mean, 4),
        "se": None if row.se is None else round(row.se, 4),
        "seeds": row.seeds,
    }


def write(rows: Sequence[dict[str, Any]], path: Path = FILE) -> None:
    """Write the file anew; it appears whole or not at all."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text(row[name]) for name in HEADER} for row in rows)
    write_whole(path, text.getvalue())


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
