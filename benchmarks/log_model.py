"""The model of a log of ten million rows: time and memory of counting and of the fit, on one thread.

Ten documents of seventeen are shown in each search, queries follow a power law, and clicks the position-based model;
`CLICKPRISM_BENCH_IMPRESSIONS` sets the number of rows. Beside it: AllPairs, and the plain sums over the same rows in
DuckDB (group by query, document and position), also on one thread. Each step runs in a process of its own, so that the
peak of memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.base import Result
from benchmarks.windows import IMPRESSIONS, timed
from clickprism.types import Clicks, Lists

SHOWN: Final = 10
CANDIDATES: Final = 17
FEATURES: Final = 8
STEPS: Final = ("count", "fit", "fit-features", "allpairs", "sql")


def run() -> list[Result]:
    """Return seconds against the limits, and beside AllPairs and SQL; and the peak of memory."""
    with tempfile.TemporaryDirectory(prefix="clickprism-bench-") as scratch:
        _measured("make", scratch)
        found = {step: _measured(step, scratch) for step in STEPS}
    for step, each in found.items():
        print(f"{step}: {each}", file=sys.stderr)
    size = f"{IMPRESSIONS / 1e6:g} M rows"
    return [
        Result(f"count {size}: limit", found["count"]["seconds"], 1.0, 1, "s", False),
        Result(f"count {size}: plain sums in SQL", found["count"]["seconds"], found["sql"]["seconds"], 0.1, "s", False),
        Result(f"model of {size}: limit", found["fit"]["seconds"], 20.0, 1, "s", False),
        Result(f"model of {size}, features: limit", found["fit-features"]["seconds"], 20.0, 1, "s", False),
        Result(f"model of {size}: AllPairs", found["fit"]["seconds"], found["allpairs"]["seconds"], 0.01, "s", False),
        Result(f"peak memory of the model of {size}", found["fit"]["megabytes"], 2048.0, 1, "MB", False),
        Result("the same with features", found["fit-features"]["megabytes"], 2048.0, 1, "MB", False),
    ]


def _measured(step: str, folder: str) -> dict[str, Any]:
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log_model", step, folder],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | one,
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def main(step: str, folder: str) -> None:
    """Run one step and print what it took."""
    path = Path(folder) / "log.npz"
    steps = {
        "make": lambda: _make(path),
        "count": lambda: _count(path),
        "fit": lambda: _fit(path, features=0),
        "fit-features": lambda: _fit(path, features=FEATURES),
        "allpairs": lambda: _allpairs(path),
        "sql": lambda: _sql(path),
    }
    print(json.dumps(steps[step]()))


def _make(path: Path) -> dict[str, Any]:
    """Write the rows of the log: the query of each search, the rows shown and what was clicked."""
    rng, sessions = np.random.default_rng(0), IMPRESSIONS // SHOWN
    most = max(1000, IMPRESSIONS // 50)
    _, query = np.unique(np.floor(most ** rng.random(sessions)), return_inverse=True)
    relevance = rng.beta(0.5, 2.0, (int(query.max()) + 1) * CANDIDATES)
    turn = rng.integers(6, size=sessions)
    document = (7 * np.arange(1, SHOWN + 1) + turn[:, None]) % CANDIDATES
    rows = query[:, None] * CANDIDATES + document
    clicked = rng.random(rows.shape) < relevance[rows] / np.arange(1, SHOWN + 1)
    np.savez(path, rows=rows.astype(np.int32), clicked=clicked)
    return {}


def _log(path: Path, *, features: int = 0) -> Clicks:
    with np.load(path, allow_pickle=False) as saved:
        rows, clicked = saved["rows"], saved["clicked"]
    documents = (int(rows.max()) // CANDIDATES + 1) * CANDIDATES
    matrix = np.random.default_rng(1).normal(size=(documents, features)).astype(np.float32)
    names = np.array([f"{number}" for number in range(documents // CANDIDATES)])
    lists = Lists(matrix, np.arange(0, documents + 1, CANDIDATES), names)
    return Clicks(
        lists,
        np.arange(0, rows.size + 1, SHOWN),
        rows.reshape(-1).astype(np.int64),
        np.tile(np.arange(1, SHOWN + 1, dtype=np.int32), len(rows)),
        clicked.reshape(-1).astype(np.int64),
        np.ones(len(rows), dtype=np.int64),
    )


def _count(path: Path) -> dict[str, Any]:
    from clickprism.log_model.counts import count

    log = _log(path)
    return timed(lambda: count(log))


def _fit(path: Path, *, features: int) -> dict[str, Any]:
    from clickprism.log_model.model import LogModel

    log = _log(path, features=features)
    models: list[LogModel] = []
    measured = timed(lambda: models.append(LogModel.fit(log)))
    truth = 1 / np.arange(1, SHOWN + 1)
    error = float(np.abs(np.log(models[0].curve.values / truth)).mean())
    return measured | {"curve_error": error, "steps": models[0].steps, "pairs": models[0].size.pairs}


def _allpairs(path: Path) -> dict[str, Any]:
    from clickprism.log_model.counts import count
    from clickprism.log_model.references import Links, allpairs

    log = _log(path)
    return timed(lambda: allpairs(Links.of(count(log)), resamples=0))


def _sql(path: Path) -> dict[str, Any]:
    import duckdb
    import pyarrow as pa

    log = _log(path)
    columns = {"document": log.rows, "position": log.positions, "clicked": log.clicks}
    table = pa.table(columns | {"query": log.rows // CANDIDATES})
    connection = duckdb.connect(config={"threads": 1})
    connection.register("arrow", table)
    connection.execute("CREATE TABLE shown AS SELECT * FROM arrow")
    sums = "SELECT query, document, position, count(*), sum(clicked) FROM shown GROUP BY ALL"
    return timed(lambda: connection.execute(f"CREATE TABLE sums AS {sums}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
