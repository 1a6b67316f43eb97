"""The posterior of each pair: against brute-force integration, and coverage where the model has the right form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import beta

from clickprism.log_model.counts import count
from clickprism.log_model.fit import choose, fit_form
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.posterior import STEEPER, _Pairs, _towards_engine, cold_prior, relevance
from clickprism.log_model.terms import Covariates, Form
from clickprism.types import Clicks, Float64
from tests.log_model.simulated_logs import World, clicks_of, lists_of, power, world

QUICK = LogModelSettings(resamples=0)


def pairs_of(cells: list[list[tuple[int, int, float]]], **options: Any) -> _Pairs:
    """Return pairs by hand; a cell is its clicks, impressions and observation."""
    flat = np.array([cell for pair in cells for cell in pair], dtype=np.float64)
    trust = options.get("trust", np.zeros(len(flat)))
    return _Pairs(
        starts=np.concatenate([[0], np.cumsum([len(pair) for pair in cells])]).astype(np.int64),
        query=np.zeros(len(cells), dtype=np.int64),
        table=(flat[:, 0].copy(), flat[:, 1].copy(), np.log(flat[:, 2]), trust),
        steps=options.get("steps", np.ones(1)),
        nodes=options.get("nodes", np.ones((1, 1))),
        means=options["means"],
        rates=options["rates"],
    )


def brute(pairs: _Pairs, pair: int, tail: float) -> tuple[float, float, float, float]:
    """Return mean, quantiles and log evidence of one pair by sums over a fine grid."""
    edges = np.concatenate([np.geomspace(1e-9, 1e-3, 20_001)[:-1], np.linspace(1e-3, 1, 100_001)])
    g, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    cells = slice(pairs.starts[pair], pairs.starts[pair + 1])
    clicks, shown, linear, trust = (each[cells] for each in pairs.table)
    total, evidences = np.zeros(len(g)), []
    for node, step in enumerate(pairs.steps):
        kind = min(node, len(pairs.means) - 1)
        mean, rate = pairs.means[kind, pair], pairs.rates[kind, pair]
        log_density = beta.logpdf(g, rate * mean, rate * (1 - mean)) + np.log(width)
        for c, n, log_o, added in zip(clicks, shown, linear, trust, strict=True):
            chance = np.minimum(np.exp(step * log_o) * (g + added), 0.999999)
            log_density += c * np.log(chance) + (n - c) * np.log1p(-chance)
        weight, likely = pairs.nodes[0, node], logsumexp(log_density)
        total += weight * np.exp(log_density - likely)
        if weight > 0:
            evidences.append(np.log(weight) + likely)
    below = np.cumsum(total)
    lower, upper = g[np.searchsorted(below, [tail, 1 - tail])]
    return float(total @ g), float(lower), float(upper), float(logsumexp(evidences))


CELLS = [
    [(0, 20, 1.0)],
    [(0, 20, 0.2), (0, 3, 1.0)],
    [(7, 20, 1.0)],
    [(3, 10, 1.0), (5, 40, 0.4), (1, 60, 0.1)],
    [(400, 1000, 0.9), (30, 100, 0.5)],
    [(1, 1, 0.3)],
    [(19, 20, 1.0)],
]


def check(pairs: _Pairs) -> None:
    """Compare all pairs with brute force: values and ends to 1% of the width of the interval."""
    value, lower, upper, evidence = pairs.integrate(1.0, 0.025)
    for pair in range(len(value)):
        expected = brute(pairs, pair, 0.025)
        width = expected[2] - expected[1]
        assert value[pair] == pytest.approx(expected[0], abs=0.01 * width), pair
        assert lower[pair] == pytest.approx(expected[1], abs=0.02 * width), pair
        assert upper[pair] == pytest.approx(expected[2], abs=0.02 * width), pair
        assert evidence[pair] == pytest.approx(expected[3], abs=0.03), pair


def test_mean_quantiles_and_evidence_are_those_of_brute_force() -> None:
    means = np.array([[0.2, 0.1, 0.3, 0.05, 0.5, 0.2, 0.6]])
    check(pairs_of(CELLS, means=means, rates=np.full((1, 7), 5.0)))
    check(pairs_of(CELLS, means=means, rates=np.array([[40.0, 3.0, 1.0, 200.0, 10.0, 2.0, 8.0]])))


def test_steepness_of_the_query_is_averaged() -> None:
    steps, nodes = np.array([0.5, 1.0, 2.0]), np.array([[0.3, 0.5, 0.2]])
    check(pairs_of(CELLS, means=np.full((1, 7), 0.2), rates=np.full((1, 7), 5.0), steps=steps, nodes=nodes))


def test_level_of_the_query_is_averaged() -> None:
    nodes, means = np.array([[0.3, 0.0, 0.7]]), np.array([[0.1], [0.2], [0.3]]) * np.ones((1, 7))
    check(pairs_of(CELLS, means=means, rates=np.full((3, 7), 5.0), steps=np.ones(3), nodes=nodes))


def test_clicks_by_trust_are_not_relevance() -> None:
    size = sum(len(pair) for pair in CELLS)
    options = {"means": np.full((1, 7), 0.2), "rates": np.full((1, 7), 5.0)}
    trusted = pairs_of(CELLS, trust=np.full(size, 0.1), **options)
    check(trusted)
    assert (trusted.integrate(1.0, 0.025)[0] <= pairs_of(CELLS, **options).integrate(1.0, 0.025)[0] + 1e-9).all()


def test_without_position_bias_the_posterior_is_a_beta_distribution() -> None:
    pairs = pairs_of([[(3, 10, 1.0)], [(0, 50, 1.0)]], means=np.full((1, 2), 0.2), rates=np.full((1, 2), 10.0))
    value, lower, upper, _ = pairs.integrate(1.0, 0.05)
    assert value == pytest.approx([5 / 20, 2 / 60], rel=2e-3)
    assert lower == pytest.approx(beta.ppf(0.05, [5, 2], [15, 58]), rel=0.02)
    assert upper == pytest.approx(beta.ppf(0.95, [5, 2], [15, 58]), rel=0.02)


def test_the_mean_is_the_prior_corrected_by_the_clicks_that_it_does_not_explain() -> None:
    # E[g | c] is about m + sum(c - n o m) / (sum n o + K), where click probabilities are small
    cells = [(2, 100, 0.1), (0, 400, 0.02)]
    clicks, shown, seen = np.array(cells).T
    mean, strength = 0.05, 30.0
    pairs = pairs_of([cells], means=np.array([[mean]]), rates=np.array([[strength]]))
    robust = mean + (clicks - shown * seen * mean).sum() / (shown @ seen + strength)
    assert pairs.integrate(1.0, 0.025)[0][0] == pytest.approx(robust, rel=0.05)


def own_form(seed: int, *, queries: int, strength: float, searches: tuple[int, ...]) -> tuple[Clicks, Float64]:
    """Return a log whose relevance is drawn from a Beta distribution, at random positions, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(0.25 * strength, 0.75 * strength, (queries, 6))
    parts = []
    for count_of in searches:
        order = np.argsort(rng.random((queries, 6)), axis=1)
        drawn = rng.binomial(count_of, np.take_along_axis(truth, order, axis=1) * power(6))
        parts.append((order + 6 * np.arange(queries)[:, None], drawn, np.full(queries, count_of)))
    rows, clicks, shown = (np.concatenate(each) for each in zip(*parts, strict=True))
    return clicks_of(lists_of(queries, 6), rows, clicks, shown), truth.ravel()


