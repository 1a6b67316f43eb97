"""Small logs of a shop as tables, whose users can change their taste, and runs that are killed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import clickprism.auto.checks
import clickprism.diagnosis.diagnose
import clickprism.evaluation.counterfactual.run
import clickprism.evaluation.plots
import clickprism.evaluation.report
import clickprism.log.ingest
import clickprism.log.open_log
import clickprism.relevance.estimate
import clickprism.relevance.judgments
import clickprism.serve.bundle.bundle
import clickprism.serve.store.publish  # noqa: F401 - imported once, before the forks
from clickprism._util.crash_points import VARIABLE
from clickprism._util.resumable import EPOCH
from clickprism.project.run import Project, RunResult

TIME = "1790000000"
QUERIES, CANDIDATES, SHOWN, FEATURES = 40, 12, 6, 3


def shop_rows(taste: tuple[float, float, float], *, first_day: int, searches: int = 900, seed: int = 0) -> pa.Table:
    """Return searches of two days: six of twelve documents in random order, clicks by taste and position."""
    catalogue = np.random.default_rng(5).normal(size=(QUERIES * CANDIDATES, FEATURES))
    rng = np.random.default_rng([seed, 7])
    query = rng.integers(0, QUERIES, searches)
    shown = np.argsort(rng.random((searches, CANDIDATES)), axis=1)[:, :SHOWN]
    row = (query[:, None] * CANDIDATES + shown).ravel()
    relevance = 1 / (1 + np.exp(0.5 - catalogue[row] @ np.array(taste)))
    position = np.tile(np.arange(1, SHOWN + 1), searches)
    day = first_day + np.arange(searches) * 2 // searches
    return pa.table(
        {
            "query": [f"q{each}" for each in np.repeat(query, SHOWN)],
            "document": [f"d{each}" for each in row],
            "position": position,
            "clicked": (rng.random(len(row)) < relevance / position**0.7).astype(int),
            "search": [f"{first_day}-{seed}-{each}" for each in np.repeat(np.arange(searches), SHOWN)],
            "time": [f"2026-03-{each:02d}T10:00:00Z" for each in np.repeat(day, SHOWN)],
            "user": [f"u{each % 50}" for each in np.repeat(np.arange(searches), SHOWN)],
            **{f"x{k}": catalogue[row, k] for k in range(FEATURES)},
        }
    )


def add_day(logs: Path, name: str, taste: tuple[float, float, float], **options: int) -> None:
    """Write one file of searches."""
    logs.mkdir(parents=True, exist_ok=True)
    pq.write_table(shop_rows(taste, **options), logs / f"{name}.parquet")


def run(folder: Path, fault: str = "") -> RunResult:
    """Run a project with fixed times; the process kills itself at the crash point `fault`."""
    os.environ[VARIABLE] = fault
    os.environ[EPOCH] = TIME
    return Project(folder).run()
