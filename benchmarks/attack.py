"""Honest requests beside a mixed attack: latency, memory and events that were acknowledged.

Attackers have no token and come from the same machine: blank lines behind a request, trailers without end, pipelined
requests whose answers are never read, heads byte by byte, long bodies and bytes that are no HTTP. One honest client
ranks and sends events, first alone, then beside them. `CLICKPRISM_BENCH_SECONDS` says for how long (60 by default).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from benchmarks import serve
from benchmarks.base import Result
from clickprism.log.store import LogStore
from clickprism.serve.client import Client
from clickprism.serve.settings import TOKEN_VARIABLE

SECONDS: Final = float(os.environ.get("CLICKPRISM_BENCH_SECONDS", "60"))
ATTACKERS: Final = 3
HEAD: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED: Final = b"POST /session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
LONG: Final = b"POST /v1/rank HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\n"
Attack = Callable[[socket.socket], None]


def run() -> list[Result]:
    """Return the 99th percentile of honest requests beside the attack against three times that alone, and the rest."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        serve._bundle(folder / "bundle", "linear")
        words = [sys.executable, "-m", "clickprism", "serve", str(folder / "bundle"), "--log", str(folder / "log")]
        words += ["--port", "0", "--json", "--quiet"]
        environment = os.environ | {TOKEN_VARIABLE: serve.TOKEN}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                address = _address(process)
                serve._until_ready(address)
                idle, sent = _honest(address, SECONDS / 4, first=0)
                before = _memory(process.pid)
                stop = threading.Event()
                attackers = [
                    threading.Thread(target=_attacking, args=(address, attack, stop), daemon=True)
                    for attack in ATTACKS
                    for _ in range(ATTACKERS)
                ]
                for attacker in attackers:
                    attacker.start()
                attacked, more = _honest(address, SECONDS, first=sent)
                grown = _memory(process.pid) - before
                stop.set()
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(120)
        stored = LogStore.open(folder / "log").table("events").rows()
    limit = 3 * float(np.percentile(idle, 99))
    slow = float(np.percentile(attacked, 99))
    return [
        Result("p99 beside an attack", slow, limit, 1.0, "ms; limit: 3 x p99 alone", higher_is_better=False),
        Result("memory beside an attack", max(grown, 1) / 1e6, 100.0, 1.0, "MB more; limit", higher_is_better=False),
        Result("acknowledged events in the log", stored, sent + more, 1.0, "events"),
    ]


def _honest(address: str, seconds: float, *, first: int) -> tuple[list[float], int]:
    """Return the milliseconds of each ranking, and the number of events that were acknowledged."""
    client, times, events = Client(address, token=serve.TOKEN), [], 0
    rows = {f"d{i}": [float(i)] * serve.FEATURES for i in range(20)}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        client.rank(rows)
        times.append(1000 * (time.perf_counter() - start))
        if len(times) % 50 == 0:
            search = f"s{first + events}"
            event = {"time": "2026-03-01T10:00:00Z", "search_id": search, "user_id": search, "query_id": "q"}
            client.events([event | {"document_id": "d1", "position": 1, "clicked": True}])
            events += 1
    return times, events


def _attacking(address: str, attack: Attack, stop: threading.Event) -> None:
    place = urlsplit(address)
    while not stop.is_set():
        with suppress(OSError), socket.create_connection((place.hostname or "", place.port or 0), timeout=5) as client:
            attack(client)
        stop.wait(0.05)


def _blank_lines(client: socket.socket) -> None:
    client.sendall(HEAD + b"\r\n")
    client.recv(65536)
    client.sendall(b"\r\n")
    client.recv(65536)


def _trailers(client: socket.socket) -> None:
    client.sendall(CHUNKED)
    for _ in range(1000):
        client.sendall(b"a: b\r\n" * 10_000)


def _never_reads(client: socket.socket) -> None:
    request = HEAD.replace(b"/healthz", b"/openapi.json") + b"\r\n"
    for _ in range(100):
        client.sendall(request * 100)


def _slow_head(client: socket.socket) -> None:
    for byte in HEAD:
        client.sendall(bytes([byte]))
        time.sleep(0.5)


def _long_body(client: socket.socket) -> None:
    client.sendall(LONG + b"x" * 1_000_000)


def _no_http(client: socket.socket) -> None:
    client.sendall(os.urandom(10_000) + b"\r\n\r\n")
    client.recv(65536)


ATTACKS: Final[tuple[Attack, ...]] = (_blank_lines, _trailers, _never_reads, _slow_head, _long_body, _no_http)


def _address(process: subprocess.Popen[str]) -> str:
    printed = ""
    while not printed.endswith("}\n"):
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise RuntimeError("the service ended before it listened")
        printed += line
    address: str = json.loads(printed)["address"]
    return address


def _memory(supervisor: int) -> int:
    """Return the resident bytes of the supervisor and its children."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="utf-8").split()
    pages = [int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) for pid in [supervisor, *children]]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")
