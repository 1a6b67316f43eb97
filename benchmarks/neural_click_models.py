"""Users who browse by the click models, embedded data: what the matching model wins in ranking and in prediction.

The embedded data: 3000 training queries with 100 sessions each, lists of 10 by the usual ranking SVM on 1% of labels.
MLP 64-32, best epoch by nDCG on 500 judged validation queries; nDCG(exp)@10 on 2000 test queries, perplexity on 20,000
sessions of the validation queries. click and dla, which see merged lists, take the better of two learning rates by the
validation. All figures go to stderr; the lines are the matching model against click, and against pbm.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.base import Result
from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.dbn import BayesianUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.base import Learner
from clickprism.debias.click import Click
from clickprism.debias.click_model import ClickModelLearner, NeuralClickModel
from clickprism.debias.dla import DualLearning
from clickprism.evaluation.clicks import evaluate_clicks
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.experiments.train import judged_validation
from clickprism.model import network_scores
from clickprism.rankers.mlp import MLP
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.training.network import train
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Dataset, JudgedLists

MEASURE = Measure.parse("nDCG(exp)@10")
USERS: dict[str, Any] = {"ubm": BrowsingUser(), "ccm": ClickChainUser.informational(), "dbn": BayesianUser()}
SEEDS = (0, 1)
LISTS = FitSettings(epochs=60, patience=15, threads=1)
PATTERNS = replace(LISTS, epochs=30, patience=10, batch_size=1024, learning_rate=0.01)
RATE = 50.0  # of the observation, as a multiple


def run() -> list[Result]:
    """Every user, method and seed."""
    results = []
    for name, user in USERS.items():
        methods = {
            "click": Click(),
            "dla": DualLearning(),
            "pbm": NeuralClickModel(model="pbm", observation_rate=RATE),
            name: NeuralClickModel(model=name, observation_rate=RATE),  # type: ignore[arg-type]
        }
        found = {label: [one(user, method, seed) for seed in SEEDS] for label, method in methods.items()}
        means = {label: np.mean(figures, axis=0) for label, figures in found.items()}
        for label, mean in means.items():
            each = " ".join(f"{figures[0]:.4f}" for figures in found[label])
            print(f"{name} users, {label:5}: {MEASURE} {mean[0]:.4f} ({each}); ", end="", file=sys.stderr)
            print(f"perplexity {mean[1]:.4f}, conditional {mean[2]:.4f}, LL {mean[3]:.4f}", file=sys.stderr, flush=True)
        results += [
            Result(f"{name} users: {name} {MEASURE}", means[name][0], means["click"][0], 1.0, "peer: click"),
            Result(f"{name} users: conditional perplexity", means[name][2], means["pbm"][2], 1.0, "peer: pbm", False),
        ]
    return results


def one(user: Any, method: Any, seed: int) -> list[float]:
    """The measure, and mean perplexity, conditional perplexity and log-likelihood per session, NaN without a model."""
    data, log, held_out = world(user, seed)

    def trained(settings: FitSettings) -> tuple[float, Learner]:
        learner, progress, _ = train(
            log if method.needs_patterns else log.merge(),
            method=method,
            ranker=MLP(hidden=(64, 32)),
            settings=replace(settings, seed=seed),
            validation=judged_validation(data.validation, str(MEASURE)),
            out=None,
            resume=False,
            show=False,
        )
        return progress.best_value or 0.0, learner

    tried = [PATTERNS] if method.needs_patterns else [LISTS, replace(LISTS, learning_rate=0.01)]
    learner = max((trained(settings) for settings in tried), key=lambda pair: pair[0])[1]
    test = data.test
    value = evaluate(test, network_scores(learner.ranker, test.lists.features), MEASURE).mean(MEASURE)
    if not isinstance(learner, ClickModelLearner):
        return [value, np.nan, np.nan, np.nan]
    predicted = evaluate_clicks(learner, held_out)
    return [value, predicted.mean_perplexity, predicted.mean_conditional_perplexity, predicted.log_likelihood]


def world(user: Any, seed: int) -> tuple[Dataset, Clicks, Clicks]:
    """The data, the log, and clicks on the validation queries by the same users in the ranking of the same ranker."""
    data = synthetic(SyntheticSettings(train_queries=3000, validation_queries=500, test_queries=2000, seed=seed))
    made = SimulationSettings(merge="pattern", max_grade=data.train.max_grade)
    initial = made.initial.fit(data.train, seed=seed)

    def clicks(part: JudgedLists, sessions: int, own: int) -> Clicks:
        scores = initial(part.lists.features)
        return simulate(part, user, sessions=sessions, seed=own, settings=made, scores=scores).clicks

    return data, clicks(data.train, 300_000, 10 + seed), clicks(data.validation, 20_000, 20 + seed)
