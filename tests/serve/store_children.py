"""What runs in processes of their own: builders that are killed, and a reader that follows."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

import numpy as np

import clickprism.serve.store.lmdb
import clickprism.serve.store.redis  # noqa: F401 - so that both are imported once, before the forks
from clickprism._util.crash_points import VARIABLE
from clickprism.serve.store.base import StoreInfo, open_store
from clickprism.serve.store.publish import builder

QUERIES, DOCUMENTS = 20, 30


def build(place: str, version: int, fault: str = "") -> None:
    """A snapshot in which every value is its version; `fault` names the point at which it is killed."""
    os.environ[VARIABLE] = fault
    rows = np.full((DOCUMENTS, 2), version, np.float32)
    with builder(place, grace=3600) as target:
        for query in range(QUERIES):
            target.put(f"q{query}", [f"d{number}" for number in range(DOCUMENTS)], rows)
        empty = np.zeros(2, np.float32)
        target.seal(StoreInfo(str(version), datetime(2026, 3, 1), ("a", "b"), empty, QUERIES * DOCUMENTS))
        target.switch()


def read(place: str, connection: Any) -> None:
    """Ask until the version is 9; send each version when it is first seen, in the end how many answers mixed two."""
    seen = ""
    store, wrong = open_store(place), 0
    documents = [f"d{number}" for number in range(DOCUMENTS)]
    while seen != "9":
        found = store.get("q7", documents)
        wrong += not bool((found.x == float(found.info.version)).all() and found.found.all())
        if found.info.version != seen:
            seen = found.info.version
            connection.send(seen)
    connection.send(wrong)
