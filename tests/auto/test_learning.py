"""What rankers of `auto` learn: likelihood, control function, averages and the choice, by arithmetic and simulation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from clickprism.auto import checks
from clickprism.auto.candidates import SUMMARIES, Candidate, _choose, _Search
from clickprism.auto.checks import _random_order, choose_ranker
from clickprism.auto.learners import Evidence, Scorer, average, network_clicks
from clickprism.data.logged import Logged
from clickprism.debias.query_regression import attenuation, centred, linear_clicks, linear_engine
from clickprism.evaluation.measures import evaluate
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Clicks, Float64, Lists
from reproduce.common.engines import EngineSettings, engine_world

MEASURE = "nDCG(exp)@10"


def small(*, clicks: list[float], exposure: list[float], query: list[int], fold: list[int] | None = None) -> Evidence:
    """Return evidence of a few pairs with one feature."""
    size, queries = len(clicks), max(query) + 1
    offsets = np.concatenate([[0], np.cumsum(np.bincount(query))])
    lists = Lists(np.arange(size, dtype=np.float32)[:, None], offsets, np.arange(queries).astype(np.str_))
    return Evidence(
        lists=lists,
        rows=np.arange(size),
        query=np.array(query),
        clicks=np.array(clicks, dtype=np.float64),
        exposure=np.array(exposure, dtype=np.float64),
        engine=np.zeros(size),
        prior=np.full(size, 0.2),
        posterior=np.full(size, 0.2),
        impressions=np.array(exposure, dtype=np.float64),
        raw_clicks=np.array(clicks, dtype=np.float64),
        unshown=np.zeros(0, dtype=np.int64),
        fold=np.array(query if fold is None else fold),
    )


def test_the_likelihood_shares_the_clicks_of_a_query_by_exposure_and_score() -> None:
    evidence = small(clicks=[2, 1, 0, 3], exposure=[10, 5, 5, 8], query=[0, 0, 0, 1])
    scores = np.log([1.0, 2.0, 4.0, 9.0])
    # weights E exp(f) of the first query: 10, 10, 20; a query with one document says nothing
    expected = 2 * np.log(10 / 40) + np.log(10 / 40)
    np.testing.assert_allclose(evidence.held_out_likelihood(scores), [expected, 0.0], atol=1e-12)


def test_a_linear_ranker_has_the_largest_penalised_likelihood() -> None:
    rng = np.random.default_rng(1)
    query = np.repeat(np.arange(30), 6)
    features, offset = rng.normal(size=(180, 3)), rng.normal(0, 0.5, 180)
    clicks = rng.poisson(np.exp(features @ [0.8, -0.5, 0.0] + offset)).astype(np.float64)
    ridge = np.array([2.0, 1.0, 5.0])

    def loss(coefficients: Float64) -> float:
        logits = (features @ coefficients + offset).reshape(30, 6)
        shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -float((clicks.reshape(30, 6) * shares).sum()) + 0.5 * float(ridge @ coefficients**2)

    found = linear_clicks(features, clicks, offset, query, ridge=ridge)
    best = minimize(loss, np.zeros(3), method="BFGS")
    assert loss(found) <= best.fun + 1e-6
    np.testing.assert_allclose(found, best.x, atol=1e-3)


def test_attenuation_is_the_slope_that_a_regression_on_the_shown_part_finds() -> None:
    """Scores with standard normal marginals, of which the highest part is shown: Goldberger (1981)."""
    rng = np.random.default_rng(2)
    for explained, shown in ((0.5, 1 / 6), (0.2, 0.05), (0.9, 0.5)):
        x = rng.normal(size=1_000_000)
        score = np.sqrt(explained) * x + np.sqrt(1 - explained) * rng.normal(size=len(x))
        kept = score > norm.isf(shown)
        own, values = x[kept] - x[kept].mean(), score[kept] - score[kept].mean()
        slope = float(own @ values) / float(own @ own)
        share = slope**2 * float(own @ own) / float(values @ values)  # R^2 among the shown
        assert attenuation(share, shown) == pytest.approx(slope / np.sqrt(explained), abs=0.02)


def test_the_engine_s_score_repairs_what_selection_does_to_the_weights() -> None:
    """Relevance = x0 + hidden merit. The engine shows the top sixth by x0 + x1 + hidden merit."""
    rng = np.random.default_rng(3)
    queries, candidates, shown = 400, 60, 10
    x, hidden = rng.normal(size=(queries, candidates, 2)), rng.normal(size=(queries, candidates))
    order = np.argsort(-(x.sum(axis=2) + 1.5 * hidden), axis=1)[:, :shown]
    rows = np.arange(queries)[:, None]
    own, merit = x[rows, order].reshape(-1, 2), hidden[rows, order].reshape(-1)
    query = np.repeat(np.arange(queries), shown)
    clicks = rng.poisson(5 * np.exp(0.7 * own[:, 0] + 0.7 * merit)).astype(np.float64)
    engine = centred(np.tile(-np.log(np.arange(1, shown + 1)), queries), query)
    nothing, ridge = np.zeros(len(clicks)), np.array([1.0, 1.0])
    naive = linear_clicks(own, clicks, nothing, query, ridge=ridge)
    both = linear_clicks(np.column_stack([own, engine]), clicks, nothing, query, ridge=np.append(ridge, 0.01))
    imitation = linear_engine(own, engine, query, ridge=1.0)
    residual = engine - centred(own @ imitation, query)
    theta = attenuation(1 - float(residual @ residual) / float(engine @ engine), shown / candidates)
    repaired = both[:2] + both[2] / theta * imitation
    truth = np.array([0.7, 0.0])
    assert naive[1] < -0.2  # a feature that does not matter seems harmful: it is shown only with hidden merit
    assert np.abs(repaired - truth).max() < 0.5 * np.abs(naive - truth).max()


@pytest.mark.parametrize("networks", [0, 2])
def test_a_scorer_gives_the_scores_of_the_served_ranker(networks: int) -> None:
    rng = np.random.default_rng(4)
    features, query = rng.normal(size=(60, 4)), np.repeat(np.arange(10), 6)
    clicks = rng.poisson(1.0, 60).astype(np.float64)
    parts = [Scorer(rng.normal(size=4))]
    for seed in range(networks):
        made = network_clicks(features, clicks, np.zeros(60), query, seed=seed)
        parts.append(Scorer(np.zeros(4), ((1.0, made),)))
    scorer = average(parts).times(0.5).plus(parts[0], 2.0)
    lists = Lists(features.astype(np.float32), np.arange(0, 61, 6), np.arange(10).astype(np.str_))
    np.testing.assert_allclose(scorer.model().score(lists), scorer(features), rtol=1e-4, atol=1e-4)


def of_queries(queries: int, *, clicks: float) -> Evidence:
    """Return queries of two documents; the first of each gets three quarters of the clicks."""
    each = clicks / queries
    query = [number for number in range(queries) for _ in range(2)]
    return small(clicks=[3 * each, each] * queries, exposure=[10, 10] * queries, query=query)


def test_the_average_follows_the_evidence() -> None:
    """Two functions that predict alike count the same; with many clicks the better one counts almost alone."""
    scores = np.tile([1.0, 0.0], 120)
    better, worse = Scorer(np.ones(1), held_out=scores), Scorer(-np.ones(1), held_out=-scores)
    for clicks, lower, upper in ((0.0, 0.45, 0.55), (10.0, 0.1, 0.4), (1000.0, 0.0, 0.02)):
        found = _Search(of_queries(120, clicks=clicks), 0).average([better, worse], raw=False)
        share = (1 - float(found.linear[0])) / 2
        assert lower <= share <= upper
        np.testing.assert_allclose(found.held_out, (1 - 2 * share) * scores)


@pytest.mark.parametrize(("queries", "clicks", "shares"), [(10, 500.0, [1 / 3] * 3), (120, 0.0, [0.4, 0.4, 0.2])])
def test_without_evidence_the_prior_decides_what_counts(queries: int, clicks: float, shares: list[float]) -> None:
    """With few queries all parts count the same, whatever the clicks; with many, raw clicks count one fifth."""
    scorers = [Scorer(weight, held_out=np.tile([1.0, 0.0], queries)) for weight in np.eye(3)]
    found = _Search(of_queries(queries, clicks=clicks), 0).average(scorers)
    np.testing.assert_allclose(found.linear, shares, atol=0.02)


def with_gain(name: str, gain: Float64) -> Candidate:
    return Candidate(name, np.zeros(0), gain, lambda: pytest.fail("not needed"))


@pytest.mark.parametrize(
    ("queries", "linear", "blend", "chosen", "words"),
    [
        (120, 100.0, 99.0, "linear", "best"),
        (120, 100.0, 104.0, "linear", "gains only 4% more"),
        (120, 100.0, 130.0, "blend", "best"),
        (120, -5.0, 30.0, "blend", "best"),
        (60, 100.0, 104.0, "blend", "best"),
        (60, 104.0, 100.0, "blend", "gains only 4% more"),
        (60, 130.0, 100.0, "linear", "best"),
    ],
)
def test_a_ranker_must_gain_materially_on_the_safe_one(
    queries: int, linear: float, blend: float, chosen: str, words: str
) -> None:
    """The linear ranker is the safe one with many queries, the blend with few."""
    gains = dict.fromkeys(SUMMARIES, -10.0) | {"linear": linear, "blend": blend}
    found = {name: with_gain(name, np.full(queries, gain / queries)) for name, gain in gains.items()}
    name, reason = _choose(found, np.zeros(queries))
    assert (name, words in reason) == (chosen, True)


def test_a_gain_within_chance_is_no_reason() -> None:
    chance = np.where(np.arange(120) % 2, 5.0, -4.5)
    found = {name: with_gain(name, np.full(120, -1.0)) for name in SUMMARIES}
    found |= {"linear": with_gain("linear", np.ones(120)), "trees": with_gain("trees", 1 + chance)}
    assert _choose(found, np.zeros(120))[0] == "linear"


def test_auto_learns_from_the_log_of_a_good_engine_and_of_a_poor_one() -> None:
    """The engine of quality .9 knows more than the features; that of quality 0 ranks by an irrelevant direction."""
    for quality in (0.9, 0.0):
        world = engine_world(EngineSettings(users="pbm", quality=quality, queries=120, searches=20, seed=11))
        model = LogModel.fit(world.logged, settings=LogModelSettings(resamples=0))
        checked = choose_ranker(world.logged, model)
        lists = world.test.lists.with_features(checked.normaliser(world.test.lists).features)

        def judged(candidate: Candidate, lists: Lists = lists, test: object = world.test) -> float:
            return float(evaluate(test, candidate.make().score(lists), MEASURE).mean(MEASURE))  # type: ignore[arg-type]

        assert checked.use == "corrected"
        assert judged(checked.used) > (0.7 if quality else 0.68)
        assert judged(checked.used) > judged(checked.candidates.raw) - (0.02 if quality else -0.1)


@pytest.mark.parametrize(
    ("searches", "right", "verdict"), [(16, 16, "passed"), (16, 8, "inconclusive"), (16, 0, "failed"), (5, 5, None)]
)
def test_searches_in_random_order_check_the_ranker(searches: int, right: int, verdict: str | None) -> None:
    """Each search shows two documents; the ranker prefers the first of them, which is clicked in `right` searches."""
    offsets = np.arange(0, 2 * searches + 1, 2)
    lists = Lists(np.zeros((2 * searches, 1), np.float32), offsets, np.arange(searches).astype(np.str_))
    first = np.arange(searches) < right
    clicked = np.column_stack([first, ~first]).reshape(-1).astype(np.int64)
    positions = np.tile(np.array([1, 2], dtype=np.int32), searches)
    clicks = Clicks(lists, offsets, np.arange(2 * searches), positions, clicked, np.ones(searches, dtype=np.int64))
    evidence = of_queries(searches, clicks=1.0)
    logged = Logged(clicks, randomised=np.ones(2 * searches, dtype=np.bool_))
    found = _random_order(logged, evidence, np.tile([1.0, 0.0], searches))
    assert [each.verdict for each in found] == ([] if verdict is None else [verdict])
    assert all(each.numbers["share"] == right / searches for each in found)
    assert _random_order(Logged(clicks), evidence, np.tile([1.0, 0.0], searches)) == []


@pytest.mark.parametrize(
    ("slopes", "fits", "linked", "expected"),
    [
        ((0.5,), (False,), False, ("passed", False)),
        ((0.0,), (True,), False, ("passed", False)),
        ((0.0, 0.5), (False, True), True, ("passed", True)),
        ((0.0, 0.5), (False, False), False, ("passed", False)),
        ((0.0, 0.1), (False, True), False, ("passed", False)),
        ((-0.5,), (True,), True, ("passed", False)),
        ((-0.5, 0.0), (True, True), False, ("passed", True)),
        ((-0.5, -0.4), (True, True), False, ("failed", False)),
    ],
)
def test_a_curve_that_is_too_steep_is_flattened(
    slopes: tuple[float, ...],
    fits: tuple[bool, ...],
    linked: bool,
    expected: tuple[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slopes, and whether the model fits: with its own curve, then with the flattest one. The error of slopes is .1.

    Expected are the verdict, and whether the flattest curve is used.
    """
    own: Any
    flat: Any
    own, flat = (
        SimpleNamespace(
            fit_quality=SimpleNamespace(fits=each),
            curve=SimpleNamespace(upper=np.ones(2)),
            linkage=SimpleNamespace(linked=linked),
            references={"allpairs": SimpleNamespace(agrees=True)},
            settings=None,
        )
        for each in (*fits, True)[:2]
    )
    left, nothing = list(slopes), cast("Any", None)
    monkeypatch.setattr(LogModel, "fit", lambda *_, **__: flat)
    monkeypatch.setattr(checks, "engine_slope", lambda _: (left.pop(0), 0.1))
    monkeypatch.setattr(Evidence, "of", lambda *_, **__: of_queries(30, clicks=100.0))
    found, model, _ = checks._checked_curve(nothing, own, nothing, 0)
    assert (found.verdict, model is flat) == expected
    assert not left