@pytest.mark.parametrize(("strength", "searches"), [(4.0, (3, 4, 3)), (4.0, (30, 40, 30)), (20.0, (20, 10))])
def test_intervals_cover_the_truth_in_a_world_of_the_models_own_form(
    strength: float, searches: tuple[int, ...]
) -> None:
    log, truth = own_form(1, queries=300, strength=strength, searches=searches)
    model = LogModel.fit(log, settings=QUICK)
    found = model.relevance
    inside = (found.lower <= truth[found.rows]) & (truth[found.rows] <= found.upper)
    # 1,800 pairs: the standard error of .95 is .005; pairs share the curve, hence .93 to .97
    assert 0.93 <= inside.mean() <= 0.97
    most = found.weight > np.median(found.weight)
    assert 0.92 <= inside[most].mean() <= 0.98
    assert np.abs(found.value - truth[found.rows]).mean() < np.abs(truth.mean() - truth).mean()


def test_the_prior_strength_is_recovered() -> None:
    # fitted with Poisson clicks, K is too large where documents are clicked often; the second stage corrects it
    for strength in (4.0, 20.0):
        log, _ = own_form(2, queries=400, strength=strength, searches=(40, 40))
        fit = fit_form(count(log), Form(first=False, proportional=False), Covariates())
        _, rate = relevance(fit)
        assert np.median(rate) == pytest.approx(strength, rel=0.25)


