"""The columns of every table of a click log, each in one place; `conform` enforces them.

All that is summed is an integer: milliseconds, counts, and examination in units of 2^-20 (`EXAMINATION_UNIT`).
Integer sums do not depend on their order, so the same log gives the same values on any engine, in any order of
arrival. Times are UTC microseconds without a zone. See docs/reference/datamodel.md.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from clickprism.errors import DataError
from clickprism.log.settings import ROW_COLUMNS

EXAMINATION_UNIT: Final = 2**20
KINDS: Final = ("impression", "ranking", "interaction")
TIME: Final = pa.timestamp("us")
BIN_EDGES_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 180_000)
"""Limits of the bins of the histograms of dwell and display times."""
BINS: Final = tuple(f"{name}_hist_{index}" for name in ("dwell", "display") for index in range(len(BIN_EDGES_MS) + 1))
_TYPES: Final = {
    "bool": pa.bool_(),
    "bytes": pa.large_binary(),
    "date": pa.date32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "key": pa.binary(),
    "numbers": pa.list_(pa.float64()),
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
    "timestamp": TIME,
}


def _columns(text: str) -> pa.Schema:
    """Return the schema of columns such as "time timestamp!, query string"; `!` marks a column without nulls."""
    named = [column.split() for column in text.split(", ")]
    return pa.schema([pa.field(name, _TYPES[kind.strip("!")], nullable=kind[-1] != "!") for name, kind in named])


ROW: Final = _columns(f"{ROW_COLUMNS}, line int64!")
"""One good input row of any source, as the readers return it. `line` counts from 1 (in Parquet: the row)."""

BAD: Final = _columns("line int64!, reason string!, field string, value string, raw bytes!")
"""One broken input row, as the readers return it. `value` is the start of the value of `field`."""

EVENTS: Final = pa.schema([*ROW, *_columns("key key!, file_id string!, day date!")])
"""The table `events`, partitioned by `day` (of `time`). `key` identifies an event: 16 bytes of MD5 of its event id, or
of its content if it has no id. The keys of a day are unique."""

QUARANTINE: Final = pa.schema(
    [*_columns("file_id string!, file string!, header string"), *BAD, *_columns("cleared_at timestamp")]
)
"""The table `quarantine`. `header` is the first line of a CSV file, empty if it has none, null for other files. A row
that was cleared stays, so that it is accounted for, without its value and its bytes."""

FILES: Final = _columns(
    "file_id string!, file string!, bytes int64!, source string!, rows_in int64!, stored int64!, duplicate int64!, "
    "quarantined int64!, ignored int64!, ingested_at timestamp!"
)
"""The table `files`: a row for each input file, identified by the SHA-256 of its bytes.
`rows_in = stored + duplicate + quarantined + ignored`; ignored rows are no click events."""

SESSIONS: Final = _columns(
    "search_id string!, query_id string!, document_id string!, position int32!, time timestamp!, clicks int32!, "
    "last_click timestamp, display_ms int64, dwell_ms int64, page_skipped bool!, user_id string, ranker string, "
    "randomised bool!, filter string, clicked bool!, clicks_before int32!, click_distance int32!, click_below bool!, "
    "page int32!, query_bucket int32!, day date!"
)
"""The table `sessions`, partitioned by `day` (of the search): a row for each document shown. `filter` names the robot
rule that excludes the row, null for a row that counts. From `clicked` on: the features of the examination model."""

BEHAVIOUR: Final = ("position", "clicked", "clicks_before", "click_distance", "click_below", "page", "query_bucket")
"""What the examination model sees (§6.1.1): all discrete, so a log of any size has few distinct rows of them."""

PARTIALS: Final = _columns(
    "query_id string!, document_id string!, position int32!, impressions int64!, clicks int64!, clicked int64!, "
    "examination int64, examination_clicked int64, examination_squared int64, dwell_ms int64!, dwells int64!, "
    "display_ms int64!, displays int64!, displayed int64!, skips int64!, last_click timestamp, "
    + "".join(f"{name} int64!, " for name in BINS)
    + "day date!"
)
"""The table `partials`, partitioned by `day`: sums over the session rows that count. `examination`, the same for
clicked rows and the sum of squares, in units of 2^-20, are null without a model. `displays`: impressions with a known
display time; `displayed`: those with one above 0. A sum of partials is a partial; so is the latest `last_click`."""

DICTIONARY: Final = _columns("query_id string!, document_id string!, users int64!, x numbers!, day date!")
"""The tables `week` and `month`: the fields of one window for each pair with enough users. `day`: where it ends."""

SNAPSHOT: Final = _columns("query_id string!, document_id string!, x numbers!, users int64!, as_of timestamp!")
"""The table `snapshots`, a version for each time: the click vector x of each pair (see `WINDOWS`). `users`: the
maximum over its windows."""

TABLES: Final = {
    "events": EVENTS,
    "quarantine": QUARANTINE,
    "files": FILES,
    "sessions": SESSIONS,
    "partials": PARTIALS,
    "week": DICTIONARY,
    "month": DICTIONARY,
    "snapshots": SNAPSHOT,
}
"""Those with a column `day` are partitioned by it."""


def conform(table: pa.Table, schema: pa.Schema, *, what: str) -> pa.Table:
    """Return the rows of a table with exactly these columns, in this order and of these types.

    >>> conform(pa.table({"b": [1], "a": ["x"]}), pa.schema([("a", pa.string())]), what="t").column_names
    ['a']
    """
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise DataError(f"the table {what} has no column {missing[0]!r}", remedy="Write it again with this version")
    try:
        cast = table.select(schema.names).cast(pa.schema([field.with_nullable(True) for field in schema]))
    except pa.ArrowInvalid as error:
        raise DataError(f"the table {what} has a value that does not fit: {error}", remedy="Write it again") from None
    for field in schema:
        if not field.nullable and cast[field.name].null_count:
            raise DataError(f"the table {what} has a row without {field.name}", remedy="Write it again")
    return cast.cast(schema)


WINDOWS: Final = ("day", "week", "month")
"""The windows of the click vector x; docs/reference/datamodel.md describes the fields of each.

