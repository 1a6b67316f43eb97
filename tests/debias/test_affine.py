"""The affine correction: weights by hand, a loss that stays bounded, curves from the log, what experiments tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from clickprism.click_models.trust import TrustUser
from clickprism.debias.ipw import AffineCorrection, InversePropensity
from clickprism.debias.loop import pad
from clickprism.errors import DataError, SettingError
from clickprism.experiments.settings import ExperimentSettings
from clickprism.experiments.train import make_method, true_trust, uses_truth
from clickprism.rankers.linear import Linear
from clickprism.types import Clicks, Lists

ALPHA, BETA = (0.4, 0.2, 0.1), (0.3, 0.1, 0.0)


def log_of(clicks: list[int], impressions: int = 10) -> Clicks:
    """Three documents whose only feature is their log relevance: log 2, log 1, log 4."""
    features = np.log(np.array([[2.0], [1.0], [4.0]], dtype=np.float32))
    lists = Lists(features, np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array(clicks), np.array([impressions]))


def loss(method: AffineCorrection, log: Clicks, weight: float = 1.0) -> float:
    learner = method.learner(Linear().build(1), log)
    with torch.no_grad():
        next(learner.ranker.parameters()).fill_(weight)
    return learner.loss(pad(log, np.arange(1)))["ranking"].item()


def test_the_loss_agrees_with_a_calculation_by_hand() -> None:
    """w = (5 - 3) / 1, (0 - 1) / .5 and (2 - 0) / .25; softmax 2/7, 1/7, 4/7."""
    shares, weights = (2 / 7, 1 / 7, 4 / 7), (2, -2, 8)
    for bound in (0.0, 0.1):
        expected = -sum(w * math.log((s + bound) / (1 + bound)) for w, s in zip(weights, shares, strict=True))
        assert loss(AffineCorrection(ALPHA, BETA, bound=bound), log_of([5, 0, 2])) == pytest.approx(expected, rel=1e-5)


def test_without_trust_and_bound_it_is_ipw() -> None:
    log = log_of([5, 1, 2])
    given = InversePropensity(ALPHA).learner(Linear().build(1), log)
    affine = AffineCorrection(ALPHA, (0.0, 0.0, 0.0), bound=0.0).learner(Linear().build(1), log)
    batch = pad(log, np.arange(1))
    for learner in (given, affine):
        with torch.no_grad():
            next(learner.ranker.parameters()).fill_(1.0)
    assert affine.loss(batch)["ranking"].item() == pytest.approx(given.loss(batch)["ranking"].item(), rel=1e-5)
    difference = affine.click_logits(batch) - given.click_logits(batch)
    assert torch.allclose(difference, difference[:, :1].expand_as(difference), atol=1e-5)
    assert affine.exposure(log).tolist() == pytest.approx(given.exposure(log).tolist())
    assert not affine.background(log).any()


def test_the_bound_holds_where_plain_cross_entropy_runs_away() -> None:
    """A document with a negative weight and the lowest score: pushed down for ever, at no gain with a bound."""
    log = log_of([5, 0, 2])
    plain = [loss(AffineCorrection(ALPHA, BETA, bound=0.0), log, weight) for weight in (-10.0, -20.0)]
    assert plain[1] > plain[0] > 0  # the wrong way round costs ever more
    negative = log_of([3, 0, 3])
    method = AffineCorrection(ALPHA, BETA, bound=0.0)
    falling = [loss(method, negative, weight) for weight in (5.0, 10.0, 20.0)]
    assert falling[0] > falling[1] + 1 > falling[2] + 2
    bounded = [loss(AffineCorrection(ALPHA, BETA), negative, weight) for weight in (10.0, 20.0, 40.0)]
    assert bounded[1] == pytest.approx(bounded[0], abs=0.1)
    assert bounded[2] == pytest.approx(bounded[1], abs=1e-3)


def test_background_and_click_probabilities() -> None:
    """Mean relevance (7 - 4) / (10 + 5 + 2.5): three documents share three times that by their softmax."""
    log = log_of([5, 0, 2])
    learner = AffineCorrection(ALPHA, BETA).learner(Linear().build(1), log)
    assert learner.background(log).tolist() == pytest.approx([3, 1, 0])
    assert learner.exposure(log).tolist() == pytest.approx([10, 5, 2.5])
    chance = learner.click_logits(pad(log, np.arange(1))).exp()[0]
    mean = 3 / 17.5
    assert chance.tolist() == pytest.approx([mean + 0.3, 0.5 * mean + 0.1, 0.25 * mean], rel=1e-4)


def test_wrong_settings_are_refused() -> None:
    for field, settings in (
        ("alpha", {"alpha": (0.0,), "beta": (0.1,)}),
        ("beta", {"alpha": (0.5,), "beta": (1.0,)}),
        ("beta", {"alpha": (0.5, 0.2), "beta": (0.1,)}),
        ("estimate", {"estimate": "guess"}),
        ("estimate", {"alpha": (0.5,), "beta": (0.1,), "estimate": "trust"}),
        ("floor", {"floor": 2.0}),
        ("bound", {"bound": -1.0}),
    ):
        with pytest.raises(SettingError, match=f"{field} must"):
            AffineCorrection(**settings)
    with pytest.raises(SettingError, match="one value for each of the 3 positions"):
        AffineCorrection(ALPHA[:2], BETA[:2]).learner(Linear().build(1), log_of([5, 1, 1]))
    with pytest.raises(DataError, match="beta explains more clicks than there are"):
        AffineCorrection(ALPHA, BETA).learner(Linear().build(1), log_of([2, 0, 1]))
    with pytest.raises(DataError, match="no document links position 2 to position 1"):
        AffineCorrection(estimate="trust").learner(Linear().build(1), log_of([5, 1, 1]))
    with pytest.raises(SettingError, match="estimate must be 'none' where propensities are given"):
        InversePropensity(ALPHA, estimate="allpairs")


def shuffled(queries: int, sessions: int) -> Clicks:
    """Four documents of each query in every cyclic order, under a position-based user with curve 1, .6, .4, .2."""
    rng, places = np.random.default_rng(0), 4
    lists = Lists(
        np.zeros((queries * places, 1), np.float32),
        np.arange(0, queries * places + 1, places),
        np.array([f"q{query}" for query in range(queries)]),
    )
    order = (np.arange(places)[:, None] + np.arange(places)) % places
    rows = (np.arange(queries)[:, None, None] * places + order).ravel()
    positions = np.tile(np.arange(1, places + 1, dtype=np.int32), queries * places)
    chance = rng.uniform(0.1, 0.9, queries * places)[rows] * np.array([1, 0.6, 0.4, 0.2])[positions - 1]
    return Clicks(
        lists,
        np.arange(0, len(rows) + 1, places),
        rows,
        positions,
        rng.binomial(sessions, chance),
        np.full(queries * places, sessions),
    )


@pytest.mark.parametrize("estimate", ["allpairs", "log_model"])
def test_propensities_come_from_the_log(estimate: str) -> None:
    """1,600 documents, 200 impressions of each at every position: to 2%."""
    log = shuffled(400, 200)
    learner = InversePropensity(estimate=estimate).learner(Linear().build(1), log)  # type: ignore[arg-type]
    assert learner.observation() == pytest.approx([1, 0.6, 0.4, 0.2], rel=0.02)
    with pytest.raises(DataError):
        InversePropensity(estimate=estimate).learner(Linear().build(1), log_of([5, 1, 1]))  # type: ignore[arg-type]


def test_experiments_tell_the_truth_to_those_only_who_neither_have_nor_estimate_it() -> None:
    methods: dict[str, dict[str, object]] = {
        "affine": {},
        "ipw": {},
        "guess": {"name": "affine", "estimate": "trust"},
        "harvest": {"name": "ipw", "estimate": "allpairs"},
        "given": {"name": "affine", "alpha": [1.0], "beta": [0.1]},
    }
    settings = ExperimentSettings(user={"name": "trust"}, methods=methods)
    told = [label for label in settings.methods if uses_truth(settings, label)]
    assert told == ["affine", "ipw"]
    seen, positions = np.array([0.7, 0.6]), np.array([1, 2])
    trust = true_trust(settings)
    plus, minus = TrustUser().trust(positions)
    method = make_method(settings, "affine", truth=seen, trust=trust)
    assert method.alpha == pytest.approx(seen * (plus - minus))
    assert method.beta == pytest.approx(seen * minus)
    assert make_method(settings, "guess", truth=seen, trust=trust).alpha == ()
    assert make_method(settings, "harvest", truth=seen, trust=trust).propensities == ()
    assert make_method(settings, "given", truth=seen, trust=trust).alpha == (1.0,)
    assert make_method(settings, "affine", truth=seen).alpha == ()  # a log from a file does not tell its trust
    plain = ExperimentSettings(methods={"affine": {}})
    method = make_method(plain, "affine", truth=seen, trust=true_trust(plain))
    assert method.alpha == pytest.approx(seen)
    assert method.beta == (0.0, 0.0)
