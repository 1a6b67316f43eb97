"""Alpha and beta of each position from 1 M simulated searches of users with trust bias; table on stderr.

Both published settings of trust bias, embedded data, Zipf queries, lists of ten, three rankers taking turns, five logs
each. The measure is the mean over positions 2 to 10 of |slope / true slope - 1|, and that of the click rates which the
line predicts for the documents of the data, relative to the true rates: an intercept near 0 has no relative error of
its own. `em` is the published fit (`fit_trust`), `log model` what `clickprism bias trust` prints. Trust is a small term
of the log model, and these users trust the engine more than it can represent: their slopes are above 1.
"""

from __future__ import annotations

import sys
from typing import Final, Literal

import numpy as np

from benchmarks.base import Result
from clickprism.click_models.pbm import count_positions
from clickprism.click_models.trust import TrustUser, fit_trust
from clickprism.click_models.users import Gain, attraction
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.results import ClickParameters
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Clicks, Float64

SEARCHES, QUERIES, SEEDS, RANKERS = 1_000_000, 1000, 5, 3
LIMIT: Final = 0.03
Setting = Literal["eye-tracking", "hyperbolic"]
SETTINGS: Final[dict[Setting, tuple[Gain, float]]] = {
    "eye-tracking": ("exponential", 0.1),
    "hyperbolic": ("linear", 0.0),
}


def run() -> list[Result]:
    """Return the errors of slopes and click rates by the published fit, against the limit."""
    results = []
    print("| setting | estimator | slopes | click rates |", file=sys.stderr)
    print("|---|---|---|---|", file=sys.stderr)
    for setting in SETTINGS:
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(SEEDS):
            for name, one in measure(setting, seed).items():
                found.setdefault(name, []).append(one)
        for name, figures in found.items():
            slope, rate = np.mean(figures, axis=0)
            print(f"| {setting} | {name} | {slope:.1%} | {rate:.1%} |", file=sys.stderr, flush=True)
            if name == "em":
                title = f"parameters, {setting}"
                results.append(Result(f"{title}: slopes", slope, LIMIT, 1.0, "relative error", higher_is_better=False))
                results.append(Result(f"{title}: click rates", rate, LIMIT, 1.0, "the same", higher_is_better=False))
    return results


def measure(setting: Setting, seed: int, *, searches: int = SEARCHES) -> dict[str, tuple[float, float]]:
    """Return the errors of slopes and click rates by estimator."""
    clicks, truth, first = world(setting, seed, searches=searches)
    fitted = fit_trust(count_positions(clicks))
    found = {
        "em": ClickParameters.of_affine(fitted.alpha, fitted.beta),
        "log model": LogModel.fit(clicks, settings=LogModelSettings(resamples=0)).parameters,
    }
    return {
        name: (
            float(np.abs(each.alpha / truth.alpha - 1)[1:].mean()),
            float(np.abs(each.click_rates(first) / truth.click_rates(first) - 1)[:, 1:].mean()),
        )
        for name, each in found.items()
    }


def world(setting: Setting, seed: int, *, searches: int) -> tuple[Clicks, ClickParameters, Float64]:
    """Return a log, the true parameters, and c_1 of the documents that were shown."""
    gain, noise = SETTINGS[setting]
    judged = synthetic(SyntheticSettings(train_queries=QUERIES, validation_queries=1, test_queries=1, seed=seed)).train
    user = TrustUser(setting=setting)
    rng = np.random.default_rng([seed, 7])
    base = judged.grades + rng.normal(0.0, 1.0, len(judged.grades))
    rankings = base + rng.normal(0.0, 0.5, (RANKERS, len(base)))
    settings = SimulationSettings(frequency="zipf", gain=gain, noise=noise)
    clicks = simulate(judged, user, sessions=searches, seed=seed, settings=settings, scores=rankings).clicks
    positions = np.arange(1, clicks.max_position + 1)
    truth = ClickParameters.of_trust(user.observation(positions), *user.trust(positions))
    attractive = attraction(judged, noise=noise, gain=gain)
    plus, minus = user.trust(np.ones(1, dtype=np.int64))
    first = user.observation(np.ones(1, dtype=np.int64)) * (plus * attractive + minus * (1 - attractive))
    return clicks, truth, first[np.unique(clicks.rows)]
