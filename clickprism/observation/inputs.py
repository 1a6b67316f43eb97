"""Read sessions for estimates of observation: from an ingested log, a session file or simulated clicks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from clickprism.data.letor import OnError
from clickprism.data.sessions import SessionLog, read_log
from clickprism.observation.placed import PlacedCounts, place

Note = Callable[[str], None]


def read_input(path: Path, *, on_error: OnError = "raise", note: Note = print) -> SessionLog:
    """Return the sessions of an ingested log, whose sessions are updated first, or of a file.

    Args:
        path: Folder of an ingested log, a session file (TSV or CSV), or simulated clicks (.npz).
        on_error: Stop at the first broken line of a session file, or skip broken lines.
        note: Receives messages for the user.
    """
    if (path / "log.toml").is_file():
        from clickprism.log.lists import session_log
        from clickprism.log.sessions import update_sessions
        from clickprism.log.store import LogStore

        store = LogStore.open(path, note=note)
        with store.write() as writer:
            update_sessions(store, writer.engine)
            log = session_log(store)
    else:
        log = read_log(path, on_error=on_error)
    clicks = log.clicks
    queries = len(np.unique(clicks.lists.list_of[clicks.rows]))
    note(
        f"{clicks.sessions:,} sessions, {queries:,} queries, {int(clicks.clicks.sum()):,} clicks"
        + (f"; ignored {log.outside:,} clicks on documents outside the list" if log.outside else "")
        + (f"; skipped {len(log.quarantined):,} broken lines" if log.quarantined else "")
    )
    for line in log.quarantined[:3]:
        note(f"  {line.file}:{line.line}: {line.reason}")
    return log


def place_input(path: Path, *, on_error: OnError = "raise", note: Note = print) -> PlacedCounts:
    """Return the clicks and impressions by document and position; the arguments are those of `read_input`."""
    if (path / "log.toml").is_file():
        from clickprism.log.sessions import update_sessions
        from clickprism.log.store import LogStore

        store = LogStore.open(path, note=note)
        with store.write() as writer:
            update_sessions(store, writer.engine)
            placed = place(store)
    else:
        placed = PlacedCounts.of_sessions(read_input(path, on_error=on_error, note=note))
    counts, randomised = placed.counts, placed.randomised
    random = "" if randomised is None else f", {randomised.impressions.sum():,.0f} of them at random positions"
    note(f"{counts.impressions.sum():,.0f} impressions{random}; {counts.clicks.sum():,.0f} clicks")
    return placed
