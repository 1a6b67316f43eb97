"""Training on merged lists: the same epochs on ten times the sessions, and the share of a bare loop's speed."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.base import Result, seconds
from clickprism.click_models.pbm import PositionUser
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.dla import DualLearning
from clickprism.rankers.mlp import MLP
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks

SETTINGS = FitSettings(epochs=10, threads=1)
RANKER = MLP(hidden=(64, 32))


def run() -> list[Result]:
    """Ten times the sessions may cost 1.2 times the training; repeated exactly, they must give the same loss."""
    data = synthetic(SyntheticSettings(train_queries=1000, validation_queries=10, test_queries=10))
    each = SimulationSettings(frequency="each")
    one, ten = (
        simulate(data.train, PositionUser(), sessions=count, seed=0, settings=each).clicks for count in (100, 1000)
    )
    train(one)
    once, tenfold = (seconds(lambda log=log: train(log)) for log in (one, ten))  # type: ignore[misc]
    repeated = replace(one, clicks=one.clicks * 10, impressions=one.impressions * 10)
    worst = max(abs(a / b - 1) for a, b in zip(train(one), train(repeated), strict=True))
    return [
        Result("training time, sessions x 10", tenfold, once, 1 / 1.2, "s; peer: sessions x 1", higher_is_better=False),
        Result("loss, log x 10: relative change", max(worst, 1e-12), 1e-6, 1.0, "limit: 1e-6", higher_is_better=False),
    ]


def train(log: Clicks) -> list[float]:
    """The loss of each epoch."""
    fitted = fit(log, method=DualLearning(), ranker=RANKER, settings=SETTINGS, show=False)
    return [sum(record.loss.values()) for record in fitted.history]
