"""One request: its headers, its body within limits, who may send it, its answer, and its line in the log."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Final, final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from clickprism._util.files import stamp
from clickprism.errors import DataError
from clickprism.serve.http.problems import Problem
from clickprism.serve.settings import is_loopback

JSON: Final = b"application/json"
TOKEN_SECONDS: Final = 1.0  # between two looks at the file of tokens
BUSY: Final = ((b"retry-after", b"1"),)
_CLOSE: Final = ((b"connection", b"close"),)
_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="clickprism"'),)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")
_PREFIX: Final = secrets.token_hex(6)
_NUMBERS: Final = count(1)


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back: a body of a type, with a status."""

    body: bytes
    content_type: bytes = JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


@final
class Call:
    """A request that is being answered."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self.method = scope, scope["method"]
        self.started = time.perf_counter()
        self.fields: dict[bytes, bytes] = dict(scope["headers"])  # the last of several with one name
        given = self.fields.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            self.request_id = given.decode()
        else:
            self.request_id = f"{_PREFIX}-{next(_NUMBERS):x}"
        self.unread = self.fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.fields
        self.notes: dict[str, Any] = {}  # for its line in the log
        self.after: Callable[[], None] | None = None  # once the answer is sent
        self._receive = receive

    @property
    def content_type(self) -> bytes:
        """Type of the body, without parameters."""
        return self.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()

    def check_type(self, *allowed: bytes) -> None:
        """Raise a problem of status 415 unless the body is of one of these types."""
        if self.content_type not in allowed:
            words = " or ".join(each.decode() for each in allowed)
            raise Problem(415, f"send the body as Content-Type: {words}", kind="content-type")

    async def read(self, *, limit: int, timeout: float, gzip: bool = False) -> bytes:
        """Return the whole body, with `gzip` decompressed if need be: status 413 if it is too long, 408 if too slow."""
        encoding = self.fields.get(b"content-encoding", b"identity").strip().lower()
        if encoding != b"identity" and not (gzip and encoding == b"gzip"):
            taken = b"gzip" if gzip else b"identity"
            detail = f"send the body with Content-Encoding {taken.decode()}, or without this header"
            raise Problem(415, detail, kind="content-encoding", headers=((b"accept-encoding", taken),))
        length = self.fields.get(b"content-length", b"0")
        if not length.isdigit():
            raise Problem(400, "Content-Length is not a number", kind="malformed", headers=_CLOSE)
        if len(length) > 18 or int(length) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(timeout):
                body = await self._read(limit)
        except TimeoutError:
            detail = f"the body did not arrive within {timeout:g} s"
            raise Problem(408, detail, kind="slow", headers=_CLOSE) from None
        return body if encoding == b"identity" else _decompressed(body, limit)

    async def _read(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            parts.append(message["body"])
            size += len(message["body"])
            if size > limit:
                raise _too_large(limit)
            if not message["more_body"]:
                self.unread = False
                return parts[0] if len(parts) == 1 else b"".join(parts)

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
    clickprism.serve.http.problems.Problem: the body is longer than the 9 bytes that are taken
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


def new_token() -> str:
    """Return a token that no one can guess."""
    return secrets.token_urlsafe(24)


def read_tokens(file: Path) -> tuple[bytes, ...]:
    """Return the tokens of a file, one per line; an error if there is none, or one cannot be sent in a header."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=file, remedy="Write one token per line") from None
    tokens = [line.strip() for line in lines if line.strip()]
    if not tokens or not all(each.isascii() and each.isprintable() for each in tokens):
        raise DataError("does not contain one token of printable ASCII per line", file=file)
    return tuple(each.encode() for each in tokens)


@final
class Guard:
    """Decides who may send requests: by the `Authorization` header, or without a token by the `Host`.

    The valid tokens are the given one, or those of a file, which is read again when it changes. A file that breaks
    leaves the tokens as they were.

    >>> Guard("secret").check_token(b"Bearer secret")
    >>> Guard().check_token(None)
    >>> Guard("secret").check_token(b"Bearer guess")
    Traceback (most recent call last):
    clickprism.serve.http.problems.Problem: the token is not that of this service
    """

    def __init__(self, token: str | None = None, file: Path | None = None) -> None:
        self._file, self._seen, self._next = file, None, 0.0
        given = () if token is None else (token.encode(),)
        self._tokens: tuple[bytes, ...] = given if file is None else read_tokens(file)
        self.needs_token = bool(self._tokens)

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The valid tokens, the first of which signs cookies."""
        if self._file is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + TOKEN_SECONDS
            with suppress(DataError):
                seen: Any = stamp(self._file)
                if seen != self._seen:
                    self._tokens, self._seen = read_tokens(self._file), seen
        return self._tokens

    def knows(self, given: bytes) -> bool:
        """Return whether a token is valid, in a time that does not depend on where it differs."""
        return sum(hmac.compare_digest(given, each) for each in self.tokens) > 0

    def check_host(self, call: Call) -> None:
        """Raise a problem of status 400 without exactly one `Host`, and without a token 421 if it is another machine.

        A page of another host can have its name point to this machine, and so make a browser here send requests to it.
        """
        hosts = [value for name, value in call.scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise Problem(400, f"the request has {len(hosts)} Host headers, not one", kind="malformed")
        if not self.needs_token and not _is_here(hosts[0]):
            detail = "without a token the service answers to names of this machine only, such as localhost"
            raise Problem(421, detail, kind="host")

    def check_token(self, header: bytes | None) -> None:
        """Raise a problem of status 401 unless the header has a valid token."""
        if not self.needs_token:
            return
        scheme, _, given = (header or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not self.knows(given.strip()):
            detail = "the token is not that of this service"
            detail = detail if header else "a token is needed: send it as Authorization: Bearer ..."
            raise Problem(401, detail, kind="unauthorised", headers=_CHALLENGE)


@lru_cache(64)
def _is_here(header: bytes) -> bool:
    """Return whether a `Host` header names this machine.

    >>> _is_here(b"localhost:8000"), _is_here(b"[::1]:8000"), _is_here(b"127.0.0.1"), _is_here(b"evil.example:8000")
    (True, True, True, False)
    """
    found = _HOST.fullmatch(header.decode("latin-1").lower())
    return found is not None and is_loopback(found[1] or found[2])


def write_line(values: dict[str, Any], **more: Any) -> None:
    """Write one line of JSON to standard error, in one piece; a reader that went away is no error."""
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
    with suppress(OSError):
        os.write(2, msgspec.json.encode({"time": f"{now}Z", **values, **more}) + b"\n")


@final
class JsonHandler(logging.Handler):
    """Writes what libraries log as lines of JSON."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        error = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        values = {"level": record.levelname.lower(), "message": record.getMessage()}
        write_line(values | ({} if error is None else {"error": error}))
