"""One request over ASGI: its headers, its body within limits, its answer."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from typing import Any, Final, TypeAlias, final

from clickprism.serve.problems import Problem

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

JSON: Final = b"application/json"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_PREFIX: Final = token_hex(6)
_NUMBERS: Final = count(1)
BUSY: Final = ((b"retry-after", b"1"),)
_CLOSE: Final = ((b"connection", b"close"),)


@final
class Gone(Exception):  # noqa: N818 - it is no error of ours
    """The client went away."""


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a body of a type, with a status."""

    body: bytes
    content_type: bytes = JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


@final
class Call:
    """A request under way.

    Attributes:
        started: when it came, by `time.perf_counter`.
        request_id: that of its `X-Request-Id` where it can stand in a log, else a new one.
        method: of HTTP.
        headers: those that the service reads, by name.
        hosts: number of `Host` headers; HTTP/1.1 has exactly one.
        query_string: what stands behind the question mark.
        unread: whether a part of its body may not have been read.
        notes: for its line in the log.
        after: what to do once the answer is sent.
    """

    def __init__(self, scope: Message, receive: Receive) -> None:
        self.started = time.perf_counter()
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.hosts = sum(name == b"host" for name, _ in scope["headers"])
        self.method: str = scope["method"]
        self.query_string: bytes = scope.get("query_string", b"")
        given = self.headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            self.request_id = given.decode()
        else:
            self.request_id = f"{_PREFIX}-{next(_NUMBERS):x}"
        self.unread = self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers
        self.notes: dict[str, Any] = {}
        self.after: Callable[[], None] | None = None
        self._receive = receive

    @property
    def content_type(self) -> bytes:
        """Of the body, without parameters."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()

    def check_type(self, *allowed: bytes) -> None:
        """A problem of status 415 unless the body is of one of these types."""
        if self.content_type not in allowed:
            words = " or ".join(each.decode() for each in allowed)
            raise Problem(415, f"send the body as Content-Type: {words}", kind="content-type")

    async def body(self, *, limit: int, timeout: float, gzip: bool = False) -> bytes:
        """Return the whole body; too long a one is a problem of status 413 at once, one that does not come in time 408.

        Args:
            limit: maximum number of bytes, as sent and, with `gzip`, after decompression.
            timeout: seconds within which the body must arrive.
            gzip: whether the body may be compressed; others get a problem of status 415.
        """
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding != b"identity" and not (gzip and encoding == b"gzip"):
            taken = b"gzip" if gzip else b"identity"
            detail = f"send the body with Content-Encoding {taken.decode()}, or without this header"
            raise Problem(415, detail, kind="content-encoding", headers=((b"accept-encoding", taken),))
        length = self.headers.get(b"content-length")
        if length is not None and not length.isdigit():
            raise Problem(400, "Content-Length is not a number", kind="malformed", headers=_CLOSE)
        if length is not None and (len(length) > 18 or int(length) > limit):
            raise _too_large(limit)
        try:
            async with asyncio.timeout(timeout):
                body = await self._read(limit)
        except TimeoutError:
            detail = f"the body did not arrive within {timeout:g} s"
            raise Problem(408, detail, kind="slow", headers=_CLOSE) from None
        return body if encoding == b"identity" else _decompressed(body, limit)

    async def _read(self, limit: int) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise Gone
        body: bytes = message["body"]
        if not message["more_body"]:
            if len(body) > limit:
                raise _too_large(limit)
            self.unread = False
            return body
        parts, size = [body], len(body)
        while True:
            if size > limit:
                raise _too_large(limit)
            message = await self._receive()
            if message["type"] != "http.request":
                raise Gone
            parts.append(message["body"])
            size += len(message["body"])
            if not message["more_body"] and size <= limit:
                self.unread = False
                return b"".join(parts)

    async def send(self, answer: Answer, send: Send) -> None:
        """Send the answer; a connection with an unread rest is closed, so that no one need read it."""
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", str(len(answer.body)).encode()),
            (b"x-request-id", self.request_id.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *answer.headers,
        ]
        if self.unread:
            headers += [each for each in _CLOSE if each not in answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body is longer than the {limit:,} bytes that are taken", kind="too-large", headers=_CLOSE)


def _decompressed(body: bytes, limit: int) -> bytes:
    """Return the content of one gzip member, never more than the limit in memory.

    >>> import gzip
    >>> _decompressed(gzip.compress(b"x" * 9), 9)
    b'xxxxxxxxx'
    >>> _decompressed(gzip.compress(b"x" * 1_000_000), 9)
    Traceback (most recent call last):
    clickprism.serve.problems.Problem: the body is longer than the 9 bytes that are taken
    """
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise Problem(400, f"the body is not gzip: {error}", kind="malformed") from None
    if len(content) > limit:
        raise _too_large(limit)
    if not reader.eof or reader.unused_data:
        raise Problem(400, "the body is not exactly one gzip file", kind="malformed")
    return content
