"""Tables of text for people, and JSON for machines: the two forms in which every result is shown.

A result is a frozen dataclass. Its method `tables` returns what a person reads; `to_json` serialises its fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from os import PathLike
from typing import Any, NamedTuple, Protocol, runtime_checkable

LONG_TEXT = 8  # a cell with this many spaces holds sentences, so that its lines may break


class Table(NamedTuple):
    """A table of text; the first cell of a row names the row.

    Attributes:
        caption: Title of the table; may be empty.
        header: Name of each column.
        rows: The cells of each row.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Return the table as plain text in aligned columns, numbers to the right.

        >>> print(Table("", ["position", "clicks"], [["1", "40"], ["2", "8"]]).text())
        position  clicks
               1      40
               2       8
        """
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        numeric = [all(_is_number(row[column]) for row in self.rows) for column in range(len(self.header))]
        aligned = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*([self.caption] if self.caption else []), *aligned])

    def html(self) -> str:
        """Return the table as HTML, with everything escaped; `commands` in backticks become code."""
        return html_table(self.caption, self.header, [[code_html(cell) for cell in row] for row in self.rows])


def by_position(caption: str, curves: Mapping[str, Iterable[float | None]]) -> Table:
    """Return curves by position as a table, up to the end of the shortest; a missing value or NaN is "-".

    >>> print(by_position("", {"used": [1, 0.5], "truth": [1.0, None]}).text())
    position    used   truth
           1  1.0000  1.0000
           2  0.5000       -
    """

    def cell(value: float | None) -> str:
        return "-" if value is None or math.isnan(value) else f"{value:.4f}"

    rows = enumerate(zip(*curves.values(), strict=False), start=1)
    return Table(caption, ["position", *curves], [[str(place), *map(cell, row)] for place, row in rows])


@runtime_checkable
class Result(Protocol):
    """What a command can show: a dataclass with tables."""

    def tables(self) -> Sequence[Table]:
        """Return the result as tables for people."""


def code_html(text: str) -> str:
    """Return a text as HTML: escaped, with parts in backticks as code.

    >>> code_html("Run `clickprism auto` if 1 < 2.")
    'Run <code>clickprism auto</code> if 1 &lt; 2.'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells are HTML already; lines may break in a column that holds sentences.

    A table of sentences without numbers has the class "prose": small screens show its cells below each other.
    """
    long = [column > 0 and any(row[column].count(" ") >= LONG_TEXT for row in rows) for column in range(len(header))]
    plain = [any(long) and not any(_is_number(row[column]) for row in rows) for column in range(len(header))]
    kinds = [
        ' class="words"' if words else ' class="text"' if text and column else ""
        for column, (words, text) in enumerate(zip(long, plain, strict=True))
    ]
    prose = ' class="prose"' if all(a or b for a, b in zip(long, plain, strict=True)) else ""
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(header, kinds, strict=True))
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(rest, kinds[1:], strict=True))
        + "</tr>"
        for first, *rest in rows
    )
    title = f"<caption>{escape(caption)}</caption>"
    return f"<table{prose}>\n{title}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def as_text(tables: Iterable[Table]) -> str:
    """Return several tables as plain text, an empty line between them."""
    return "\n\n".join(table.text() for table in tables)


def to_plain(result: Any) -> Any:
    """Return a result as dictionaries, lists, texts and numbers; a number that is not finite becomes None.

    Dataclasses become dictionaries, numpy arrays become lists, and paths become texts.

    >>> to_plain({"a": [0.5, float("nan")], "b": float("inf")})
    {'a': [0.5, None], 'b': None}
    """
    import msgspec

    return _finite(msgspec.to_builtins(result, enc_hook=to_builtin, str_keys=True))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def to_json(result: Any, *, indent: int | None = 1) -> str:
    """Return a result as one JSON object, in one line if `indent` is None; see `to_plain`.

    >>> to_json({"a": [1, 2]}, indent=None)
    '{"a": [1, 2]}'
    """
    import json

    return json.dumps(to_plain(result), indent=indent, ensure_ascii=False, allow_nan=False)


def to_builtin(value: Any) -> Any:
    """Return a value that msgspec does not know as one that it does: numpy numbers and arrays, paths, mappings."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"results and settings cannot hold {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.strip("%+-").replace(",", "").replace(".", "").isdecimal()
