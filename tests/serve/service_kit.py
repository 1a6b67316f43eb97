"""Small models and stores whose scores say who gave them; a service in this process, or in some of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from clickprism.model import Model
from clickprism.rankers.linear import Linear, LinearNetwork
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.bundle.bundle import Scope
from clickprism.serve.http.app import Service
from clickprism.serve.settings import TOKEN_VARIABLE, ServeSettings
from clickprism.serve.store.base import StoreInfo
from clickprism.serve.store.publish import builder
from tests.waiting import LIMIT, until

TOKEN = "a-token"  # noqa: S105 - of the tests
NAMES = ("price", "age", "clicks")


def linear_bundle(
    folder: Path,
    weights: Sequence[float],
    *,
    metrics: Mapping[str, float] | None = None,
    examples: bytes | None = None,
    scope: Scope | None = None,
) -> Path:
    """A bundle whose score is the weighted sum of the raw features."""
    import torch

    network = LinearNetwork(len(weights))
    network.output.weight.data = torch.tensor([list(weights)], dtype=torch.float32)
    model = Model(Linear(), network.eval(), features=len(weights), method={"name": "click"})
    names = NAMES[: len(weights)] if len(weights) <= len(NAMES) else tuple(f"f{i}" for i in range(len(weights)))
    made = datetime(2026, 3, 1, tzinfo=UTC)
    write_bundle(folder, model, feature_names=names, metrics=metrics, examples=examples, scope=scope, created=made)
    return folder


def publish(
    place: Path,
    rows: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    version: str = "v1",
    fields: Sequence[str] = NAMES,
    as_of: datetime = datetime(2026, 3, 1),
) -> Path:
    """A store with these rows by query and document; what it does not have is NaN."""
    with builder(str(place), grace=60) as target:
        for query, documents in rows.items():
            target.put(query, list(documents), np.array(list(documents.values()), np.float32))
        pairs = sum(map(len, rows.values()))
        target.seal(StoreInfo(version, as_of, tuple(fields), np.full(len(fields), np.nan, np.float32), pairs))
        target.switch()
    return place


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Upload:
    """A request body that arrives in parts.

    Attributes:
        waited_for: is set when the service waits for more than the first parts.
        rest: is set by the test; then the body ends.
    """

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self.waited_for, self.rest = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(0), "more_body": True}
        self.waited_for.set()
        await self.rest.wait()
        return {"type": "http.request", "body": b"", "more_body": False}


@asynccontextmanager
async def started(
    source: Path, settings: ServeSettings, *, token: str | None = TOKEN, request_lines: bool = True
) -> AsyncIterator[Service]:
    """A service in this process, warm."""
    service = Service(source, settings, token=token, request_lines=request_lines)
    await service.start()
    await asyncio.to_thread(service.models.warm.wait, LIMIT)
    try:
        yield service
    finally:
        await service.stop()


async def ask(
    service: Service,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    upload: Upload | None = None,
) -> Reply:
    """Send one request over ASGI, with a whole body or with one that arrives in parts; a header of two lines twice."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    usual = {"host": "localhost", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    given = usual | dict(headers or {})
    if upload is not None:
        given.setdefault("transfer-encoding", "chunked")
    elif body is not None:
        given.setdefault("content-length", str(len(sent)))
    got: list[Any] = []

    async def receive() -> dict[str, Any]:
        if upload is not None:
            return await upload.receive()
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: Any) -> None:
        got.append(message)

    raw = [(name.encode(), each.encode()) for name, value in given.items() for each in value.split("\n") if each]
    await service({"type": "http", "method": method, "path": path, "headers": raw}, receive, send)
    names = {name.decode(): value.decode() for name, value in got[0]["headers"]}
    return Reply(got[0]["status"], names, b"".join(each.get("body", b"") for each in got[1:]))


@contextmanager
def service(
    source: Path | str, *options: str, token: str | None = TOKEN
) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    """Run `clickprism serve` in processes of its own; give what it prints, and the supervisor."""
    words = [sys.executable, "-m", "clickprism", "serve", str(source), "--port", "0", "--json", "--quiet", *options]
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    environment |= {} if token is None else {TOKEN_VARIABLE: token}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while not printed.endswith("}\n"):
                line = process.stdout.readline()
                assert line, "the service ended before it listened"
                printed += line
            yield json.loads(printed), process
        finally:
            process.terminate()
            process.wait(LIMIT)


@contextmanager
def serving(
    source: Path | str, *options: str, token: str | None = TOKEN
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `clickprism serve` in processes of its own; give its address, and the supervisor."""
    with service(source, *options, token=token) as (shown, process):
        yield shown["address"], process


def fetch(url: str, body: Any = None, *, token: str | None = TOKEN) -> Reply:
    """Send one request over the network."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:  # noqa: S310 - loopback
            return Reply(answer.status, dict(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, dict(error.headers), error.read())


def until_ready(address: str) -> None:
    """Wait until a service can rank."""

    def ready() -> bool:
        try:
            return fetch(f"{address}/readyz").status == 200
        except OSError:
            return False

    until(ready)
