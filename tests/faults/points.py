"""The crash points of a log, in the order in which the code passes them."""

from __future__ import annotations

from typing import Final

INGEST_POINTS: Final = (
    "file-staged",
    "lock-held",
    "settings-written",
    "rows-written",
    "quarantine-moved",
    "quarantine-committed",
    "events-moved",
    "events-committed",
    "files-moved",
    "files-committed",
)
COMPACT_POINTS: Final = ("compact-written", "compact-committed")  # of a compaction, in an ingest or alone
WINDOW_POINTS: Final = tuple(
    f"{table}-{what}"
    for table in ("sessions", "partials", "week", "month", "snapshots")
    for what in ("moved", "committed")
)
