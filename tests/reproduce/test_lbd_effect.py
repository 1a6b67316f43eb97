"""The effect of positions on documents: by hand, against a second optimiser, and on simulated truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from clickprism.click_models.coupled import CoupledUser, coupled
from clickprism.click_models.pbm import PositionUser
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import DataError
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, JudgedLists, Lists
from reproduce.lbd.effect import TrueEffect, _Data, corrected, estimate_effect

SWAPS = SimulationSettings(frequency="each", intervention=Intervention(kind="pivot", pivot=1))


def swapped(clicks: list[int], shown: tuple[int, int], features: tuple[float, float] = (0.0, 0.0)) -> Clicks:
    """Two documents in both orders: clicks at 1 and 2 in the first order, then at 1 and 2 in the other."""
    lists = Lists(np.array(features, np.float32)[:, None], np.array([0, 2]), np.array(["q"]))
    places = np.array([1, 2, 1, 2], np.int32)
    return Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 1, 0]), places, np.array(clicks), np.array(shown))


def world(queries: int) -> JudgedLists:
    settings = SyntheticSettings(train_queries=queries, validation_queries=10, test_queries=10)
    judged = synthetic(settings).train
    ranks = np.argsort(np.argsort(judged.lists.features, axis=0), axis=0)
    return judged.with_features((2 * ranks / (len(ranks) - 1) - 1).astype(np.float32))


def test_without_features_it_is_the_ratio_of_rates() -> None:
    """One document is clicked 40 of 100 times first and 20 of 50 second, the other 20 of 50 and 20 of 100."""
    log = swapped([40, 20, 20, 20], (100, 50))
    effect = estimate_effect(log)
    tau = float(np.exp(effect.coefficients[1, -1]))

    def slope(tau: float) -> float:  # document 0: 40 of 100 and 20 of 50; document 1: 20 of 50 and 20 of 100
        return sum(a * b / (a + b * tau) * (y - tau * x) for a, b, x, y in ((100, 50, 0.4, 0.4), (50, 100, 0.4, 0.2)))

    assert slope(tau) == pytest.approx(0.0, abs=1e-6)
    assert effect.coefficients[0].tolist() == [0.0, 0.0]
    assert effect.coefficients[1, 0] == 0.0
    assert effect.log_effect(log.lists, np.array([0, 1]), np.array([1, 2])).tolist() == pytest.approx([0, np.log(tau)])


def test_the_fit_agrees_with_another_optimiser() -> None:
    judged = world(25)
    user = coupled(judged, eta=0.5, seed=1)
    clicks = simulate(judged, user, sessions=60, seed=2, settings=SWAPS).clicks
    lists = judged.lists.with_features(judged.lists.features[:, list(user.columns[:3])])
    log = Clicks(lists, clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions)
    data = _Data.of(log)
    curve = data.curve()[0]
    shared, own, size = 0.2, 0.1, len(curve)
    place = np.repeat(np.arange(size), np.diff(data.bounds))

    def unpack(point: Any) -> tuple[Any, Any, Any]:
        return point[:size], point[size : size + 3], point[size + 3 :].reshape(size, 3)

    def loss(point: Any) -> float:
        base, u, v = unpack(point)
        slopes = curve[:, None] * u + v
        logits = data.offset + base[place] + (data.features * slopes[place]).sum(axis=1)
        likelihood = (data.low * logits - data.both * np.logaddexp(0, logits)).sum()
        return float(-likelihood + (u**2).sum() / (2 * shared**2) + (v**2).sum() / (2 * own**2))

    start = np.concatenate([curve, np.zeros(3 + 3 * size)])
    base, u, v = unpack(minimize(loss, start, method="BFGS", options={"gtol": 1e-3}).x)
    found = data.fit(shared, own)
    np.testing.assert_allclose(found[0], base, atol=2e-3)
    np.testing.assert_allclose(found[1], curve[:, None] * u + v, atol=2e-3)
    assert data.value(found) > data.value((curve, np.zeros((size, 3))))


def test_probable_clicks_do_not_bias_it() -> None:
    """2000 documents are clicked with probability .5 to 1 at position 1, half as often at position 2: error below .01.

    The error of log tau is about 1 / sqrt(clicks) = .004.
    """
    rng = np.random.default_rng(3)
    queries = 2000
    chance = rng.uniform(0.5, 1.0, 2 * queries)
    lists = Lists(
        np.zeros((2 * queries, 0), np.float32), np.arange(queries + 1) * 2, np.arange(queries).astype(np.str_)
    )
    rows = np.arange(2 * queries).reshape(-1, 2)
    both = np.concatenate([rows, rows[:, ::-1]])
    clicks = rng.binomial(20, chance[both] * np.array([1.0, 0.5])).ravel()
    places, shown = np.tile(np.array([1, 2], np.int32), 2 * queries), np.full(2 * queries, 20)
    log = Clicks(lists, np.arange(2 * queries + 1) * 2, both.ravel(), places, clicks, shown)
    assert estimate_effect(log).coefficients[1, 0] == pytest.approx(np.log(0.5), abs=0.01)


@pytest.mark.parametrize(("eta", "bound", "least_gain"), [(0.0, 0.06, -1.0), (0.3, 0.16, 0.002)])
def test_the_true_effect_is_recovered(eta: float, bound: float, least_gain: float) -> None:
    """On 400 queries with 100 sessions of swaps each; the spread of the true effect over documents is .37 at eta .3."""
    judged = world(400)
    user = coupled(judged, eta=eta, seed=1)
    effect = estimate_effect(simulate(judged, user, sessions=100, seed=2, settings=SWAPS).clicks)
    log = simulate(judged, user, sessions=1, seed=3, settings=SimulationSettings(frequency="each")).clicks
    where = log.lists, log.rows, log.positions
    error = (effect.log_effect(*where) - TrueEffect(user).log_effect(*where))[log.positions > 1]
    assert np.sqrt((error**2).mean()) < bound
    assert abs(error.mean()) < 0.05
    assert effect.gain >= least_gain
    assert (effect.scales == (0.0, 0.0)) == (eta == 0)


def test_the_truth_by_hand() -> None:
    lists = Lists(np.array([[0.0], [1.0]], np.float32), np.array([0, 2]), np.array(["q"]))
    user = CoupledUser(eta=1.0, columns=(0,), weights=(1.0,), base=PositionUser(curve=(0.8, 0.4)))
    where = lists, np.array([0, 1, 1]), np.array([2, 2, 1])
    assert np.exp(TrueEffect(user).log_effect(*where)).tolist() == pytest.approx([0.5, 0.25, 1.0])
    assert np.exp(TrueEffect(user, relative=False).log_effect(*where)).tolist() == pytest.approx([0.4, 0.16, 0.64])
    log = swapped([1, 1, 1, 1], (1, 1), (0.0, 1.0))
    assert np.asarray(corrected(log, TrueEffect(user)).weights).tolist() == pytest.approx([1, 4, 1, 2])
    assert np.asarray(corrected(log, TrueEffect(user), floor=0.4).weights).tolist() == pytest.approx([1, 2.5, 1, 2])


def test_corrected_clicks_are_those_at_the_first_position() -> None:
    """Four tenths of a million sessions: clicks at every position become, on average, those at the first position."""
    judged = world(50)
    user = coupled(judged, eta=0.3, seed=1)
    log = corrected(simulate(judged, user, sessions=8000, seed=2, settings=SWAPS).clicks, TrueEffect(user), floor=1e-4)
    places, chance = log.positions - 1, user.observation(log.lists, log.rows, np.ones_like(log.rows))
    relevance = 0.1 + 0.9 * (2.0 ** judged.grades[log.rows] - 1) / 15
    expected = np.bincount(places, weights=log.list_impressions * chance * relevance)
    assert np.bincount(places, weights=log.weighted_clicks) == pytest.approx(expected, rel=0.04)


def test_a_log_without_swaps_is_refused() -> None:
    still = simulate(world(5), PositionUser(), sessions=50, seed=0, settings=SimulationSettings(frequency="each"))
    with pytest.raises(DataError, match=r"both at the first position and at 2, 3, .*10. Swap the first document"):
        estimate_effect(still.clicks)
