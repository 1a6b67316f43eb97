"""A real Redis server on a port of the loopback, without anything on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.waiting import LIMIT, reserved_port


@contextmanager
def redis_server(*more: str) -> Iterator[str]:
    """Give the address of a server with more options; without one installed the test is skipped, but fails in CI."""
    program = shutil.which("redis-server")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("redis-server is not installed; in CI it must be")
        pytest.skip("redis-server is not installed")
    with reserved_port() as port:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with subprocess.Popen([program, *options, *more], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                if not any("Ready to accept connections" in line for line in process.stdout):
                    pytest.fail("redis-server does not start")
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                process.terminate()
                process.wait(LIMIT)
