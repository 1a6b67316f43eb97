"""A training step of the attention ranker over that of the default MLP: 256 lists of ten, by `click`, in turns.

A step is what training does with a batch: the loss, its gradient, the clipping and Adagrad. `python -m benchmarks
attention_step` prints one and two threads; the bars are those of two, in wall time, and of one in CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np

from benchmarks.base import Result
from clickprism.debias.click import Click
from clickprism.debias.loop import batches
from clickprism.rankers.attention import Attention
from clickprism.rankers.base import NetworkRanker
from clickprism.rankers.mlp import MLP
from clickprism.training.network import Loop, _optimiser, torch_set_for
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Lists

LISTS, LENGTH, ROUNDS = 256, 10, 9
MOST: Final = {46: 6.0, 136: 15.0, 700: 15.0}
RANKERS: Final[dict[str, NetworkRanker]] = {
    "mlp": MLP(),
    "attention": Attention(),
    "two heads": Attention(heads=2),
    "paper": Attention(form="paper"),
}


def run() -> list[Result]:
    """At most six times the MLP with 46 features, fifteen times with 700; nobody set a bar for 136."""
    results = []
    for width, most in MOST.items():
        for threads, clock, unit in ((1, time.process_time, "CPU"), (2, time.perf_counter, "wall")):
            spent = steps(_log(width), threads=threads, clock=clock)
            told = ", ".join(f"{name} {spent[name]:.1f} ms ({spent[name] / spent['mlp']:.2f})" for name in RANKERS)
            print(f"{width} features, {threads} threads, {unit}: {told}", file=sys.stderr, flush=True)
            name = f"attention step, {width} features, {threads} threads"
            told = f"{unit} ms a step; peer: mlp"
            results.append(Result(name, spent["attention"], spent["mlp"], 1 / most, told, higher_is_better=False))
    return results


def steps(clicks: Clicks, *, threads: int, clock: Callable[[], float]) -> dict[str, float]:
    """The median milliseconds of a step by each ranker, the rankers in turns."""
    settings = FitSettings(threads=threads, batch_size=LISTS)
    spent: dict[str, list[float]] = {name: [] for name in RANKERS}
    with torch_set_for(settings.seed, settings.threads):
        step = {name: _step(clicks, ranker, settings) for name, ranker in RANKERS.items()}
        for _ in range(ROUNDS + 1):
            for name, work in step.items():
                start = clock()
                work()
                spent[name].append(1e3 * (clock() - start))
    return {name: median(times[1:]) for name, times in spent.items()}


def _step(clicks: Clicks, ranker: NetworkRanker, settings: FitSettings) -> Callable[[], object]:
    """One step on the first batch of the log, as the training loop takes it."""
    learner = Click().learner(ranker.build(clicks.lists.features.shape[1]), clicks)
    loop = Loop(learner, _optimiser(learner, settings), clicks, settings, None)
    batch = next(batches(clicks, LISTS))
    learner.train()
    return lambda: loop.step(batch, "in the benchmark")


def _log(width: int) -> Clicks:
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (LISTS * LENGTH, width)).astype(np.float32)
    offsets = np.arange(LISTS + 1, dtype=np.int64) * LENGTH
    lists = Lists(features, offsets, np.arange(LISTS).astype(str))
    places = np.tile(np.arange(1, LENGTH + 1, dtype=np.int32), LISTS)
    clicked = (rng.random(LISTS * LENGTH) < 1 / places).astype(np.int64)
    return Clicks(lists, offsets, np.arange(LISTS * LENGTH), places, clicked, np.ones(LISTS, dtype=np.int64))
