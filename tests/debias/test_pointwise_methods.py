"""Regression-EM and PAL: arithmetic by hand, enumeration of the hidden states, forms that agree, settings."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from clickprism.debias.loop import pad
from clickprism.debias.losses import log_click, start_odds
from clickprism.debias.position_based import PositionAware, RegressionEM, RegressionLearner
from clickprism.errors import SettingError
from clickprism.rankers.linear import Linear
from clickprism.types import Batch, Clicks, Lists

RELEVANCE, THETA = (0.8, 0.5, 0.2), (0.9, 0.6, 0.3)


def log_odds(value: float) -> float:
    return math.log(value / (1 - value))


def log_of(clicks: list[int], impressions: int) -> Clicks:
    """Three documents whose only feature is the log odds of their relevance."""
    features = np.array([[log_odds(r)] for r in RELEVANCE], dtype=np.float32)
    lists = Lists(features, np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array(clicks), np.array([impressions]))


def at(form: Literal["likelihood", "drawn"], clicks: Clicks) -> tuple[RegressionLearner, Batch]:
    """A learner whose s(f) is the relevance above and whose theta is that above."""
    learner = RegressionEM(form=form).learner(Linear().build(1), clicks)
    with torch.no_grad():
        weight, bias = learner.ranker.parameters()
        weight.fill_(1.0)
        bias.fill_(-learner.base_odds)
        learner.theta.copy_(torch.tensor(THETA))
    return learner, pad(clicks, np.arange(1))


def posterior(r: float, theta: float) -> tuple[float, float]:
    """P(relevant | skip) and P(seen | skip), by going through all that may have happened."""
    relevant = seen = total = 0.0
    for is_relevant, is_seen in itertools.product((0, 1), repeat=2):
        chance = (r if is_relevant else 1 - r) * (theta if is_seen else 1 - theta)
        if not (is_relevant and is_seen):
            total, relevant, seen = total + chance, relevant + chance * is_relevant, seen + chance * is_seen
    return relevant / total, seen / total


def test_the_settings_of_ultra_start_at_even_odds_and_take_a_twentieth_of_a_step() -> None:
    log = log_of([3, 1, 0], 4)
    learner = RegressionEM.ultra().learner(Linear().build(1), log)
    assert learner.base_odds == 0
    batch = pad(log, np.arange(1))
    looked, shown = learner.statistics(batch)
    learner.update(torch.stack([looked, shown]))
    assert learner.theta.tolist() == pytest.approx((0.95 * 0.9 + 0.05 * looked / shown).tolist())
    assert set(learner.loss(batch)) == {"relevance"}


def test_the_likelihood_by_hand() -> None:
    learner, batch = at("likelihood", log_of([3, 1, 0], 4))
    chances = [r * t for r, t in zip(RELEVANCE, THETA, strict=True)]
    expected = -sum(c * math.log(p) + (4 - c) * math.log(1 - p) for c, p in zip((3, 1, 0), chances, strict=True))
    assert learner.loss(batch)["clicks"].item() == pytest.approx(expected, rel=1e-5)


def test_one_step_of_em_by_hand() -> None:
    learner, batch = at("likelihood", log_of([3, 1, 0], 4))
    sums = learner.statistics(batch)
    seen = [c + (4 - c) * posterior(r, t)[1] for c, r, t in zip((3, 1, 0), RELEVANCE, THETA, strict=True)]
    assert sums[0].tolist() == pytest.approx(seen, rel=1e-5)
    assert sums[1].tolist() == [4, 4, 4]
    learner.update(sums)
    moved = [t + 0.5 * (s / 4 - t) for s, t in zip(seen, THETA, strict=True)]
    assert learner.theta.tolist() == pytest.approx(moved, rel=1e-5)
    assert learner.observation().tolist() == pytest.approx([m / moved[0] for m in moved], rel=1e-5)


def test_an_update_does_not_depend_on_how_often_the_batch_is_repeated_and_spares_absent_positions() -> None:
    learner, batch = at("likelihood", log_of([3, 1, 0], 4))
    other, _ = at("likelihood", log_of([3, 1, 0], 4))
    learner.update(learner.statistics(batch))
    other.update(7 * other.statistics(batch))
    assert learner.theta.tolist() == pytest.approx(other.theta.tolist(), rel=1e-6)
    before = learner.theta[2].item()
    short = replace(batch, mask=torch.tensor([[True, True, False]]))
    learner.update(learner.statistics(short))
    assert learner.theta[2].item() == before


def test_the_forms_have_the_same_gradient_and_draws_have_it_on_average() -> None:
    """Fisher's identity; the draws within five standard errors."""
    gradients = {}
    forms: tuple[Literal["likelihood", "drawn"], ...] = ("likelihood", "drawn")
    for form in forms:
        learner, batch = at(form, log_of([3, 1, 0], 4))
        several = []
        torch.manual_seed(0)
        for _ in range(400 if form == "drawn" else 1):
            loss = next(iter(learner.loss(batch).values()))
            several.append(torch.autograd.grad(loss, list(learner.ranker.parameters())))
        gradients[form] = torch.stack([torch.cat([part.ravel() for part in one]) for one in several])
    exact = gradients["likelihood"][0]
    error = gradients["drawn"].std(0) / math.sqrt(400)
    assert ((gradients["drawn"].mean(0) - exact).abs() < 5 * error).all()
    assert (error > 0).all()


