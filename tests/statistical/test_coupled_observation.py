"""LBD on simulated truth: documents whose relevance also says how well they are seen.

Log relevance is linear, and so is the exponent that bends the curve of eye tracking for each document (`CoupledUser`);
it works against the order of relevance. Tolerances hold for 4000 sessions of each of 400 ranked lists, over 7 seeds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from clickprism.click_models.coupled import CoupledUser
from clickprism.click_models.pbm import PositionUser
from clickprism.debias.base import Method
from clickprism.debias.click import Click
from clickprism.debias.dla import DualLearning
from clickprism.debias.lbd import (
    Choice,
    DecoupledLearner,
    Decoupling,
    DocumentObservation,
    ObservationSettings,
    learn_observation,
)
from clickprism.debias.loop import pad
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Lists

LISTS, PLACES, SESSIONS = 400, 8, 4000
RELEVANCE = np.array([1.0, -0.7, 0.4, 0.0, 0.0])
BENDING = (0.6, 0.3, -0.4, 0.2, 0.0)
FIRST = 0.68  # what the user sees of the average document in the first place
OBSERVATION = ObservationSettings(companion=(16,), epochs=40)
SETTINGS = FitSettings(epochs=40, batch_size=128, learning_rate=0.1, threads=1, patience=0, clip_norm=0)


def user_of(bending: tuple[float, ...]) -> CoupledUser:
    return CoupledUser(eta=0.6, columns=tuple(range(5)), weights=bending)


def log_of(user: CoupledUser) -> Clicks:
    """Lists ranked by a noisy view of relevance, so that documents that look alike stand at different places."""
    rng = np.random.default_rng(11)
    features = rng.uniform(-1, 1, (LISTS * PLACES, 5)).astype(np.float32)
    lists = Lists(features, np.arange(LISTS + 1) * PLACES, np.arange(LISTS).astype(np.str_))
    view = (features @ RELEVANCE + rng.normal(size=len(features))).reshape(LISTS, PLACES)
    rows = (np.argsort(-view, axis=1) + np.arange(LISTS)[:, None] * PLACES).ravel()
    places = np.tile(np.arange(1, PLACES + 1, dtype=np.int32), LISTS)
    chance = np.exp(features[rows] @ RELEVANCE - 2.2) * user.observation(lists, rows, places)
    counts = rng.binomial(SESSIONS, chance)
    return Clicks(lists, lists.offsets, rows, places, counts, np.full(LISTS, SESSIONS, dtype=np.int64))


def true_logs(user: CoupledUser, lists: Lists) -> Float64:
    """Log o_k(x) / o_1(x), [documents, positions]."""
    curve = np.log(user.base.observation(np.arange(1, PLACES + 1)))
    logs: Float64 = user.exponent(lists)[:, None] * (curve - curve[0])
    return logs


Learned = tuple[DocumentObservation, tuple[Choice, ...]]


@pytest.fixture(scope="module")
def log() -> Clicks:
    return log_of(user_of(BENDING))


@pytest.fixture(scope="module")
def learned(log: Clicks) -> Learned:
    torch.manual_seed(0)
    return learn_observation(log, OBSERVATION)


def test_the_steepness_of_documents_is_recovered(log: Clicks, learned: Learned) -> None:
    observed, choices = learned
    features, user = torch.from_numpy(log.lists.features), user_of(BENDING)
    assert choices[0].penalty < math.inf
    found = observed.steepness(features).numpy()
    assert np.corrcoef(found, user.exponent(log.lists))[0, 1] > 0.98
    assert np.abs(observed(features).numpy() - true_logs(user, log.lists)).mean() < 0.1


def test_without_coupling_documents_leave_the_curve_as_it_is() -> None:
    user = user_of((0.0,) * 5)
    fair = log_of(user)
    torch.manual_seed(0)
    observed, _ = learn_observation(fair, replace(OBSERVATION, epochs=150))
    error = observed(torch.from_numpy(fair.lists.features)).numpy() - true_logs(user, fair.lists)
    assert np.abs(error).mean() < 0.03
    assert np.abs(error).max() < 0.15


def optimum(log: Clicks, learned: Learned, *, first: float) -> Float64:
    """The weights of a linear ranker at the minimum of the loss."""
    learner = DecoupledLearner(Decoupling(first=first), Linear().build(5), log, *learned)
    batch = pad(log, np.arange(len(log)), scale=SESSIONS)
    search = torch.optim.LBFGS(learner.parameters(), max_iter=30)

    def closure() -> torch.Tensor:
        search.zero_grad()
        loss = learner.loss(batch)["ranking"]
        torch.autograd.backward(loss)
        return loss

    search.step(closure)  # type: ignore[no-untyped-call]
    return learner.ranker.get_parameter("output.weight")[0].detach().double().numpy()


def test_the_right_first_observation_recovers_relevance(log: Clicks, learned: Learned) -> None:
    assert optimum(log, learned, first=FIRST) == pytest.approx(RELEVANCE, abs=0.12)


def test_an_always_observed_first_position_recovers_its_click_rate(log: Clicks, learned: Learned) -> None:
    """log c_1 = log r + s(x) log .68, which is as far from log r as .23."""
    assert optimum(log, learned, first=1.0) == pytest.approx(RELEVANCE + math.log(FIRST) * np.array(BENDING), abs=0.12)


def match(log: Clicks, method: Method, ranker: Linear | LambdaMART) -> float:
    """The correlation of the scores with log relevance."""
    fitted = fit(log, method=method, ranker=ranker, settings=SETTINGS, observer=Linear())
    return float(np.corrcoef(fitted.model.score(log.lists), log.lists.features @ RELEVANCE)[0, 1])


@pytest.mark.parametrize("ranker", [Linear(), LambdaMART(trees=40, leaves=8)], ids=["linear", "lambdamart"])
def test_rankers_gain_where_one_curve_for_all_documents_loses(log: Clicks, ranker: Linear | LambdaMART) -> None:
    """With the defaults, whose first observation is wrong: .03 above raw clicks, .1 above dual learning."""
    quick = Decoupling(replace(OBSERVATION, penalties=(0.0,), epochs=25))
    found = {method.name: match(log, method, ranker) for method in (Click(), DualLearning(), quick)}
    assert found["lbd"] > 0.93
    assert found["lbd"] > found["click"] + 0.03
    assert found["lbd"] > found["dla"] + 0.1


@pytest.mark.parametrize("severity", [0.0, 0.2])
def test_little_position_bias_does_little_harm(severity: float) -> None:
    """The curve starts flat, and what is not there is not corrected; from a steep start lbd fell by more than .3."""
    flat = CoupledUser(eta=0.0, base=PositionUser(severity=severity))
    clicks = log_of(flat)
    observed, _ = learn_observation(clicks, OBSERVATION)
    truth = np.log(flat.base.observation(np.array([1, PLACES])))
    learned = observed(torch.from_numpy(clicks.lists.features))[:, -1]
    assert learned.mean().item() == pytest.approx(truth[1] - truth[0], abs=0.15)
    lbd, click = (
        fit(clicks, method=method, ranker=Linear(), settings=SETTINGS, show=False).model.score(clicks.lists)
        for method in (Decoupling(OBSERVATION), Click())
    )
    relevance = clicks.lists.features @ RELEVANCE
    assert np.corrcoef(lbd, relevance)[0, 1] > 0.98
    assert np.corrcoef(lbd, relevance)[0, 1] > np.corrcoef(click, relevance)[0, 1] - 0.01
