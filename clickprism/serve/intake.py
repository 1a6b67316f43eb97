"""`POST /v1/events`: a batch of events, straight into the ingest of the log; durable before the answer."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, final

import msgspec

from clickprism.errors import DataError
from clickprism.serve.call import JSON, Call
from clickprism.serve.events import (
    EventsBusyError,
    EventsConflictError,
    EventSettings,
    EventSink,
    EventsRefusedError,
    EventsTooLargeError,
)
from clickprism.serve.problems import UNREADABLE, Problem, malformed
from clickprism.serve.settings import ServeSettings

NDJSON: Final = b"application/x-ndjson"
THREADS: Final = 32
KEY: Final = r"^[A-Za-z0-9._:-]{1,128}$"
_KEY = re.compile(KEY.encode())


@final
class Row(msgspec.Struct, omit_defaults=True):
    """What became of a row.

    Attributes:
        row: its number in the batch, from 1.
        status: whether it counts.
        reason: why it does not.
    """

    row: int
    status: Literal["accepted", "duplicate", "quarantined", "ignored"]
    reason: str | None = None


@final
class EventsAnswer(msgspec.Struct):
    """What became of a batch.

    Attributes:
        request_id: of this request.
        key: under which the batch is known; the same batch again under the same key counts once.
        rows: one answer for each.
    """

    request_id: str
    key: str
    rows: list[Row]


@final
class Intake:
    """Takes batches for a log; each waits in a thread until the log has it."""

    def __init__(self, log: Path, settings: ServeSettings) -> None:
        self._log = log
        self._settings = settings
        self._sink: EventSink | None = None
        self._opening = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, "clickprism-events")

    def start(self) -> None:
        """Open the log beside; batches that a worker left when it died are put into it."""
        self._pool.submit(self._open)

    async def take(self, call: Call) -> EventsAnswer:
        """Read a batch and put it into the log."""
        call.check_type(JSON, NDJSON)
        given = call.headers.get(b"idempotency-key")
        if given is not None and not _KEY.match(given):
            detail = "Idempotency-Key must be 1 to 128 letters, digits, and the signs . _ : -"
            raise Problem(422, detail, kind="idempotency-key")
        body = await call.body(limit=self._settings.max_body, timeout=self._settings.timeout, gzip=True)
        if call.content_type == JSON or body.lstrip()[:1] == b"[":
            _check_array(body)
        key = f"sha256-{hashlib.sha256(body).hexdigest()}" if given is None else given.decode()
        rows = await asyncio.get_running_loop().run_in_executor(self._pool, self._accept, body, key)
        call.notes["rows"] = len(rows)
        return EventsAnswer(call.request_id, key, rows)

    def close(self) -> None:
        """Finish what waits."""
        self._pool.shutdown()
        if self._sink is not None:
            self._sink.close()

    def _accept(self, body: bytes, key: str) -> list[Row]:
        try:
            rows = [Row(each.row, each.status, each.reason) for each in self._open().accept(body, key=key)]
        except EventsConflictError as error:
            raise Problem(409, str(error), kind="idempotency-key") from None
        except EventsTooLargeError as error:
            raise Problem(413, str(error), kind="too-large") from None
        except EventsRefusedError as error:
            raise Problem(409, str(error), kind="other-rows") from None
        except EventsBusyError as error:
            header = ((b"retry-after", str(max(1, round(error.retry_after))).encode()),)
            raise Problem(503, str(error), kind="busy", headers=header) from None
        except DataError as error:
            raise Problem(503, f"the log cannot be written: {error}", kind="log") from None
        if not rows:
            raise Problem(422, "the batch has no rows", kind="invalid", pointer="")
        return rows

    def _open(self) -> EventSink:
        with self._opening:
            if self._sink is None:
                settings = EventSettings(max_bytes=self._settings.max_body, timeout=self._settings.timeout)
                self._sink = EventSink(self._log, settings)
            return self._sink


def _check_array(body: bytes) -> None:
    """A problem unless the body is a JSON array, and not empty; what its rows are is for the log to say."""
    try:
        rows = msgspec.json.decode(body, type=list[msgspec.Raw])
    except UNREADABLE as error:
        raise malformed(error) from None
    if not rows:
        raise Problem(422, "the batch has no rows", kind="invalid", pointer="")
