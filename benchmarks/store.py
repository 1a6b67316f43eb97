"""Lookups in the online store: 50 documents of a query from an LMDB folder, from Redis over TCP, and from bare Redis.

The same snapshot is published to both: `CLICKPRISM_BENCH_QUERIES` queries (100,000) of 50 documents and 20 fields each.
A lookup asks for all documents of a random query, in random order; all are asked for the same ones, in turns, new ones
in each. Bare Redis only fetches the bytes of the query: no version, no documents looked up, no rows. Time is processor
time, that of the server included, so that other work on the machine does not count. The server is Debian's.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.base import Result
from clickprism.serve.store.base import StoreInfo, open_store, query_key
from clickprism.serve.store.publish import builder
from clickprism.serve.store.redis import RedisAddress

QUERIES = int(os.environ.get("CLICKPRISM_BENCH_QUERIES", "100_000"))
DOCUMENTS = 50
FIELDS = 20
LOOKUPS = 2_000
TURNS = 7
BAR, BARE_BAR = 7.0, 2.0


def run() -> list[Result]:
    """Lookups a second of each."""
    with tempfile.TemporaryDirectory(prefix="clickprism-bench-") as scratch, _redis() as (url, server_pid):
        folder = str(Path(scratch, "store"))
        _fill(folder)
        _fill(url)
        lmdb, redis = open_store(folder), open_store(url)
        address = RedisAddress(url)
        bare = address.connect()
        current: Any = bare.get(address.key("current"))
        prefix = address.key(current.decode(), "")
        rng = np.random.default_rng(1)
        turns = [_asked(rng) for _ in range(TURNS)]
        gc.freeze()  # as the service does: the questions above are no work of a lookup
        _same(lmdb.get(*turns[0][0]).x, redis.get(*turns[0][0]).x)
        ways: list[Callable[[str, list[str]], object]] = [
            lambda query, documents: lmdb.get(query, documents).x,
            lambda query, documents: redis.get(query, documents).x,
            lambda query, _documents: bare.get(prefix + query_key(query)),
        ]
        rates = np.array([[_rate(way, asked, server_pid) for way in ways] for asked in turns])
        ours, server, plain = np.median(rates, axis=0)
        lmdb.close()
        redis.close()
        bare.close()
    return [
        Result("LMDB lookups against Redis over TCP", ours, server, BAR, "lookups of 50 documents per CPU s"),
        Result("the same against a bare GET of the bytes", ours, plain, BARE_BAR, "lookups of 50 documents per CPU s"),
    ]


def _document(query: int, number: int) -> str:
    return f"doc-{(query * 7919 + number * 104_729) % 10_000_019}"


def _asked(rng: np.random.Generator) -> list[tuple[str, list[str]]]:
    chosen = rng.integers(0, QUERIES, LOOKUPS).tolist()
    return [(f"query {q}", [_document(q, d) for d in rng.permutation(DOCUMENTS).tolist()]) for q in chosen]


def _fill(place: str) -> None:
    rng, empty = np.random.default_rng(0), np.zeros(FIELDS, np.float32)
    with builder(place) as target:
        for query in range(QUERIES):
            names = [_document(query, number) for number in range(DOCUMENTS)]
            target.put(f"query {query}", names, rng.random((DOCUMENTS, FIELDS), np.float32))
        fields = tuple(f"f{number}" for number in range(FIELDS))
        target.seal(StoreInfo("v", datetime(2026, 3, 1), fields, empty, QUERIES * DOCUMENTS))
        target.switch()


def _rate(way: Callable[[str, list[str]], object], asked: list[tuple[str, list[str]]], server: int) -> float:
    started = time.process_time() + _cpu(server)
    for query, documents in asked:
        way(query, documents)
    return len(asked) / (time.process_time() + _cpu(server) - started)


def _cpu(pid: int) -> float:
    """Return the processor time of another process, in seconds."""
    runs = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(runs[0]) / 1e9


def _same(one: object, other: object) -> None:
    if not np.array_equal(np.asarray(one), np.asarray(other)):
        raise RuntimeError("the two stores give different rows")


@contextmanager
def _redis() -> Iterator[tuple[str, int]]:
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is not installed: scripts/debian redis-server")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0", process.pid
    finally:
        process.terminate()
        process.wait(30)
