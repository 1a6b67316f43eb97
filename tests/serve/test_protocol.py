"""Attacks on one connection, with a clock that the test moves and a client that reads only when the test says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from clickprism.serve.http.protocol import HEAD_SECONDS, MAX_FIELDS, MAX_HEAD, MAX_PIPELINED, WRITE_SECONDS, Protocol

KEEP_ALIVE = 30
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = b"x" * 1000


@dataclass(eq=False)
class Timer:
    """A call that is due at a time of the test's clock."""

    due: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """The running loop, with timers that fire when the test moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def create_task(self, work: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in sorted(self.timers, key=lambda each: each.due):
            if timer.due <= self.now and not timer.cancelled:
                timer.cancel()
                timer.call()


@dataclass(eq=False)
class Client:
    """The other end: what it was sent, and whether it reads."""

    protocol: Any = None
    reads: bool = True
    got: bytearray = field(default_factory=bytearray)
    closing: bool = False
    gone: bool = False

    def write(self, data: bytes) -> None:
        if self.gone:
            return
        self.got += data
        if not self.reads and len(self.got) > 65536:
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        if self.reads:
            self.abort()

    def abort(self) -> None:
        self.closing = True
        if not self.gone:
            self.gone = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Application:
    """Answers each request with the same bytes, once its body is there and it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()
        self.may.set()
        self.headers: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        message = {"more_body": True, "type": "http.request"}
        while message.get("more_body"):
            message = await receive()
        await self.may.wait()
        self.headers = list(scope["headers"])
        length = [(b"content-length", str(len(ANSWER)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": ANSWER})


@dataclass(frozen=True)
class Connection:
    """One connection of a client to an application."""

    loop: Loop
    client: Client
    protocol: Protocol
    application: Application


Attack = Callable[[Connection], Awaitable[None]]


def attack(work: Attack) -> None:
    """Run an attack on a new connection; the connection must be gone in the end, with all its timers."""

    async def whole() -> None:
        loop, client, application = Loop(), Client(), Application()
        config = Config(application, timeout_keep_alive=KEEP_ALIVE, log_config=None, access_log=False)
        state = ServerState()
        protocol = Protocol(config, state, {}, loop)  # type: ignore[arg-type]
        client.protocol = protocol
        protocol.connection_made(client)  # type: ignore[arg-type]
        await work(Connection(loop, client, protocol, application))
        await settled()
        assert client.gone
        assert protocol not in state.connections
        assert all(timer.cancelled for timer in loop.timers)

    asyncio.run(whole())


async def settled() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def refused(client: Client, status: int) -> None:
    head, _, body = bytes(client.got).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), client.got[:200]
    assert json.loads(body)["status"] == status


@pytest.mark.parametrize("line", [b"\r\n", b"\r\n\r\n", b"G"])
def test_a_byte_after_a_request_does_not_end_the_timeouts(line: bytes) -> None:
    async def work(at: Connection) -> None:
        at.protocol.data_received(GET)
        await settled()
        at.client.got.clear()
        at.protocol.data_received(line)
        at.loop.advance(HEAD_SECONDS - 1)
        at.protocol.data_received(b"\r\n" if line != b"G" else b"E")
        assert not at.client.gone
        at.loop.advance(1)
        refused(at.client, 408)

    attack(work)


def test_a_byte_while_a_request_is_answered_does_not_end_the_timeouts() -> None:
    async def work(at: Connection) -> None:
        at.application.may.clear()
        at.protocol.data_received(GET)
        await settled()
        at.protocol.data_received(b"\r\n")
        at.loop.advance(10 * HEAD_SECONDS)
        assert not at.client.gone, "the service takes its time; that is not the client's fault"
        at.application.may.set()
        await settled()
        assert at.client.got.endswith(ANSWER)
        at.loop.advance(KEEP_ALIVE)

    attack(work)


def test_a_silent_connection_is_closed() -> None:
    async def work(at: Connection) -> None:
        at.loop.advance(HEAD_SECONDS)
        assert at.client.got == b""

    attack(work)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def work(at: Connection) -> None:
        for _ in range(3):
            at.protocol.data_received(GET)
            await settled()
            at.loop.advance(KEEP_ALIVE - 1)
        assert at.application.asked == 3
        assert not at.client.gone
        at.loop.advance(1)

    attack(work)


@pytest.mark.parametrize("line", [b"a: b\r\n", b"a" * 6, b"a: " + b"b" * 3])
def test_trailers_are_limited(line: bytes) -> None:
    async def work(at: Connection) -> None:
        at.protocol.data_received(CHUNKED + b"1\r\nx\r\n0\r\n")
        await settled()
        sent = 0
        while not at.client.closing:
            at.protocol.data_received(line * 512)
            sent += len(line) * 512
            assert sent <= MAX_HEAD + 512 * len(line)
        refused(at.client, 431)

    attack(work)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", CHUNKED + b"1\r\nx\r\n0\r\n"], ids=["headers", "trailers"])
def test_many_short_fields_stop_the_parser(start: bytes) -> None:
    async def work(at: Connection) -> None:
        at.protocol.data_received(start + b"a:b\r\n" * 5000)
        refused(at.client, 431)
        assert at.protocol._fields == MAX_FIELDS + 1

    attack(work)


def test_a_trailer_is_no_header() -> None:
    async def work(at: Connection) -> None:
        at.protocol.data_received(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer token\r\n\r\n")
        await settled()
        assert at.client.got.endswith(ANSWER)
        assert [name for name, _ in at.application.headers] == [b"host", b"transfer-encoding"]
        at.loop.advance(KEEP_ALIVE)

    attack(work)


@pytest.mark.parametrize("part", [b"X: y\r\n", b"x"])
def test_heads_are_limited(part: bytes) -> None:
    async def work(at: Connection) -> None:
        at.protocol.data_received(b"GET / HTTP/1.1\r\n")
        for _ in range(MAX_HEAD // len(part) // 64 + 1):
            at.protocol.data_received(part * 64)
        refused(at.client, 431)
        assert at.application.asked == 0

    attack(work)


def test_few_requests_wait_behind_another_one() -> None:
    async def work(at: Connection) -> None:
        at.application.may.clear()
        for _ in range(10):
            at.protocol.data_received(GET * 100)
        await settled()
        assert len(at.protocol.pipeline) == MAX_PIPELINED
        assert not at.client.closing
        at.application.may.set()
        await settled()
        assert at.application.asked == MAX_PIPELINED + 1
        assert at.client.got.count(b"HTTP/1.1 200 OK") == MAX_PIPELINED + 1
        assert b"connection: close" in at.client.got

    attack(work)


def test_bodies_behind_the_last_request_are_not_mixed_into_it() -> None:
    async def work(at: Connection) -> None:
        at.application.may.clear()
        at.protocol.data_received(GET * (MAX_PIPELINED + 1) + CHUNKED + b"1\r\nx\r\n0\r\n\r\n")
        await settled()
        assert not any(cycle.body for cycle, _ in at.protocol.pipeline)
        at.application.may.set()

    attack(work)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def work(at: Connection) -> None:
        at.client.reads = False
        for _ in range(200):
            at.protocol.data_received(GET)
            await settled()
        assert len(at.client.got) < 70_000, "answers wait until the client reads"
        at.loop.advance(WRITE_SECONDS - 1)
        assert not at.client.gone
        at.loop.advance(1)

    attack(work)


def test_a_client_that_reads_slowly_but_does_is_served() -> None:
    async def work(at: Connection) -> None:
        at.client.reads = False
        for _ in range(70):
            at.protocol.data_received(GET)
            await settled()
        at.loop.advance(WRITE_SECONDS / 2)
        at.client.got.clear()
        at.client.reads = True
        at.protocol.resume_writing()
        await settled()
        at.loop.advance(WRITE_SECONDS / 2)
        assert not at.client.gone
        at.loop.advance(KEEP_ALIVE)

    attack(work)


@pytest.mark.parametrize("last", ["an answer", "a refusal", "a silent end"])
def test_what_a_client_does_not_read_keeps_no_connection_open(last: str) -> None:
    """A transport that closes waits until everything is sent, which a client that never reads can delay for ever."""

    async def work(at: Connection) -> None:
        at.client.reads = False
        if last == "a refusal":
            at.protocol.data_received(b"no HTTP\r\n\r\n")
        else:
            at.protocol.data_received(
                GET.replace(b"Host", b"Connection: close\r\nHost") if last == "an answer" else GET
            )
            await settled()
            at.loop.advance(KEEP_ALIVE if last == "a silent end" else 0)
        assert at.client.closing
        assert not at.client.gone
        at.loop.advance(WRITE_SECONDS)

    attack(work)


TE = b"Transfer-Encoding: chunked"
SMUGGLED = [
    b"Content-Length: 4\r\n" + TE + b"\r\n\r\n0\r\n\r\n",
    TE + b"\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    *(b"Content-Length: %b\r\n\r\nabcd" % value for value in (b"+4", b"4, 4", b"0x4", b"-4", b"4 5", b"9" * 23)),
    *(b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % value for value in (b"chunked, identity", b"identity", b"xchunked")),
    TE + b"\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    b" " + TE + b"\r\n\r\n0\r\n\r\n",
    TE + b"\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    b"X: a\r" + TE + b"\r\n\r\n0\r\n\r\n",
    b"X: a\x00b\r\n\r\n",
    *(TE + b"\r\n\r\n" + chunks for chunks in (b"0x0\r\n\r\n", b"f" * 17 + b"\r\n\r\n", b"4\r\nabcdX\r\n0\r\n\r\n")),
    *(TE + b"\r\n\r\n" + chunks for chunks in (b"-4\r\nabcd\r\n", b"4\nabcd\r\n0\r\n\r\n", b"4;x\nabcd\r\n0\r\n\r\n")),
]


@pytest.mark.parametrize("rest", SMUGGLED)
def test_a_request_whose_end_is_not_clear_is_refused_with_all_that_follows(rest: bytes) -> None:
    """A proxy in front may see another end: what it takes for a body must never be answered as a request."""

    async def work(at: Connection) -> None:
        at.protocol.data_received(b"POST / HTTP/1.1\r\nHost: x\r\n" + rest + GET)
        await settled()
        refused(at.client, 400)
        assert at.application.asked <= 1, "a broken chunk may follow a request that is whole so far"
        assert b"HTTP/1.1 200" not in at.client.got

    attack(work)
