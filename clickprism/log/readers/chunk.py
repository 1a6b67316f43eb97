"""What readers give: good rows, bad rows with their reasons, and how many rows there were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from clickprism.log.schema import BAD

REASONS: Final = {
    "not-utf8": "the bytes are not UTF-8",
    "nul-byte": "there is a NUL in the text",
    "too-long": "the line is longer than max_line_bytes",
    "truncated": "the file ends in the middle",
    "corrupt": "the file is corrupt from here on",
    "unreadable": "this part of the Parquet file cannot be read",
    "not-json": "the line is not JSON",
    "not-object": "the line is JSON, but not an object",
    "field-count": "the line has not as many fields as the header",
    "stray-quote": "a quote is neither around a field nor doubled",
    "stray-return": "a carriage return stands in the middle",
    "unknown-kind": "the row does not say what kind of event it is",
    "missing": "a required field is missing or empty",
    "wrong-type": "a field is of the wrong type",
    "time-unreadable": "the time cannot be read",
    "time-early": "the time lies before the earliest allowed",
    "time-late": "the time lies too far in the future",
    "position-range": "the position is below 1 or beyond max_position, or the list is longer",
    "negative": "a duration is negative",
    "duration-range": "a duration is longer than max_duration_hours",
}
"""Every reason for which a row is quarantined: a stable code, and the words that follow it."""


class Bad(NamedTuple):
    """One broken row: where it is, the code of what is wrong, in which field, its bytes, and how the value starts."""

    line: int
    code: str
    field: str | None
    raw: bytes
    value: str | None = None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of an input file.

    Attributes:
        good: rows as `schema.ROW` has them.
        bad: broken rows as `schema.BAD` has them.
        ignored: rows of events that a click log has no use for, such as Metarank's item and user events.
        bytes_read: of the file as it is on disk, for this chunk; over all chunks they add up to the file.
        header: the first line of a CSV file, empty if it has none; None of other files.
    """

    good: pa.Table
    bad: pa.Table
    ignored: int = 0
    bytes_read: int = 0
    header: str | None = None

    @property
    def rows(self) -> int:
        """Input rows: good, bad and ignored."""
        return len(self.good) + len(self.bad) + self.ignored


def reason(code: str) -> str:
    """The code and its words, as `BAD` keeps them.

    >>> reason("not-json")
    'not-json: the line is not JSON'
    """
    return f"{code}: {REASONS[code]}"


def shown(text: str, most: int = 60) -> str:
    r"""The start of a text as a terminal may have it: in one line, no control characters in it.

    >>> print(shown("a\x1b[31m\tb"), shown("long", most=2))
    a\x1b[31m\tb lo...
    """
    start = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[:most])
    return start + "..." if len(text) > most else start


def bad_table(rows: Sequence[Bad]) -> pa.Table:
    """Broken rows in the order of their lines."""
    rows = sorted(rows, key=lambda row: row.line)
    values = [(row.line, reason(row.code), row.field, row.value, row.raw) for row in rows]
    columns = zip(*values, strict=True) if rows else [()] * len(BAD)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, BAD, strict=True)], schema=BAD
    )