def test_pal_has_the_likelihood_of_the_same_model() -> None:
    clicks = log_of([3, 1, 0], 4)
    learner = PositionAware().learner(Linear().build(1), clicks)
    with torch.no_grad():
        weight, bias = learner.ranker.parameters()
        weight.fill_(1.0)
        bias.fill_(-learner.base_odds)
        learner.seen.copy_(torch.tensor([log_odds(t) for t in THETA]))
    em, batch = at("likelihood", clicks)
    assert learner.loss(batch)["clicks"].item() == pytest.approx(em.loss(batch)["clicks"].item(), rel=1e-5)
    assert learner.observation().tolist() == pytest.approx([1, 2 / 3, 1 / 3], rel=1e-5)
    assert not learner.background(clicks).any()


def test_pal_with_trust_by_hand() -> None:
    """theta eps+ = .9, .6, .3 and eps- / eps+ = .5, .25, .1."""
    clicks, ratio = log_of([3, 1, 0], 4), (0.5, 0.25, 0.1)
    learner = PositionAware(trust=True).learner(Linear().build(1), clicks)
    assert learner.false is not None
    with torch.no_grad():
        weight, bias = learner.ranker.parameters()
        weight.fill_(1.0)
        bias.fill_(-learner.base_odds)
        learner.seen.copy_(torch.tensor([log_odds(t) for t in THETA]))
        learner.false.copy_(torch.tensor([log_odds(m) for m in ratio]))
    chances = [t * (r + m * (1 - r)) for t, r, m in zip(THETA, RELEVANCE, ratio, strict=True)]
    expected = -sum(c * math.log(p) + (4 - c) * math.log(1 - p) for c, p in zip((3, 1, 0), chances, strict=True))
    batch = pad(clicks, np.arange(1))
    assert learner.loss(batch)["clicks"].item() == pytest.approx(expected, rel=1e-5)
    assert learner.click_logits(batch).exp()[0].tolist() == pytest.approx(chances, rel=1e-5)
    assert learner.observation().tolist() == pytest.approx([1, 0.45 / 0.45, 0.27 / 0.45], rel=1e-5)
    assert learner.background(clicks).tolist() == pytest.approx([4 * 0.45, 4 * 0.15, 4 * 0.03], rel=1e-5)
    assert [rate for rate, _ in learner.rates()] == [1, 20]


def test_extreme_scores_keep_their_logarithms() -> None:
    """1 - theta s is 1 - theta for a sure relevance, 1 for none: no logarithm of 0."""
    theta = torch.tensor([0.25, 0.25], dtype=torch.float64)
    clicked, skipped = log_click(torch.tensor([800.0, -800.0]).double(), theta.log(), torch.log1p(-theta))
    assert clicked.tolist() == pytest.approx([math.log(0.25), math.log(0.25) - 800])
    assert skipped.tolist() == pytest.approx([math.log(0.75), 0])


def test_scores_start_from_the_mean_click_rate() -> None:
    """4 clicks in 12 impressions, half of them seen: 2 of 3 are relevant. No click at all is no reason to despair."""
    assert start_odds(log_of([3, 1, 0], 4), 0.5) == pytest.approx(math.log(2))
    assert math.isfinite(start_odds(log_of([0, 0, 0], 4), 0.5))
    assert math.isfinite(start_odds(log_of([4, 4, 4], 4), 0.5))


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (RegressionEM, "form", "hard"),
        (RegressionEM, "step", 0.0),
        (RegressionEM, "step", 1.5),
        (RegressionEM, "start", 1.0),
        (PositionAware, "start", 0.0),
        (PositionAware, "observation_rate", float("inf")),
        (PositionAware, "trust_rate", -1.0),
    ],
)
def test_settings_are_checked(make: type, field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must"):
        make(**{field: value})
