"""What runs in processes that are killed: forked from a server that has imported all of it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import ibis.backends.duckdb  # noqa: F401 - so that it is imported once, before the forks

from clickprism._util.crash_points import VARIABLE
from clickprism._util.tables import to_json
from clickprism.log.compact import compact
from clickprism.log.engines.base import connect
from clickprism.log.features.windows import windows
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.ingest.stage import MANY
from clickprism.log.quarantine import clear
from clickprism.log.settings import CompactSettings, WindowSettings
from clickprism.log.store import LogStore

AS_OF = datetime(2026, 3, 3, 12)


def run(paths: list[str], log: str, *, fault: str = "", out: str = "", many: int = MANY) -> None:
    """One ingest; `fault` names the point at which it kills itself, `out` a file for its account."""
    os.environ[VARIABLE] = fault
    account = ingest(paths, log, max_bad_ratio=1, many=many)
    if out:
        Path(out).write_text(to_json(account), encoding="utf-8")


def forget_user(log: str, user: str, fault: str) -> None:
    """Forget a user, and be killed at this point."""
    os.environ[VARIABLE] = fault
    with connect() as engine:
        forget(LogStore.open(log), engine, [user])


def compact_log(log: str, fault: str) -> None:
    """Put the files of each day into one, and be killed at this point."""
    os.environ[VARIABLE] = fault
    compact(LogStore.open(log), CompactSettings(files=1))


def clear_rows(log: str, fault: str) -> None:
    """Clear all of a quarantine, and be killed at this point."""
    os.environ[VARIABLE] = fault
    clear(LogStore.open(log))


def run_windows(log: str, *, fault: str = "") -> None:
    """The windows of a log, from its events to a snapshot; `fault` as above."""
    os.environ[VARIABLE] = fault
    aggregates(Path(log))


def aggregates(log: Path) -> tuple[list[str], list[str]]:
    """Every value of the session rows and of the snapshot, in order; what is not there yet is made."""
    store = LogStore.open(log)
    with connect(memory="200MB", threads=1) as engine:
        made = windows(store, engine, AS_OF, settings=WindowSettings(k=0))
    rows = store.table("sessions").read().to_pylist()
    return sorted(map(repr, rows)), sorted(map(repr, made.snapshot.read().to_pylist()))
