"""Events that come over the network, straight into the ingest of a log: durable before the answer, counted once.

    batch ─ on disk in the inbox ─▶ waits ─ with all others that wait ─▶ ingest ─▶ answers on disk ─▶ answer

A batch that comes again with its idempotency key gets the answer that it had. Batches go in through the ordinary door,
one file a batch, so a crash at any point loses nothing and counts nothing twice: what is in the inbox goes in when the
next sink opens, or when the same batch comes again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from clickprism._util.crash_points import crash_point
from clickprism.errors import ClickprismError, DataError, SettingError
from clickprism.log.ingest import ingest
from clickprism.log.ingest.outcomes import Outcome, known_files, outcomes
from clickprism.log.read import detect
from clickprism.log.store import LogStore
from clickprism.serve.inbox import (
    Batch,
    EventsConflictError,
    EventsRefusedError,
    Inbox,
    RowAnswer,
    as_lines,
    row_numbers,
)

__all__ = [
    "POINTS",
    "EventSettings",
    "EventSink",
    "EventsBusyError",
    "EventsConflictError",
    "EventsRefusedError",
    "EventsTooLargeError",
    "RowAnswer",
]

POINTS: Final = ("batch-written", "batch-ingested", "batch-answered")
"""Where a test may kill a sink, besides the commit points of the ingest."""
_GROUP: Final = 200
_AGAIN: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


class EventsTooLargeError(ClickprismError):
    """The batch has more bytes or rows than are allowed (413)."""


class EventsBusyError(ClickprismError):
    """Too many batches wait, or the log cannot be written now (503): send the same again, with the same key."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@final
@dataclass(frozen=True)
class EventSettings:
    """Limits of a sink.

    Attributes:
        max_bytes: of a batch.
        max_rows: of a batch.
        max_waiting: batches that wait in one process; more are sent away.
        timeout: seconds that a batch waits for its answer.
        group_seconds: at least so long from one commit to the next, so that small batches go in together.
        keep_hours: how long answers are kept for a batch that comes again.
    """

    max_bytes: int = 4 << 20
    max_rows: int = 20_000
    max_waiting: int = 256
    timeout: float = 30.0
    group_seconds: float = 0.5
    keep_hours: float = 72.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_rows", "max_waiting", "timeout", "keep_hours"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "be above 0")
        if not 0 <= self.group_seconds < float("inf"):
            raise SettingError("group_seconds", self.group_seconds, "be 0 or more")


