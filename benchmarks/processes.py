"""Two processes of one thread against one, on the same lists, network and batches, in turns; and one of two threads.

The network is the usual 512-256-128, of 199 thousand weights. The message of a step costs the same whatever the batch,
so both a batch that is worth sharing, of 256 lists of ten, and the usual one of 64 are measured.

The work of a step is spread over processes only as far as there are cores: what the machine has to give at the time is
measured by the same product of matrices, in one process and in both at once, and told where it is not two cores. What
the CPU time of a process says does not depend on that: it is the ratio that a free second core would give at best.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.base import Result
from clickprism.click_models.pbm import PositionUser
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.dla import DualLearning
from clickprism.rankers.mlp import MLP
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.training.distributed import joined
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks

ROUNDS, EPOCHS, LIMIT = 3, 6, 600.0
FREE = 1.8
BARS = {256: 1.5, 64: 1.0}


def run() -> list[Result]:
    """Lists a second in the median epoch of each; the median over rounds of the cores that were free."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rates.json"
        _start(file)
        rates: dict[str, list[float]] = json.loads(file.read_text())
    cores = median(rates["cores"])
    free = "" if cores >= FREE else ", second core busy"
    results = []
    for size, bar in BARS.items():
        one, two, threads = (median(rates[f"{name} {size}"]) for name in ("one", "two", "threads"))
        spared = min(rates[f"cpu of one {size}"]) / min(rates[f"cpu of two {size}"])
        told = (
            f"by CPU time of a process {spared:.2f}; 1 process x 2 threads: {threads:.0f}; {cores:.2f} cores were free"
        )
        name = f"2 processes, batches of {size}{free}"
        results.append(Result(name, two, one, bar, f"lists/s; peer: 1 process x 1 thread; {told}"))
    return results


def _start(file: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    started = [spawn.Process(target=_work, args=(rank, port, file)) for rank in range(2)]
    for process in started:
        process.start()
    end = time.monotonic() + LIMIT
    for process in started:
        process.join(max(0.1, end - time.monotonic()))
        process.kill()
    if not file.exists():
        raise RuntimeError("the processes came to no result")


def _work(rank: int, port: int, file: Path) -> None:
    """What each of the two does: rounds of all three, the second waiting while the first works alone."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    data = synthetic(SyntheticSettings(train_queries=3000, validation_queries=10, test_queries=10))
    each = SimulationSettings(frequency="each")
    clicks = simulate(data.train, PositionUser(), sessions=100, seed=0, settings=each).clicks.merge()
    rates: dict[str, list[float]] = {}
    torch.set_num_threads(1)
    _spin()
    for _ in range(ROUNDS):
        if rank == 0:
            for size in BARS:
                _measure(rates, "one", clicks, size=size, threads=1)
                _measure(rates, "threads", clicks, size=size, threads=2)
            alone = _spin()
        os.environ |= place
        with joined() as group:
            group.wait()
            both = _spin()
            group.wait()
        for size in BARS:
            _measure(rates, "two", clicks, size=size, threads=1)
        for name in place:
            del os.environ[name]
        if rank == 0:
            rates.setdefault("cores", []).append(2 * alone / both)
    if rank == 0:
        file.write_text(json.dumps(rates))


def _measure(rates: dict[str, list[float]], name: str, clicks: Clicks, *, size: int, threads: int) -> None:
    """Train, and add what each epoch and the whole took."""
    settings = FitSettings(epochs=EPOCHS, batch_size=size, threads=threads)
    start = time.process_time()
    fitted = fit(clicks, method=DualLearning(), ranker=MLP(), settings=settings, show=False)
    rates.setdefault(f"cpu of {name} {size}", []).append(time.process_time() - start)
    rates.setdefault(f"{name} {size}", []).extend(record.lists_per_second for record in fitted.history)


def _spin() -> float:
    """The seconds that a piece of work takes in this process, by the wall clock."""
    matrix = torch.ones(512, 512)
    start = time.perf_counter()
    for _ in range(150):
        torch.mm(matrix, matrix)
    return time.perf_counter() - start
