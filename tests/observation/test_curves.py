"""Position curves: by hand, against a general optimiser, on simulated truth; and what each asks of a log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import minimize

from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.curve import cut, relative_error
from clickprism.observation.estimate import ESTIMATORS, Estimator, estimate_curve, estimate_curves
from clickprism.observation.harvest import AllPairs
from clickprism.observation.model_curves import BrowsingModelCurve, PositionModelCurve
from clickprism.observation.randomised import ClickThrough, Randomised
from clickprism.observation.swaps import AdjacentSwaps, PivotSwaps
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, Float64, JudgedLists, Lists
from clickprism.users.pbm import PositionUser
from clickprism.users.ubm import BrowsingUser

ONCE = Bootstrap(resamples=0)
TRUE = np.array([0.8, 0.6, 0.4, 0.2])


def make(sessions: Sequence[tuple[int, Sequence[int], Sequence[int], int]], documents: Sequence[int]) -> Clicks:
    """A log of (query, documents of the query by place, clicks, impressions); `documents` of each query."""
    starts = np.concatenate([[0], np.cumsum(documents)]).astype(np.int64)
    lists = Lists(np.zeros((int(starts[-1]), 0), np.float32), starts, np.arange(len(documents)).astype(np.str_))
    lengths = [len(shown) for _, shown, _, _ in sessions]
    return Clicks(
        lists,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([starts[query] + np.array(shown, np.int64) for query, shown, _, _ in sessions]),
        np.concatenate([np.arange(1, length + 1, dtype=np.int32) for length in lengths]),
        np.concatenate([np.array(clicks, np.int64) for _, _, clicks, _ in sessions]),
        np.array([impressions for _, _, _, impressions in sessions], np.int64),
    )


def values(clicks: Clicks, estimator: Estimator) -> Float64:
    return estimate_curve(clicks, estimator, bootstrap=ONCE).values


@pytest.fixture(scope="module")
def searched() -> JudgedLists:
    """A hundred queries of eight documents, two of each grade."""
    rng = np.random.default_rng(3)
    lists = Lists(np.zeros((800, 0), np.float32), np.arange(0, 801, 8), np.arange(100).astype(np.str_))
    return JudgedLists(
        lists, np.concatenate([rng.permutation([0, 0, 1, 1, 2, 2, 4, 4]) for _ in range(100)]).astype(np.int32)
    )


def logged(
    searched: JudgedLists, *, sessions: int, seed: int = 0, rankers: int = 3, user: object = None, **how: object
) -> Clicks:
    """A log of noisy rankers over the searched lists, four documents a list."""
    rng = np.random.default_rng(11)
    scores = searched.grades + rng.normal(size=(rankers, len(searched.grades)))
    settings = SimulationSettings(length=4, **how)  # type: ignore[arg-type]
    who = PositionUser(curve=tuple(TRUE)) if user is None else user
    return simulate(searched, who, sessions=sessions, seed=seed, settings=settings, scores=scores).clicks  # type: ignore[arg-type]


# Two documents: a at 1 in 100 sessions and at 2 in 300, b the other way; c always third.
SWAPPED = make(
    [(0, (0, 1, 2), (50, 20, 10), 100), (0, (1, 0, 2), (60, 60, 30), 300)],
    [3],
)


def test_swaps_agree_with_a_calculation_by_hand() -> None:
    log = cut(SWAPPED, 2)
    # a: 50 of 100 at 1, 60 of 300 at 2; b: 60 of 300 at 1, 20 of 100 at 2; weights 75 each
    expected = (60 / 300 + 20 / 100) / (50 / 100 + 60 / 300)
    for estimator in (AdjacentSwaps(), PivotSwaps(), PivotSwaps(pivot=2), AdjacentSwaps(weights="equal")):
        np.testing.assert_allclose(values(log, estimator), [1, expected])


def test_matched_weights_by_hand() -> None:
    log = make(
        [(0, (0, 1), (40, 0), 100), (0, (1, 0), (0, 80), 400), (1, (0, 1), (30, 0), 100), (1, (1, 0), (0, 10), 100)],
        [2, 2],
    )
    # document 0 of each query: 100 and 400 impressions weigh 80, 100 and 100 weigh 50; the others are never clicked
    matched = (80 * 0.2 + 50 * 0.1) / (80 * 0.4 + 50 * 0.3)
    equal = (0.2 + 0.1) / (0.4 + 0.3)
    np.testing.assert_allclose(values(log, AdjacentSwaps()), [1, matched])
    np.testing.assert_allclose(values(log, AdjacentSwaps(weights="equal")), [1, equal])


def test_two_positions_make_all_estimators_from_pairs_agree() -> None:
    log = cut(SWAPPED, 2)
    np.testing.assert_allclose(values(log, AllPairs()), values(log, AdjacentSwaps()), rtol=1e-7)


def test_click_through_by_hand() -> None:
    np.testing.assert_allclose(values(SWAPPED, ClickThrough()), np.array([110, 80, 40]) / 110)
    support = estimate_curve(SWAPPED, ClickThrough(), bootstrap=ONCE).support
    assert support.impressions.tolist() == [400, 400, 400]
    assert support.clicks.tolist() == [110, 80, 40]
    assert support.documents == 3


@pytest.mark.parametrize("weights", ["matched", "equal"])
def test_allpairs_is_the_maximum_of_its_likelihood(searched: JudgedLists, weights: str) -> None:
    log = logged(searched, sessions=4000)
    sums: dict[tuple[int, int], list[float]] = {}
    shown, clicked = np.zeros((800, 4)), np.zeros((800, 4))
    np.add.at(shown, (log.rows, log.positions - 1), log.list_impressions)
    np.add.at(clicked, (log.rows, log.positions - 1), log.clicks)
    for n, c in zip(shown, clicked, strict=True):
        for k in range(4):
            for j in range(k + 1, 4):
                if n[k] and n[j]:
                    w = n[k] * n[j] / (n[k] + n[j]) if weights == "matched" else 1.0
                    total = sums.setdefault((k, j), [0.0, 0.0, 0.0])
                    for place, value in enumerate((w, w * c[k] / n[k], w * c[j] / n[j])):
                        total[place] += value
    pairs = list(sums)

    def loss(logits: Float64) -> float:
        seen = np.concatenate([[0.0], logits[:3]])
        result = 0.0
        for r, (k, j) in zip(logits[3:], pairs, strict=True):
            w, first, second = sums[k, j]
            for place, found in ((k, first), (j, second)):
                log_chance = min(seen[place] + r, -1e-9)
                result -= found * log_chance + (w - found) * np.log(-np.expm1(log_chance))
        return result

    start = np.concatenate([np.zeros(3), np.full(len(pairs), -2.0)])
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-5})
    found = values(log, AllPairs(weights=weights))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, np.exp(np.concatenate([[0.0], best.x[:3]])), rtol=1e-4)


def test_likelihood_of_extreme_rates_is_climbed() -> None:
    always = make([(0, (0, 1), (50, 50), 50), (0, (1, 0), (50, 50), 50)], [2])
    np.testing.assert_allclose(values(always, AllPairs()), [1, 1], atol=1e-4)
    rare = make([(0, (0, 1), (40, 1), 10**7), (0, (1, 0), (1, 20), 10**7)], [2])
    assert "weakest link 1-2, by 14 clicks" in estimate_curve(rare, AllPairs(), bootstrap=ONCE).support.note
    np.testing.assert_allclose(values(rare, AllPairs()), [1, 21 / 41], rtol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "tolerance"),
    [(AllPairs(), 0.03), (AllPairs(weights="equal"), 0.03), (PositionModelCurve(), 0.03), (AdjacentSwaps(), 0.05)],
    ids=["allpairs", "equal", "pbm", "adjacent"],
)
def test_several_rankers_tell_the_curve(searched: JudgedLists, estimator: Estimator, tolerance: float) -> None:
    log = logged(searched, sessions=200_000)
    assert relative_error(values(log, estimator), TRUE) < tolerance
    assert relative_error(values(log, ClickThrough()), TRUE) > 0.15


def test_random_order_tells_the_curve(searched: JudgedLists) -> None:
    log = logged(searched, sessions=100_000, intervention=Intervention(kind="shuffle", depth=8))
    for estimator in (Randomised(), AllPairs(), AdjacentSwaps(), PivotSwaps(pivot=3), PositionModelCurve()):
        assert relative_error(values(log, estimator), TRUE) < 0.03, estimator.name


def test_browsing_users_are_told_by_their_model(searched: JudgedLists) -> None:
    rng = np.random.default_rng(11)
    scores = searched.grades + rng.normal(size=(3, len(searched.grades)))
    settings = SimulationSettings(length=4, merge="pattern")
    simulation = simulate(searched, BrowsingUser(), sessions=100_000, seed=1, settings=settings, scores=scores)
    truth = simulation.observation
    assert relative_error(values(simulation.clicks, BrowsingModelCurve()), truth) < 0.02
    with pytest.raises(DataError, match="merged by list"):
        values(simulation.clicks.merge(), BrowsingModelCurve())


def test_merged_and_single_sessions_give_the_same(searched: JudgedLists) -> None:
    sessions = logged(searched, sessions=5000, merge="none")
    for estimator in (AllPairs(), AdjacentSwaps(), ClickThrough(), PositionModelCurve()):
        bootstrap = Bootstrap(resamples=3)
        one, other = (estimate_curve(log, estimator, bootstrap=bootstrap) for log in (sessions, sessions.merge()))
        for name in ("values", "lower", "upper"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6)


# What a log must have


def test_a_ranking_is_not_a_random_order(searched: JudgedLists) -> None:
    with pytest.raises(DataError, match=r"not spread over positions at random \(chi-square .* p [=<] .*\)\. Take only"):
        values(logged(searched, sessions=20_000), Randomised())
    assert values(logged(searched, sessions=20_000), Randomised(least_p=0)).shape == (4,)


@pytest.mark.parametrize(("sessions", "depth"), [(300, 4), (3000, 8), (20_000, 4)])
def test_random_orders_pass_their_test(searched: JudgedLists, sessions: int, depth: int) -> None:
    """P values of random orders are spread out: of 20 logs, hardly one is below .01, and some are below .5."""
    found = []
    for seed in range(20):
        log = logged(
            searched, sessions=sessions, seed=seed, rankers=1, intervention=Intervention(kind="shuffle", depth=depth)
        )
        note = estimate_curve(log, Randomised(least_p=1e-9, least_clicks=1), bootstrap=ONCE).support.note
        found.append(float(note.rpartition("p = ")[2]))
    assert sum(p < 0.01 for p in found) <= 2
    assert 4 <= sum(p < 0.5 for p in found) <= 16


def test_even_a_few_sessions_show_an_order(searched: JudgedLists) -> None:
    with pytest.raises(DataError, match="not spread"):
        values(logged(searched, sessions=600), Randomised())


def test_documents_that_come_once_cannot_be_tested() -> None:
    log = make([(query, (0, 1), (1, 1), 1) for query in range(30)], [2] * 30)
    with pytest.raises(DataError, match="no document was shown twice"):
        values(log, Randomised())


def test_missing_pairs_are_named() -> None:
    log = make(
        [(0, (0, 1, 2, 3), (50, 40, 30, 20), 100), (0, (1, 0, 3, 2), (50, 40, 30, 20), 100)],
        [4],
    )
    with pytest.raises(DataError, match=r"both positions of 2-3 \(fewer than 10.*--depth 2"):
        values(log, AdjacentSwaps())
    with pytest.raises(DataError, match="both positions of 1-3, 1-4"):
        values(log, PivotSwaps())
    for estimator in (AllPairs(), PositionModelCurve()):
        with pytest.raises(
            DataError, match=r"positions 1 to 2 and 3 to 4 are not linked.*1 to 2 are linked: --depth 2"
        ):
            values(log, estimator)
    assert len(values(cut(log, 2), AllPairs())) == 2


def test_few_clicks_are_refused() -> None:
    log = make([(0, (0, 1), (12, 6), 100), (0, (1, 0), (12, 3), 100)], [2])  # 24 and 9 clicks: 6.5 in effect
    with pytest.raises(DataError, match="fewer than 10 clicks in effect"):
        values(log, AllPairs())
    assert values(log, AllPairs(least_clicks=1)).shape == (2,)
    with pytest.raises(DataError, match=r"too few clicks at position 2 \(fewer than 10\)\. More sessions$"):
        values(log, Randomised(least_p=0))
    unclicked = make([(0, (0, 1), (0, 3), 100)], [2])
    with pytest.raises(DataError, match="no click at position 1"):
        values(unclicked, ClickThrough())
    with pytest.raises(DataError, match="one position only"):
        values(cut(log, 1), ClickThrough())


def test_all_estimators_at_once(searched: JudgedLists) -> None:
    log = logged(searched, sessions=30_000)
    found = estimate_curves(log, bootstrap=Bootstrap(resamples=5), depth=3, truth=TRUE)
    assert {*found.curves, *found.unsupported} == {*ESTIMATORS}
    assert "random" in found.unsupported["randomised"]
    assert found.best == "allpairs"
    assert found.truth is not None
    np.testing.assert_allclose(found.truth, TRUE[:3] / 0.8)
    for curve in found.curves.values():
        assert curve.values[0] == curve.lower[0] == curve.upper[0] == 1
        assert (curve.lower <= curve.upper).all()
        assert len(curve.values) == 3


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (AllPairs, {"weights": "other"}),
        (AllPairs, {"tolerance": 0.0}),
        (AllPairs, {"max_iterations": 0}),
        (AdjacentSwaps, {"least_clicks": 0.0}),
        (PivotSwaps, {"pivot": 0}),
        (PositionModelCurve, {"tolerance": 2.0}),
        (Randomised, {"least_p": 1.0}),
        (Bootstrap, {"resamples": -1}),
        (Bootstrap, {"confidence": 1.0}),
        (Bootstrap, {"unit": "user"}),
        (Bootstrap, {"seed": -1}),
    ],
)
def test_settings_are_checked(cls: type, settings: dict[str, object]) -> None:
    (name,) = settings
    with pytest.raises(SettingError, match=f"^{name} must"):
        cls(**settings)


def test_a_pivot_below_the_list_is_refused() -> None:
    with pytest.raises(DataError, match="there is no position 4, the pivot: the log has 3"):
        values(SWAPPED, PivotSwaps(pivot=4))


def test_a_remedy_never_cuts_the_pivot_off() -> None:
    """Documents link 1-2 only; cut above the weak pair 3-1, pivot 1 keeps 1-2, pivot 3 would be gone."""
    log = make([(0, (0, 1, 2), (80, 40, 20), 100), (0, (1, 0, 2), (80, 40, 20), 100)], [3])
    with pytest.raises(DataError, match=r"positions of 1-3 .*--depth 2$"):
        values(log, PivotSwaps(pivot=1))
    with pytest.raises(DataError, match=r"positions of 1-3, 2-3 .*allpairs$"):
        values(log, PivotSwaps(pivot=3))


def test_an_estimator_that_does_not_settle_is_listed() -> None:
    log = make([(0, (0, 1), (80, 20), 100), (0, (1, 0), (50, 40), 100)], [2])
    never = AllPairs(max_iterations=1, tolerance=1e-300)
    found = estimate_curves(log, [never, ClickThrough()], bootstrap=ONCE)
    assert [*found.curves] == ["click-through"]
    assert "not settled after 1 steps" in found.unsupported["allpairs"]


def test_truths_that_were_never_seen_give_no_error() -> None:
    found = estimate_curves(SWAPPED, [AllPairs()], truth=np.array([0.0, 0.5, 0.5]))
    assert found.truth is None
    assert relative_error(np.array([1, 0.6, 0.3]), np.array([1, 0.5, 0])) == pytest.approx(0.2)
    assert np.isnan(relative_error(np.ones(2), np.array([1.0, 0])))


def test_many_positions_cost_little_memory() -> None:
    """80 positions have 3,160 pairs: a dense matrix of pairs and positions for each draw would take twice the limit."""
    depth = 80
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(depth), (40, 1)), axis=1)
    clicked = [int(400 / (1 + place / 50)) for place in range(depth)]
    log = make([(0, order.tolist(), clicked, 1000) for order in orders], [depth])
    tracemalloc.start()
    curve = estimate_curve(log, AllPairs(), bootstrap=Bootstrap(resamples=50))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    np.testing.assert_allclose(curve.values, 1 / (1 + np.arange(depth) / 50), rtol=0.03)
