"""Wait for what another thread or process does, and reserve a port for it, without depending on time."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
LIMIT = 240.0
"""Seconds after which a test gives up: far longer than a busy machine needs."""


def until(condition: Callable[..., T], *arguments: object) -> T:
    """Return the first true value of the condition; fail if none comes within the limit."""
    end = time.monotonic() + LIMIT
    while not (value := condition(*arguments)):
        assert time.monotonic() < end, f"never true: {condition}"
        time.sleep(0.005)
    return value


async def until_async(condition: Callable[[], Awaitable[T]]) -> T:
    """Return the first true value that the condition gives when awaited; fail if none comes within the limit."""
    end = time.monotonic() + LIMIT
    while not (value := await condition()):
        assert time.monotonic() < end, f"never true: {condition}"
        await asyncio.sleep(0.005)
    return value


@contextmanager
def reserved_port() -> Iterator[int]:
    """Give a port of the loopback that no other process takes meanwhile.

    The port stays bound here, without listening. Servers set SO_REUSEADDR, so they can listen on it all the same.
    """
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])
