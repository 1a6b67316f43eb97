"""How much of a request is ranking: `/v1/rank` by small rankers, features in the store, against parse and answer.

Both are handlers of one worker and go through the same limits, token, request lines and metrics; the peer reads the
same request into the same structure and answers with as many items, unranked. wrk asks over 8 connections for 50
documents of one of 1,000 queries, in another order than the store has them. Requests are counted by second of the
worker's CPU time, which depends little on what else runs. The two take many short turns, since a machine's speed
drifts; the median of each is reported. The service remembers scores of stored rows; the lines "first time" are measured
without that, as for queries that were not asked before. The latencies are those of one connection that asks at half
the rate that the worker can answer.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from benchmarks.base import Result
from clickprism.serve.http import ranking
from clickprism.serve.http.app import ENCODE, Service
from clickprism.serve.http.messages import Item, RankAnswer, read_rank_request
from clickprism.serve.http.request import JSON, Answer, Call
from clickprism.serve.settings import ServeSettings

FEATURES, QUERIES, DOCUMENTS, CONNECTIONS, SECONDS, ROUNDS = 46, 1000, 50, 8, 1, 11
RANKERS: Final = ("linear", "network")
NAMES: Final = tuple(f"feature-{number}" for number in range(FEATURES))
TOKEN: Final = "benchmark"  # noqa: S105 - of this run
FIRST_TIME: Final = "CLICKPRISM_BENCH_FIRST_TIME"
BAR, FIRST_BAR = 0.55, 0.4
HEAD: Final = (
    b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
)
SCRIPT: Final = """
local bodies, turn = {{}}, 0
for q = 0, {queries} - 1 do
  local ids = {{}}
  for d = 0, {documents} - 1 do
    ids[#ids + 1] = '"q' .. q .. '-document-' .. (d * 17 + q) % {documents} .. '"'
  end
  local body = '{{"query_id":"q' .. q .. '","documents":[' .. table.concat(ids, ",") .. ']}}'
  local headers = {{["Content-Type"] = "application/json", ["Authorization"] = "Bearer {token}"}}
  headers["Host"] = "localhost"
  bodies[q + 1] = wrk.format("POST", "{path}", headers, body)
end
request = function() turn = turn % #bodies + 1; return bodies[turn] end
done = function(summary, latency)
  local errors = summary.errors.status + summary.errors.read + summary.errors.timeout
  io.write(string.format("RESULT %d %d\\n", summary.requests, errors))
end
"""


def run() -> list[Result]:
    """Requests per second of CPU against the peer, and the 99th percentile at half load against twice the median."""
    results = []
    for name in RANKERS:
        results += _measured(name)
        os.environ[FIRST_TIME] = "1"
        results += _measured(name)[:1]
        del os.environ[FIRST_TIME]
    return results


def _measured(name: str) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder, _serving(Path(folder), name) as (address, pid):
        _load(Path(folder), address, pid, "/v1/rank", seconds=1)
        rounds = [
            [_load(Path(folder), address, pid, path, seconds=SECONDS) for path in ("/v1/rank", "/v1/nothing")]
            for _ in range(ROUNDS)
        ]
        ours, peer = (float(np.median([each[side] for each in rounds])) for side in (0, 1))
        times = [_latencies(address, ours / 2, seconds=SECONDS) for _ in range(ROUNDS)]
    middle, slow = (float(np.median([np.percentile(each, share) for each in times])) for share in (50, 99))
    first, bar = (", first time", FIRST_BAR) if FIRST_TIME in os.environ else ("", BAR)
    unit = "requests/s of CPU; limit: parse and answer"
    return [
        Result(f"/v1/rank, 50 documents, {name}{first}", ours, peer, bar, unit),
        Result(f"/v1/rank p99, {name}", slow, 2 * middle, 1.0, "ms; limit: 2 x p50", higher_is_better=False),
    ]


def _latencies(address: str, rate: float, *, seconds: float) -> list[float]:
    """Return the milliseconds of requests that are due at a constant rate, from when they are due."""
    place, times = urlsplit(address), []
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as client:
        due = time.perf_counter()
        end = due + seconds
        for query in itertools.cycle(range(QUERIES)):
            while (start := time.perf_counter()) < due:
                time.sleep(max(0.0, due - start - 1e-4))
            ids = [f"q{query}-document-{(d * 17 + query) % DOCUMENTS}" for d in range(DOCUMENTS)]
            body = json.dumps({"query_id": f"q{query}", "documents": ids}).encode()
            client.sendall(HEAD % (TOKEN.encode(), len(body)) + body)
            answer = client.recv(1 << 16)
            while not answer.endswith(b"}"):
                answer += client.recv(1 << 16)
            times.append(1000 * (time.perf_counter() - due))
            due = max(due + 1 / rate, start)
            if due > end:
                return times
    return times


def with_peer(source: Path, settings: ServeSettings, *, token: str | None, request_lines: bool) -> Service:
    """The service with a second handler, which does nothing but parse and answer."""
    service = Service(source, settings, token=token, request_lines=request_lines)

    async def nothing(call: Call) -> Answer:
        call.check_type(JSON)
        body = await call.read(limit=settings.max_body, timeout=settings.timeout)
        request = read_rank_request(body, max_documents=settings.max_documents)
        items = [Item(name, 0.0) for name in request.ids()[0]]
        return Answer(ENCODE(RankAnswer(call.request_id, "0" * 16, 0.0, items)))

    if FIRST_TIME in os.environ:
        vars(ranking)["_remembered"] = lambda *_: None
    service.add("/v1/nothing", "nothing", POST=nothing)
    return service


def _load(folder: Path, address: str, pid: int, path: str, *, seconds: int) -> float:
    """Return the number of requests per second of CPU."""
    script = folder / "load.lua"
    script.write_text(SCRIPT.format(queries=QUERIES, documents=DOCUMENTS, token=TOKEN, path=path), encoding="utf-8")
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), address]
    before = _cpu_seconds(pid)
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=seconds + 30).stdout
    spent = _cpu_seconds(pid) - before
    found = re.search(r"RESULT (\d+) (\d+)", said)
    if found is None or int(found[2]):
        raise RuntimeError(f"wrk had errors:\n{said}")
    return int(found[1]) / spent


def _cpu_seconds(pid: int) -> float:
    """CPU time of the children of a process, its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    threads = [thread for child in children for thread in Path(f"/proc/{child}/task").iterdir()]
    runs = [(thread / "schedstat").read_text(encoding="utf-8").split()[0] for thread in threads]
    return sum(map(int, runs)) / 1e9


@contextmanager
def _serving(folder: Path, name: str) -> Iterator[tuple[str, int]]:
    """The service with its peer, in processes of its own: its address, and the id of the supervisor."""
    _bundle(folder / "bundle", name)
    _store(folder / "store")
    words = [sys.executable, "-m", "benchmarks.serve", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("no output")
            address = process.stdout.readline().strip()
            _until_ready(address)
            yield address, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _until_ready(address: str) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urlopen(f"{address}/readyz", timeout=5) as answer:  # noqa: S310 - loopback
                json.load(answer)
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError("the service is not ready")


def _bundle(folder: Path, name: str) -> None:
    import torch

    from clickprism.data.normalise import fit
    from clickprism.model import Model
    from clickprism.rankers.linear import Linear
    from clickprism.rankers.mlp import MLP
    from clickprism.serve.bundle.build import write_bundle
    from clickprism.types import Lists

    torch.manual_seed(0)
    features = np.random.default_rng(0).normal(size=(1000, FEATURES)).astype(np.float32)
    lists = Lists(features, np.arange(0, 1001, 10), np.array([f"q{i}" for i in range(100)]))
    ranker = Linear() if name == "linear" else MLP(hidden=(64, 32))
    model = Model(ranker, ranker.build(FEATURES).eval(), features=FEATURES, method={"name": "dla"})
    write_bundle(folder, model.with_normaliser(fit("standard", lists)), feature_names=NAMES)


def _store(folder: Path) -> None:
    from clickprism.serve.store.base import StoreInfo
    from clickprism.serve.store.publish import builder

    draw = np.random.default_rng(1)
    with builder(str(folder), grace=60) as target:
        for query in range(QUERIES):
            names = [f"q{query}-document-{document}" for document in range(DOCUMENTS)]
            target.put(f"q{query}", names, draw.normal(size=(DOCUMENTS, FEATURES)).astype(np.float32))
        empty = np.full(FEATURES, np.nan, np.float32)
        target.seal(StoreInfo("benchmark", datetime(2026, 3, 1), NAMES, empty, QUERIES * DOCUMENTS))
        target.switch()


def main() -> None:
    """Serve, in the process that `run` starts: the folder is the first argument."""
    from clickprism.serve.http.server import run as serve

    folder = Path(sys.argv[1])
    settings = ServeSettings(store=str(folder / "store"), port=0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    serve(
        folder / "bundle",
        settings,
        token=TOKEN,
        listening=lambda about: print(about.address, flush=True),
        make=with_peer,
    )


if __name__ == "__main__":
    main()
