"""What runs in processes of their own: sinks that are killed, and several at a time."""

from __future__ import annotations

import os
from typing import Any

from clickprism._util.crash_points import VARIABLE
from clickprism.serve.http.events import EventSink

QUICK = {"group_seconds": 0}


def post(log: str, batches: list[tuple[str, bytes]], *, fault: str = "", connection: Any = None) -> None:
    """Post batches one after another; `fault` names the point at which the process is killed."""
    os.environ[VARIABLE] = fault
    sink = EventSink(log, **QUICK)
    answers = [sink.accept(body, key=key) for key, body in batches]
    sink.close()
    if connection is not None:
        connection.send(answers)