def test_intervals_have_the_confidence_that_was_asked_for() -> None:
    log, truth = own_form(3, queries=300, strength=4.0, searches=(20, 20))
    fit = choose(count(log)).fit
    for confidence in (0.5, 0.8):
        found, _ = relevance(fit, confidence=confidence)
        inside = (found.lower <= truth[found.rows]) & (truth[found.rows] <= found.upper)
        assert inside.mean() == pytest.approx(confidence, abs=0.04)  # 1,800 pairs: standard error .012


def test_more_clicks_give_narrower_intervals() -> None:
    log, _ = own_form(4, queries=100, strength=4.0, searches=(10, 10))
    many = replace(log, clicks=log.clicks * 20, impressions=log.impressions * 20)
    few, more = (relevance(fit_form(count(each), Form(), Covariates()))[0] for each in (log, many))
    assert (more.upper - more.lower).mean() < 0.6 * (few.upper - few.lower).mean()
    assert (more.weight > few.weight).all()
    assert (more.share > few.share).all()


def test_values_lie_within_their_intervals_and_within_0_and_1() -> None:
    for seed, options in enumerate(({}, {"level": 1.0}, {"steepness": 0.6}, {"mean": 2.0})):
        found = LogModel.fit(world(seed, **options).log, settings=QUICK).relevance  # type: ignore[arg-type]
        assert (found.lower >= 0).all()
        assert (found.lower <= found.value).all()
        assert (found.value <= found.upper).all()
        assert (found.upper <= 1).all()
        assert ((found.prior > 0) & (found.prior < 1)).all()
        assert ((found.share >= 0) & (found.share <= 1)).all()


@pytest.fixture(scope="module")
def good_engine() -> World:
    """A log of an engine that ranks well and seldom changes its mind; clicks are rare."""
    return world(11, queries=150, documents=10, days=2, searches=10, noise=0.3, mean=-3.2, spread=1.2)


def test_an_unclicked_document_of_a_good_engine_stays_above_one_that_was_shown_last(good_engine: World) -> None:
    """The example of over-correction: no click in 20 impressions at position 1, against first shown at position 10."""
    model = LogModel.fit(good_engine.log, settings=QUICK)
    found, counts = model.relevance, count(good_engine.log)
    unclicked = found.clicks == 0
    top, bottom = unclicked & (counts.average < 0.01), unclicked & (counts.average > np.log(9.4))
    assert top.sum() >= 3
    assert bottom.sum() >= 100
    truth = good_engine.relevance[found.rows]
    assert truth[top].mean() > truth[bottom].mean()
    assert found.value[top].mean() > found.value[bottom].mean()
    assert (found.value[top] < found.prior[top]).all()  # clicks that did not come count against it


