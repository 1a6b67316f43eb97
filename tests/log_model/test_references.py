"""Model-free curves: by hand, against a general optimiser, on simulated truth; links, intervals and agreement."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from clickprism.click_models.pbm import PositionUser
from clickprism.data.logged import Logged
from clickprism.errors import UnsupportedError
from clickprism.log_model.counts import count, cut
from clickprism.log_model.references import Links, agreement, allpairs, interval, linkage, randomised_curve
from clickprism.log_model.results import Curve
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, Float64, JudgedLists, Lists

TRUE = np.array([0.8, 0.6, 0.4, 0.2])


def make(sessions: Sequence[tuple[int, Sequence[int], Sequence[int], int]], documents: Sequence[int]) -> Clicks:
    """A log of (query, documents of the query by position, clicks, impressions); `documents` of each query."""
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


def curve_of(clicks: Clicks, **options: int | float) -> Curve:
    return allpairs(Links.of(count(clicks)), **{"resamples": 0, **options})[0]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def searched() -> JudgedLists:
    """A hundred queries of eight documents, two of each grade."""
    rng = np.random.default_rng(3)
    lists = Lists(np.zeros((800, 0), np.float32), np.arange(0, 801, 8), np.arange(100).astype(np.str_))
    return JudgedLists(
        lists, np.concatenate([rng.permutation([0, 0, 1, 1, 2, 2, 4, 4]) for _ in range(100)]).astype(np.int32)
    )


def logged(searched: JudgedLists, *, sessions: int, seed: int = 0, **how: object) -> Clicks:
    """A log of three noisy rankers over the searched lists, four documents a list."""
    scores = searched.grades + np.random.default_rng(11).normal(size=(3, len(searched.grades)))
    settings = SimulationSettings(length=4, **how)  # type: ignore[arg-type]
    user = PositionUser(curve=tuple(TRUE))
    return simulate(searched, user, sessions=sessions, seed=seed, settings=settings, scores=scores).clicks


def test_documents_are_weighted_by_their_impressions_at_both_positions() -> None:
    log = make(
        [(0, (0, 1), (40, 0), 100), (0, (1, 0), (0, 80), 400), (1, (0, 1), (30, 0), 100), (1, (1, 0), (0, 10), 100)],
        [2, 2],
    )
    # document 0 of each query: 100 and 400 impressions weigh 80, 100 and 100 weigh 50; the others are never clicked
    expected = (80 * 0.2 + 50 * 0.1) / (80 * 0.4 + 50 * 0.3)
    np.testing.assert_allclose(curve_of(log).values, [1, expected], rtol=1e-7)


def test_allpairs_is_the_maximum_of_its_likelihood(searched: JudgedLists) -> None:
    log = logged(searched, sessions=4000)
    sums: dict[tuple[int, int], list[float]] = {}
    shown, clicked = np.zeros((800, 4)), np.zeros((800, 4))
    np.add.at(shown, (log.rows, log.positions - 1), log.list_impressions)
    np.add.at(clicked, (log.rows, log.positions - 1), log.clicks)
    for n, c in zip(shown, clicked, strict=True):
        for k in range(4):
            for j in range(k + 1, 4):
                if n[k] and n[j]:
                    w = n[k] * n[j] / (n[k] + n[j])
                    total = sums.setdefault((k, j), [0.0, 0.0, 0.0])
                    for at, value in enumerate((w, w * c[k] / n[k], w * c[j] / n[j])):
                        total[at] += value
    pairs = list(sums)

    def loss(logits: Float64) -> float:
        observed = np.concatenate([[0.0], logits[:3]])
        result = 0.0
        for r, (k, j) in zip(logits[3:], pairs, strict=True):
            w, first, second = sums[k, j]
            for at, found in ((k, first), (j, second)):
                log_chance = min(observed[at] + r, -1e-9)
                result -= found * log_chance + (w - found) * np.log(-np.expm1(log_chance))
        return result

    start = np.concatenate([np.zeros(3), np.full(len(pairs), -2.0)])
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-5})
    np.testing.assert_allclose(curve_of(log).values, np.exp(np.concatenate([[0.0], best.x[:3]])), rtol=1e-4)


def test_extreme_click_rates_have_a_curve() -> None:
    always = make([(0, (0, 1), (50, 50), 50), (0, (1, 0), (50, 50), 50)], [2])
    np.testing.assert_allclose(curve_of(always).values, [1, 1], atol=1e-4)
    rare = curve_of(make([(0, (0, 1), (40, 1), 10**7), (0, (1, 0), (1, 20), 10**7)], [2]))
    assert "weakest link 1-2: 14 effective clicks" in rare.note
    np.testing.assert_allclose(rare.values, [1, 21 / 41], rtol=1e-6)


def test_several_rankers_identify_the_curve(searched: JudgedLists) -> None:
    log = logged(searched, sessions=200_000)
    assert curve_of(log).error(TRUE) < 0.03
    rates = np.bincount(log.positions, weights=log.clicks)[1:]
    assert replace(curve_of(log), values=rates / rates[0]).error(TRUE) > 0.15


def test_random_positions_identify_the_curve(searched: JudgedLists) -> None:
    log = logged(searched, sessions=100_000, intervention=Intervention(kind="shuffle", depth=8))
    counts = count(Logged(log, randomised=np.ones(len(log.rows), dtype=np.bool_)), by_chance=True)
    curve, draws = randomised_curve(counts, resamples=20)
    assert curve.error(TRUE) < 0.03
    assert draws.shape == (20, 4)
    clicks, shown = (np.bincount(log.positions, weights=each)[1:] for each in (log.clicks, log.list_impressions))
    rates = (clicks + 0.5) / (shown + 0.5 * shown.sum() / clicks.sum())  # half a click more, at the mean rate
    np.testing.assert_allclose(curve.values, rates / rates[0])
    assert curve_of(log).error(TRUE) < 0.03
    with pytest.raises(UnsupportedError, match="does not mark results at random positions"):
        randomised_curve(count(log))


def test_merged_and_single_sessions_give_the_same(searched: JudgedLists) -> None:
    sessions = logged(searched, sessions=5000, merge="none")
    one, other = (curve_of(log, resamples=3) for log in (sessions, sessions.merge()))
    for name in ("values", "lower", "upper"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6)


def test_positions_without_links_are_named() -> None:
    log = make([(0, (0, 1, 2, 3), (50, 40, 30, 20), 100), (0, (1, 0, 3, 2), (50, 40, 30, 20), 100)], [4])
    with pytest.raises(UnsupportedError, match=r"position 3 is not linked to position 1.*--depth 2"):
        curve_of(log)
    assert len(curve_of(cut(Logged(log), 2).clicks)) == 2
    counts = count(log)
    nothing = np.zeros(4, dtype=np.bool_)
    found = linkage(counts, Links.of(counts), features=False, randomised=nothing)
    assert found.identified == ("documents", "documents", "not identified", "not identified")
    assert (found.linked, found.depth, found.moved, found.pairs) == (False, 2, 4, 4)
    assert "2 and 3" in found.repair
    with_features = linkage(counts, Links.of(counts), features=True, randomised=nothing)
    assert with_features.identified[2:] == ("features", "features")
    by_chance = linkage(counts, Links.of(counts), features=False, randomised=~nothing)
    assert by_chance.identified == ("randomised",) * 4


def test_few_clicks_are_no_link() -> None:
    log = make([(0, (0, 1), (12, 6), 100), (0, (1, 0), (12, 3), 100)], [2])  # 24 and 9 clicks: 6.5 effective
    assert Links.of(count(log)).strength[0] == pytest.approx(24 * 9 / 33, rel=0.05)
    with pytest.raises(UnsupportedError, match="fewer than 10 effective clicks"):
        curve_of(log)


def test_many_positions_cost_little_memory() -> None:
    """80 positions have 3,160 pairs: a dense matrix of pairs and positions for each draw would take twice the limit."""
    depth = 80
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(depth), (40, 1)), axis=1)
    clicked = [int(400 / (1 + position / 50)) for position in range(depth)]
    log = make([(0, order.tolist(), clicked, 1000) for order in orders], [depth])
    tracemalloc.start()
    curve = curve_of(log, resamples=50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    np.testing.assert_allclose(curve.values, 1 / (1 + np.arange(depth) / 50), rtol=0.03)


def test_intervals_contain_the_truth(searched: JudgedLists) -> None:
    """50 logs, 3 positions each, at 90%: 150 events, whose share has a standard error of at least .025."""
    held = 0
    for seed in range(50):
        curve = curve_of(logged(searched, sessions=4000, seed=seed), resamples=60, confidence=0.9, seed=seed)
        truth = TRUE / TRUE[0]
        held += int(((curve.lower <= truth) & (truth <= curve.upper))[1:].sum())
    assert 120 <= held <= 147


def test_draws_repeat_and_differ_by_seed(searched: JudgedLists) -> None:
    log = logged(searched, sessions=2000)
    curves = [curve_of(log, resamples=20, seed=seed) for seed in (1, 1, 2)]
    assert np.array_equal(curves[0].lower, curves[1].lower)
    assert not np.array_equal(curves[0].lower, curves[2].lower)
    assert np.array_equal(curves[0].values, curves[2].values)
    assert np.isnan(curve_of(log).lower).all()


def test_intervals_are_mirrored_draws() -> None:
    """Draws at twice to four times the curve say that the curve is too high: the truth is at a half to a quarter."""
    draws = np.linspace([1.0, 0.4, 0.0], [1.0, 0.8, 0.0], 101)
    lower, upper = interval(np.array([1.0, 0.2, 0.0]), draws, 0.9)
    np.testing.assert_allclose(lower, [1, 0.04 / 0.78, 0])
    np.testing.assert_allclose(upper, [1, 0.04 / 0.42, 0])


def test_agreement_of_a_curve_with_a_reference() -> None:
    rng = np.random.default_rng(0)
    values = np.array([1.0, 0.5, 0.25])
    draws = values * np.exp(rng.normal(0, [0, 0.05, 0.05], (200, 3)))
    reference = Curve("allpairs", values, values, values)
    covariance = np.diag([0.0, 0.05**2, 0.05**2])
    same = agreement(np.log(values), covariance, reference, draws)
    assert same.agrees
    assert same.ratio == pytest.approx(1)
    other = agreement(np.log([1.0, 0.5, 0.5]), covariance, reference, draws)
    assert (other.agrees, other.largest) == (False, 3)
    assert other.ratio == pytest.approx(2)
    assert other.p_value < 1e-6


def test_positions_that_were_never_observed_do_not_count_in_the_error() -> None:
    curve = Curve("", np.array([1, 0.6, 0.3]), np.ones(3), np.ones(3))
    assert curve.error(np.array([1, 0.5, 0])) == pytest.approx(0.2)
    assert np.isnan(curve.error(np.array([0.0, 0.5, 0.5])))
