"""The theorems of decoupling by hand, by brute force, and on random worlds whose fits are known."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from clickprism._util.tables import to_json
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import DataError, SettingError
from clickprism.observation.decoupling import (
    Pairs,
    coupled_observation,
    decoupling,
    exact_beta,
    largest_beta,
    largest_t,
    least_beta,
    least_t,
    on_lines,
    sample_pairs,
)
from clickprism.observation.lipschitz import true_lipschitz
from clickprism.simulation.clicks import simulate
from clickprism.types import Clicks, JudgedLists, Lists
from clickprism.users.base import attraction
from clickprism.users.coupled import CoupledUser, coupled
from clickprism.users.pbm import EYE_TRACKING, PositionUser


def pair(r: tuple[float, float], first: list[float], second: list[float], distance: float = 1.0) -> Pairs:
    return Pairs(np.array([r]), np.array([[first, second]]), np.array([distance]))


def random_pairs(count: int, positions: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    relevance = np.sort(rng.uniform(0.05, 1, (count, 2)))[:, ::-1]
    return Pairs(relevance, rng.uniform(0.02, 1, (count, 2, positions)), rng.uniform(0.2, 2, count))


# Theorem 1


def test_largest_beta_by_hand() -> None:
    # o = .5, .25 and o' = .5, .5 at the ends, one position, d = 2, r_1 / r_2 = 3, alpha = .125; by the trapezium
    # mean of 1 / o = (2 + 4) / 2 = 3, mean of o' / o^2 = (2 + 8) / 2 = 5, o'(x_2) / o(x_2) = 2
    # (3 - 1) * 2 >= 2 (3 beta + 5 * .125)  =>  beta <= (2 - .625) / 3
    one = pair((0.6, 0.2), [0.5], [0.25], 2.0)
    fitted = np.array([[[0.5], [0.5]]])
    assert largest_beta(one, alpha=0.125, fitted=fitted) == pytest.approx([1.375 / 3])
    # the fit at the truth: o' / o = 1, mean of 1 / o = 3 both times: 2 >= 2 * 3 (beta + .125)
    assert largest_beta(one, alpha=0.125) == pytest.approx([1 / 3 - 0.125])
    # without debiasing, o' = 1: mean of 1 / o^2 = (4 + 16) / 2 = 10, 1 / o(x_2) = 4: 2 * 4 >= 2 (3 beta + 10 * .125)
    assert largest_beta(one, alpha=0.125, fitted=np.ones((1, 2, 1))) == pytest.approx([(4 - 1.25) / 3])
    # a large alpha leaves no beta
    assert largest_beta(one, alpha=1)[0] < 0


def test_documents_that_are_alike_leave_beta_free() -> None:
    """Nothing lies between them for the observation to change on: 0 >= 0 whatever beta; the others stay as they are."""
    both = np.array([[0.4, 0.4], [0.4, 0.2], [0.4, 0.4]])
    pairs = Pairs(both, np.full((3, 2, 1), 0.5), np.array([0.0, 0.0, 2.0]))
    assert largest_beta(pairs, alpha=0.1).tolist() == [math.inf, math.inf, pytest.approx(-0.1)]


def test_largest_beta_takes_the_best_position() -> None:
    # constant along the line: beta <= o' ((r_1 / r_2 - 1) / d - alpha / o), position 1: .8 (1 - .1 / .5) = .64,
    # position 2: .2 (1 - .1 / .125) = .04
    one = pair((0.4, 0.2), [0.5, 0.125], [0.5, 0.125])
    line, fitted = np.array([[[0.5, 0.125]]]), np.array([[[0.8, 0.2]]])
    assert largest_beta(one, alpha=0.1, line=line, fitted=fitted) == pytest.approx([0.64])
    swapped = pair((0.4, 0.2), [0.125, 0.5], [0.125, 0.5])
    assert largest_beta(swapped, alpha=0.1, line=line[..., ::-1], fitted=fitted[..., ::-1]) == pytest.approx([0.64])


def test_the_factor_of_theorem_1_belongs_to_the_less_relevant_document() -> None:
    # o = 1, alpha = 0, d = 1, o' from .8 at x_1 to .2 at x_2: beta = .6; r = .1, .05
    # as printed, with o(x_1) / o'(x_1): 2 - 1 >= .6 / .8 holds, and yet r' = .1 / .8 = .125 < .05 / .2 = .25
    # with x_2: 2 - 1 >= .6 / .2 does not, beta may be .2 at most
    one = pair((0.1, 0.05), [1.0], [1.0])
    fitted = np.array([[[0.8], [0.2]]])
    assert largest_beta(one, alpha=0, fitted=fitted) == pytest.approx([0.2])
    assert 0.6 / 0.8 < 1
    assert 0.1 / 0.8 < 0.05 / 0.2


def test_path_integral_against_the_integral_in_closed_form() -> None:
    # o = v^(1 + w x) on x from 0 to 1: integral of 1 / o = (1/v) (v^-w - 1) / (-w log v)
    user = CoupledUser(eta=1, columns=(0,), weights=(0.5,), base=PositionUser(curve=(0.3,)))
    line = on_lines(coupled_observation(user, features=1, positions=1), np.zeros((1, 1)), np.ones((1, 1)), points=401)
    one = pair((0.6, 0.2), [0.3], [0.3**1.5])
    integral = (0.3**-0.5 - 1) / (-0.5 * math.log(0.3)) / 0.3
    assert largest_beta(one, alpha=0, line=line) == pytest.approx([2 / integral], rel=1e-5)
    assert largest_beta(one, alpha=0) <= largest_beta(one, alpha=0, line=line)  # 1 / o is convex: few points are safe


def test_worlds_that_meet_theorem_1_are_in_order() -> None:
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 1, 201)
    met = wrong = 0
    for _ in range(1500):
        waves = np.cumsum(rng.normal(size=(3, 4)) * rng.uniform(0, 0.4), axis=1)
        smooth = [sum(wave[k] * np.cos((k + 1) * grid + k) for k in range(4)) for wave in waves]
        true = np.stack([np.exp(smooth[0]), np.exp(smooth[1]) / 2], axis=1)
        true = true / true.max() * 0.9
        gauge = np.exp(smooth[2])
        gauge *= rng.uniform(0.3, 1) / (true * gauge[:, None]).max()
        fitted = true * gauge[:, None]
        relevance = np.sort(rng.uniform(0.01, 1, 2))[::-1]
        alpha, beta = (float(np.abs(np.diff(o, axis=0)).max() * 200) for o in (true, fitted))
        world = pair((float(relevance[0]), float(relevance[1])), [*true[0]], [*true[-1]])
        ordered = relevance[0] / gauge[0] >= relevance[1] / gauge[-1]
        wrong += not ordered
        if beta <= largest_beta(world, alpha=alpha, line=true[None], fitted=fitted[None])[0]:
            met += 1
            assert ordered
    assert met > 100
    assert wrong > 50


# Theorem 2


def test_least_beta_by_hand() -> None:
    # position only: c_1 = 2 c_2, m = 1 and n = 2 fit exactly; in wrong order at best m = n = 1: .6 - .3 = .3, d = 2
    same = pair((0.6, 0.3), [1.0, 0.5], [1.0, 0.5], 2.0)
    assert least_beta(same) == pytest.approx([0], abs=1e-12)
    right, wrong = exact_beta(same)
    assert (right[0], wrong[0]) == pytest.approx((0, 0.15), abs=1e-12)
    # c(x_1) = (.4, .2), c(x_2) = (.4, .1), n = u: |.4 - .4 u| = |.2 - .1 u| at u = 1.2: .08; m = u: .2 u - .1 at 1: .1
    right, wrong = exact_beta(pair((0.5, 0.5), [0.8, 0.4], [0.8, 0.2]))
    assert (right[0], wrong[0]) == pytest.approx((0.08, 0.1))


def test_what_is_clicked_less_everywhere_cannot_be_decoupled() -> None:
    # c(x_1) = (.3, .1) below c(x_2) = (.4, .2): in the right order at best m = n = 1: .1; in the wrong one m = 1.5:
    # |.45 - .4| = |.15 - .2| = .05
    right, wrong = exact_beta(pair((0.5, 0.4), [0.6, 0.2], [1.0, 0.5]))
    assert (right[0], wrong[0]) == pytest.approx((0.1, 0.05))


def test_observation_of_at_most_one_can_bind() -> None:
    # c(x_1) = (.5, .05), c(x_2) = (.9, .9): m <= 1 / .5, so that .9 - 2 * .05 = .8 is left
    # without it .5 m - .9 = .9 - .05 m at m = 1.8 / .55: .9 - .09 / .55 = .405 / .55
    one = pair((0.9, 0.9), [5 / 9, 0.5 / 9], [1.0, 1.0])
    assert exact_beta(one)[1] == pytest.approx([0.8])
    assert least_beta(one, bounded=False) == pytest.approx([0.405 / 0.55])


@pytest.mark.parametrize("positions", [1, 2, 5])
@pytest.mark.parametrize("bounded", [True, False])
def test_least_beta_against_brute_force(positions: int, bounded: bool) -> None:
    pairs = random_pairs(25, positions, seed=positions)
    scale = np.linspace(0, 1, 801)
    found = least_beta(pairs, bounded=bounded)
    right, wrong = exact_beta(pairs)
    for i, (c1, c2) in enumerate(pairs.clicks):
        near = 0.02 / pairs.distance[i]  # what the grid misses
        m, n = (1 + ((1 / c.max() if bounded else 60.0) - 1) * scale**2 for c in (c1, c2))  # dense near 1
        gap = np.abs(m[:, None, None] * c1 - n[None, :, None] * c2).max(axis=2) / pairs.distance[i]
        assert found[i] - 1e-12 <= gap.min() <= found[i] + near
        if bounded:
            ordered = m[:, None] <= n[None]
            assert right[i] - 1e-12 <= gap[ordered].min() <= right[i] + near
            assert wrong[i] - 1e-12 <= gap[~ordered].min() <= wrong[i] + near


def test_fits_below_the_exact_beta_are_in_order() -> None:
    rng = np.random.default_rng(1)
    pairs = random_pairs(4000, 3, seed=8)
    right, wrong = exact_beta(pairs)
    scale = 1 + (1 / pairs.clicks.max(axis=2) - 1) * rng.uniform(size=(4000, 2)) ** 2  # m and n, any feasible fit
    fitted = scale[:, :, None] * pairs.clicks
    beta = np.abs(fitted[:, 0] - fitted[:, 1]).max(axis=1) / pairs.distance
    ordered = scale[:, 0] <= scale[:, 1]
    assert (beta[ordered] >= right[ordered] - 1e-12).all()
    assert (beta[~ordered] >= wrong[~ordered] - 1e-12).all()
    assert (~ordered).sum() > 1000


def test_same_features_and_irrelevant_documents() -> None:
    far = pair((0.6, 0.3), [1.0, 0.5], [1.0, 0.25], 0.0)
    assert least_beta(far)[0] == np.inf
    alike = pair((0.5, 0.25), [1.0, 0.5], [1.0, 0.5], 0.0)
    assert exact_beta(alike)[0][0] == 0
    assert exact_beta(alike)[1][0] == np.inf
    none = pair((0.5, 0.0), [1.0, 0.5], [0.8, 0.5])
    assert [bound[0] for bound in exact_beta(none)] == [0, 0.5]
    assert largest_beta(none, alpha=1)[0] == np.inf
    assert least_t(none)[0] == 0


# Theorems 3 and 4


def test_bounds_of_t_by_hand() -> None:
    # c(x_1) = .8 (.5, .1) = (.4, .08), c(x_2) = .2 (.6, .15) = (.12, .03)
    one = pair((0.8, 0.2), [0.5, 0.1], [0.6, 0.15], 2.0)
    assert least_t(one) == pytest.approx([0.03 / 0.4])
    assert least_t(one, alpha=0.05) == pytest.approx([0.25 * (1 + 0.05 * 2 / 0.5)])
    assert largest_t(one) == pytest.approx([0.1 / 0.5])
    assert least_t(pair((1.0, 0.5), [1.0, 0.1], [1.0, 0.9])) == pytest.approx([0])  # r'(x_1) can only be 1


def test_fits_between_the_bounds_of_t_are_in_order() -> None:
    rng = np.random.default_rng(2)
    pairs = random_pairs(20_000, 2, seed=3)
    low, high = least_t(pairs), largest_t(pairs)
    t = rng.uniform(0.01, 1, len(pairs))
    least = pairs.clicks.max(axis=2)
    most = np.minimum(pairs.clicks.min(axis=2) / t[:, None], 1)
    fits = (most >= least).all(axis=1)
    assert (t[fits] <= high[fits] + 1e-12).all()
    relevance = least + (most - least) * rng.uniform(size=least.shape)
    fitted = (pairs.clicks / relevance[:, :, None] - t[:, None, None]) / (1 - t[:, None, None])
    assert ((fitted[fits] > -1e-9) & (fitted[fits] < 1 + 1e-9)).all()
    decoupled = fits & (t >= low)
    assert decoupled.sum() > 100
    assert (relevance[decoupled, 0] >= relevance[decoupled, 1] - 1e-12).all()
    short = fits & (t < low * (1 - 1e-6))  # the bound is sharp: below it the ends of the ranges are in wrong order
    assert short.sum() > 100
    assert (most[short, 1] > least[short, 0]).all()


def test_a_t_exists_where_the_most_and_the_least_clicked_positions_order_the_pair() -> None:
    pairs = random_pairs(5000, 4, seed=4)
    c = pairs.clicks
    both = (c[:, 0].max(axis=1) >= c[:, 1].max(axis=1)) & (c[:, 0].min(axis=1) >= c[:, 1].min(axis=1))
    assert ((least_t(pairs) <= largest_t(pairs)) == both).all()


def test_the_curve_of_the_paper_leaves_no_room_for_its_t() -> None:
    # .06 / .68 = .088 is below every t of the paper's search (.1 to .4), and below .1, the least ratio of relevances
    curve = list(EYE_TRACKING)
    one = pair((1.0, 0.1), curve, curve)
    assert largest_t(one) == pytest.approx([0.06 / 0.68])
    assert largest_t(one)[0] < 0.1 <= least_t(one, alpha=0)[0]
    assert least_t(one) == pytest.approx([0.1 * 0.06 / 0.68])


# Logs


def make_world(eta: float) -> tuple[JudgedLists, CoupledUser, Clicks]:
    settings = SyntheticSettings(train_queries=40, validation_queries=1, test_queries=1, features=16)
    judged = synthetic(settings).train
    judged = judged.with_features(np.tanh(judged.lists.features))
    user = coupled(judged, eta=eta, seed=0)
    return judged, user, simulate(judged, user, sessions=400, seed=0).clicks


def test_bounds_over_a_log() -> None:
    judged, user, clicks = make_world(0.3)
    relevance = attraction(judged)
    rows = sample_pairs(clicks, relevance, count=500, seed=1)
    assert (relevance[rows[:, 0]] > relevance[rows[:, 1]]).all()
    assert np.isin(rows, clicks.rows).all()
    assert (judged.lists.list_of[rows[:, 0]] == judged.lists.list_of[rows[:, 1]]).all()
    found = decoupling(clicks, relevance, user, count=500, seed=1)
    assert found == decoupling(clicks, relevance, user, count=500, seed=1)
    assert found.pairs == 500
    shares = found.shares
    assert shares["beta printed"] <= shares["beta local"]
    assert max(shares["t printed"], shares["t common"]) <= shares["t exact"] <= shares["first"]
    first, second = (user.observation(clicks.lists, rows[:, i], np.ones(500, np.int64)) for i in (0, 1))
    ordered = relevance[rows[:, 0]] * first > relevance[rows[:, 1]] * second
    assert shares["first"] == pytest.approx(ordered.mean())
    assert json.loads(to_json(found))["pairs"] == 500


def test_alpha_is_that_of_the_whole_line() -> None:
    # exponents 1 - 1.5, held at 0 where there is no slope, and 1: just above 0 the slope of o_2 is |log .61| * .5
    lists = Lists(np.array([[-3], [0]], np.float32), np.array([0, 2]), np.array(["q"]))
    clicks = Clicks(
        lists, np.array([0, 2]), np.arange(2), np.arange(1, 3, dtype=np.int32), np.ones(2, int), np.ones(1, int)
    )
    user = CoupledUser(eta=1, columns=(0,), weights=(0.5,))
    assert true_lipschitz(user, lists.features, positions=2).maximum == pytest.approx(0.61 * -math.log(0.61) / 2)
    found = decoupling(clicks, np.array([0.5, 0.2]), user, count=3)
    assert found.alpha == pytest.approx(-math.log(0.61) / 2)


def test_without_coupling_every_pair_decouples() -> None:
    judged, user, clicks = make_world(0)
    found = decoupling(clicks, attraction(judged), user, count=300)
    assert found.alpha == 0
    assert {found.shares[name] for name in ("beta exact", "beta common", "t exact", "t common", "first")} == {1}
    assert found.shares["t printed"] == 0


def test_pairs_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="first document of a pair must be the more relevant"):
        pair((0.2, 0.4), [0.5], [0.5])
    with pytest.raises(DataError, match="Leave out positions never seen"):
        pair((0.4, 0.2), [0.5, 0.0], [0.5, 0.0])
    with pytest.raises(DataError, match="relevance must be a probability"):
        pair((1.4, 0.2), [0.5], [0.5])
    with pytest.raises(DataError, match=r"must be \[1, points, 2\], got \(1, 3, 1\)"):
        largest_beta(pair((0.4, 0.2), [0.5, 0.5], [0.5, 0.5]), alpha=0, line=np.ones((1, 3, 1)))
    with pytest.raises(SettingError, match="call adapt"):
        coupled_observation(CoupledUser(eta=0.1), features=3, positions=2)
    _, _, clicks = make_world(0.1)
    with pytest.raises(DataError, match="two shown documents of different relevance"):
        sample_pairs(clicks, np.full(clicks.lists.documents, 0.5), count=10)