@final
class EventSink:
    """The door to a log for batches of events. Threads may share one; processes have one each.

    Args:
        log: the folder of the log; it is made if missing.
        settings: limits.
    """

    def __init__(self, log: Path | str, settings: EventSettings | None = None) -> None:
        self.settings = settings or EventSettings()
        self._store = LogStore.open(log, create=True)
        self._inbox = Inbox(self._store.folder)
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="clickprism-events-writer", daemon=True)
        self._writer.start()

    @property
    def waiting(self) -> int:
        """How many batches are on disk and wait for the log."""
        with self._changed:
            return sum(each.batch is not None for each in self._waiting.values())

    def accept(self, body: bytes, *, key: str) -> list[RowAnswer]:
        """Put a batch into the log and say what became of each row; blocks until it is there.

        Args:
            body: JSON lines, or a JSON array, of rows as `clickprism log ingest` reads them.
            key: the same key is the same batch.
        """
        if not key:
            raise EventsRefusedError("the idempotency key is empty")
        if len(body) > self.settings.max_bytes:
            raise EventsTooLargeError(f"the batch has {len(body):,} bytes, more than {self.settings.max_bytes:,}")
        lines = as_lines(body)
        rows = len(row_numbers(lines))
        if rows > self.settings.max_rows:
            raise EventsTooLargeError(f"the batch has {rows:,} rows, more than {self.settings.max_rows:,}")
        if not rows:
            return []
        name, digest = self._inbox.name(key), hashlib.sha256(lines).hexdigest()
        answer = self._inbox.answer(name, digest)
        if answer is not None:
            return answer
        waiting = self._queue(name, digest, lines)
        try:
            return list(waiting.answer.result(self.settings.timeout))
        except TimeoutError:
            words = "the log takes longer than usual; the batch is safe, send it again for its answer"
            raise EventsBusyError(words, retry_after=_AGAIN) from None

    def close(self) -> None:
        """Finish what waits, then take nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._writer.join()

    def _queue(self, name: str, digest: str, lines: bytes) -> _Waiting:
        """The batch among those that wait, on disk; the same batch twice at a time waits once."""
        with self._changed:
            there = self._waiting.get(name)
            if there is not None:
                if there.digest != digest:
                    raise EventsConflictError("the idempotency key is in use, with another batch")
                return there
            if self._closed or len(self._waiting) >= self.settings.max_waiting:
                words = "the sink is closed" if self._closed else f"{len(self._waiting):,} batches wait already"
                raise EventsBusyError(words, retry_after=_AGAIN if self._closed else 1.0)
            mine = self._waiting[name] = _Waiting(digest, Future())
        try:
            batch = self._inbox.put(name, lines)
            crash_point("batch-written")
            self._check(batch)
            answer = self._answered(batch, digest)
        except BaseException as error:
            words = f"the log cannot be written ({error})"
            failure = EventsBusyError(words, retry_after=_AGAIN) if isinstance(error, OSError) else error
            with self._changed:
                self._finish(name, failure)
            raise failure from None
        with self._changed:
            mine.batch = batch
            if answer is not None:
                self._inbox.drop(batch)
                self._finish(name, answer)
            self._changed.notify_all()
        return mine

    def _answered(self, batch: Batch, digest: str) -> list[RowAnswer] | None:
        """The answer that came while the batch was written; a batch that is refused for it does not stay."""
        try:
            return self._inbox.answer(batch.name, digest)
        except EventsConflictError:
            self._inbox.drop(batch)
            raise

    def _check(self, batch: Batch) -> None:
        """An error if rows of this kind cannot be read into this log at all."""
        try:
            found = detect(batch.path, self._store.settings.source)
        except DataError as error:
            self._inbox.drop(batch)
            raise EventsRefusedError(str(error).removeprefix(f"{batch.path}: ")) from None
        if found.format != "json":
            self._inbox.drop(batch)
            raise EventsRefusedError(f"this log takes {found.format}, not JSON")

    def _finish(self, name: str, answer: list[RowAnswer] | BaseException) -> None:
        """Give those who wait for a batch their answer."""
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            return
        if isinstance(answer, BaseException):
            waiting.answer.set_exception(answer)
        else:
            waiting.answer.set_result(answer)

    def _write(self) -> None:
        """The writer: all that waits, again and again."""
        try:
            self._ingest(self._inbox.waiting())
        except Exception:
            _LOG.exception("what was left in the inbox could not be ingested")
        cleared = 0.0
        while True:
            if time.monotonic() > cleared + 600:
                self._inbox.clear(hours=self.settings.keep_hours)
                cleared = time.monotonic()
            with self._changed:
                while not (ready := self._ready()) and not (self._closed and not self._waiting):
                    self._changed.wait(600)
                if not ready:
                    return
            started = time.monotonic()
            self._ingest(ready)
            with self._changed:
                left = started + self.settings.group_seconds - time.monotonic()
                self._changed.wait_for(lambda: self._closed, timeout=max(0.0, left))

    def _ready(self) -> list[Batch]:
        batches = [waiting.batch for waiting in self._waiting.values() if waiting.batch is not None]
        return batches[:_GROUP]

    def _ingest(self, batches: list[Batch]) -> None:
        """Ingest batches together, answer them; if that fails, each alone."""
        there = [batch for batch in batches if batch.path.exists()]
        try:
            answers = self._answers(there) if there else {}
        except Exception as error:
            if len(there) > 1:
                for batch in there:
                    self._ingest([batch])
                return
            _LOG.warning("a batch could not be ingested: %s", error)
            answers = {}
        for batch in batches:
            answer: list[RowAnswer] | ClickprismError | None = answers.get(batch.name)
            if answer is None:
                with contextlib.suppress(EventsConflictError):
                    answer = self._inbox.answer(batch.name, batch.digest)
            with self._changed:
                words = "the log cannot be written now; the batch is safe, send it again"
                self._finish(batch.name, EventsBusyError(words, retry_after=_AGAIN) if answer is None else answer)

    def _answers(self, batches: list[Batch]) -> dict[str, list[RowAnswer]]:
        before = known_files(self._store)
        ingest(
            [batch.path for batch in batches],
            self._store.folder,
            max_bad_ratio=1,
            threads=1,
            memory="500MB",
            robots=False,
        )
        crash_point("batch-ingested")
        found = outcomes(self._store, {batch.file_id: batch.path for batch in batches}, before=before)
        answers = {batch.name: _answer(batch, found[batch.file_id]) for batch in batches}
        for batch in batches:
            self._inbox.keep(batch, answers[batch.name])
            crash_point("batch-answered")
        return answers


@dataclass
class _Waiting:
    """A batch that someone waits for; `batch` is there once it is on disk."""

    digest: str
    answer: Future[list[RowAnswer]]
    batch: Batch | None = None


def _answer(batch: Batch, outcome: Outcome) -> list[RowAnswer]:
    answers = []
    for row in batch.rows:
        if row in outcome.stored:
            answers.append(RowAnswer(row, "accepted"))
        elif row in outcome.broken:
            answers.append(RowAnswer(row, "quarantined", outcome.broken[row]))
        elif outcome.events is not None and row not in outcome.events:
            answers.append(RowAnswer(row, "ignored", "it is no event that a click log has"))
        else:
            answers.append(RowAnswer(row, "duplicate", "the event was there before"))
    return answers
