"""The client: what it asks, and how often it asks again."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import clickprism as cp
from clickprism.errors import SettingError
from clickprism.serve.client import Client, ServiceError
from tests.log.raw_logs import impression, stored
from tests.serve.service_kit import TOKEN, linear_bundle, serving, until_ready
from tests.waiting import LIMIT


@contextmanager
def scripted(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[Any]]]:
    """A server that gives these answers in turn; gives its address, and what it was sent."""
    todo, got = list(answers), list[Any]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, dict(self.headers), body))
            status, headers, content = todo.pop(0)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


OK: tuple[int, dict[str, str], bytes] = (200, {}, b'{"items": []}')
BUSY = (503, {"Retry-After": "7"}, b'{"detail": "too many requests are under way"}')


def test_a_busy_service_is_asked_again_with_the_same_key() -> None:
    pauses: list[float] = []
    with scripted(BUSY, (502, {}, b"<html>"), OK) as (address, got):
        client = Client(address, token=TOKEN, sleep=pauses.append)
        assert client.events([{"a": 1}]) == {"items": []}
    assert pauses == [7.0, 0.2]
    assert len({headers["Idempotency-Key"] for _, headers, _ in got}) == 1
    assert [json.loads(gzip.decompress(body)) for _, _, body in got] == [[{"a": 1}]] * 3


def test_what_is_wrong_is_not_asked_again() -> None:
    told = b'{"detail": "the model has no feature", "pointer": "/documents/0"}'
    with (
        scripted((422, {}, told)) as (address, got),
        pytest.raises(ServiceError, match=r"no feature \(status 422\)") as error,
    ):
        Client(address).rank(["a"])
    assert (error.value.status, error.value.pointer, len(got)) == (422, "/documents/0", 1)


def test_a_service_that_stays_busy_or_away_is_an_error() -> None:
    pauses: list[float] = []
    with scripted(*[BUSY] * 3) as (address, got), pytest.raises(ServiceError, match="under way") as error:
        Client(address, retries=2, sleep=pauses.append).rank(["a"])
    assert (error.value.status, len(got), pauses) == (503, 3, [7.0, 7.0])
    with pytest.raises(ServiceError, match="does not answer"):
        Client(address, retries=0).rank(["a"])
    with pytest.raises(SettingError, match="address must start with http"):
        Client("localhost:8000")


def test_a_ranking_and_events_by_a_real_service(tmp_path: Path) -> None:
    bundle = linear_bundle(tmp_path / "bundle", [1.0, 10.0, 100.0])
    with serving(bundle, "--log", str(tmp_path / "log"), "--drain", str(LIMIT)) as (address, _):
        until_ready(address)
        client = cp.Client(address, token=TOKEN)
        answer = client.rank({"a": {"price": 1, "age": 0, "clicks": 0}, "b": [0, 1, 0]}, top=1)
        assert [each["id"] for each in answer["items"]] == ["b"]
        assert client.models()["models"][0]["feature_names"] == ["price", "age", "clicks"]
        for _ in range(2):
            assert client.events([impression(1), impression(2)], key="batch-1")["rows"] == 2
    assert len(stored(tmp_path / "log")) == 2, "a service that stops puts what waits into the log"
