"""Named points at which a test may end the process, as a crash would."""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "CLICKPRISM_FAULT"
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
"""The commit points of an ingest, in their order."""
COMPACT_POINTS: Final = ("compact-written", "compact-committed")
"""The commit points of a compaction, in an ingest or alone."""
WINDOW_POINTS: Final = tuple(
    f"{table}-{what}"
    for table in ("sessions", "partials", "week", "month", "snapshots")
    for what in ("moved", "committed")
)
"""The commit points of `windows`, in their order."""


def crash_point(point: str) -> None:
    """Kill this process if the environment variable CLICKPRISM_FAULT names the point; else do nothing."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
