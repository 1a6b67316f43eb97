"""What runs in processes that are killed: forked from a server that has imported all of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from clickprism.log.engine import connect
from clickprism.log.faults import VARIABLE
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.quarantine import clear
from clickprism.log.store import LogStore


def run(paths: list[str], log: str, *, fault: str = "", out: str = "") -> None:
    """One ingest; `fault` names the point at which it kills itself, `out` a file for its account."""
    if fault:
        os.environ[VARIABLE] = fault
    account = ingest(paths, log, max_bad_ratio=1)
    if out:
        Path(out).write_text(json.dumps(account.plain()), encoding="utf-8")


def forget_user(log: str, user: str, fault: str) -> None:
    """Forget a user, and be killed at this point."""
    os.environ[VARIABLE] = fault
    with connect() as engine:
        forget(LogStore.open(log), engine, [user])


def clear_rows(log: str, fault: str) -> None:
    """Clear all of a quarantine, and be killed at this point."""
    os.environ[VARIABLE] = fault
    clear(LogStore.open(log))
