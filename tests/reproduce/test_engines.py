"""Simulated engines: the quality, the users and the scope of a log are those that the settings say."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.types import Clicks, Float64, JudgedLists
from reproduce.common.engines import CELLS, EngineSettings, EngineWorld, Users, engine_world, judged_world

SMALL = EngineSettings(queries=30, test_queries=20, candidates=15, searches=10)
LARGE = EngineSettings(random=True, queries=300, test_queries=1, candidates=12, searches=60, days=4)
MEASURE = Measure.parse("nDCG(exp)@10")


def ndcg(judged: JudgedLists, scores: Float64) -> float:
    return float(np.nanmean(evaluate(judged, scores, MEASURE)[MEASURE]))


def by_position(clicks: Clicks, values: Any) -> Float64:
    """Return the sum of the values of the entries of each position."""
    return np.bincount(clicks.positions - 1, weights=values, minlength=10).astype(np.float64)


def attraction(world: EngineWorld) -> Float64:
    """Return the attraction of the document of each entry of the log."""
    return np.asarray(world.attraction[world.rows[world.logged.clicks.rows]])


def observation(users: Users, **others: Any) -> Float64:
    """Return the share of the attracted impressions that were clicked at each position."""
    world = engine_world(replace(LARGE, users=users, **others))
    clicks = world.logged.clicks
    return by_position(clicks, clicks.clicks) / by_position(clicks, clicks.list_impressions * attraction(world))


@pytest.mark.parametrize("users", get_args(Users))
def test_the_same_settings_give_the_same_world(users: Users) -> None:
    settings = replace(SMALL, users=users, feedback=2.0)
    one, same, other = engine_world(settings), engine_world(settings), engine_world(replace(settings, seed=1))
    assert np.array_equal(one.logged.clicks.clicks, same.logged.clicks.clicks)
    assert np.array_equal(one.logged.clicks.rows, same.logged.clicks.rows)
    assert np.array_equal(one.test.lists.features, same.test.lists.features)
    assert not np.array_equal(one.test.lists.features, other.test.lists.features)


def test_other_users_see_the_same_engine() -> None:
    one, other = (engine_world(replace(SMALL, users=users)) for users in ("pbm", "cascade"))
    assert np.array_equal(one.train.grades, other.train.grades)
    assert np.array_equal(one.rows, other.rows)
    assert one.logged.clicks.sessions == other.logged.clicks.sessions


def test_shapes() -> None:
    world = engine_world(replace(SMALL, features=7, shown=6))
    lists, clicks = world.logged.clicks.lists, world.logged.clicks
    assert (len(world.train), len(world.test), len(lists)) == (30, 20, 30)
    assert world.train.lists.features.shape == (450, 7)
    assert world.engine.shape == world.test.grades.shape == (300,)
    assert world.attraction.shape == (450,)
    assert clicks.max_position == 6
    assert (np.diff(clicks.offsets) == 6).all()
    assert world.logged.days is not None
    assert set(world.logged.days.tolist()) == set(range(8))
    assert not set(world.train.lists.query_ids) & set(world.test.lists.query_ids)


@pytest.mark.parametrize("candidates_logged", [False, True])
def test_the_log_contains_the_shown_documents_or_all_candidates(candidates_logged: bool) -> None:
    world = engine_world(replace(SMALL, log_candidates=candidates_logged, noise=0.05))
    lists, train = world.logged.clicks.lists, world.train.lists
    shown = np.unique(world.logged.clicks.rows)
    assert np.array_equal(lists.features, train.features[world.rows])
    assert lists.document_ids is not None
    assert train.document_ids is not None
    assert np.array_equal(lists.document_ids, train.document_ids[world.rows])
    assert np.array_equal(lists.list_of, train.list_of[world.rows])
    assert len(shown) < train.documents
    assert lists.documents == (train.documents if candidates_logged else len(shown))


def test_logging_the_candidates_does_not_change_the_searches() -> None:
    one, other = (engine_world(replace(SMALL, log_candidates=each)) for each in (False, True))
    assert np.array_equal(one.rows[one.logged.clicks.rows], other.logged.clicks.rows)
    assert np.array_equal(one.logged.clicks.clicks, other.logged.clicks.clicks)


def test_sessions_are_merged_by_pattern_within_a_day() -> None:
    logged = engine_world(replace(SMALL, noise=0.0, searches=40)).logged
    assert logged.clicks.are_patterns
    assert logged.days is not None
    for day in range(8):
        today = logged.clicks.take(logged.days == day)
        assert len(today.merge(by="pattern")) == len(today)
    assert len(logged.clicks.merge(by="pattern")) < len(logged)  # the same lists on several days stay apart


def test_days_without_a_search_are_not_in_the_log() -> None:
    logged = engine_world(EngineSettings(queries=1, test_queries=1, candidates=1, shown=1, searches=1, days=30)).logged
    assert logged.days is not None
    assert 0 < len(set(logged.days.tolist())) <= logged.clicks.sessions < 30


def test_an_engine_without_noise_shows_its_best_candidates() -> None:
    world = engine_world(replace(SMALL, noise=0.0, unexplained=0.0, quality=1.0))
    clicks = world.logged.clicks
    best_first = np.lexsort((-world.attraction, world.train.lists.list_of)).reshape(30, 15)[:, :10]
    query, shown = clicks.lists.list_of[clicks.rows], world.rows[clicks.rows]
    assert np.array_equal(shown, best_first[query, clicks.positions - 1])


def test_better_engines_rank_the_test_documents_better() -> None:
    values = []
    for quality in (0.0, 0.3, 0.6, 0.9, 1.0):
        world = engine_world(EngineSettings(quality=quality, queries=5))
        utility = np.corrcoef(world.engine, world.test.grades)[0, 1]
        values.append((ndcg(world.test, world.engine), utility))
    scores, correlations = np.array(values).T
    assert (np.diff(scores) > 0.08).all()
    assert (np.diff(correlations) > 0.05).all()
    assert scores[0] < 0.25
    assert scores[-1] == pytest.approx(1)
    assert abs(correlations[0]) < 0.05


def test_a_random_engine_shows_equally_good_documents_at_all_positions() -> None:
    world = engine_world(replace(LARGE, candidates=10, shown=5, searches=20, days=10))
    _, first = np.unique(world.logged.clicks.rows.reshape(-1, 5), axis=0, return_index=True)  # each ranked list once
    mean = attraction(world).reshape(-1, 5)[first].mean(axis=0)
    assert mean == pytest.approx(world.attraction.mean(), abs=0.015)
    assert world.logged.clicks.lists.documents > 0.9 * world.train.lists.documents


CURVE = np.arange(1.0, 11.0) ** -0.7


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ("pbm", CURVE),
        ("lazy", CURVE / 2),
        ("grid", 0.75 ** np.repeat(np.arange(5), 2) * np.tile([1, 0.8], 5)),
    ],
)
def test_users_observe_by_the_formula(users: Users, expected: Float64) -> None:
    assert observation(users) == pytest.approx(expected, abs=0.03)


def test_lazy_users_look_at_nothing_or_as_others_do() -> None:
    """Clicks at two positions are then positively dependent, which they are not with the others."""
    together = {}
    for users in ("pbm", "lazy"):
        world = engine_world(replace(LARGE, users=users, searches=300))
        clicks = world.logged.clicks
        table = (clicks.clicks > 0).reshape(-1, 10)[:, :2]
        expected = attraction(world).reshape(-1, 10)[:, :2].prod(axis=1) * CURVE[1]
        together[users] = (table.all(axis=1) @ clicks.impressions) / (expected @ clicks.impressions)
    assert together["pbm"] == pytest.approx(1, abs=0.1)
    assert together["lazy"] == pytest.approx(0.5, abs=0.07)  # 1/4 if each result was ignored on its own


@pytest.mark.parametrize("users", ["trust", "misclicks"])
def test_irrelevant_results_are_clicked_by_the_formula(users: Users) -> None:
    world = engine_world(replace(LARGE, users=users))
    clicks, attracted = world.logged.clicks, attraction(world)
    share = np.where(users == "trust", 0.25 / clicks.positions, 0.03)
    for part in (attracted < 0.05, attracted > 0.3):
        expected = clicks.list_impressions * CURVE[clicks.positions - 1] * (attracted + (1 - attracted) * share)
        ratio = (clicks.clicks * part).sum() / (expected * part).sum()
        assert ratio == pytest.approx(1, abs=0.05)


def go_on(world: EngineWorld, sessions: Any) -> float:
    """Return how often users of these sessions observe the second result: its clicks over its attraction."""
    clicks = world.logged.clicks
    second, attracted = (clicks.clicks > 0).reshape(-1, 10)[:, 1], attraction(world).reshape(-1, 10)[:, 1]
    weight = clicks.impressions * sessions
    return float(weight @ second / (weight @ attracted))


def test_users_of_a_cascade_go_on_by_the_formula() -> None:
    world = engine_world(replace(LARGE, users="cascade", searches=200))
    first = (world.logged.clicks.clicks > 0).reshape(-1, 10)[:, 0]
    assert go_on(world, ~first) == pytest.approx(0.85, abs=0.03)
    assert go_on(world, first) == pytest.approx(0.4, abs=0.05)


def test_users_of_a_mixture_go_on_by_the_formula() -> None:
    """Few users of navigational queries reach positions 5 to 10, so clicks there identify the kind of a query."""
    world = engine_world(replace(LARGE, users="mix", searches=200))
    clicks = world.logged.clicks
    query, low = clicks.lists.list_of[clicks.rows], clicks.positions >= 5
    clicked = np.bincount(query, weights=clicks.clicks * low)
    reached = clicked / np.bincount(query, weights=clicks.list_impressions * attraction(world) * low)
    navigational = (reached < 0.25)[query[clicks.offsets[:-1]]]
    first = (clicks.clicks > 0).reshape(-1, 10)[:, 0]
    assert (reached < 0.25).mean() == pytest.approx(0.4, abs=0.1)
    assert go_on(world, navigational & ~first) == pytest.approx(0.55, abs=0.03)
    assert go_on(world, navigational & first) == pytest.approx(0.1 * 0.55, abs=0.03)
    assert go_on(world, ~navigational & ~first) == pytest.approx(0.93, abs=0.03)
    assert go_on(world, ~navigational & first) == pytest.approx(0.93, abs=0.07)


def test_logit_users_observe_by_the_formula() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    logits = 1.6 - 0.5 * np.arange(10)
    expected = (1 / (1 + np.exp(-(logits[:, None] + nodes)))) @ (weights / weights.sum())
    assert observation("logit") == pytest.approx(expected, abs=0.03)


def test_popular_documents_are_observed_more_on_later_days() -> None:
    world = engine_world(replace(LARGE, users="popularity", searches=200))
    clicks, days = world.logged.clicks, world.logged.days
    assert days is not None
    day, attracted = np.repeat(days, np.diff(clicks.offsets)), attraction(world)
    past = np.zeros(clicks.lists.documents)
    for today in range(4):
        part = day == today
        logit = 1.6 - 0.5 * (clicks.positions[part] - 1) + 0.5 * np.log1p(past[clicks.rows[part]])
        expected = clicks.list_impressions[part] * attracted[part] / (1 + np.exp(-logit))
        assert clicks.clicks[part].sum() / expected.sum() == pytest.approx(1, abs=0.05)
        past += np.bincount(clicks.rows[part], weights=clicks.clicks[part], minlength=len(past))
    assert np.log1p(past).mean() > 1  # so that ignoring past clicks would fail above


def test_coupled_observation_depends_on_five_features() -> None:
    """A regression finds the exponents: log o = -.7 log k - .7 log k w.x, so clicks at lower positions depend on x."""
    world = engine_world(replace(LARGE, users="coupled", features=8, searches=300))
    clicks = world.logged.clicks
    low = clicks.positions >= 3
    shown = (clicks.list_impressions * attraction(world) * CURVE[clicks.positions - 1])[low]
    slope = -0.7 * np.log(clicks.positions[low])
    design = clicks.lists.features[clicks.rows[low]] * slope[:, None]
    coefficients = np.zeros(8)
    for _ in range(20):  # Poisson regression with an offset, by Newton steps
        mean = shown * np.exp(design @ coefficients)
        gradient = design.T @ (clicks.clicks[low] - mean)
        coefficients += np.linalg.solve((design * mean[:, None]).T @ design, gradient)
    assert (np.abs(coefficients) < 0.35).all()
    assert (np.sort(np.abs(coefficients))[:3] < 0.03).all()  # the three features that do not matter
    assert np.abs(coefficients).max() > 0.1


def test_feedback_moves_clicked_documents_up() -> None:
    rates = []
    for feedback in (0.0, 4.0):
        clicks = engine_world(replace(SMALL, queries=150, candidates=60, quality=0.3, feedback=feedback)).logged.clicks
        rates.append(clicks.clicks.sum() / clicks.list_impressions.sum())
    assert rates[1] > 1.15 * rates[0]


def test_mixed_relevance_is_half_non_linear() -> None:
    shares = {}
    for relevance in ("linear", "mixed"):
        world = engine_world(EngineSettings(relevance=relevance, unexplained=0.0, queries=100, test_queries=1))
        utility = (np.log(world.attraction / (1 - world.attraction)) + 2.6) / 1.6
        design = np.column_stack([np.ones(len(utility)), world.train.lists.features])
        residual = utility - design @ np.linalg.lstsq(design, utility)[0]
        shares[relevance] = residual.var() / utility.var()
    assert shares["linear"] == pytest.approx(0, abs=1e-6)
    assert shares["mixed"] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("users", "robots"),
        ("relevance", "square"),
        ("quality", 1.1),
        ("quality", float("nan")),
        ("feedback", -1.0),
        ("noise", float("inf")),
        ("unexplained", -0.1),
        ("queries", 0),
        ("test_queries", 0),
        ("candidates", 0),
        ("searches", 0),
        ("days", 0),
        ("features", 4),
        ("shown", 61),
    ],
)
def test_invalid_settings_are_named(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{field} must"):
        EngineSettings(**{field: value})


def test_a_random_engine_does_not_react_to_clicks() -> None:
    with pytest.raises(SettingError, match="feedback must be 0"):
        EngineSettings(random=True, feedback=1.0)


def test_the_cells_cover_what_matters_and_have_different_names() -> None:
    assert len(CELLS) >= 44
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert {cell.users for cell in CELLS} == set(get_args(Users))
    assert {cell.relevance for cell in CELLS} == {"linear", "mixed"}
    assert {cell.quality for cell in CELLS} == {0.0, 0.3, 0.6, 0.9}
    assert {cell.candidates for cell in CELLS} == {15, 60, 150}
    assert {5, 20, 60, 240, 2000} <= {cell.queries for cell in CELLS}
    assert {5, 30, 300} <= {cell.searches for cell in CELLS}
    assert any(cell.random for cell in CELLS)
    assert any(cell.feedback for cell in CELLS)
    assert any(cell.log_candidates for cell in CELLS)
    # The mean number of searches is at most 2.2 times the scale.
    assert max(cell.queries * cell.searches * cell.shown * 2.2 for cell in CELLS) < 450_000


@pytest.fixture(scope="module")
def judged() -> tuple[JudgedLists, JudgedLists]:
    """Judged lists of different lengths, one of them shorter than what an engine shows."""
    world = engine_world(EngineSettings(queries=40, test_queries=40, candidates=30, searches=1))
    rows = np.arange(world.train.lists.documents)
    keep = (rows % 30 < 20) | (world.train.lists.list_of % 2 == 0)
    keep &= (rows % 30 < 4) | (world.train.lists.list_of != 3)
    lists = world.train.lists
    offsets = np.concatenate([[0], np.cumsum(np.bincount(lists.list_of, weights=keep))]).astype(np.int64)
    shorter = type(lists)(lists.features[keep], offsets, lists.query_ids)
    return JudgedLists(shorter, world.train.grades[keep]), world.test


def test_an_engine_on_judged_lists(judged: tuple[JudgedLists, JudgedLists]) -> None:
    train, test = judged
    world = judged_world(train, test, EngineSettings(noise=0.6, feedback=3.0, users="popularity"))
    clicks = world.logged.clicks
    lengths = np.diff(clicks.offsets)
    short = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]] == 3
    assert set(lengths[short].tolist()) == {4}
    assert set(lengths[~short].tolist()) == {10}
    assert np.array_equal(clicks.lists.features, train.lists.features[world.rows])
    assert ndcg(test, world.engine) > ndcg(test, np.random.default_rng(0).normal(size=len(world.engine))) + 0.1
    assert world.attraction[train.grades == 0] == pytest.approx(0.08)
    assert world.attraction[train.grades == 4] == pytest.approx(0.93)
    assert world.attraction[train.grades == 1] == pytest.approx(0.08 + 0.85 / 15)


@pytest.mark.parametrize("users", get_args(Users))
def test_all_users_search_judged_lists(judged: tuple[JudgedLists, JudgedLists], users: Users) -> None:
    one, same = (judged_world(*judged, EngineSettings(users=users, searches=5)).logged.clicks for _ in range(2))
    assert np.array_equal(one.clicks, same.clicks)
    assert 0 < one.clicks.sum() < one.list_impressions.sum()


def test_judged_lists_must_have_the_same_features(judged: tuple[JudgedLists, JudgedLists]) -> None:
    train, test = judged
    with pytest.raises(DataError, match="25 features"):
        judged_world(train, test.with_features(test.lists.features[:, :9]), EngineSettings())
