"""Fitted click models against simulated truth, and against each other on real clicks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clickprism.click_models import CLICK_MODELS
from clickprism.click_models.cascade import CascadeModel, CascadeUser
from clickprism.click_models.ccm import ClickChainModel, ClickChainUser
from clickprism.click_models.dbn import BayesianModel, BayesianUser, SimplifiedUser
from clickprism.click_models.dcm import DependentUser
from clickprism.click_models.factors import fit_factors
from clickprism.click_models.fitted import Browsing, FittedModel, Prior, Reading
from clickprism.click_models.pbm import EYE_TRACKING, PositionUser, count_positions
from clickprism.click_models.ubm import PUBLISHED, BrowsingModel, BrowsingUser
from clickprism.click_models.users import Shown, User, attraction
from clickprism.data.sessions import read_sessions
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.evaluation.clicks import evaluate_clicks
from clickprism.settings import resolve
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, Simulation
from tests.click_models.likelihood import log_likelihood_of

NONE = Prior(0.0, 0.0)
JUDGED = synthetic(SyntheticSettings(train_queries=20, validation_queries=1, test_queries=1)).train
REAL = Path(__file__).parents[3] / "shared/data/yandex-clicks/sessions.tsv.gz"


def log_by(user: User, *, sessions: int = 100_000) -> Simulation:
    settings = SimulationSettings(intervention=Intervention(kind="shuffle"), merge="pattern")
    return simulate(JUDGED, user, sessions=sessions, seed=3, settings=settings)


def as_shown(clicks: Clicks, values: np.ndarray) -> Shown:
    return Shown(clicks.lists, clicks.offsets, clicks.rows, values[clicks.rows].astype(np.float32))


def test_the_position_curve_is_recovered() -> None:
    found = fit_factors(count_positions(log_by(PositionUser()).clicks))
    true = PositionUser().observation(np.arange(1, 11))
    assert np.abs(found.observation / (true / true[0]) - 1).mean() < 0.03
    assert found.converged


def test_the_browsing_table_and_its_curve_are_recovered() -> None:
    log = log_by(BrowsingUser())
    found = BrowsingModel(prior=NONE).fit(log.clicks)
    table, user = found.parameters["table"], BrowsingUser()
    for k, d in [(1, 0), (2, 0), (3, 1), (3, 2), (5, 3), (8, 2), (10, 0)]:
        true = user.observation(np.array([k]), np.array([k - d if d else 0]))[0]
        assert table[k - 1, d] == pytest.approx(true, abs=0.06), (k, d)
    assert found.observation(log.clicks) == pytest.approx(log.observation / log.observation[0], rel=0.04)


@pytest.mark.parametrize(
    ("user", "model"),
    [
        (BayesianUser(0.9, 0.8), BayesianModel(prior=NONE)),
        (ClickChainUser.informational(after_skip=0.8), ClickChainModel(prior=NONE)),
        (CascadeUser(), CascadeModel(prior=NONE)),
    ],
)
def test_users_who_read_from_the_top_are_recovered(
    user: User, model: BayesianModel | ClickChainModel | CascadeModel
) -> None:
    log, true = log_by(user), attraction(JUDGED)
    found = model.fit(log.clicks)
    looks = np.bincount(log.clicks.rows, weights=log.truth.observed, minlength=len(true))
    assert looks @ np.abs(found.attraction - true) / (looks @ true) < 0.05
    assert found.observation(log.clicks) == pytest.approx(log.observation, abs=0.01)
    if isinstance(user, BayesianUser):
        assert float(found.parameters["perseverance"]) == pytest.approx(0.9, rel=0.01)
        clicks = np.bincount(log.clicks.rows, weights=log.clicks.clicks, minlength=len(true))
        satisfied = clicks @ found.parameters["satisfaction"] / clicks.sum()
        assert satisfied == pytest.approx(clicks @ (0.8 * true) / clicks.sum(), rel=0.05)
    if isinstance(user, ClickChainUser):
        assert float(found.parameters["after_skip"]) == pytest.approx(0.8, rel=0.02)
        assert float(found.parameters["after_irrelevant"]) == pytest.approx(0.4, rel=0.05)
        assert float(found.parameters["after_relevant"]) == pytest.approx(0.27, rel=0.1)


A = attraction(JUDGED).astype(np.float64)
TABLE = np.array([[row[-1], *row[:-1]] + [0.0] * (10 - len(row)) for row in PUBLISHED])
SAME: dict[str, tuple[User, Browsing | Reading]] = {  # users, and the equal behaviour of a fitted model
    "pbm": (PositionUser(), Browsing(np.array(EYE_TRACKING)[:, None])),
    "cascade": (CascadeUser(), Reading(1.0, 0 * A)),
    "dcm": (DependentUser((0.7, 0.4, 0.2)), Reading(1.0, A**0, np.array([0.7, 0.4, 0.2]))),
    "sdbn": (SimplifiedUser(0.8), Reading(1.0, 1 - 0.8 * A)),
    "dbn": (BayesianUser(0.9, 0.8), Reading(0.9, 0.9 * (1 - 0.8 * A))),
    "ccm": (ClickChainUser(0.8, 0.4, 0.27), Reading(0.8, 0.4 * (1 - A) + 0.27 * A)),
    "ubm": (BrowsingUser(), Browsing(TABLE)),
}


@pytest.mark.parametrize("name", SAME)
def test_users_and_models_with_the_same_parameters_have_the_same_likelihood(name: str) -> None:
    user, behaviour = SAME[name]
    log = log_by(user, sessions=500).clicks
    model = FittedModel(name, {"attraction": A}, A, behaviour)
    expected = log_likelihood_of(user, as_shown(log, A), log.clicks > 0) * log.impressions
    assert model.log_likelihood(log) == pytest.approx(expected, abs=1e-3)


@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared/data/yandex-clicks")
def test_on_real_clicks_richer_models_predict_held_out_sessions_better() -> None:
    clicks = read_sessions(REAL).clicks
    for seed in (0, 1):
        held_out = np.random.default_rng(seed).random(len(clicks)) < 0.25
        given = {}
        for name in ("rank", "pbm", "ubm", "dbn"):
            model = resolve(CLICK_MODELS, name, path="model")().fit(clicks.take(~held_out))
            given[name] = evaluate_clicks(model, clicks.take(held_out)).mean_conditional_perplexity
        assert max(given["ubm"], given["dbn"]) < given["pbm"] - 0.01
        assert given["pbm"] < given["rank"] - 0.02
