"""User models: likelihoods computed by hand, and simulated clicks against exact probabilities."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from clickprism.click_models.cascade import CascadeUser
from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.coupled import CoupledUser, coupled, crux_features, draw_weights
from clickprism.click_models.dbn import BayesianUser, SimplifiedUser
from clickprism.click_models.dcm import DependentUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.trust import TrustUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Shown, User, adapted, attraction
from clickprism.errors import DataError, SettingError
from clickprism.settings import build
from clickprism.types import Float64, JudgedLists, Lists
from reproduce.lbd.effect import coupling
from tests.click_models.likelihood import log_likelihood_of

BROWSING = (  # row = position, column = distance to the last click, the last for no click above
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)
CURVE = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


def repeated(attractions: list[float], *, sessions: int = 1, features: list[list[float]] | None = None) -> Shown:
    """Return sessions that all show the same list, document j at position j + 1."""
    size = len(attractions)
    matrix = np.zeros((size, 1), np.float32) if features is None else np.array(features, dtype=np.float32)
    lists = Lists(matrix, np.array([0, size]), np.array(["q"]))
    offsets = np.arange(sessions + 1, dtype=np.int64) * size
    rows = np.tile(np.arange(size, dtype=np.int64), sessions)
    return Shown(lists, offsets, rows, np.tile(np.array(attractions, dtype=np.float32), sessions))


def likelihood(user: User, attractions: list[float], clicks: list[int]) -> float:
    return float(np.exp(log_likelihood_of(user, repeated(attractions), np.array(clicks, dtype=np.bool_))[0]))


def rates(user: User, attractions: list[float], *, sessions: int = 200_000) -> tuple[Float64, Float64]:
    """Return the click and observation rates by position."""
    response = user.click(repeated(attractions, sessions=sessions), seed=1)
    size = len(attractions)
    return response.clicks.reshape(-1, size).mean(axis=0), response.observed.reshape(-1, size).mean(axis=0)


def assert_close(rate: Float64, expected: Float64, *, sessions: int = 200_000) -> None:
    """Assert that rates are within four standard errors."""
    expected = np.minimum(expected, 1.0)
    assert (np.abs(rate - expected) <= 4 * np.sqrt(expected * (1 - expected) / sessions) + 1e-12).all()


def judged_lists(*, queries: int = 60, documents: int = 12, features: int = 15, seed: int = 0) -> JudgedLists:
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-1, 1, (queries * documents, features)).astype(np.float32)
    grades = np.clip(np.floor(2 + 2 * matrix[:, 3] - 1.5 * matrix[:, 7]), 0, 4).astype(np.int32)
    offsets = np.arange(queries + 1, dtype=np.int64) * documents
    return JudgedLists(Lists(matrix, offsets, np.array([str(i) for i in range(queries)])), grades)


@pytest.mark.parametrize(
    ("user", "attractions", "clicks", "expected"),
    [
        (PositionUser(), [0.5, 0.1], [1, 0], 0.34 * (1 - 0.061)),
        (PositionUser(severity=0), [0.5, 0.1], [1, 1], 0.05),
        (PositionUser(severity=2), [1.0], [1], 0.4624),
        (PositionUser(curve=(1.0, 0.5)), [0.5] * 4, [0, 1, 1, 1], 0.5 * 0.25**3),
        (BrowsingUser(), [0.5, 0.5, 0.5], [1, 0, 1], 0.5 * (1 - 0.98 * 0.5) * (0.62 * 0.5)),
        (BrowsingUser(), [0.5, 0.5, 0.5], [0, 0, 1], 0.5 * 0.5 * 0.475),
        (BrowsingUser(), [1.0] + [0.0] * 10 + [1.0], [1] + [0] * 10 + [1], 0.12),
        (BrowsingUser(), [0.0] * 11 + [1.0], [0] * 11 + [1], 0.43),
        (CascadeUser(), [0.2, 0.5, 0.4], [0, 1, 0], 0.4),
        (CascadeUser(), [0.2, 0.5, 0.4], [0, 0, 0], 0.24),
        (CascadeUser(), [0.2, 0.5, 0.4], [1, 1, 0], 0),
        (DependentUser((0.6, 0.2)), [0.5, 0.5, 0.5], [1, 1, 1], 0.5 * (0.6 * 0.5) * (0.2 * 0.5)),
        (DependentUser((0.6, 0.2)), [0.5, 0.5, 0.5], [0, 1, 0], 0.5 * 0.5 * (0.8 + 0.2 * 0.5)),
        (DependentUser((0.6,)), [1.0, 1.0, 1.0], [1, 1, 1], 0.6 * 0.6),
        (ClickChainUser(), [0.5, 0.5], [1, 0], 0.5 * (0.93 + 0.07 * 0.5)),
        (ClickChainUser(), [0.5, 0.5], [0, 0], 0.5 * (0.5 + 0.5 * 0.5)),
        (ClickChainUser(), [0.5, 0.5], [0, 1], 0.5 * 0.5 * 0.5),
        (ClickChainUser.informational(), [0.5, 0.5], [1, 1], 0.5 * 0.335 * 0.5),
        (BayesianUser(), [0.5, 0.5], [1, 1], 0.5 * (0.9 * 0.5) * 0.5),
        (BayesianUser(satisfaction=0.5), [0.5, 0.5], [1, 1], 0.5 * (0.9 * 0.75) * 0.5),
        (BayesianUser(), [1.0, 1.0], [1, 1], 0),
        (SimplifiedUser(satisfaction=0.5), [0.5, 0.5], [1, 1], 0.5 * 0.75 * 0.5),
        (SimplifiedUser(), [0.5, 0.5], [0, 1], 0.5 * 0.5),
        (TrustUser(), [0.5], [1], 0.68 * (0.98 * 0.5 + 0.65 * 0.5)),
        (TrustUser(), [0.0, 1.0], [0, 1], (1 - 0.68 * 0.65) * 0.61 * 0.97),
        (TrustUser("hyperbolic"), [0.0, 0.25], [1, 1], 0.65 * (0.175 + 0.65 / 1.05) * (0.25 / 1.005 + 0.75 * 0.325)),
    ],
)
def test_likelihood_by_hand(user: User, attractions: list[float], clicks: list[int], expected: float) -> None:
    assert likelihood(user, attractions, clicks) == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_attraction_by_grade() -> None:
    judged = JudgedLists(
        Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"])), np.array([0, 1, 2], "i4")
    )
    assert attraction(judged).tolist() == pytest.approx([0.1, 0.4, 1.0])
    assert attraction(judged, max_grade=4).tolist() == pytest.approx([0.1, 0.16, 0.28])
    assert attraction(judged, noise=0, max_grade=4, gain="linear").tolist() == pytest.approx([0, 0.25, 0.5])
    with pytest.raises(SettingError, match="max_grade must be at least 2"):
        attraction(judged, max_grade=1)
    with pytest.raises(SettingError, match="gain must be one of exponential, linear, got 'exp'"):
        attraction(judged, gain="exp")  # type: ignore[arg-type]


def test_default_parameters_are_those_published() -> None:
    assert BrowsingUser().table == BROWSING
    assert PositionUser().curve == CURVE
    positions, last_clicks = np.array([(k, k - d) for k in range(1, 11) for d in range(1, k + 1)]).T
    expected = [value for row in BROWSING for value in row]
    assert BrowsingUser().observation(positions, last_clicks).tolist() == expected


def test_position_user_click_rate_is_observation_times_attraction() -> None:
    attractions = np.array([0.1, 0.52, 1.0, 0.28, 0.16, 1.0, 0.1, 0.52, 1.0, 0.28, 1.0, 0.5])
    curve = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06, 0.06, 0.06])
    clicks, observed = rates(PositionUser(), attractions.tolist())
    assert_close(observed, curve)
    assert_close(clicks, curve * attractions)
    clicks, observed = rates(PositionUser(severity=2), attractions.tolist())
    assert_close(clicks, curve**2 * attractions)


def test_browsing_user_against_enumeration() -> None:
    attractions = [0.3, 0.8, 0.2, 0.6, 0.5, 0.9]
    clicks, observed = np.zeros(6), np.zeros(6)
    for pattern in product([0, 1], repeat=6):
        weight, last, chances = 1.0, 0, []
        for position, (click, a) in enumerate(zip(pattern, attractions, strict=True), start=1):
            chances.append(BROWSING[position - 1][position - last - 1])
            weight *= chances[-1] * a if click else 1 - chances[-1] * a
            last = position if click else last
        clicks += weight * np.array(pattern)
        observed += weight * (observed_given_clicks(chances, attractions, pattern))
    simulated = rates(BrowsingUser(), attractions)
    assert_close(simulated[0], clicks)
    assert_close(simulated[1], observed)


def test_browsing_user_below_the_table() -> None:
    clicks, _ = rates(BrowsingUser(), [1.0] + [0.0] * 10 + [1.0])
    assert_close(clicks[[0, -1]], np.array([1.0, 0.12]))
    clicks, _ = rates(BrowsingUser(), [0.0] * 10 + [1.0, 1.0])
    assert_close(clicks[-2:], np.array([0.43, 0.43 * 1.0 + 0.57 * 0.43]))


def observed_given_clicks(chances: list[float], attractions: list[float], pattern: tuple[int, ...]) -> Float64:
    """Return P(observed | clicks): 1 where clicked, else o (1 - a) / (1 - o a)."""
    o, a = np.array(chances), np.array(attractions)
    return np.where(np.array(pattern) == 1, 1.0, o * (1 - a) / np.where(o * a < 1, 1 - o * a, 1))


@pytest.mark.parametrize(
    ("user", "skip", "low", "high"),
    [
        (ClickChainUser(), 0.5, 0.10, 0.04),
        (ClickChainUser.informational(), 0.5, 0.40, 0.27),
        (BayesianUser(0.8, 0.6), 0.8, 0.8, 0.8 * 0.4),
        (CascadeUser(), 1.0, 0.0, 0.0),
        (DependentUser((0.3,)), 1.0, 0.3, 0.3),
        (SimplifiedUser(0.6), 1.0, 1.0, 0.4),
    ],
)
def test_chain_users_against_enumeration(user: User, skip: float, low: float, high: float) -> None:
    attractions = [0.3, 0.8, 0.2, 0.6, 0.5, 0.9]
    clicks, observed = np.zeros(6), np.zeros(6)
    for depth in range(1, 7):
        for pattern in product([0, 1], repeat=depth):
            weight = 1.0
            for index, (click, chance) in enumerate(zip(pattern, attractions, strict=False)):
                further = low * (1 - chance) + high * chance if click else skip
                weight *= chance if click else 1 - chance
                weight *= further if index + 1 < depth else (1 - further if depth < 6 else 1)
            clicks[:depth] += weight * np.array(pattern)
            observed[:depth] += weight
    simulated = rates(user, attractions)
    assert observed[0] == pytest.approx(1)
    assert_close(simulated[0], clicks)
    assert_close(simulated[1], observed)


K = np.arange(1, 13)
TRUST = {  # theta, plus, minus at positions 1 to 12
    "eye-tracking": (np.array([*CURVE, 0.06, 0.06]), 1 - (K + 1) / 100, 0.65 / K),
    "hyperbolic": (0.35 / K + 0.65 / (1 + 0.05 * (K - 1)), 1 / (1 + 0.005 * (K - 1)), 0.65 / K),
}


@pytest.mark.parametrize("setting", TRUST)
def test_users_with_trust_click_at_the_published_rates(setting: str) -> None:
    user = build(TrustUser, {"setting": setting})
    theta, plus, minus = TRUST[setting]
    assert user.observation(K) == pytest.approx(theta)
    assert user.trust(K)[0] == pytest.approx(plus)
    assert user.trust(K)[1] == pytest.approx(minus)
    attractions = np.array([0.1, 1.0, 0.3, 0.0, 0.5, 1.0, 0.2, 0.9, 0.6, 0.1, 0.4, 1.0])
    clicks, observed = rates(user, attractions.tolist())
    assert_close(observed, theta)
    assert_close(clicks, theta * (plus * attractions + minus * (1 - attractions)))


def test_the_hyperbolic_trust_model_has_the_published_values() -> None:
    plus, minus = TrustUser().trust(np.array([1, 10, 200]))
    assert plus.tolist() == pytest.approx([0.98, 0.89, 0.00325])
    assert minus.tolist() == pytest.approx([0.65, 0.065, 0.00325])
    user = TrustUser("hyperbolic", severity=2)
    assert user.observation(np.array([1, 2])).tolist() == pytest.approx([1, (0.175 + 0.65 / 1.05) ** 2])


def test_random_numbers_are_uncorrelated_over_sessions_and_positions() -> None:
    response = PositionUser(curve=(0.5,)).click(repeated([0.5] * 20, sessions=20_000), seed=3)
    observed, attracted = (part.reshape(-1, 20) * 2.0 - 1 for part in (response.observed, response.attracted))
    both = np.hstack([observed, attracted])
    correlation = both.T @ both / len(both) - np.eye(40)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(both))
    across = (both[1:] * both[:-1]).mean(axis=0)
    assert np.abs(across).max() < 5 / np.sqrt(len(both))


def test_coupled_observation_by_hand() -> None:
    shown = repeated([1.0, 1.0, 1.0], features=[[0.0, 9.0], [2.0, 9.0], [-4.0, 9.0]])
    user = CoupledUser(columns=(0,), weights=(0.5,))
    assert user.observation(shown.lists, shown.rows, shown.positions).tolist() == pytest.approx([0.68, 0.61**2, 1.0])
    assert np.exp(log_likelihood_of(user, shown, np.ones(3, np.bool_))).tolist() == pytest.approx([0.68 * 0.61**2])


def test_coupled_user_without_coupling_equals_the_position_user() -> None:
    judged = judged_lists()
    shown = repeated([0.1, 0.4, 1.0, 0.2] * 3, sessions=500)
    user = coupled(judged, eta=0, seed=1, base=PositionUser(severity=0.5))
    plain = PositionUser(severity=0.5).click(shown, seed=9)
    assert np.array_equal(user.click(shown, seed=9).clicks, plain.clicks)
    assert np.array_equal(
        log_likelihood_of(user, shown, plain.clicks), log_likelihood_of(PositionUser(0.5), shown, plain.clicks)
    )


def test_crux_features_are_those_that_determine_the_grade() -> None:
    judged = judged_lists()
    assert set(crux_features(judged, count=2, seed=0)) == {3, 7}
    user = coupled(judged, eta=0.3, seed=5)
    assert len(user.columns) == len(user.weights) == 10
    assert max(map(abs, user.weights)) <= 0.3
    assert user == coupled(judged, eta=0.3, seed=5) == adapted(CoupledUser(eta=0.3), judged, seed=5)
    assert user.weights != coupled(judged, eta=0.3, seed=6).weights
    assert user.adapt(judged, seed=6) is user
    assert draw_weights(0.0, 3, np.random.default_rng(0)) == (0, 0, 0)


def test_coupling_reports_its_deviation_and_correlation_by_hand() -> None:
    judged = judged_lists()
    strong = coupling(CoupledUser(columns=(3,), weights=(2.0,)), judged)
    column = judged.lists.features[:, 3]
    assert strong.deviation == pytest.approx(2 * column.std(), rel=1e-5)
    assert strong.correlation == pytest.approx(
        np.corrcoef(np.maximum(1 + 2 * column, 0), judged.grades)[0, 1], rel=1e-5
    )
    assert strong.floored == pytest.approx((column < -0.5).mean())
    assert coupling(CoupledUser(eta=0), judged).correlation == 0
    mean = np.mean([coupling(coupled(judged, eta=0.3, seed=seed), judged).deviation for seed in range(6)])
    assert mean == pytest.approx(1.05 * 0.3, rel=0.25)


def test_users_from_mappings() -> None:
    user = build(CoupledUser, {"columns": [1, 2], "weights": [0.5, -0.5], "base": {"severity": 2}}, path="user")
    assert user == CoupledUser(columns=(1, 2), weights=(0.5, -0.5), base=PositionUser(2))
    assert build(BrowsingUser, {"table": [[1], [0.5, 1]]}).table == ((1,), (0.5, 1))


@pytest.mark.parametrize(
    ("user", "values", "field"),
    [
        (PositionUser, {"severity": -1}, "severity"),
        (PositionUser, {"curve": []}, "curve"),
        (PositionUser, {"curve": [1.2]}, "curve"),
        (BrowsingUser, {"table": [[1.0]]}, "table"),
        (BrowsingUser, {"table": [[1.0], [1.0]]}, "table"),
        (BrowsingUser, {"table": [[1.0], [1.0, 2.0]]}, "table"),
        (ClickChainUser, {"after_relevant": 1.5}, "after_relevant"),
        (DependentUser, {"continuation": []}, "continuation"),
        (DependentUser, {"continuation": [0.5, 1.5]}, "continuation"),
        (SimplifiedUser, {"satisfaction": -0.1}, "satisfaction"),
        (BayesianUser, {"perseverance": -0.1}, "perseverance"),
        (BayesianUser, {"satisfaction": float("nan")}, "satisfaction"),
        (TrustUser, {"severity": float("inf")}, "severity"),
        (CoupledUser, {"eta": -0.1}, "eta"),
        (CoupledUser, {"count": 0}, "count"),
        (CoupledUser, {"columns": [1]}, "weights"),
        (CoupledUser, {"columns": [1], "weights": [float("nan")]}, "weights"),
        (CoupledUser, {"columns": [-1], "weights": [0.1]}, "columns"),
    ],
)
def test_errors_name_the_field(user: type[User], values: dict[str, object], field: str) -> None:
    with pytest.raises(SettingError, match=f"user.{field} must"):
        build(user, values, path="user")


def test_trust_rejects_an_unknown_setting() -> None:
    with pytest.raises(SettingError, match="setting"):
        TrustUser("c")  # type: ignore[arg-type]


def test_coupled_user_rejects_unsuitable_documents() -> None:
    judged = judged_lists(features=8, queries=3)
    with pytest.raises(SettingError, match="columns must be chosen"):
        CoupledUser(eta=0.1).exponent(judged.lists)
    with pytest.raises(SettingError, match="columns must be below 8"):
        CoupledUser(columns=(8,), weights=(0.1,)).exponent(judged.lists)
    with pytest.raises(SettingError, match="count must be at most 8"):
        coupled(judged, eta=0.1, seed=0)
    broken = judged.with_features(np.full_like(judged.lists.features, np.nan))
    with pytest.raises(DataError, match="finite"):
        CoupledUser(columns=(0,), weights=(0.1,)).exponent(broken.lists)
    with pytest.raises(DataError, match="no documents"):
        crux_features(judged.take([]), count=1, seed=0)


def test_shown_rejects_inconsistent_arrays() -> None:
    lists = repeated([0.5, 0.5]).lists
    rows, half = np.arange(2, dtype=np.int64), np.full(2, 0.5, np.float32)
    for offsets in ([0, 1], [1, 2], [0, 3, 2]):
        with pytest.raises(DataError, match="offsets"):
            Shown(lists, np.array(offsets, dtype=np.int64), rows, half)
    with pytest.raises(DataError, match="attraction of shape"):
        Shown(lists, np.array([0, 2]), rows, half[:1])
    with pytest.raises(DataError, match="probability"):
        Shown(lists, np.array([0, 2]), rows, np.array([0.5, np.nan], np.float32))
