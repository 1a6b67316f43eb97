"""HTTP/1.1 as uvicorn parses it, with limits against hostile clients.

Every wait for the client ends by a timer, and everything that a client can make the service keep is bounded:

    head        at most MAX_HEAD bytes and MAX_FIELDS headers, within HEAD_SECONDS of its first byte, which may be that
                of a blank line after a request
    trailers    dropped; bytes that are no part of a body count as a head does
    pipeline    at most MAX_PIPELINED requests wait behind the one that is answered, then the connection closes
    answers     a client that does not read them for WRITE_SECONDS is disconnected
    idle        connections close after the keep-alive time of uvicorn
"""

from __future__ import annotations

import resource
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from typing import Final, final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from clickprism.serve.http.problems import CONTENT_TYPE, Problem

MAX_HEAD: Final = 32 << 10
MAX_FIELDS: Final = 256  # headers and trailers: each costs time
HEAD_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 30.0
MAX_PIPELINED: Final = 16
FILES: Final = 128
"""Number of files that a worker must always be able to open: models, the store, the log."""
MAX_CONNECTIONS: Final = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES)


@final
class Protocol(HttpToolsProtocol):
    """One connection to a worker."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start to wait for the first head."""
        super().connection_made(transport)
        self._between = 0  # bytes since the last complete head or part of a body
        self._fields = 0  # headers and trailers of the request
        self._in_head, self._last_request, self._lost = True, False, False
        self._head_timer = _Timer(self.loop, HEAD_SECONDS, self._head_is_late)
        self._write_timer = _Timer(self.loop, WRITE_SECONDS, transport.abort)
        self._watch_head()
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(503, "too many connections are open")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and forget the requests that wait."""
        self._lost = True
        self.pipeline.clear()
        self._head_timer.stop()
        self._write_timer.stop()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; refuse too many that are neither a head nor a part of a body."""
        if self._last_request or self.transport.is_closing():
            return
        self._between += len(data)
        super().data_received(data)
        if self._between > MAX_HEAD:
            self._refuse(431, f"the head or the trailers of the request are longer than {MAX_HEAD:,} bytes")
        self._watch_head()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._fields, self._between = 0, max(1, self._between)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; drop a trailer, which comes after the body and could contradict the headers."""
        self._fields += 1
        if self._fields > MAX_FIELDS:
            self._stop(431, f"the request has more than {MAX_FIELDS} headers and trailers")
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End a head: answer the request, or let it wait for its turn; close the connection if too many wait."""
        self._in_head, self._between = False, 0
        if self.transport.is_closing():
            raise _EnoughError
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > MAX_HEAD:
            self._stop(431, f"the head of the request is longer than {MAX_HEAD:,} bytes")
        if len(self.pipeline) >= MAX_PIPELINED:
            self._last_request = True
            self.cycle.keep_alive = False  # the last one that waits closes the connection
            raise _EnoughError
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._between = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; the next byte begins another head."""
        self._in_head, self._between = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next head, or for the client to read the last answer."""
        super().on_response_complete()
        self._watch_head()
        if self.transport.is_closing():
            self._watch_writes()

    def pause_writing(self) -> None:
        """Limit the time in which the client reads what it was sent."""
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Stop the timer of `pause_writing`."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._write_timer.stop()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long."""
        super().timeout_keep_alive_handler()
        self._watch_writes()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP, unless parsing was stopped on purpose."""
        if not self._last_request:
            self._refuse(400, "the request is not HTTP/1.1")

    def _watch_head(self) -> None:
        """Start the timer of a head as soon as one is due: on connection, or at the first byte after an answer."""
        cycle: RequestResponseCycle | None = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if not self._in_head or answering or self.transport.is_closing():
            self._head_timer.stop()
        elif self._between or cycle is None:
            self._head_timer.start()

    def _head_is_late(self) -> None:
        if self._between:
            self._refuse(408, f"the head of the request did not arrive within {HEAD_SECONDS:g} s")
        else:
            self._close()

    def _stop(self, status: int, detail: str) -> None:
        self._refuse(status, detail)
        raise _EnoughError

    def _refuse(self, status: int, detail: str) -> None:
        """Send a problem and close; behind an answer that is under way, only close."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        started = cycle is not None and cycle.response_started and not cycle.response_complete
        if not started and not self.pipeline:
            body = Problem(status, detail, kind="malformed").body("-")
            headers = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (CONTENT_TYPE, len(body))
            self.transport.write(STATUS_LINE[status] + headers + body)
        self._close()

    def _close(self) -> None:
        """Close once everything is sent, at the latest after `WRITE_SECONDS`."""
        if not self.transport.is_closing():
            self.transport.close()
        self._watch_writes()

    def _watch_writes(self) -> None:
        if not self._lost:
            self._write_timer.start()


class _EnoughError(Exception):
    """Stops the parser, which would spend time on the rest of the same bytes."""


class _Timer:
    """A call after some seconds, unless it is stopped; starting it twice is starting it once."""

    def __init__(self, loop: AbstractEventLoop, seconds: float, call: Callable[[], None]) -> None:
        self._call_later = partial(loop.call_later, seconds, call)
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        self._handle = self._handle or self._call_later()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
