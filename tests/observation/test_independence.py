"""Mutual information and the propositions of InfoRank: exact where they can be, refuted where they are wrong."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma, hypergeom, kstest

from clickprism.debias.information import mutual_information as in_torch
from clickprism.errors import DataError, SettingError
from clickprism.observation.independence import (
    Observed,
    delta_ci,
    history,
    largest_delta_ci,
    mutual_information,
    observed,
    risks,
    statements,
)
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Clicks, Float64, JudgedLists, Lists, Simulation, Truth
from clickprism.users.base import User
from clickprism.users.ccm import ClickChainUser
from clickprism.users.pbm import PositionUser
from clickprism.users.ubm import BrowsingUser

probability = st.floats(0, 1)


def by_definition(r1: float, r0: float, o: float) -> Decimal:
    """Eq. 14 as it stands, with 120 digits."""
    with localcontext() as context:
        context.prec = 120
        seen = {1: Decimal(o), 0: 1 - Decimal(o)}
        given = {(1, 1): Decimal(r1), (0, 1): 1 - Decimal(r1), (1, 0): Decimal(r0), (0, 0): 1 - Decimal(r0)}
        marginal = {r: given[r, 1] * seen[1] + given[r, 0] * seen[0] for r in (0, 1)}
        joint = {(r, s): given[r, s] * seen[s] for r, s in product((0, 1), repeat=2)}
        return sum((p * (given[cell] / marginal[cell[0]]).ln() for cell, p in joint.items() if p > 0), Decimal(0))


@settings(deadline=None)
@given(probability, probability, probability)
def test_information_is_never_negative_and_bounds_the_gap(r1: float, r0: float, o: float) -> None:
    information = float(mutual_information(r1, r0, o))
    assert 0 <= information <= np.log(2) * (1 + 1e-15)
    if information > 1e-290 or r1 == r0:  # below, float64 runs out of digits
        assert delta_ci(r1, r0) <= largest_delta_ci(information, o) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("r1", "r0", "o"),
    [
        (0.7, 0.2, 0.4),
        (0.3, 0.3 + 1e-12, 0.5),
        (0.5, np.nextafter(0.5, 1), 0.3),
        (1e-12, 3e-12, 1e-6),
        (1 - 1e-9, 1 - 2e-9, 0.9),
        (1.0, 0.0, 1e-9),
        (0.0, 0.4, 0.5),
        (0.25, 0.2, 0.5),
        (0.36, 0.24, 0.5),
    ],
)
def test_information_is_that_of_the_definition_to_twelve_digits(r1: float, r0: float, o: float) -> None:
    np.testing.assert_allclose(float(mutual_information(r1, r0, o)), float(by_definition(r1, r0, o)), rtol=1e-12)


@settings(deadline=None)
@given(st.floats(-30, 30), st.floats(-30, 30), st.floats(-30, 30))
def test_log_odds_agree_with_probabilities_and_keep_what_those_lose(a: float, b: float, c: float) -> None:
    r1, r0, o = 1 / (1 + np.exp(-np.array([a, b, c])))
    np.testing.assert_allclose(mutual_information(a, b, c, logits=True), mutual_information(r1, r0, o), atol=1e-12)
    mirrored = mutual_information(-a, -b, c, logits=True)
    np.testing.assert_allclose(mirrored, mutual_information(a, b, c, logits=True), rtol=1e-9)
    assert mutual_information(40.0, 41.0, 0.0, logits=True) > 0  # as probabilities both are 1
    assert mutual_information(a, a, c, logits=True) == 0


def test_shapes_are_broadcast_and_what_is_no_probability_is_refused() -> None:
    assert mutual_information(np.full((2, 1), 0.5), np.full(3, 0.4), 0.5).shape == (2, 3)
    with pytest.raises(DataError, match=r"r0 must be a probability, between 0 and 1, got 1\.5"):
        mutual_information(0.5, 1.5, 0.5)
    with pytest.raises(DataError, match="o must be a probability, between 0 and 1, got nan"):
        mutual_information(0.5, 0.5, np.nan)


def test_log_odds_may_be_infinite() -> None:
    """-inf and inf are the probabilities 0 and 1, exactly, without a warning."""
    odds = np.array([-np.inf, -2.0, 0.0, 1.0, np.inf])
    r1, r0, o = np.meshgrid(odds, odds, odds)
    p1, p0, p = np.meshgrid(*[np.array([0, 1 / (1 + np.exp(2)), 0.5, np.e / (1 + np.e), 1])] * 3)
    found = mutual_information(r1, r0, o, logits=True)
    np.testing.assert_allclose(found, mutual_information(p1, p0, p), atol=1e-15)
    assert ((found > 0) == ((r1 != r0) & np.isfinite(o))).all()
    np.testing.assert_allclose(delta_ci(r1, r0, logits=True), delta_ci(p1, p0), atol=1e-15)
    assert delta_ci(np.inf, np.inf, logits=True) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_log_odds_that_are_no_number_are_refused(place: int) -> None:
    """A model that diverged is not one whose relevance is independent of observation."""
    given = [np.zeros(3), np.zeros(3), np.zeros(3)]
    given[place][1] = np.nan
    wrong = rf"1 of 3 log odds {('r1', 'r0', 'o')[place]} are not a number. A model that diverged"
    with pytest.raises(DataError, match=wrong):
        mutual_information(*given, logits=True)
    if place < 2:
        with pytest.raises(DataError, match=wrong):
            delta_ci(*given[:2], logits=True)


def test_the_largest_gap_is_broadcast_and_checked() -> None:
    np.testing.assert_allclose(largest_delta_ci([0.02, 0.01], 0.5), np.sqrt([0.04, 0.02]))
    np.testing.assert_allclose(largest_delta_ci(0.02, [[0.5], [1e-320]]), [[0.2], [1.0]])
    assert largest_delta_ci(0.0, 0.5) == 0
    for wrong in (-1e-3, np.nan):
        with pytest.raises(DataError, match="information must be at least 0, got"):
            largest_delta_ci([0.02, wrong], 0.5)


@settings(deadline=None)
@given(probability, probability, probability)
def test_proposition_1_holds_where_observation_is_uncertain(r1: float, r0: float, o: float) -> None:
    found = statements(r1, r0, o)
    if (1e-100 < o < 1 and abs(r1 - r0) > 1e-100) or r1 == r0 or o in (0, 1):  # else the information underflows
        assert found.independent == found.no_information
        if 0 < o < 1:
            assert found.no_information == found.no_gap


def test_proposition_1_fails_where_observation_is_certain() -> None:
    for o in (0.0, 1.0):
        independent, no_information, no_gap = statements(0.9, 0.1, o)
        assert independent
        assert no_information
        assert not no_gap


def test_proposition_2_as_printed_adds_what_is_not_clicked() -> None:
    r, o, p = 0.5, 0.25, 0.8
    one, zero = -np.log(p), -np.log(1 - p)
    ideal, printed, clicks_only, corrected = risks(r, o, one, zero)
    assert ideal == pytest.approx(0.5 * one + 0.5 * zero)
    assert printed == pytest.approx((0.125 * one + 0.875 * zero) / 0.25)
    assert printed - ideal == pytest.approx((1 / o - 1) * zero)
    assert clicks_only == pytest.approx(r * one)
    assert corrected == pytest.approx(ideal)
    without = risks(r, o, one, 0.0)
    assert without.printed == pytest.approx(without.ideal)
    seen = risks(r, 1.0, one, zero)
    assert seen.printed == pytest.approx(seen.ideal)
    with pytest.raises(DataError, match="above 0"):
        risks(r, [0.5, 0.0], one, zero)


def test_proposition_2_as_printed_learns_raw_clicks_where_the_ranker_sees_what_observation_sees() -> None:
    grid = np.linspace(0.001, 0.999, 999)
    r, o = 0.6, 0.3
    found = risks(r, o, -np.log(grid), -np.log(1 - grid))
    assert grid[found.printed.argmin()] == pytest.approx(r * o)
    assert grid[found.corrected.argmin()] == pytest.approx(r)


def test_proposition_2_as_printed_is_biased_by_position_for_a_ranker_that_does_not_see_it() -> None:
    grid = np.linspace(0.001, 0.999, 999)
    seen = np.array([[0.8, 0.4], [0.2, 0.1]])  # document, the two positions it was shown at; the second is better
    relevance = np.array([0.5, 0.6])
    best: dict[str, Float64] = {}
    for name in ("printed", "corrected"):
        risk = risks(relevance[:, None, None], seen[:, :, None], -np.log(grid), -np.log(1 - grid))
        best[name] = grid[getattr(risk, name).mean(axis=1).argmin(axis=1)]
    np.testing.assert_allclose(best["corrected"], relevance)
    np.testing.assert_allclose(
        best["printed"], relevance / (1 / seen).mean(axis=1), atol=5e-4
    )  # r x harmonic mean of o
    assert best["printed"][0] > best["printed"][1]


def test_popularity_identity_does_not_follow_from_the_product_of_sets() -> None:
    either = np.zeros((2, 2, 2))
    differs = np.zeros((2, 2, 2))
    for seen, liked in product((0, 1), repeat=2):
        either[seen | liked, seen, liked] = 0.25
        differs[seen ^ liked, seen, liked] = 0.25
    for joint, left, right in ((either, 1.0, 4 / 3), (differs, 0.0, 0.5)):
        found = history(joint)
        assert found.clicked == found.product == 0.25
        assert found.given_clicks == left
        assert found.claimed == pytest.approx(right)
    xor = differs.sum(axis=2)
    assert mutual_information(xor[1, 1] / xor[:, 1].sum(), xor[1, 0] / xor[:, 0].sum(), 0.5) == 0  # Eq. 4 holds
    assert history(differs).given_clicks != history(differs).given_relevance  # Eq. 3 does not


def test_popularity_identity_holds_where_the_product_does_given_relevance_too() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        r, seen, liked = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9, 2), rng.uniform(0.1, 0.9, 2)
        seen[1] = seen[0]  # the past was seen alike whatever R: then Eq. 19 holds both ways
        joint = np.zeros((2, 2, 2))
        for now, s, y in product((0, 1), repeat=3):
            joint[now, s, y] = (
                (r if now else 1 - r) * (seen[now] if s else 1 - seen[now]) * (liked[now] if y else 1 - liked[now])
            )
        found = history(joint)
        assert found.clicked == pytest.approx(found.product)
        assert found.given_clicks == pytest.approx(found.claimed)
        assert found.given_clicks == pytest.approx(found.given_relevance)
    with pytest.raises(DataError, match="sums to 1"):
        history(np.ones((2, 2, 2)))
    with pytest.raises(DataError, match="positive probability"):
        history(np.array([[[0.5, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, 0.0]]]))


def test_no_information_and_yet_the_ranking_follows_position() -> None:
    """X holds the position: r' = clicks over a constant, o' = that constant fits, is independent, and is raw clicks."""
    attraction, seen = np.array([0.2, 0.3, 0.5]), np.array([0.9, 0.5, 0.2])
    clicks = attraction * seen
    level = clicks.max()
    relevance, observation = clicks / level, np.full(3, level)
    np.testing.assert_allclose(relevance * observation, clicks)
    assert (mutual_information(relevance, relevance, observation) == 0).all()
    assert (delta_ci(relevance, relevance) == 0).all()
    assert np.argsort(-attraction).tolist() == [2, 1, 0]
    assert np.argsort(-relevance, kind="stable").tolist() == [0, 1, 2]


def few_lists() -> JudgedLists:
    grades = np.array([0, 2, 1, 3, 4, 0, 1, 1, 2, 0, 4, 3], np.int32)
    features = np.linspace(-1, 1, 24, dtype=np.float32).reshape(12, 2)
    return JudgedLists(Lists(features, np.array([0, 5, 12]), np.array(["a", "b"])), grades)


def simulated(user: User) -> Simulation:
    judged = few_lists()
    settings = SimulationSettings(rankers=2, length=6)
    scores = np.stack([np.arange(12.0), np.arange(12.0)[::-1]])
    return simulate(judged, user, sessions=40_000, seed=3, settings=settings, scores=scores)


@pytest.mark.parametrize("user", [PositionUser(), BrowsingUser(), ClickChainUser.informational()], ids=lambda u: u.name)
def test_simulated_users_see_and_like_independently_given_document_and_position(user: User) -> None:
    """All three, UBM and CCM too: whether a document is seen depends on those above it, not on its own attraction."""
    found = observed(simulated(user))
    assert found.test[1] >= 12
    assert 0.001 < found.test[2] < 0.999
    assert abs(found.difference) < 0.01


def test_given_the_position_only_cascades_are_dependent_and_pbm_is_not() -> None:
    assert observed(simulated(PositionUser()), by="position").test[2] > 0.001
    for user in (BrowsingUser(), ClickChainUser.informational()):
        assert observed(simulated(user), by="position").test[2] < 1e-9


def test_the_test_of_independence_is_fair_where_counts_are_small() -> None:
    rng = np.random.default_rng(0)
    values = []
    for _ in range(400):
        shown = rng.integers(4, 9, 60)
        seen, liked = rng.integers(1, shown), rng.integers(1, shown)
        values.append(Observed(shown, seen, liked, rng.hypergeometric(liked, shown - liked, seen)).test[2])
    assert kstest(values, "uniform").pvalue > 0.001
    assert np.mean(np.array(values) < 0.05) < 0.09


def test_the_moments_of_the_test_are_those_of_the_hypergeometric_distribution() -> None:
    shown, seen, liked = 9, 4, 3
    both = np.arange(max(0, seen + liked - shown), min(seen, liked) + 1)
    chance = hypergeom.pmf(both, shown, liked, seen)
    squares = (both - seen * liked / shown) ** 2 / hypergeom.var(shown, liked, seen)
    assert chance @ squares == pytest.approx(1)
    variance = chance @ squares**2 - 1
    total, mean, p_value = Observed(*(np.array([each]) for each in (shown, seen, liked, 3))).test
    assert mean == 1
    assert total == pytest.approx(squares[-1])
    assert p_value == pytest.approx(gamma.sf(squares[-1], 1 / variance, scale=variance))


def test_observed_counts_by_hand() -> None:
    judged = JudgedLists(
        Lists(np.zeros((1, 1), np.float32), np.array([0, 1]), np.array(["q"])), np.array([1], np.int32)
    )
    one = np.array([1])
    clicks = Clicks(judged.lists, np.array([0, 1]), one - 1, one.astype(np.int32), np.array([3]), np.array([10]))
    truth = Truth(np.array([6]), np.array([4]))
    found = observed(Simulation(clicks, truth))
    assert (found.r1[0], found.r0[0], found.o[0]) == (0.5, 0.25, 0.6)
    assert found.summary()["difference"] == pytest.approx(0.25)
    assert found.summary()["information"] == pytest.approx(float(by_definition(0.5, 0.25, 0.6)))
    with pytest.raises(SettingError, match="document, position"):
        observed(Simulation(clicks, truth), by="list")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="trust"):
        observed(Simulation(clicks, Truth(np.array([2]), np.array([4]))))
    nothing = Observed(*(np.array([each]) for each in (5, 5, 2, 2)))
    assert nothing.test == (0.0, 0.0, 1.0)
    assert nothing.difference == 0
    assert nothing.information.tolist() == [0]


def test_proposition_2_on_simulated_clicks() -> None:
    """Of a constant guess: the printed risk is off by mean((1 / o - 1) Delta(f, 0)), the corrected one by nothing."""
    simulation = simulated(PositionUser())
    clicks, truth = simulation.clicks, simulation.truth
    seen = simulation.observation[clicks.positions - 1]
    one, zero = -np.log(0.3), -np.log(0.7)
    shown, hits, liked = clicks.list_impressions, clicks.clicks, truth.attracted
    n = shown.sum()
    ideal = (liked * one + (shown - liked) * zero).sum() / n
    printed = ((hits * one + (shown - hits) * zero) / seen).sum() / n
    corrected = (hits / seen * one + (shown - hits / seen) * zero).sum() / n
    assert corrected == pytest.approx(ideal, abs=0.005)
    surplus = (shown * (1 / seen - 1) * zero).sum() / n
    assert surplus > 0.5
    assert printed - ideal == pytest.approx(surplus, abs=0.005)


def test_clicks_do_not_know_the_relevance_of_what_was_not_seen() -> None:
    r1, o = 0.8, 0.4
    for r0 in (0.0, 0.8, 1.0):  # Delta-CI .8, 0 and .2: the same clicks, by the chain rule P(R, O) = P(R | O) P(O)
        joint = {(1, 1): r1 * o, (0, 1): (1 - r1) * o, (1, 0): r0 * (1 - o), (0, 0): (1 - r0) * (1 - o)}
        assert sum(joint.values()) == pytest.approx(1)
        assert joint[1, 1] == pytest.approx(0.32)
    hard = 1 if o > 0.5 else 0
    assert {1: r1, 0: 0.2}[hard] * o == pytest.approx(0.08)  # Eq. 12 with the estimated observation, at r0 = .2


def test_the_torch_version_agrees() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 4, (3, 10_000)).clip(-13, 13)
    odds[1, :5_000] = odds[0, :5_000] + rng.normal(0, 0.01, 5_000)
    doubles = in_torch(*torch.from_numpy(odds)).numpy()
    np.testing.assert_allclose(doubles, mutual_information(*odds, logits=True), rtol=1e-6, atol=1e-12)
    floats = odds.astype(np.float32)
    singles = in_torch(*torch.from_numpy(floats)).double().numpy()
    assert (singles >= 0).all()
    np.testing.assert_allclose(singles, mutual_information(*floats, logits=True), rtol=0.02, atol=2e-7)
