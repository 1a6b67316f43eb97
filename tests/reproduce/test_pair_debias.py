"""PairDebias: losses, costs and biases by hand, sessions against patterns, positions that were never clicked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from clickprism.debias.loop import pad
from clickprism.errors import DataError, SettingError
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Lists
from reproduce.common.pair_debias import PairDebias, PairLearner

SCORES = (1.0, 0.0, 2.0)
BIAS, SKIP = (1.0, 0.5, 0.25), (1.0, 0.8, 0.6)


def log_of(clicks: list[int], impressions: int = 2) -> Clicks:
    """Three documents whose only feature is their score."""
    lists = Lists(np.array(SCORES, dtype=np.float32)[:, None], np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array(clicks), np.array([impressions]))


def learner_of(settings: PairDebias, clicks: Clicks) -> PairLearner:
    learner = settings.learner(Linear().build(1), clicks)
    with torch.no_grad():
        next(learner.ranker.parameters()).fill_(1.0)
        learner.clicked.copy_(torch.tensor(BIAS))
        learner.skipped.copy_(torch.tensor(SKIP))
    return learner


def pair(i: int, j: int) -> float:
    return math.log1p(math.exp(SCORES[j] - SCORES[i]))


def test_the_loss_by_hand() -> None:
    """Clicked 1 and 3, not 2: two pairs, (1, 2) and (3, 2), in two sessions each."""
    log = log_of([2, 0, 2])
    expected = 2 * pair(0, 1) / (1 * 0.8) + 2 * pair(2, 1) / (0.25 * 0.8)
    loss = learner_of(PairDebias(), log).loss(pad(log, np.arange(1)))
    assert loss["ranking"].item() == pytest.approx(expected, rel=1e-6)


def test_costs_and_biases_by_hand() -> None:
    """A step of .5 goes half the way to the roots of the ratios (p = 1)."""
    log = log_of([2, 2, 0])
    learner = learner_of(PairDebias(step=0.5), log)
    sums = learner.statistics(pad(log, np.arange(1)))
    first, second = 2 * pair(0, 2), 2 * pair(1, 2)
    assert sums[0].tolist() == pytest.approx([first / 0.6, second / 0.6, 0], rel=1e-6)
    assert sums[1].tolist() == pytest.approx([0, 0, first / 1 + second / 0.5], rel=1e-6)
    learner.update(sums)
    expected = [1, (0.5 + math.sqrt(second / first)) / 2, 0.25 / 2]
    assert learner.observation().tolist() == pytest.approx(expected, rel=1e-6)
    assert learner.skipped.tolist() == pytest.approx(SKIP)  # no skip at position 1 to compare with


def test_a_batch_that_tells_nothing_leaves_the_biases() -> None:
    log = log_of([0, 2, 0])
    learner = learner_of(PairDebias(), log)
    learner.update(learner.statistics(pad(log, np.arange(1))))
    assert learner.clicked.tolist() == pytest.approx(BIAS)
    empty = replace(pad(log, np.arange(1)), clicks=torch.zeros(1, 3))
    assert learner.loss(empty)["ranking"].item() == 0
    learner.update(learner.statistics(empty))
    assert torch.isfinite(learner.clicked).all()


def test_a_log_that_forgot_what_was_clicked_together_is_refused() -> None:
    settings = FitSettings(epochs=1, threads=1)
    with pytest.raises(DataError, match="must know what was clicked together"):
        fit(log_of([1, 1, 0]), method=PairDebias(), ranker=Linear(), settings=settings)


@pytest.mark.parametrize(("field", "value"), [("p", -1.0), ("step", 0.0), ("floor", 0.0)])
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must"):
        PairDebias(**{field: value})  # type: ignore[arg-type]