Counts stay counts, so that a network can take logarithms and make any ratio of them, such as `day.clicked@3` by
`day.examination@3`, the clicks for each examination at position 3, which an affine estimate needs."""
POSITIONS: Final = 10
PLACES: Final = (*(str(position) for position in range(1, POSITIONS + 1)), "rest")
_SCALARS: Final = "impressions clicks clicked examination dwell dwells display displays skips users last_click_age"
PLACED: Final = ("impressions", "clicked", "examination")


def window_fields(*, examination: bool) -> tuple[str, ...]:
    """The fields of one window, in order.

    >>> len(window_fields(examination=True)), len(window_fields(examination=False))
    (60, 48)
    """
    names = (*_SCALARS.split(), *BINS, *(f"{name}@{place}" for name in PLACED for place in PLACES))
    return tuple(name for name in names if examination or not name.startswith("examination"))


def click_fields(*, examination: bool) -> tuple[str, ...]:
    """The L fields of x, in order.

    >>> fields = click_fields(examination=True)
    >>> len(fields), fields[0], fields[61], fields[-1]
    (180, 'day.impressions', 'week.clicks', 'month.examination@rest')
    """
    return tuple(f"{window}.{name}" for window in WINDOWS for name in window_fields(examination=examination))


def no_clicks(hours: int, *, examination: bool) -> list[float]:
    """Return the fields of a pair that was not shown in a window of this length.

    >>> no_clicks(24, examination=False)[:10]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 24.0]
    """
    return [float(hours) if name == "last_click_age" else 0.0 for name in window_fields(examination=examination)]


def literal(text: str) -> str:
    """Return a text as a literal of SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
