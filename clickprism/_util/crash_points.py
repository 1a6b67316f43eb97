"""Named points of the code at which a test can kill the process, to show that a crash there loses nothing."""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "CLICKPRISM_CRASH_POINT"
POINTS: Final = (
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
"""The crash points of an ingest, in order."""
COMPACT_POINTS: Final = ("compact-written", "compact-committed")
"""The crash points of a compaction, in an ingest or alone, in order."""
WINDOW_POINTS: Final = tuple(
    f"{table}-{what}"
    for table in ("sessions", "partials", "week", "month", "snapshots")
    for what in ("moved", "committed")
)
"""The crash points of computing click features, in order."""


def crash_point(point: str) -> None:
    """Kill this process if the environment variable CLICKPRISM_CRASH_POINT is the name of this point."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
