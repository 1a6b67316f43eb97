"""DLA's losses by hand, with logits that are not zero and weights that are cut; IPW's curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from clickprism.debias.dla import DualLearning
from clickprism.debias.ipw import InversePropensity
from clickprism.debias.loop import pad
from clickprism.errors import SettingError
from clickprism.rankers.linear import Linear
from clickprism.types import Clicks, Lists


def one_list(clicks: list[int]) -> Clicks:
    """Three documents whose only feature is their log relevance: log 2, log 1, log 4."""
    features = np.log(np.array([[2.0], [1.0], [4.0]], dtype=np.float32))
    lists = Lists(features, np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array(clicks), np.array([max(clicks)]))


def losses(method: DualLearning, clicks: list[int]) -> dict[str, float]:
    log = one_list(clicks)
    learner = method.learner(Linear().build(1), log)
    with torch.no_grad():
        next(learner.ranker.parameters()).fill_(1.0)
        learner.log_observation.copy_(torch.log(torch.tensor([1.0, 0.5, 0.25])))
    return {name: part.item() for name, part in learner.loss(pad(log, np.arange(1))).items()}


def test_both_losses_by_hand() -> None:
    """r = 2, 1, 4 of 7 and o = 4, 2, 1 of 7; a click at position 3 weighs o_1 / o_3 = 4 and r_1 / r_3 = 1/2."""
    found = losses(DualLearning(), [3, 0, 1])
    assert found["ranking"] == pytest.approx(-3 * math.log(2 / 7) - 4 * math.log(4 / 7), rel=1e-5)
    assert found["observation"] == pytest.approx(-3 * math.log(4 / 7) - 0.5 * math.log(1 / 7), rel=1e-5)


def test_weights_are_cut_at_the_limit() -> None:
    found = losses(DualLearning(max_weight=1.5), [0, 1, 1])
    assert found["ranking"] == pytest.approx(-1.5 * math.log(1 / 7) - 1.5 * math.log(4 / 7), rel=1e-5)
    assert found["observation"] == pytest.approx(-1.5 * math.log(2 / 7) - 0.5 * math.log(1 / 7), rel=1e-5)


def test_the_observation_is_relative_to_the_first_position() -> None:
    learner = DualLearning().learner(Linear().build(1), one_list([1, 0, 0]))
    with torch.no_grad():
        learner.log_observation.copy_(torch.tensor([1.0, 0.0, 1.0]))
    assert learner.observation() == pytest.approx([1.0, math.exp(-1), 1.0])


def test_the_settings_of_ultra_hold_the_logits_above_minus_one_and_cut_no_weight() -> None:
    """g = (1, 0, -log 2) becomes ELU(g) = (1, 0, -1/2): o_1 / o_3 is e^1.5, and r_1 / r_2 = 2."""
    log = one_list([0, 1, 1])
    learner = DualLearning.ultra().learner(Linear().build(1), log)
    with torch.no_grad():
        next(learner.ranker.parameters()).fill_(1.0)
        learner.logits.copy_(torch.tensor([1.0, 0.0, -math.log(2)]))
    assert learner.observation() == pytest.approx([1.0, math.exp(-1), math.exp(-1.5)])
    found = learner.loss(pad(log, np.arange(1)))["ranking"].item()
    assert found == pytest.approx(-math.e * math.log(1 / 7) - math.exp(1.5) * math.log(4 / 7), rel=1e-5)
    with pytest.raises(SettingError, match="link must be one of free, elu"):
        DualLearning(link="exp")  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["max_weight", "observation_rate"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_settings_are_checked(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"{field} must"):
        DualLearning(**{field: value})  # type: ignore[arg-type]


def test_propensities_may_be_any_curve_that_has_a_first_value() -> None:
    log = one_list([2, 1, 0])
    curve = InversePropensity(tuple(np.array([0.5, 0.51, 0.0])))
    assert curve.propensities == (0.5, 0.51, 0.0)
    assert curve.learner(Linear().build(1), log).observation()[:2] == pytest.approx([1.0, 1.02])
    for wrong in ((0.0, 1.0, 1.0), (1.0, -0.1, 1.0), (1.0, float("nan"), 1.0)):
        with pytest.raises(SettingError, match="propensities must be finite, not negative, and above 0 at position 1"):
            InversePropensity(wrong)
    with pytest.raises(SettingError, match="be above 0 at position 3, where the log has clicks; a floor does that"):
        curve.learner(Linear().build(1), one_list([2, 1, 1]))
    with pytest.raises(SettingError, match="one value for each of the 3 positions"):
        InversePropensity((1.0, 0.5)).learner(Linear().build(1), log)
