"""Neural click models on logs whose truth is a function of features: what is found again, and what it gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.dbn import BayesianUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Shown, User
from clickprism.debias.click_model import ClickModelLearner, NeuralClickModel
from clickprism.evaluation.clicks import log_likelihood, perplexity
from clickprism.rankers.linear import Linear
from clickprism.training.network import train
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Lists

WEIGHTS, INTERCEPT = np.array([1.0, -0.7, 0.4]), -0.5
QUERIES, LENGTH = 400, 6
FIT = FitSettings(epochs=40, batch_size=4096, optimiser="adam", learning_rate=0.05, threads=1)


def lists_of(seed: int) -> Lists:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(QUERIES * LENGTH, 3)).astype(np.float32)
    return Lists(features, np.arange(QUERIES + 1) * LENGTH, np.array([str(i) for i in range(QUERIES)]))


def attraction_of(lists: Lists) -> Float64:
    return np.asarray(1 / (1 + np.exp(-(lists.features @ WEIGHTS + INTERCEPT))))


def clicks_of(user: User, *, sessions: int, seed: int, by: float = 0.0) -> Clicks:
    """Each session shows a query's documents in one of three orders, of `by` times the truth plus noise."""
    lists, rng = lists_of(seed), np.random.default_rng(seed + 100)
    truth = (lists.features @ WEIGHTS).reshape(QUERIES, LENGTH)
    orders = np.argsort(rng.normal(size=(3, QUERIES, LENGTH)) - by * truth, axis=-1)
    query, order = rng.integers(QUERIES, size=sessions), rng.integers(3, size=sessions)
    rows = (query[:, None] * LENGTH + orders[order, query]).ravel()
    offsets = np.arange(sessions + 1) * LENGTH
    shown = Shown(lists, offsets, rows, attraction_of(lists)[rows].astype(np.float32))
    clicked = user.click(shown, seed=seed).clicks.astype(np.int64)
    ones = np.ones(sessions, dtype=np.int64)
    return Clicks(lists, offsets, rows, shown.positions.astype(np.int32), clicked, ones).merge(by="pattern")


def fitted(log: Clicks, model: str, *, observation_rate: float = 1.0, **settings: Any) -> ClickModelLearner:
    method = NeuralClickModel(model=model, observation_rate=observation_rate, **settings)  # type: ignore[arg-type]
    learner, _, _ = train(
        log, method=method, ranker=Linear(), settings=FIT, validation=None, out=None, resume=False, show=False
    )
    assert isinstance(learner, ClickModelLearner)
    return learner


def linear(network: torch.nn.Module, *, odds: float = 0.0) -> Float64:
    """The weights of a linear network, then its intercept."""
    weight, intercept = (each.detach().numpy().ravel() for each in network.parameters())
    return np.asarray([*weight, intercept[0] + odds])


def parameters(learner: ClickModelLearner) -> Float64:
    return np.asarray(torch.sigmoid(learner.browsing.odds).detach().numpy())


TRUTH = [*WEIGHTS, INTERCEPT]
CURVE = (1.0, 0.61, 0.48, 0.34, 0.28, 0.20)


def test_position_based_users_are_recovered() -> None:
    learner = fitted(clicks_of(PositionUser(curve=CURVE), sessions=40_000, seed=1), "pbm")
    assert linear(learner.ranker, odds=learner.odds) == pytest.approx(TRUTH, abs=0.08)
    assert learner.observation() == pytest.approx(CURVE, abs=0.02)


def test_click_chain_users_are_recovered() -> None:
    user = ClickChainUser.informational(after_skip=0.8)
    learner = fitted(clicks_of(user, sessions=40_000, seed=1), "ccm")
    assert linear(learner.ranker, odds=learner.odds) == pytest.approx(TRUTH, abs=0.08)
    assert parameters(learner) == pytest.approx([0.8, 0.40, 0.27], abs=0.04)


def test_bayesian_users_whose_satisfaction_depends_on_features_are_recovered() -> None:
    user = BayesianUser(perseverance=0.8, satisfaction=1.0)
    log = clicks_of(user, sessions=40_000, seed=1)
    learner = fitted(log, "dbn")
    assert linear(learner.ranker, odds=learner.odds) == pytest.approx(TRUTH, abs=0.08)
    assert learner.satisfaction is not None
    assert linear(learner.satisfaction) == pytest.approx(TRUTH, abs=0.12)
    assert parameters(learner) == pytest.approx([0.8], abs=0.01)
    assert learner.observation() == pytest.approx(observed_of(user, log), abs=0.01)


def test_browsing_users_need_their_own_model() -> None:
    """Beside pbm, ubm predicts held-out clicks better, given the clicks above and not.

    As rankers the two hardly differ: the last click has little to do with the document that stands below it.
    """
    user = BrowsingUser()
    log, held_out = (clicks_of(user, sessions=count, seed=seed, by=1.0) for count, seed in ((40_000, 1), (10_000, 2)))
    ubm, pbm = fitted(log, "ubm", observation_rate=5.0), fitted(log, "pbm", observation_rate=5.0)
    assert parameters(ubm)[5, [0, 1, 2, 3]] == pytest.approx([0.54, 0.22, 0.40, 0.63], abs=0.06)
    assert ubm.observation() == pytest.approx(observed_of(user, log), abs=0.03)
    likelihoods = [log_likelihood(each.conditional_probability(held_out), held_out) for each in (ubm, pbm)]
    assert likelihoods[0] > likelihoods[1] + 0.03
    perplexities = [perplexity(each.click_probability(held_out), held_out).mean() for each in (ubm, pbm)]
    assert perplexities[0] < perplexities[1]
    errors = [np.abs(linear(each.ranker, odds=each.odds) - TRUTH).max() for each in (ubm, pbm)]
    assert max(errors) < 0.08


def observed_of(user: User, log: Clicks) -> Float64:
    """The true share that is seen at each position of a log."""
    chosen = np.repeat(np.arange(len(log)), log.impressions)
    rows = log.rows.reshape(-1, LENGTH)[chosen].ravel()
    shown = Shown(log.lists, np.arange(len(chosen) + 1) * LENGTH, rows, attraction_of(log.lists)[rows].astype("f4"))
    return np.asarray(user.click(shown, seed=9).observed.reshape(-1, LENGTH).mean(axis=0))


@pytest.mark.parametrize(("user", "model"), [(BrowsingUser(), "ubm"), (BayesianUser(perseverance=0.8), "dbn")])
def test_clicks_per_exposure_are_the_attraction(user: User, model: str) -> None:
    """Under the true parameters, at each position: sum of clicks = sum of a x exposure, within 4 standard errors."""
    log = clicks_of(user, sessions=40_000, seed=1)
    learner = NeuralClickModel(model=model).learner(Linear().build(3), log)  # type: ignore[arg-type]
    table = np.array(BrowsingUser().observation(np.arange(1, 7)[:, None], np.tril(np.tile(np.arange(6), (6, 1)))))
    with torch.no_grad():
        for network in (learner.ranker, learner.satisfaction):
            if network is not None:
                weight, intercept = network.parameters()
                weight.copy_(torch.from_numpy(WEIGHTS)[None])
                intercept.fill_(INTERCEPT)
        learner.odds = 0.0
        learner.browsing.odds.copy_(torch.logit(torch.from_numpy(table if model == "ubm" else np.array([0.8]))))
    expected = attraction_of(log.lists)[log.rows] * learner.exposure(log)
    for position in range(1, LENGTH + 1):
        here = log.positions == position
        clicks, total = log.clicks[here].sum(), expected[here].sum()
        assert abs(clicks - total) < 4 * np.sqrt(total)
