"""A real Redis server on a free port of the loopback, without anything on disk."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def redis_server(*more: str) -> Iterator[str]:
    """The address of a server with more options; without one installed the test is skipped, but fails in CI."""
    program = shutil.which("redis-server")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("redis-server is not installed; in CI it must be")
        pytest.skip("redis-server is not installed")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([program, *options, *more], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(7) in {b"+PONG\r\n", b"-NOAUTH"}:
                        break
            except OSError:
                pass
            time.sleep(0.05)
        else:
            pytest.fail("redis-server does not answer")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)
