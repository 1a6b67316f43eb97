"""Fits of the shared parameters on simulated logs, and which parts are chosen; the truth is known, seeds are fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.log_model.counts import LogCounts, count
from clickprism.log_model.fit import FEWEST, Chosen, Fit, _Search, choose, fit_form, gain, moved_gain
from clickprism.log_model.terms import Covariates, Form, Scaler, design, smoothness, with_query_means
from clickprism.types import Float64
from tests.log_model.simulated_logs import World, power, world


def counts_of(log: World, *, average: bool = True) -> LogCounts:
    """Return the counts; with the average position, which is evidence if the engine does not react to clicks."""
    counts = count(log.log)
    return replace(counts, first=counts.average) if average else counts


def curve_of(chosen: Chosen) -> Float64:
    positions = chosen.fit.problem.counts.positions
    return np.concatenate([[0.0], chosen.fit.theta[: positions - 1]])


def used(chosen: Chosen) -> set[str]:
    return {part.name for part in chosen.parts if part.used}


@pytest.fixture(scope="module")
def plain() -> tuple[World, Chosen]:
    """A log of a position-based model, and its fit."""
    made = world(1, queries=200)
    return made, choose(counts_of(made))


def test_newton_reaches_the_optimum(plain: tuple[World, Chosen]) -> None:
    fit = plain[1].fit
    assert fit.gradient_norm < 1e-5  # per click
    assert 0 < fit.steps < 30
    assert np.linalg.eigvalsh(fit.value.hessian).min() > 0


@pytest.mark.parametrize("part", ["steepness", "level", "context", "proportional"])
def test_newton_reaches_the_optimum_of_every_form(part: str) -> None:
    made = world(2, queries=60)
    form = Form().with_part(part, not getattr(Form(), part))
    fit = fit_form(counts_of(made), form, Covariates())
    assert fit.gradient_norm < 1e-5
    again = fit_form(counts_of(made), form, Covariates(), start=fit)
    assert again.steps <= 2
    assert again.theta == pytest.approx(fit.theta, abs=1e-3)


def test_the_curve_of_a_position_based_log_is_recovered(plain: tuple[World, Chosen]) -> None:
    made, chosen = plain
    # about 9,000 clicks: the standard error of log o is .03 to .06
    assert np.abs(curve_of(chosen) - np.log(made.curve)).max() < 0.15
    error = np.sqrt(np.diagonal(chosen.fit.covariance))[:5]
    assert (error > 0.015).all()
    assert (error < 0.09).all()
    assert (np.abs(curve_of(chosen)[1:] - np.log(made.curve)[1:]) < 4 * error).all()


def test_errors_of_the_curve_shrink_with_the_number_of_queries() -> None:
    small, large = (fit_form(counts_of(world(3, queries=size)), Form(), Covariates()) for size in (50, 450))
    ratio = np.sqrt(np.diagonal(small.covariance)[:5] / np.diagonal(large.covariance)[:5])
    assert ratio.mean() == pytest.approx(3, rel=0.35)  # the root of 9, each error known to about 10%


def test_nothing_is_added_to_a_log_that_needs_nothing(plain: tuple[World, Chosen]) -> None:
    form = plain[1].fit.form
    assert form.first
    assert not form.steepness
    assert not form.features


def test_random_rankings_leave_the_prior_almost_constant() -> None:
    made = world(4, noise=np.inf)
    chosen = choose(counts_of(made))
    assert used(chosen) <= {"first"}
    mean = chosen.fit.problem.prior_mean(chosen.fit.theta)
    assert np.abs(mean - mean.mean()).max() < 0.08
    assert np.abs(curve_of(chosen) - np.log(made.curve)).max() < 0.25


def test_a_good_engine_puts_relevance_into_the_prior(plain: tuple[World, Chosen]) -> None:
    made, chosen = plain
    (first,) = (part for part in chosen.parts if part.name == "first")
    assert first.used
    assert first.gain > 5 * first.error
    mean = chosen.fit.problem.prior_mean(chosen.fit.theta)
    assert np.corrcoef(np.log(mean), np.log(made.relevance))[0, 1] > 0.6


def test_documents_that_move_show_that_queries_differ_in_steepness() -> None:
    chosen = choose(counts_of(world(1, steepness=0.7)))
    assert chosen.fit.form.steepness
    assert not chosen.fit.form.level
    assert 0.4 < chosen.fit.sigma < 1.1  # the truth is .7


def test_queries_that_differ_in_relevance_do_not_differ_in_steepness() -> None:
    chosen = choose(counts_of(world(1, level=1.0)))
    assert chosen.fit.form.level
    assert not chosen.fit.form.steepness
    assert 0.6 < chosen.fit.sigma < 1.3  # the truth is 1


def test_documents_that_do_not_move_say_nothing_about_steepness() -> None:
    made = world(1, steepness=0.7, noise=0.0)
    counts = counts_of(made)
    chosen = choose(counts)
    assert not chosen.fit.form.steepness
    assert moved_gain(chosen.tried["steepness"], chosen.fit) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_features_that_predict_relevance_are_used() -> None:
    chosen = choose(counts_of(world(1, features=3)))
    assert chosen.fit.form.features == "linear"
    names, theta = list(chosen.fit.names), chosen.fit.theta
    own = theta[[names.index(f"feature {number}") for number in range(3)]]
    assert own[0] > 5 * np.abs(own[1:]).max()
    assert own[0] > 0.3


def test_features_that_predict_nothing_are_not_used() -> None:
    chosen = choose(counts_of(world(1, features=3, explained=0.0)))
    assert chosen.fit.form.features == ""
    assert any(part.name.startswith("features") and not part.used for part in chosen.parts)


def test_coupling_is_used_if_features_make_the_curve_steeper() -> None:
    chosen = choose(counts_of(world(1, features=2, coupling=0.5, noise=2.0, queries=200)), try_parts=("coupling",))
    assert chosen.fit.form.coupling
    weights = chosen.fit.theta[list(chosen.fit.names).index("w 0") :][:2]
    assert weights[1] == pytest.approx(0.5, abs=0.15)
    assert weights[0] == pytest.approx(0.0, abs=0.15)


def test_coupling_is_not_used_without_it() -> None:
    chosen = choose(counts_of(world(1, features=2, noise=2.0)), try_parts=("coupling",))
    assert not chosen.fit.form.coupling
    (part,) = (part for part in chosen.parts if part.name == "coupling")
    assert part.gain < 3 * part.error


@pytest.mark.parametrize("verdict", ["present", "inconclusive"])
def test_coupling_is_tested_but_not_used_if_the_engine_may_react_to_clicks(verdict: str) -> None:
    made = world(1, features=2, coupling=0.5, noise=2.0, queries=200)
    chosen = choose(counts_of(made), try_parts=("coupling",), feedback=verdict)  # type: ignore[arg-type]
    assert not chosen.fit.form.coupling
    (part,) = (part for part in chosen.parts if part.name == "coupling")
    assert part.gain > 5 * part.error


def test_given_propensities_replace_the_curve() -> None:
    made = world(5)
    counts = counts_of(made)
    chosen = choose(counts, offset=np.log(made.curve)[counts.position])
    assert not chosen.fit.form.curve
    assert chosen.fit.problem.design.shape[1] == 0
    assert not any(name.startswith("log o") for name in chosen.fit.names)
    assert chosen.fit.exposure == pytest.approx(counts.by_pair(counts.impressions * made.curve[counts.position]))


def test_the_held_out_likelihood_is_close_to_that_of_refits_without_the_query() -> None:
    made = world(6, queries=25)
    counts = counts_of(made)
    whole = fit_form(counts, Form(), Covariates())
    exact = []
    for query in range(25):
        others, _ = counts.take(np.arange(25) != query)
        theta = fit_form(others, Form(), Covariates(), start=whole).theta
        exact.append(whole.problem.evaluate(theta).by_query[query])
    cost, expected = whole.value.by_query - whole.held_out, whole.value.by_query - np.array(exact)
    assert cost.sum() == pytest.approx(expected.sum(), rel=0.35)  # one Newton step against a refit
    assert np.corrcoef(cost, expected)[0, 1] > 0.9


def test_gain_is_the_difference_of_held_out_likelihoods(plain: tuple[World, Chosen]) -> None:
    fit = plain[1].fit
    assert gain(fit, fit) == (0.0, 0.0)
    other = fit_form(fit.problem.counts, Form(first=False), Covariates())
    forward, backward = gain(fit, other), gain(other, fit)
    assert forward[0] == pytest.approx(-backward[0])
    assert forward[0] == pytest.approx(fit.held_out.sum() - other.held_out.sum())


def test_taking_queries_is_counting_these_queries_only() -> None:
    made = world(7, queries=6, features=2)
    counts = count(made.log, by_popularity=True)
    chosen = np.array([False, True, False, True, True, False])
    part, cells = counts.take(chosen)
    keep = chosen[counts.query]
    assert part.rows.tolist() == counts.rows[keep].tolist()
    assert np.unique(part.query).tolist() == [0, 1, 2]
    assert part.clicks.tolist() == counts.clicks[cells].tolist()
    assert part.by_pair(part.clicks).tolist() == counts.by_pair(counts.clicks)[keep].tolist()
    assert part.features.tolist() == counts.features[keep].tolist()
    assert part.popularity is not None
    assert counts.popularity is not None
    assert part.popularity.tolist() == counts.popularity[cells].tolist()
    assert part.seen is None


def test_the_form_of_a_large_log_is_chosen_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(1, queries=100, features=2)
    counts = counts_of(made)
    whole = choose(counts)
    monkeypatch.setattr("clickprism.log_model.fit.SAMPLE", len(counts.pair) // 2)
    sampled = choose(counts)
    assert len(sampled.fit.problem.counts) == len(counts)
    assert len(sampled.tried["steepness"].problem.counts) < 0.7 * len(counts)
    assert sampled.fit.form.features == whole.fit.form.features == "linear"
    assert np.abs(curve_of(sampled) - curve_of(whole)).max() < 0.1
    assert sampled.fit.gradient_norm < 1e-5


def test_too_few_clicks_are_refused() -> None:
    made = world(8, queries=1, searches=1, days=1)
    with pytest.raises(DataError, match=f"too few to fit a model. Collect at least {FEWEST} clicks"):
        choose(counts_of(made))


def test_one_position_has_no_curve() -> None:
    chosen = choose(counts_of(world(9, documents=1, curve=power(1), queries=300)))
    assert not chosen.fit.form.first
    assert not any(name.startswith("log o") for name in chosen.fit.names)


def test_the_prior_of_the_curve_is_smooth() -> None:
    precision = smoothness(8)
    logs = np.log(np.arange(2, 9))
    line, kink = -0.7 * logs, -0.7 * logs + 0.3 * (np.arange(2, 9) == 4)
    assert line @ precision @ line == pytest.approx(0.7**2)  # one slope, of standard deviation 1
    assert kink @ precision @ kink > 5 * (line @ precision @ line)


def test_features_are_standardised_and_constant_ones_dropped() -> None:
    x = np.array([[1.0, 5.0, np.nan, 0.0], [3.0, 5.0, 2.0, np.inf], [5.0, 5.0, 4.0, 1.0]], dtype=np.float32)
    scaler = Scaler.of(x)
    assert scaler.chosen.tolist() == [0, 2, 3]
    own = scaler(x)
    assert own[:, 0] == pytest.approx(np.array([-1, 0, 1]) * np.sqrt(1.5))
    assert np.isfinite(own).all()
    assert own[0, 1] == 0  # missing
    means = with_query_means(np.array([[1.0], [3.0], [8.0]]), np.array([0, 0, 1]))
    assert means.tolist() == [[1, 2], [3, 2], [8, 8]]


def test_a_curve_that_rises_and_falls_is_found() -> None:
    """On a page with three columns the smooth curve is wrong; held-out clicks prefer the rough one."""
    curve = np.array([1.0, 0.5, 0.8, 0.7, 0.35, 0.56])
    made = world(4, queries=200, noise=np.inf, curve=curve)
    rough = choose(count(made.log)).fit
    assert rough.form.rough
    assert np.abs(rough.theta[:5] - np.log(curve[1:])).max() < 0.15
    assert not choose(count(world(4, queries=200, noise=np.inf).log)).fit.form.rough


def test_the_prior_expects_that_engines_rank_relevant_documents_first() -> None:
    """Without any clicks that say otherwise, the logit of relevance falls by half the log of the first position."""
    made = design(count(world(0, queries=5).log), Form(), Covariates())
    known = {name: value for name, value in zip(made.names, made.centre, strict=True) if name.startswith("first shown")}
    assert known == pytest.approx({f"first shown at position {k}": -0.5 * np.log(k) for k in (2, 3, 4, 5, 6)})


def test_only_a_bent_prior_that_rises_doubts_the_engine() -> None:
    """h is 0 at position 1; a prior that may not bend is never searched again."""
    counts = count(world(4, queries=50).log)
    bent = fit_form(counts, Form(bent=True), Covariates())
    at = [number for number, name in enumerate(bent.names) if name.startswith("first shown")]
    for h, rises in (([-0.1, -0.2, -0.3], False), ([0.1, -0.2, -0.3], True), ([-0.1, -0.2, -0.15], True)):
        theta = bent.theta.copy()
        theta[at] = np.interp(np.arange(len(at)), np.linspace(0, len(at) - 1, len(h)), h)
        assert replace(bent, theta=theta).doubts_engine == rises
        assert not replace(bent, form=Form(), theta=theta).doubts_engine


def test_results_in_random_order_do_not_doubt_the_engine() -> None:
    """The level of pairs that only chance has placed is no part of h, and these pairs do not change its slope."""
    made = world(4, queries=50)
    counts = count(made.log)
    placed = np.arange(len(counts)) % 5 > 0
    fit = fit_form(replace(counts, placed=placed), Form(bent=True), Covariates())
    at = [number for number, name in enumerate(fit.names) if name.startswith("first shown at position")]
    theta = fit.theta.copy()
    theta[at] = -0.1 * np.arange(1, len(at) + 1)
    theta[fit.names.index("first shown at random")] = 0.5
    assert not replace(fit, theta=theta).doubts_engine


def test_a_large_log_does_not_keep_a_bent_prior_that_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample on which the form is chosen may fall where the whole log rises."""
    counts = counts_of(world(1, queries=100))
    before = Chosen(fit_form(counts, Form(bent=True), Covariates()))
    search = _Search(counts, chosen=before)
    assert search.repeat().form.bent
    monkeypatch.setattr(Fit, "doubts_engine", property(lambda fit: fit.form.bent))
    assert not search.repeat().form.bent
