"""The affine map between positions from 1 M simulated searches, 5% of them with a random first slot; table on stderr.

Both published settings of trust bias, embedded data, Zipf queries, lists of ten, three rankers taking turns, five logs
each. The measure is the mean over positions 2 to 10 of |slope / true slope - 1|, and that of the click rates which the
line predicts for the documents of the data, relative to the true rates: an intercept near 0 has no relative error of
its own. The bar is 3%. `bound` is what the Cramer-Rao bound leaves to any estimator with a parameter for each document.
"""

from __future__ import annotations

import sys
from typing import Final, Literal

import numpy as np

from benchmarks.base import Result
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.observation.affine_map import MovedRates, scores
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.estimate_parameters import PARAMETER_ESTIMATORS, estimate_parameters, rate_error
from clickprism.observation.parameters import ClickParameters
from clickprism.observation.placed import PlacedCounts
from clickprism.settings import choose
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import Intervention, Kind
from clickprism.types import Float64, concatenate
from clickprism.users.base import Gain, attraction
from clickprism.users.trust import TrustUser

SEARCHES, SHARE, QUERIES, SEEDS, RANKERS = 1_000_000, 0.05, 1000, 5, 3
Setting = Literal["eye-tracking", "hyperbolic"]
SETTINGS: Final[dict[Setting, tuple[Gain, float]]] = {
    "eye-tracking": ("exponential", 0.1),
    "hyperbolic": ("linear", 0.0),
}


def run() -> list[Result]:
    """Slopes and click rates within 3%, by the estimator with the narrowest intervals a priori, harvest."""
    results = []
    print("| setting | estimator | slopes | click rates | intervals that hold the truth | bound |", file=sys.stderr)
    print("|---|---|---|---|---|---|", file=sys.stderr)
    for setting in SETTINGS:
        found: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(SEEDS):
            for name, one in measure(setting, seed).items():
                found.setdefault(name, []).append(one)
        for name, figures in found.items():
            slope, rate, held, bound = np.mean(figures, axis=0)
            line = f"| {setting} | {name} | {slope:.1%} | {rate:.1%} | {held:.0%} | {bound:.1%} |"
            print(line, file=sys.stderr, flush=True)
            if name == "harvest":
                title = f"parameters, {setting}"
                results.append(Result(f"{title}: slopes", slope, 0.03, 1.0, "relative error", higher_is_better=False))
                results.append(Result(f"{title}: click rates", rate, 0.03, 1.0, "the same", higher_is_better=False))
    return results


def measure(setting: Setting, seed: int, *, searches: int = SEARCHES) -> dict[str, tuple[float, ...]]:
    """The errors of slopes and rates, the share of intervals that hold the truth, and the bound, by estimator."""
    placed, truth, first = world(setting, seed, searches=searches)
    made: dict[str, tuple[float, ...]] = {}
    for name in PARAMETER_ESTIMATORS:
        found = estimate_parameters(placed, choose(PARAMETER_ESTIMATORS, name, path="by"), bootstrap=Bootstrap(seed=1))
        error = np.abs(found.alpha / truth.alpha - 1)[1:].mean()
        rate = rate_error(found, truth, first)[1:].mean()
        ends = zip((found.alpha_lower, found.beta_lower), (found.alpha_upper, found.beta_upper), strict=True)
        held = [
            ((low <= true) & (true <= high))[1:].mean()
            for true, (low, high) in zip((truth.alpha, truth.beta), ends, strict=True)
        ]
        rates = MovedRates.of(choose(PARAMETER_ESTIMATORS, name, path="by").counts(placed))
        _, bend = scores(rates, truth.alpha, truth.beta, np.zeros(len(rates), dtype=np.int64))
        spread = np.sqrt(np.diag(np.linalg.inv(bend))[: len(truth) - 1]) / truth.alpha[1:]
        made[name] = (float(error), float(rate), float(np.mean(held)), float(np.sqrt(2 / np.pi) * spread.mean()))
    return made


def world(setting: Setting, seed: int, *, searches: int) -> tuple[PlacedCounts, ClickParameters, Float64]:
    """The counts of a log, the true parameters, and c_1 of the documents."""
    gain, noise = SETTINGS[setting]
    judged = synthetic(SyntheticSettings(train_queries=QUERIES, validation_queries=1, test_queries=1, seed=seed)).train
    user = TrustUser(setting=setting)
    rng = np.random.default_rng([seed, 7])
    base = judged.grades + rng.normal(0.0, 1.0, len(judged.grades))
    rankings = base + rng.normal(0.0, 0.5, (RANKERS, len(base)))
    parts = []
    kinds: tuple[tuple[Kind, float], ...] = (("none", 1 - SHARE), ("first", SHARE))
    for kind, share in kinds:
        settings = SimulationSettings(
            frequency="zipf",
            gain=gain,
            noise=noise,
            intervention=Intervention(kind=kind),
        )
        made = simulate(judged, user, sessions=int(searches * share), seed=seed, settings=settings, scores=rankings)
        parts.append(made.clicks)
    positions = np.arange(1, parts[0].max_position + 1)
    truth = ClickParameters.of_trust(user.observation(positions), *user.trust(positions))
    attractive = attraction(judged, noise=noise, gain=gain)
    plus, minus = user.trust(np.ones(1, dtype=np.int64))
    first = user.observation(np.ones(1, dtype=np.int64)) * (plus * attractive + minus * (1 - attractive))
    shown = np.unique(concatenate(parts).rows)
    placed = PlacedCounts.of_clicks(concatenate(parts), randomised=parts[1])
    return PlacedCounts(placed.counts, placed.queries, placed.randomised), truth, first[shown]
