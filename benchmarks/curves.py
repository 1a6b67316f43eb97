"""Position curves from a million simulated sessions of ten: how far off the truth, against the limit.

Users follow the position-based model; four rankers, each trained on its own sample of labels, take the sessions at
random, and queries are asked by Zipf's law, so that documents have very different numbers of impressions. Random order
and adjacent swaps have their own logs. Errors are mean relative errors over positions 2 to 10, averaged over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import clickprism as cp
from benchmarks.base import Result, seconds
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.curve import relative_error
from clickprism.observation.estimate import Estimator, estimate_curve
from clickprism.observation.harvest import AllPairs
from clickprism.observation.model_curves import PositionModelCurve
from clickprism.observation.randomised import Randomised
from clickprism.observation.swaps import AdjacentSwaps, PivotSwaps
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, Dataset, Float64
from clickprism.users.pbm import EYE_TRACKING

SESSIONS = 1_000_000
SEEDS = 5
LIMIT = 0.03
RANKERS = cp.SimulationSettings(rankers=4, frequency="zipf")
SHUFFLED = cp.SimulationSettings(intervention=Intervention(kind="shuffle"), frequency="zipf")
SWAPPED = cp.SimulationSettings(intervention=Intervention(kind="swap"), frequency="zipf")
PIVOTED = cp.SimulationSettings(intervention=Intervention(kind="pivot"), frequency="zipf")


def run() -> list[Result]:
    """Errors against the limit, both weights in one run, and the time of a curve with 200 bootstrap draws."""
    data = cp.synthetic(cp.SyntheticSettings(train_queries=1000, validation_queries=10, test_queries=10))
    harvested = list(_logs(data, RANKERS, SEEDS))
    matched, equal = (_error(harvested, AllPairs(weights=weights)) for weights in ("matched", "equal"))
    chain, published = (_error(harvested, AdjacentSwaps(weights=weights)) for weights in ("matched", "equal"))
    results = [
        _limit("allpairs, 4 rankers", matched),
        _limit("allpairs as published, 4 rankers", equal),
        _limit("pbm, 4 rankers", _error(harvested, PositionModelCurve())),
        _limit("adjacent, swaps", _error(_logs(data, SWAPPED, 2), AdjacentSwaps())),
        _limit("pivot, pivot swaps", _error(_logs(data, PIVOTED, 2), PivotSwaps())),
        _limit("randomised, shuffles", _error(_logs(data, SHUFFLED, 1), Randomised())),
        Result("curves: allpairs, matched weights: published", matched, equal, 1, "mean relative error", False),
        Result("curves: adjacent, matched weights: published", chain, published, 1, "mean relative error", False),
    ]
    took = seconds(lambda: estimate_curve(harvested[0], AllPairs(), bootstrap=Bootstrap(resamples=200)))
    results.append(Result("curves: allpairs with intervals: 5 s", took, 5, 1, "s", False))
    return results


def _logs(data: Dataset, settings: cp.SimulationSettings, seeds: int) -> Iterator[Clicks]:
    for seed in range(seeds):
        yield cp.simulate(data.train, cp.PositionUser(), sessions=SESSIONS, seed=seed, settings=settings).clicks


def _error(logs: Iterator[Clicks] | list[Clicks], estimator: Estimator) -> float:
    truth: Float64 = np.array(EYE_TRACKING)
    once = Bootstrap(resamples=0)
    return float(
        np.mean([relative_error(estimate_curve(log, estimator, bootstrap=once).values, truth) for log in logs])
    )


def _limit(name: str, error: float) -> Result:
    return Result(f"curves: {name}: {LIMIT:.0%}", error, LIMIT, 1, "mean relative error", False)
