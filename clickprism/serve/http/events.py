"""`POST /v1/events`: batches of events that are on disk before the answer, and in the log soon after, each once.

    batch ─ written and synced to LOG/.inbox ─▶ answer 202 ─ with all others that wait ─▶ ingest ─ synced ─▶ removed

    LOG/.inbox/<name>.jsonl.gz   a batch, until the commit of the log that contains it is on disk
    LOG/.inbox/<name>.json       its SHA-256, kept for a while, so that the key is not used for another batch

`name` is a hash of the idempotency key. It is also in the compressed file, so batches of other keys are other files,
and the log reads no file twice: a batch that is sent again, or found again after a crash, counts once.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import msgspec

from clickprism._util.crash_points import crash_point
from clickprism._util.files import DRAFT, atomic_file, create_folder, sync, write_file
from clickprism.errors import DataError
from clickprism.log.ingest import ingest
from clickprism.log.read import detect
from clickprism.log.store import LogStore
from clickprism.serve.http.messages import EVENT_KEY, NDJSON, EventsAnswer
from clickprism.serve.http.problems import UNREADABLE, Problem, invalid, malformed
from clickprism.serve.http.request import BUSY, JSON, Call
from clickprism.serve.settings import ServeSettings

POINTS: Final = ("batch-written", "batch-ingested", "batch-kept")
"""Where a test may kill a sink, besides the commit points of the ingest."""
FOLDER: Final = ".inbox"
SUFFIX: Final = ".jsonl.gz"
MAX_GROUP: Final = 200
"""Maximum number of batches in one commit."""
RETRY_SECONDS: Final = 5.0
"""Seconds until a batch that could not be ingested is tried again."""
CLEAR_SECONDS: Final = 600.0
KEEP_HOURS: Final = 72.0
"""How long a key is remembered after its batch is in the log."""
THREADS: Final = 32
_KEY = re.compile(EVENT_KEY.encode())
_LOG: Final = logging.getLogger(__name__)


def as_lines(body: bytes) -> bytes:
    r"""Return a batch, which may be an array of objects or lines, as JSON lines.

    >>> as_lines(b'[{"a":\n 1}, {"b": 2}]')
    b'{"a":  1}\n{"b": 2}'
    """
    text = body.removeprefix(b"\xef\xbb\xbf")
    if not text.lstrip().startswith(b"["):
        return text
    flat = text.replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        return b"\n".join(map(bytes, msgspec.json.decode(flat, type=list[msgspec.Raw])))
    except UNREADABLE as error:
        raise malformed(error) from None


@final
class EventSink:
    """Takes batches of events for a log. Threads may share one; any number of processes may have one for a log.

    More than `max_waiting` batches that wait for the log are refused for now. From one commit of the log to the next
    are at least `group_seconds`, so that small batches go in together.
    """

    def __init__(
        self, log: Path | str, *, max_rows: int = 20_000, max_waiting: int = 256, group_seconds: float = 0.5
    ) -> None:
        self._max_rows, self._max_waiting, self._group_seconds = max_rows, max_waiting, group_seconds
        self._store = LogStore.open(log, create=True)
        self._inbox = self._store.folder / FOLDER
        create_folder(self._inbox)
        self._changed = threading.Condition()
        self._waiting: set[Path] = set()
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="clickprism-events-writer", daemon=True)
        self._writer.start()

    def accept(self, body: bytes, *, key: str) -> int:
        """Write a batch, JSON lines or an array, to disk and return its number of rows; the log gets it soon."""
        lines = as_lines(body)
        rows = sum(bool(line.strip()) for line in lines.split(b"\n"))
        if not rows:
            raise invalid("the batch has no rows", "")
        if rows > self._max_rows:
            raise Problem(413, f"the batch has {rows:,} rows, more than {self._max_rows:,}", kind="too-large")
        with self._changed:
            if self._closed or len(self._waiting) >= self._max_waiting:
                words = "the service stops" if self._closed else f"{len(self._waiting):,} batches wait already"
                raise Problem(503, words, kind="busy", headers=BUSY)
        try:
            path = self._put(key, lines)
            crash_point("batch-written")
            if path is not None:
                self._check(path)
        except OSError as error:
            words = f"the inbox of the log cannot be written ({error.strerror})"
            raise Problem(503, words, kind="busy", headers=BUSY) from None
        if path is not None:
            with self._changed:
                self._waiting.add(path)
                self._changed.notify_all()
        return rows

    def close(self) -> None:
        """Try to ingest what waits, then take nothing more; what could not be ingested stays in the inbox."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._writer.join()

    def _put(self, key: str, lines: bytes) -> Path | None:
        """Write a batch and wait until it is on disk; return None if the log has it already."""
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        content = io.BytesIO()
        with gzip.GzipFile(name, "wb", compresslevel=1, fileobj=content, mtime=0) as file:
            file.write(lines)
        packed, path = content.getvalue(), self._inbox / f"{name}{SUFFIX}"
        if self._known(path, packed):
            return None
        try:
            with atomic_file(path, replace=False) as draft:
                draft.write_bytes(packed)
        except FileExistsError:
            with suppress(FileNotFoundError):  # the log may have it by now
                if path.read_bytes() != packed:
                    raise _conflict() from None
            sync(self._inbox)  # the other writer may not have come to this yet
        try:
            return None if self._known(path, packed) else path
        except Problem:
            path.unlink(missing_ok=True)
            raise

    def _known(self, path: Path, packed: bytes) -> bool:
        """Return whether the log has this batch; raise an error if it has another one of the same key."""
        try:
            digest = json.loads(_kept(path).read_bytes())["digest"]
        except (FileNotFoundError, ValueError):
            return False
        if digest != hashlib.sha256(packed).hexdigest():
            raise _conflict()
        return True

    def _check(self, path: Path) -> None:
        """Remove a batch whose rows can never be read into this log, and raise an error."""
        try:
            found = detect(path, self._store.settings.source)
            problem = None if found.format == "json" else f"this log takes {found.format}, not JSON"
        except FileNotFoundError:  # another process has ingested it
            return
        except DataError as error:
            problem = str(error).removeprefix(f"{path}: ")
        if problem is not None:
            path.unlink(missing_ok=True)
            raise Problem(409, problem, kind="other-rows")

    def _write(self) -> None:
        """Ingest what waits, again and again."""
        with self._changed:
            self._waiting |= set(self._inbox.glob(f"*{SUFFIX}"))  # such as batches of a process that died
        cleared = 0.0
        while True:
            if time.monotonic() > cleared + CLEAR_SECONDS:
                self._clear()
                cleared = time.monotonic()
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed, CLEAR_SECONDS)
                group, last = sorted(self._waiting)[:MAX_GROUP], self._closed
            started = time.monotonic()
            done = self._ingest(group)
            with self._changed:
                self._waiting -= done
                self._changed.notify_all()
                complete = len(done) == len(group)
                if last and not (complete and self._waiting):
                    return
                if not last:
                    pause = self._group_seconds if complete else RETRY_SECONDS
                    self._changed.wait_for(lambda: self._closed, max(0.0, started + pause - time.monotonic()))

    def _ingest(self, batches: list[Path]) -> set[Path]:
        """Ingest batches together, or each alone if that fails; return those that need not wait any more."""
        there = [path for path in batches if path.exists()]
        done = set(batches) - set(there)
        try:
            if there:
                ingest(there, self._store.folder, max_bad_ratio=1, threads=1, memory="500MB", robots=False)
                crash_point("batch-ingested")
                for path in there:
                    self._keep(path)
        except Exception as error:
            if len(there) > 1:
                return done.union(*(self._ingest([path]) for path in there))
            _LOG.warning("a batch of events could not be ingested and stays in the inbox: %s", error)
            return done
        return done | set(there)

    def _keep(self, path: Path) -> None:
        """Remember the key of a batch that the log has on disk, and remove the batch."""
        with suppress(FileNotFoundError):  # another process was faster
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            write_file(_kept(path), json.dumps({"digest": digest}))
            crash_point("batch-kept")
            path.unlink()

    def _clear(self) -> None:
        """Forget old keys, and delete old unfinished files."""
        oldest = time.time() - 3600 * KEEP_HOURS
        for path in (*self._inbox.glob("*.json"), *self._inbox.glob(f".*{DRAFT}")):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


