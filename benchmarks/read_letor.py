"""Reading judged lists: the parser against sklearn's on the same file, and how soon a parsed file opens again."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.base import Result, seconds
from clickprism.data.cache import SETTLED_SECONDS
from clickprism.data.letor import read_letor

MEGABYTE = 1e6
LIMIT_MS = 10.0


def run() -> list[Result]:
    """Return megabytes a second, with everything from opening the file to the finished lists."""
    from sklearn.datasets import load_svmlight_file

    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        warm = _write(folder / "warm.txt", rows=20, features=136, share=0.5)
        read_letor(warm, cache=None)
        for name, rows, features, share in (("dense", 30_000, 136, 1.0), ("sparse", 50_000, 700, 0.1)):
            file = _write(folder / f"{name}.txt", rows=rows, features=features, share=share)
            size = file.stat().st_size / MEGABYTE
            ours = size / seconds(partial(read_letor, file, cache=None), repeats=7)
            peer = size / seconds(partial(load_svmlight_file, file, query_id=True), repeats=2)
            results.append(Result(f"read {size:.0f} MB of {name} LETOR text", ours, peer, 3, "MB/s"))
        cache = folder / "cache"
        time.sleep(SETTLED_SECONDS)  # a file younger than this is parsed again each time
        read_letor(file, cache=cache)
        reopen = seconds(partial(read_letor, file, cache=cache), repeats=7) * 1000
        results.append(Result("reopen it from the cache", reopen, LIMIT_MS, 1, "ms", higher_is_better=False))
    return results


def _write(path: Path, *, rows: int, features: int, share: float) -> Path:
    """A file like MSLR's: whole numbers, small decimals and scores, a hundred documents a list."""
    rng = np.random.default_rng(0)
    whole = np.arange(features) % 3 == 0
    with path.open("w") as file:
        for row in range(rows):
            values = rng.gamma(1.0, 10.0, features)
            ids = np.flatnonzero(rng.random(features) < share)
            tokens = [f"{i + 1}:{values[i]:.0f}" if whole[i] else f"{i + 1}:{values[i]:.6f}" for i in ids.tolist()]
            file.write(f"{row % 5} qid:{row // 100 + 1} {' '.join(tokens)}\n")
    return path
