"""Position curves from a million simulated sessions of ten: how far off the truth, against the limit.

Users follow the position-based model; four rankers, each trained on its own sample of labels, take the sessions at
random, and queries are asked by Zipf's law, so that documents have very different numbers of impressions. Shuffled
lists have their own log. Errors are mean relative errors over positions 2 to 10, averaged over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

import clickprism as cp
from benchmarks.base import Result, seconds
from clickprism.click_models.pbm import EYE_TRACKING
from clickprism.data.logged import Logged
from clickprism.log_model.counts import count
from clickprism.log_model.references import Links, allpairs, randomised_curve
from clickprism.log_model.results import Curve
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, Dataset

SESSIONS = 1_000_000
SEEDS = 5
LIMIT = 0.03
RANKERS = cp.SimulationSettings(rankers=4, frequency="zipf")
SHUFFLED = cp.SimulationSettings(intervention=Intervention(kind="shuffle"), frequency="zipf")


def run() -> list[Result]:
    """Return the errors against the limit, and the time of a curve with 200 resamples."""
    data = cp.synthetic(cp.SyntheticSettings(train_queries=1000, validation_queries=10, test_queries=10))
    logs = list(_logs(data, RANKERS, SEEDS))
    results = [
        _limit("log model, 4 rankers", _error(logs, lambda log: cp.LogModel.fit(log, settings=_once()).curve)),
        _limit("allpairs, 4 rankers", _error(logs, lambda log: allpairs(Links.of(count(log)), resamples=0)[0])),
        _limit("randomised, shuffles", _error(_logs(data, SHUFFLED, 1), _randomised)),
    ]
    took = seconds(lambda: allpairs(Links.of(count(logs[0])), resamples=200))
    results.append(Result("curves: allpairs with intervals: 5 s", took, 5, 1, "s", False))
    return results


def _once() -> cp.LogModelSettings:
    return cp.LogModelSettings(resamples=0)


def _randomised(log: Clicks) -> Curve:
    logged = Logged(log, randomised=np.ones(len(log.rows), dtype=np.bool_))
    return randomised_curve(count(logged, by_chance=True), resamples=0)[0]


def _logs(data: Dataset, settings: cp.SimulationSettings, seeds: int) -> Iterator[Clicks]:
    for seed in range(seeds):
        yield cp.simulate(data.train, cp.PositionUser(), sessions=SESSIONS, seed=seed, settings=settings).clicks


def _error(logs: Iterable[Clicks], estimate: Callable[[Clicks], Curve]) -> float:
    return float(np.mean([estimate(log).error(np.array(EYE_TRACKING)) for log in logs]))


def _limit(name: str, error: float) -> Result:
    return Result(f"curves: {name}: {LIMIT:.0%}", error, LIMIT, 1, "mean relative error", False)