@final
class Intake:
    """The handler of `POST /v1/events`."""

    def __init__(self, log: Path, settings: ServeSettings) -> None:
        self._log, self._settings = log, settings
        self._sink: EventSink | None = None
        self._opening = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, "clickprism-events")

    def start(self) -> None:
        """Open the log in a thread; batches that a worker left when it died are ingested."""
        self._pool.submit(self._open)

    async def take(self, call: Call) -> EventsAnswer:
        """Read a batch and write it to disk."""
        call.check_type(JSON, NDJSON)
        given = call.fields.get(b"idempotency-key")
        if given is not None and not _KEY.match(given):
            detail = "Idempotency-Key must be 1 to 128 letters, digits, and the signs . _ : -"
            raise Problem(422, detail, kind="idempotency-key")
        body = await call.read(limit=self._settings.max_body, timeout=self._settings.timeout, gzip=True)
        if call.content_type == JSON and body.lstrip()[:1] != b"[":
            raise invalid("expected `array`", "")
        key = f"sha256-{hashlib.sha256(body).hexdigest()}" if given is None else given.decode()
        call.notes["rows"] = await asyncio.get_running_loop().run_in_executor(self._pool, self._accept, body, key)
        return EventsAnswer(call.request_id, key, call.notes["rows"])

    def close(self) -> None:
        """Finish what waits."""
        self._pool.shutdown()
        if self._sink is not None:
            self._sink.close()

    def _open(self) -> EventSink:
        """Return the sink, which is opened when it is first needed."""
        with self._opening:
            if self._sink is None:
                self._sink = EventSink(self._log)
            return self._sink

    def _accept(self, body: bytes, key: str) -> int:
        try:
            return self._open().accept(body, key=key)
        except DataError as error:
            raise Problem(503, f"the log cannot be written: {error}", kind="log") from None


def _kept(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SUFFIX) + ".json")


def _conflict() -> Problem:
    return Problem(409, "the idempotency key was used before, with another batch", kind="idempotency-key")
