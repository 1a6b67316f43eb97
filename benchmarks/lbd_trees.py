"""LambdaMART on clicks that the document itself couples with its observation: each way in one run, nDCG(exp)@10.

`python -m benchmarks lbd_trees` prints all ways at each coupling, with their paired difference to LightGBM's
`position=`, of a log by three rankers and of one by a single ranker, and then what must hold. Every seed draws the
weights of the coupling anew. `position` is LightGBM's own correction on sessions, of which those clicked alike are
joined; the sessions one by one, as one would call LightGBM (`benchmarks.boosting`), are beside it at the first seed.
`curve` is the exposure by the best curve over positions that the log allows: EM, or DLA where one ranker made it.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Final

import numpy as np

from benchmarks.base import Result
from benchmarks.boosting import RANKER, SESSIONS, Scores, _lightgbm
from clickprism.click_models.coupled import CoupledUser
from clickprism.data.normalise import normalised
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.base import Method
from clickprism.debias.click import Click, Labels
from clickprism.debias.dla import DualLearning
from clickprism.debias.ipw import InversePropensity
from clickprism.debias.lbd import Decoupling
from clickprism.debias.position import PositionBias
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.evaluation.significance import differences, interval
from clickprism.simulation.clicks import SimulationSettings, ideal_clicks, simulate
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Dataset, Float64
from reproduce.lbd.effect import coupling

SEEDS: Final = (0, 1, 2)
ETAS: Final = (0.0, 0.3, 0.6)
RANKERS: Final = (3, 1)
EPOCHS: Final = 30  # of the network that learns the curve of DLA
DATA: Final = SyntheticSettings(train_queries=1000, validation_queries=10, test_queries=3000)
MEASURE: Final = Measure.parse("nDCG(exp)@10")
PEER: Final = "position"
WAYS: Final[dict[str, Method]] = {
    "lbd": Decoupling(),
    "curve": InversePropensity(estimate="log_model"),
    PEER: PositionBias(),
    "click": Click(),
}
SINGLE: Final[dict[str, Method]] = {**WAYS, "curve": DualLearning()}  # EM needs documents at several positions


def run() -> list[Result]:
    """LBD's exposure above `position=` at .3 and .6 beyond the paired interval, and not below it without coupling."""
    data = normalised(synthetic(DATA), "quantile")[0]
    labels = _measured(data, _fit(ideal_clicks(data.train), Labels(), seed=0))
    _say(f"labels {np.nanmean(labels):.4f}")
    results = []
    for rankers, eta in product(RANKERS, ETAS):
        values = measure(data, rankers=rankers, eta=eta)
        _print(values)
        mean, gap = float(np.nanmean(values[PEER])), interval(differences(values["lbd"], values[PEER]))
        name = f"lbd, coupling {eta}, {rankers} logging ranker{'s' * (rankers > 1)}"
        unit = "nDCG(exp)@10, paired, low end; peer: position="
        results.append(Result(name, mean + gap.low, mean, 1.0, unit))
    return results


def measure(data: Dataset, *, rankers: int, eta: float) -> dict[str, Float64]:
    """The nDCG of each test query by each way, [seeds, queries]."""
    ways = WAYS if rankers > 1 else SINGLE
    values: dict[str, list[Float64]] = {name: [] for name in ways}
    log = SimulationSettings(frequency="each", rankers=rankers, merge="none")
    for seed in SEEDS:
        user = CoupledUser(eta=eta).adapt(data.train, seed=seed)
        sessions = simulate(data.train, user, sessions=SESSIONS, seed=seed, settings=log).clicks
        for name, method in ways.items():
            clicks = sessions.merge(by="pattern") if method.needs_patterns else sessions.merge()
            values[name].append(_measured(data, _fit(clicks, method, seed=seed)))
        strength = coupling(user, data.train)
        line = f"rankers {rankers}, coupling {eta}, seed {seed}: sd(w.x) {strength.deviation:.2f}, "
        line += f"correlation with the grade {strength.correlation:+.2f}"
        if seed == SEEDS[0] and rankers == RANKERS[0]:
            single = _measured(data, _lightgbm(sessions, seed))
            line += f", position {np.nanmean(values[PEER][0]):.4f}, on single sessions {np.nanmean(single):.4f}"
        _say(line)
    return {name: np.stack(each) for name, each in values.items()}


def _fit(clicks: Clicks, method: Method, *, seed: int) -> Scores:
    settings = FitSettings(threads=1, epochs=EPOCHS, seed=seed)
    return fit(clicks, method=method, ranker=RANKER, settings=settings, show=False).model.score


def _measured(data: Dataset, score: Scores) -> Float64:
    return evaluate(data.test, score(data.test.lists), MEASURE)[MEASURE]


def _print(values: dict[str, Float64]) -> None:
    """All ways, best first, with each seed and the difference to `position=`, on standard error."""
    for name in sorted(values, key=lambda name: -float(np.nanmean(values[name]))):
        gap = interval(differences(values[name], values[PEER]))
        each = " ".join(f"{np.nanmean(one):.4f}" for one in values[name])
        mean = float(np.nanmean(values[name]))
        _say(f"  {name:14} {mean:.4f}  {gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})  seeds: {each}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
