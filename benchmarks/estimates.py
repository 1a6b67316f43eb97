"""Estimates of relevance for every pair of a click log, against the plain DuckDB aggregation of the same rows.

The log is that of `benchmarks.windows`, of session rows; `CLICKPRISM_BENCH_IMPRESSIONS` sets its size. The plain
aggregation adds up impressions and clicks by pair and position, and writes them. The affine estimator adds up the same
and writes estimates with their intervals. The default estimator fits the model of the log and writes the posterior of
each pair. Each figure is measured in a process of its own; imports are not timed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.base import Result
from benchmarks.windows import IMPRESSIONS, connect_by_hand, make_log, timed

DEPTH: Final = 10
SECONDS: Final = 120.0  # for 10 M impressions in about 9 M sums by pair, day and position


def run() -> list[Result]:
    """Return the time and the memory of both estimators, and the time of the plain aggregation."""
    with tempfile.TemporaryDirectory(prefix="clickprism-bench-") as scratch:
        log = str(Path(scratch) / "log")
        _measured("make", log)
        rows, affine, model = (_measured(step, log) for step in ("rows", "affine", "model"))
    size = f"{IMPRESSIONS / 1e6:g} M impressions"
    return [
        Result(
            f"CPU of affine estimates of {size}: plain sums",
            affine["processor"],
            rows["processor"],
            1 / 1.5,
            "s",
            False,
        ),
        Result("peak memory of affine estimates", affine["megabytes"], 4096.0, 1, "MB", False),
        Result(f"estimates of {size} by the model of the log", model["seconds"], SECONDS, 1, "s", False),
        Result("peak memory of the same", model["megabytes"], 4096.0, 1, "MB", False),
    ]


def _measured(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.estimates", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _by_hand(folder: str) -> dict[str, Any]:
    """The sums of each pair at each position, by one statement."""
    places = range(1, DEPTH + 1)
    columns = [f"count(*) FILTER (position = {place})" for place in places]
    columns += [f"count(*) FILTER (clicked AND position = {place})" for place in places]
    statement = (
        f"SELECT query_id, document_id, {', '.join(columns)} "  # noqa: S608
        f"FROM read_parquet('{folder}/sessions/*/*.parquet') WHERE filter IS NULL GROUP BY query_id, document_id"
    )
    connection = connect_by_hand(folder)
    copy = f"COPY ({statement}) TO '{folder}-sums.parquet' (FORMAT parquet, COMPRESSION zstd)"
    return timed(lambda: connection.execute(copy))


def _affine(folder: str) -> dict[str, Any]:
    import numpy as np

    from clickprism.log.engines.base import connect
    from clickprism.log.store import LogStore
    from clickprism.log_model.results import ClickParameters
    from clickprism.relevance.estimate import estimate_log
    from clickprism.relevance.estimators import Affine

    parameters = ClickParameters(1 / np.sqrt(np.arange(1.0, DEPTH + 1)), np.zeros(DEPTH))
    store = LogStore.open(folder)
    store.table("sessions").days()  # imports what reads the table: no imports are timed on either side
    with connect(threads=2, memory="2GB") as engine:
        return timed(
            lambda: estimate_log(
                store,
                engine,
                Path(f"{folder}-estimates.parquet"),
                estimator=Affine(),
                parameters=parameters,
                k=0,
            )
        )


def _model(folder: str) -> dict[str, Any]:
    from clickprism.log.engines.base import connect
    from clickprism.log.store import LogStore
    from clickprism.relevance.estimate import fit_log, write_posterior
    from clickprism.relevance.estimators import EstimateSettings

    store = LogStore.open(folder)
    store.table("sessions").days()

    def estimate() -> None:
        with connect(threads=2, memory="2GB") as engine:
            fitted = fit_log(store, engine, EstimateSettings(min_users=0))
        write_posterior(fitted, Path(f"{folder}-posterior.parquet"), min_users=0, store=store)

    return timed(estimate)


def main(step: str, folder: str) -> None:
    """One step in a process of its own: print what it took."""
    steps = {
        "make": make_log,
        "rows": _by_hand,
        "affine": _affine,
        "model": _model,
    }
    print(json.dumps(steps[step](folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
