"""The driver of a cluster, in a process of its own: sessions, an examination model and a snapshot of a log."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

from clickprism.examination.examine import examine, make_current
from clickprism.log.engines.base import connect
from clickprism.log.features.windows import windows
from clickprism.log.sessions import update_sessions
from clickprism.log.settings import WindowSettings
from clickprism.log.store import LogStore


def main(log: Path, as_of: datetime) -> None:
    """Make all that a log derives from its events, on the cluster at the address in MASTER."""
    store = LogStore.open(log)
    with connect(os.environ["MASTER"]) as engine:
        update_sessions(store, engine)
        model, _ = examine(store, engine)
        make_current(store, model)
        windows(store, engine, as_of, examiner=model, settings=WindowSettings(k=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]))