def test_the_same_document_falls_below_if_clicks_say_that_the_engine_ranks_at_random() -> None:
    model = LogModel.fit(
        world(11, queries=150, documents=10, days=2, searches=10, noise=np.inf, mean=-3.2, spread=1.2).log,
        settings=QUICK,
    )
    found = model.relevance
    unclicked = found.clicks == 0
    top = unclicked & (found.weight > np.quantile(found.weight, 0.9))
    bottom = unclicked & (found.weight < np.quantile(found.weight, 0.1))
    assert found.value[top].mean() < found.value[bottom].mean()


def ndcg(model_value: Float64, made: World) -> float:
    """Return the mean nDCG of the documents of each query, with the truth as gain."""
    size = len(made.curve)
    truth, value = made.relevance.reshape(-1, size), model_value.reshape(-1, size)
    discount = 1 / np.log2(np.arange(2, size + 2))
    best = -np.sort(-truth, axis=1) @ discount
    ranked = np.take_along_axis(truth, np.argsort(-value, axis=1, kind="stable"), axis=1) @ discount
    return float((ranked / best).mean())


def test_the_ranking_of_a_good_engine_is_not_over_corrected(good_engine: World) -> None:
    counts = count(good_engine.log)
    clicks, shown = counts.by_pair(counts.clicks), counts.by_pair(counts.impressions)
    by_model = ndcg(LogModel.fit(good_engine.log, settings=QUICK).cold(), good_engine)
    logged, rate = ndcg(-counts.average, good_engine), ndcg(clicks / shown, good_engine)
    corrected = ndcg(clicks / counts.by_pair(counts.impressions * good_engine.curve[counts.position]), good_engine)
    assert by_model >= logged - 0.005
    assert by_model >= rate
    assert by_model >= corrected


def test_a_value_uses_a_slope_that_is_steeper_by_a_standard_error(good_engine: World) -> None:
    """On a log with positions 1 to 10 the slope is that of a regression of h on the mean log position."""
    fit = fit_form(count(good_engine.log), Form(), Covariates())
    first = fit.problem.counts.first
    at = fit.problem.start + 1  # after the constant
    slopes = [
        np.polyfit(first, fit.problem.prior[:, 1:] @ theta[at:], 1)[0] for theta in (fit.theta, _towards_engine(fit))
    ]
    weight = np.polyfit(first, fit.problem.prior[:, 1:], 1)[0]
    error = np.sqrt(weight @ fit.covariance[at:, at:] @ weight)
    assert slopes[1] == pytest.approx(slopes[0] - STEEPER * error)


def test_a_constant_prior_has_no_slope_to_change(good_engine: World) -> None:
    fit = fit_form(count(good_engine.log), Form(first=False), Covariates())
    assert np.array_equal(_towards_engine(fit), fit.theta)


def test_the_source_is_where_most_of_the_value_comes_from() -> None:
    log, _ = own_form(5, queries=100, strength=4.0, searches=(2, 200))
    found = LogModel.fit(log, settings=QUICK).relevance
    assert (found.source == "clicks").all()
    made = world(12, features=2, searches=2, noise=3.0, explained=0.95, mean=-2.0)
    fit = choose(count(made.log)).fit
    weak, _ = relevance(fit)
    assert fit.form.features
    assert set(weak.source.tolist()) <= {"clicks", "position", "features"}
    assert (weak.source == "features").mean() > 0.5
    assert ((weak.source == "clicks") == (weak.share >= 0.5)).all()


def test_documents_that_were_never_shown_have_the_prior_of_their_features() -> None:
    made = world(13, features=2, queries=150, explained=0.95)
    fit = choose(count(made.log)).fit
    found, _ = relevance(fit)
    coefficients, _ = cold_prior(fit, found)
    assert len(coefficients) == 4  # two features, and their means over the query
    assert coefficients[0] == pytest.approx(0.95, abs=0.35)  # the slope of the log-odds by the first feature
    assert abs(coefficients[1]) < 0.15
    plain = fit_form(count(made.log), Form(), Covariates())
    none, constant = cold_prior(plain, relevance(plain)[0])
    assert len(none) == 0
    assert 1 / (1 + np.exp(-constant)) == pytest.approx(found.value.mean(), rel=0.1)
