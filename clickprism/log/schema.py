"""The columns of every table of a click log, each in one place; `conform` enforces them.

All that is summed is an integer: milliseconds, counts, and examination in units of 2^-20 (`EXAMINATION_UNIT`).
Integer sums do not depend on their order, so the same log gives the same values on any engine, in any order of
arrival. Times are UTC microseconds without a zone. See docs/datamodel.md.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from clickprism.errors import DataError
from clickprism.log.settings import EDGES

EXAMINATION_UNIT: Final = 2**20
KINDS: Final = ("impression", "ranking", "interaction")
TIME: Final = pa.timestamp("us")
HISTOGRAMS: Final = ("dwell_hist", "display_hist")

ROW: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("event_id", pa.string()),
        pa.field("time", TIME, nullable=False),
        pa.field("search_id", pa.string(), nullable=False),
        pa.field("query_id", pa.string()),
        pa.field("query", pa.string()),
        pa.field("document_id", pa.string()),
        pa.field("position", pa.int32()),
        pa.field("documents", pa.list_(pa.string())),
        pa.field("clicked", pa.list_(pa.string())),
        pa.field("action", pa.string()),
        pa.field("click", pa.bool_()),
        pa.field("display_ms", pa.int64()),
        pa.field("dwell_ms", pa.int64()),
        pa.field("page_skipped", pa.bool_()),
        pa.field("user_id", pa.string()),
        pa.field("agent", pa.string()),
        pa.field("ranker", pa.string()),
        pa.field("randomised", pa.bool_()),
        pa.field("features", pa.string()),
        pa.field("line", pa.int64(), nullable=False),
    ]
)
"""One good input row, of any source: what the readers give. `line` counts from 1 (in Parquet: the row)."""

BAD: Final = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("field", pa.string()),
        pa.field("value", pa.string()),
        pa.field("raw", pa.large_binary(), nullable=False),
    ]
)
"""One broken input row: what the readers give. `value` is how the value of `field` starts."""

EVENTS: Final = pa.schema(
    [
        *ROW,
        pa.field("key", pa.binary(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
    ]
)
"""The table `events`, partitioned by `day` (of `time`). `key` is the identity of an event: 16 bytes of MD5, of its
event id if it has one, else of its content. The keys of a day are unique."""

QUARANTINE: Final = pa.schema(
    [
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("header", pa.string()),
        *BAD,
        pa.field("cleared_at", TIME),
    ]
)
"""The table `quarantine`. `header` is the first line of a CSV file, empty if it has none, null of other files. A row
that was cleared stays, so that it is accounted for, without its value and its bytes."""

FILES: Final = pa.schema(
    [
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("rows_in", pa.int64(), nullable=False),
        pa.field("stored", pa.int64(), nullable=False),
        pa.field("duplicate", pa.int64(), nullable=False),
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("ignored", pa.int64(), nullable=False),
        pa.field("ingested_at", TIME, nullable=False),
    ]
)
"""The table `files`: a row for each input file, by the SHA-256 of its bytes.
`rows_in = stored + duplicate + quarantined + ignored`; ignored rows are of no kind."""

SESSIONS: Final = pa.schema(
    [
        pa.field("search_id", pa.string(), nullable=False),
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("clicks", pa.int32(), nullable=False),
        pa.field("last_click", TIME),
        pa.field("display_ms", pa.int64()),
        pa.field("dwell_ms", pa.int64()),
        pa.field("page_skipped", pa.bool_(), nullable=False),
        pa.field("user_id", pa.string()),
        pa.field("ranker", pa.string()),
        pa.field("randomised", pa.bool_(), nullable=False),
        pa.field("filter", pa.string()),
        pa.field("clicked", pa.bool_(), nullable=False),
        pa.field("clicks_before", pa.int32(), nullable=False),
        pa.field("click_distance", pa.int32(), nullable=False),
        pa.field("click_below", pa.bool_(), nullable=False),
        pa.field("page", pa.int32(), nullable=False),
        pa.field("query_bucket", pa.int32(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
    ]
)
"""The table `sessions`, partitioned by `day` (of the search): a row for each document shown. `filter` names the robot
rule that leaves the row out, null for a row that counts. From `clicked` on: the features of the examination model."""

BEHAVIOUR: Final = ("position", "clicked", "clicks_before", "click_distance", "click_below", "page", "query_bucket")
"""What the examination model sees (§6.1.1): all discrete, so a log of any size has few distinct rows of them."""

PARTIALS: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
        pa.field("clicked", pa.int64(), nullable=False),
        pa.field("examination", pa.int64()),
        pa.field("examination_clicked", pa.int64()),
        pa.field("examination_squared", pa.int64()),
        pa.field("dwell_ms", pa.int64(), nullable=False),
        pa.field("dwells", pa.int64(), nullable=False),
        pa.field("display_ms", pa.int64(), nullable=False),
        pa.field("displays", pa.int64(), nullable=False),
        pa.field("displayed", pa.int64(), nullable=False),
        pa.field("skips", pa.int64(), nullable=False),
        pa.field("last_click", TIME),
        *(pa.field(f"{name}_{index}", pa.int64(), nullable=False) for name in HISTOGRAMS for index in range(EDGES + 1)),
        pa.field("day", pa.date32(), nullable=False),
    ]
)
"""The table `partials`, partitioned by `day`: sums over the session rows that count. `examination`, the same of what
was clicked and that of the squares, in units of 2^-20, are null without a model. `displays`: impressions whose display
time is known; `displayed`: those of them that were on the screen at all. A sum of partials is a partial; so is the
greatest `last_click`."""

DICTIONARY: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("users", pa.int64(), nullable=False),
        pa.field("x", pa.list_(pa.float64()), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
    ]
)
"""The tables `week` and `month`: the fields of one window for each pair with enough users. `day`: where it ends."""

SNAPSHOT: Final = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("x", pa.list_(pa.float64()), nullable=False),
        pa.field("users", pa.int64(), nullable=False),
        pa.field("as_of", TIME, nullable=False),
    ]
)
"""The table `snapshots`, a version for each time: the click vector x of each pair (see `WINDOWS`). `users`: the most
that any of its windows has."""

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
PARTITIONED: Final = {
    "events": ["day"],
    "quarantine": [],
    "files": [],
    "sessions": ["day"],
    "partials": ["day"],
    "week": ["day"],
    "month": ["day"],
    "snapshots": [],
}


def conform(table: pa.Table, schema: pa.Schema, *, what: str) -> pa.Table:
    """The same rows with just these columns, in this order and of these types.

    Args:
        table: that has at least the columns of `schema`.
        schema: one of this module.
        what: how an error names the table.

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
"""The windows of the click vector x.

Counts stay counts, so that a network can take logarithms and make any ratio of them: `day.clicked` divided by
`day.impressions` is the click-through rate, `day.dwell` by `day.dwells` the mean dwell time, `day.clicked@3` by
`day.examination@3` the clicks for each examination at position 3, which an affine estimate needs. The fields of each
window, in order:

| field | what |
|---|---|
| `impressions` | times shown |
| `clicks` | clicks, a second one on the same impression too |
| `clicked` | impressions with a click |
| `examination` | the sum of the examination estimates (with a model only) |
| `dwell`, `dwells` | seconds in the document, and of how many impressions they are known |
| `display`, `displays` | seconds on the screen, and of how many impressions they are known |
| `skips` | impressions on a page that was skipped |
| `users` | distinct users |
| `last_click_age` | hours from the last click to the window's end; without a click: the length of the window |
| `dwell_hist_0` to `_7` | impressions by dwell time, by the edges in the settings |
| `display_hist_0` to `_7` | impressions by display time |
| `impressions@1` to `@10`, `@rest` | times shown at each position, and at all that are further down |
| `clicked@1` to `@10`, `@rest` | impressions with a click at each position |
| `examination@1` to `@10`, `@rest` | examination at each position (with a model only) |
"""
POSITIONS: Final = 10
BINS: Final = tuple(f"{name}_{index}" for name in HISTOGRAMS for index in range(EDGES + 1))
PLACES: Final = (*(str(position) for position in range(1, POSITIONS + 1)), "rest")
SCALARS: Final = (
    "impressions",
    "clicks",
    "clicked",
    "examination",
    "dwell",
    "dwells",
    "display",
    "displays",
    "skips",
    "users",
    "last_click_age",
)
PLACED: Final = ("impressions", "clicked", "examination")


def window_fields(*, examination: bool) -> tuple[str, ...]:
    """The fields of one window, in order.

    >>> len(window_fields(examination=True)), len(window_fields(examination=False))
    (60, 48)
    """
    names = (*SCALARS, *BINS, *(f"{name}@{place}" for name in PLACED for place in PLACES))
    return tuple(name for name in names if examination or not name.startswith("examination"))


def click_fields(*, examination: bool) -> tuple[str, ...]:
    """The L fields of x, in order.

    >>> fields = click_fields(examination=True)
    >>> len(fields), fields[0], fields[61], fields[-1]
    (180, 'day.impressions', 'week.clicks', 'month.examination@rest')
    """
    return tuple(f"{window}.{name}" for window in WINDOWS for name in window_fields(examination=examination))


def no_clicks(hours: int, *, examination: bool) -> list[float]:
    """What a window of this length holds of a pair that was not shown in it.

    >>> no_clicks(24, examination=False)[:10]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 24.0]
    """
    return [float(hours) if name == "last_click_age" else 0.0 for name in window_fields(examination=examination)]
