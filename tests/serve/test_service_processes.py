"""The service in processes of its own: killed workers, hostile clients, figures over workers, an orderly end."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.http.protocol import FILES
from tests.serve.service_kit import TOKEN, fetch, linear_bundle, publish, serving, until_ready
from tests.waiting import LIMIT, until

BODY = {"documents": [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [2, 0, 0]}]}
HEAD = f"POST /v1/rank HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
READY = "clickprism_ready 2.0"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    folder = tmp_path_factory.mktemp("served")
    Deployment(folder / "shop").promote(linear_bundle(folder / "b0", [1.0, 0.0, 0.0]))
    options = ["--workers", "2", "--max-body", "100000", "--timeout", str(LIMIT)]
    with serving(folder / "shop", *options) as (address, process):
        until_ready(address)
        until(lambda: READY in metrics(address))
        yield address, process, folder


def workers(supervisor: int) -> list[int]:
    """The worker processes: children that were spawned to serve."""
    found = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="utf-8").split()
    return [int(pid) for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def memory(pids: list[int]) -> int:
    """Resident bytes."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) for pid in pids) * 4096


def metrics(address: str) -> str:
    return fetch(f"{address}/metrics").body.decode()


def connected(address: str) -> socket.socket:
    place = urlsplit(address)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=LIMIT)


def received(connection: socket.socket) -> bytes:
    """Return what the service sends until it closes the connection."""
    got = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            got += part
    return got


def raw(address: str, *parts: bytes) -> bytes:
    """Return what the service sends back to these bytes until it closes the connection."""
    with connected(address) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                connection.sendall(part)
        return received(connection)


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
    before = _counted(address)
    with ThreadPoolExecutor(8) as pool:
        assert {each.status for each in pool.map(lambda _: fetch(f"{address}/v1/rank", BODY), range(asked))} == {200}
    until(lambda: _counted(address) == before + asked)
    old = workers(process.pid)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(set(workers(process.pid)) - set(old)) == 2)
    until_ready(address)
    assert fetch(f"{address}/v1/rank", BODY).status == 200
    until(lambda: READY in metrics(address))  # and not 4.0: the gauges of dead workers are gone
    until(lambda: _counted(address) == before + asked + 1)  # their counters stay


def _counted(address: str) -> float:
    """How many rankings were answered, by all workers; a worker counts an answer after it has sent it."""
    name = 'clickprism_requests_total{route="rank",status="200"} '
    return next((float(line[len(name) :]) for line in metrics(address).splitlines() if name in line), 0.0)


def test_all_workers_follow_a_promotion(deployed: tuple[str, subprocess.Popen[str], Path]) -> None:
    address, _, folder = deployed
    done = Deployment(folder / "shop").promote(linear_bundle(folder / "b1", [-1.0, 0.0, 0.0]))
    wanted = f'clickprism_model{{version="{done.version}"}} 2.0'
    until(lambda: wanted in metrics(address))
    told = fetch(f"{address}/v1/rank", BODY).json
    assert (told["model_version"], [each["id"] for each in told["items"]]) == (done.version, ["a", "b"])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A service of one worker that may open few files."""
    bundle = linear_bundle(tmp_path_factory.mktemp("alone") / "bundle", [1.0, 0.0, 0.0])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (FILES + 40, before[1]))
            address, process = stack.enter_context(serving(bundle, "--timeout", str(LIMIT), "--drain", str(LIMIT)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        until_ready(address)
        yield address, process


def test_connections_that_ask_nothing_leave_files_to_open(alone: tuple[str, subprocess.Popen[str]]) -> None:
    address, _ = alone
    with ExitStack() as idle:
        connections = [idle.enter_context(connected(address)) for _ in range(60)]
        refused(received(connections[-1]), 503)
    body = json.dumps(BODY).encode()
    head = HEAD.encode() + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    until(lambda: raw(address, head + body).startswith(b"HTTP/1.1 200 OK"))


def test_requests_under_way_end_when_the_service_is_asked_to_stop(alone: tuple[str, subprocess.Popen[str]]) -> None:
    address, process = alone
    body = json.dumps(BODY).encode()
    with connected(address) as idle, connected(address) as busy:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 OK")
        busy.sendall(HEAD.encode() + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert busy.recv(65536).startswith(b"HTTP/1.1 100 Continue")  # the service waits for the body
        process.terminate()
        while idle.recv(65536):  # the worker closes idle connections when it begins to stop
            pass
        busy.sendall(body)
        assert busy.recv(65536).startswith(b"HTTP/1.1 200 OK")
    assert process.wait(LIMIT) == 0


@pytest.mark.parametrize("stored", [False, True], ids=["features in the request", "features in the store"])
def test_schemathesis_finds_no_failure(tmp_path: Path, stored: bool) -> None:
    """What the OpenAPI document forbids is refused, and every answer is as it says."""
    bundle = linear_bundle(tmp_path / "bundle", [1.0, 2.0, 3.0])
    options = ["--timeout", str(LIMIT)]
    if stored:
        store = publish(tmp_path / "store", {"0": {"0": [1.0, 2.0, 3.0]}})
        options += ["--store", str(store), "--shadow", str(bundle), "--rerank-depth", "1"]
    with serving(bundle, *options) as (address, _):
        until_ready(address)
        words = ["run", f"{address}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}", "--seed", "1"]
        words += ["--request-timeout", str(LIMIT), "--exclude-checks", "positive_data_acceptance"]
        words += ["--max-examples", "25", "--phases", "examples,coverage,fuzzing", "--generation-database", "none"]
        program = [str(Path(sys.executable).with_name("schemathesis")), *words]
        done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
