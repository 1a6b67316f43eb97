"""Gradient boosting on position-biased clicks: every way in one run, nDCG(exp)@10 and CPU seconds.

`python -m benchmarks boosting` prints all ways, best first, with their paired difference to LightGBM's `position=`, and
then what must hold. Every way grows 100 trees, about where each is at its best on this data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from benchmarks.base import Result
from clickprism.click_models.pbm import PositionUser
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.base import Method
from clickprism.debias.click import Click, Labels
from clickprism.debias.ipw import InversePropensity
from clickprism.debias.position import PositionBias
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.evaluation.significance import differences, interval
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.simulation.clicks import SimulationSettings, ideal_clicks, simulate
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Dataset, Float64, Lists, Simulation
from reproduce.common.pair_debias import PairDebias

SEEDS: Final = (0, 1, 2)
DATA: Final = SyntheticSettings(train_queries=1000, validation_queries=10, test_queries=3000)
SESSIONS: Final = 100
LOG: Final = SimulationSettings(frequency="each", rankers=3, merge="none")
RANKER: Final = LambdaMART(trees=100)
MEASURE: Final = Measure.parse("nDCG(exp)@10")
Scores: TypeAlias = Callable[[Lists], Float64]


def arms(data: Dataset, log: Simulation, seed: int) -> dict[str, Callable[[], Scores]]:
    """The ways to train, each a function that does all that it costs and returns a scorer."""
    sessions, truth = log.clicks, log.observation

    def ours(clicks: Clicks, method: Method) -> Callable[[], Scores]:
        return lambda: _fit(clicks, method, seed)

    return {
        "labels": ours(ideal_clicks(data.train), Labels()),
        "exposure, true curve": ours(sessions, InversePropensity(propensities=tuple(truth))),
        "exposure, curve of the log model": ours(sessions, InversePropensity(estimate="log_model")),
        "click": ours(sessions, Click()),
        "position, merged": ours(sessions, PositionBias()),
        "position, LightGBM": lambda: _lightgbm(sessions, seed),
        "pair_debias": ours(sessions, PairDebias()),
        "XGBoost": lambda: _xgboost(sessions, seed),
    }


def _fit(clicks: Clicks, method: Method, seed: int) -> Scores:
    settings = FitSettings(threads=1, seed=seed)
    model = fit(clicks, method=method, ranker=RANKER, settings=settings, show=False).model
    return model.score


def _lightgbm(sessions: Clicks, seed: int) -> Scores:
    """LightGBM's `position=` as one would call it: a row a document of a session, the leaf limit scaled to match."""
    import lightgbm

    parameters = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "learning_rate": RANKER.learning_rate,
        "num_leaves": RANKER.leaves,
        "min_data_in_leaf": RANKER.min_data_in_leaf * SESSIONS,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(
        sessions.lists.features[sessions.rows],
        label=sessions.clicks,
        group=np.diff(sessions.offsets),
        position=sessions.positions,
        params={"verbosity": -1},
    )
    booster = lightgbm.train(parameters, data, num_boost_round=RANKER.trees)
    return lambda lists: np.asarray(booster.predict(lists.features), dtype=np.float64)


def _xgboost(sessions: Clicks, seed: int) -> Scores:
    """XGBoost's `lambdarank_unbiased`: a row a document of a session, in the order of display."""
    import xgboost

    parameters = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_num_pair_per_sample": 10,
        "lambdarank_pair_method": "topk",
        "eta": RANKER.learning_rate,
        "grow_policy": "lossguide",
        "max_leaves": RANKER.leaves,
        "max_depth": 0,
        "min_child_weight": 1.0,
        "nthread": 1,
        "seed": seed,
    }
    groups = np.repeat(np.arange(len(sessions)), np.diff(sessions.offsets))
    data = xgboost.QuantileDMatrix(sessions.lists.features[sessions.rows], label=sessions.clicks, qid=groups)
    booster = xgboost.train(parameters, data, num_boost_round=RANKER.trees)
    return lambda lists: np.asarray(booster.predict(xgboost.DMatrix(lists.features)), dtype=np.float64)


def measure() -> tuple[dict[str, Float64], dict[str, float]]:
    """The nDCG of each query, [seeds, queries], and the mean CPU seconds of one training, of each way."""
    values: dict[str, list[Float64]] = {}
    cpu: dict[str, list[float]] = {}
    data = synthetic(DATA)
    for seed in SEEDS:
        log = simulate(data.train, PositionUser(), sessions=SESSIONS, seed=seed, settings=LOG)
        ways = arms(data, log, seed)
        ways["click"]()  # so that no way pays for imports and compilation
        ways["pair_debias"]()
        for name, train in ways.items():
            start = time.process_time()
            score = train()
            cpu.setdefault(name, []).append(time.process_time() - start)
            values.setdefault(name, []).append(evaluate(data.test, score(data.test.lists), MEASURE)[MEASURE])
    return (
        {name: np.stack(each) for name, each in values.items()},
        {name: float(np.mean(each)) for name, each in cpu.items()},
    )


def run() -> list[Result]:
    """Clicks per exposure above `position=` and click beyond the paired interval, below the labels, and its CPU."""
    values, cpu = measure()
    _print(values, cpu)
    ours, peer = "exposure, curve of the log model", "position, LightGBM"
    results = []
    for above, below in ((ours, peer), (ours, "click"), ("labels", ours)):
        mean = float(np.nanmean(values[below]))
        low = mean + interval(differences(values[above], values[below])).low
        results.append(Result(f"{above}, low end", low, mean, 1.0, f"nDCG(exp)@10, paired; peer: {below}"))
    unit = "CPU s; peer: position= on sessions"
    return [*results, Result(ours, cpu[ours], cpu[peer], 10.0, unit, higher_is_better=False)]


def _print(values: dict[str, Float64], cpu: dict[str, float]) -> None:
    """All ways, with their difference to LightGBM's `position=`, on standard error."""
    for name in sorted(values, key=lambda name: -float(np.nanmean(values[name]))):
        gap = interval(differences(values[name], values["position, LightGBM"]))
        mean = float(np.nanmean(values[name]))
        line = f"{name:22} {mean:.4f}  {gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f}) {cpu[name]:8.2f} s"
        print(line, file=sys.stderr, flush=True)
