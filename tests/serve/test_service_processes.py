"""The service in processes of its own: killed workers, hostile clients, figures over workers, an orderly end."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from clickprism.serve.deployment import Deployment
from clickprism.serve.server import FILES
from tests.serve.service_kit import TOKEN, fetch, linear_bundle, serving, until_ready

BODY = {"documents": [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [2, 0, 0]}]}
HEAD = f"POST /v1/rank HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    folder = tmp_path_factory.mktemp("served")
    Deployment(folder / "shop").promote(linear_bundle(folder / "b0", [1.0, 0.0, 0.0]))
    options = ["--workers", "2", "--max-body", "100000", "--timeout", "1"]
    with serving(folder / "shop", *options) as (address, process):
        until_ready(address)
        assert "clickprism_ready 2.0" in _until_all_are_ready(address)
        yield address, process, folder


def workers(supervisor: int) -> list[int]:
    """The worker processes: children that were spawned to serve."""
    found = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="utf-8").split()
    return [int(pid) for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def memory(pids: list[int]) -> int:
    """Resident bytes."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) for pid in pids) * 4096


def raw(address: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """What the service sends back to these bytes, until it closes, or for 5 seconds."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=5) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass
        got = b""
        try:
            while part := connection.recv(65536):
                got += part
        except (TimeoutError, ConnectionResetError):
            pass
        return got


def refused(answer: bytes, status: int) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    assert json.loads(body)["status"] == status


def test_hostile_requests_get_the_right_status_and_cost_nothing(
    deployed: tuple[str, subprocess.Popen[str], Path],
) -> None:
    address, process, _ = deployed
    pids = workers(process.pid)
    assert len(pids) == 2
    long = HEAD.encode() + b"Content-Length: 100000000000\r\n\r\n"
    chunked = HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    stranger = b"POST /v1/rank HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\n"
    refused(raw(address, long), 413)
    before = memory(pids)
    for _ in range(20):
        refused(raw(address, long, b"x" * 1_000_000), 413)
        refused(raw(address, chunked, *[chunk] * 64), 413)
        refused(raw(address, stranger, b"x" * 1_000_000), 401)
        refused(raw(address, b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000), 431)
        refused(raw(address, b"\x16\x03\x01 no http\r\n\r\n"), 400)
    refused(raw(address, HEAD.encode() + b"Content-Length: 10\r\n\r\n{"), 408)
    smuggled = HEAD.encode() + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"
    refused(raw(address, smuggled), 400)
    assert memory(pids) - before < 30 << 20
    assert fetch(f"{address}/v1/rank", BODY).status == 200
    assert fetch(f"{address}/v1/rank", BODY, token=None).status == 401


def test_a_worker_that_is_killed_is_replaced_and_figures_stay(
    deployed: tuple[str, subprocess.Popen[str], Path],
) -> None:
    address, process, _ = deployed
    asked = 40
    with ThreadPoolExecutor(8) as pool:
        assert {each.status for each in pool.map(lambda _: fetch(f"{address}/v1/rank", BODY), range(asked))} == {200}
    counted = _counted(address)
    assert counted >= asked
    old = workers(process.pid)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    until_ready(address)
    assert fetch(f"{address}/v1/rank", BODY).status == 200
    assert "clickprism_ready 2.0" in _until_all_are_ready(address), "the gauges of dead workers are gone"
    assert not set(old) & set(workers(process.pid))
    assert _counted(address) == counted + 1, "their counters stay"


def _until_all_are_ready(address: str) -> str:
    """The metrics, once both workers have their model, or after 30 seconds."""
    end = time.monotonic() + 30
    while "clickprism_ready 2.0" not in (text := fetch(f"{address}/metrics").body.decode()) and time.monotonic() < end:
        time.sleep(0.1)
    return text


def _counted(address: str) -> float:
    name = 'clickprism_requests_total{route="rank",status="200"} '
    return next(
        float(line[len(name) :]) for line in fetch(f"{address}/metrics").body.decode().splitlines() if name in line
    )


def test_all_workers_follow_a_promotion(deployed: tuple[str, subprocess.Popen[str], Path]) -> None:
    address, _, folder = deployed
    done = Deployment(folder / "shop").promote(linear_bundle(folder / "b1", [-1.0, 0.0, 0.0]))
    wanted = f'clickprism_model{{version="{done.version}"}} 2.0'
    end = time.monotonic() + 30
    while wanted not in (text := fetch(f"{address}/metrics").body.decode()) and time.monotonic() < end:
        time.sleep(0.1)
    assert wanted in text
    told = fetch(f"{address}/v1/rank", BODY).json
    assert (told["model_version"], [each["id"] for each in told["items"]]) == (done.version, ["a", "b"])


def test_requests_under_way_end_when_the_service_is_asked_to_stop(
    deployed: tuple[str, subprocess.Popen[str], Path],
) -> None:
    address, process, _ = deployed
    place = urlsplit(address)
    body = json.dumps(BODY).encode()
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=10) as connection:
        connection.sendall(HEAD.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body[:20])
        time.sleep(0.2)
        process.terminate()
        time.sleep(0.3)
        connection.sendall(body[20:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
    assert process.wait(20) == 0


def test_connections_that_ask_nothing_leave_files_to_open(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES + 40, before[1]))
    try:
        with serving(linear_bundle(tmp_path / "bundle", [1.0, 0.0, 0.0])) as (address, _), ExitStack() as idle:
            until_ready(address)
            place = urlsplit(address)
            for _ in range(60):
                idle.enter_context(socket.create_connection((place.hostname or "", place.port or 0), timeout=5))
            refused(raw(address), 503)
            idle.close()
            assert fetch(f"{address}/v1/rank", BODY).status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
