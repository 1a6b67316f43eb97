"""What the tests of serving share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.redis_server import redis_server


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a Redis server; tests keep apart by the prefix of their keys."""
    with redis_server() as url:
        yield url
