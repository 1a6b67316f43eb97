"""Tests of biases on simulated logs with and without them; seeds are fixed, and margins are several standard errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.log_model.checks import curve_error, feedback, goodness_of_fit
from clickprism.log_model.counts import count
from clickprism.log_model.fit import choose, fit_form
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.results import Feedback
from clickprism.log_model.terms import Covariates, Form
from clickprism.types import Clicks
from tests.log_model.simulated_logs import clicks_of, lists_of, power, world

QUICK = LogModelSettings(resamples=0)


def test_position_bias_is_present_with_its_size() -> None:
    made = world(2, noise=np.inf)
    test = LogModel.fit(made.log, settings=QUICK).tests["position"]
    truth = made.curve[1:].mean()
    assert test.verdict == "present"
    assert test.p_value < 1e-6
    assert test.lower < truth < test.upper
    assert test.estimate == pytest.approx(truth, abs=0.06)
    assert "relative to position 1" in test.unit


def test_position_bias_is_absent_if_every_position_is_observed() -> None:
    test = LogModel.fit(world(3, noise=np.inf, curve=np.ones(6), queries=200).log, settings=QUICK).tests["position"]
    assert test.verdict == "absent"
    assert test.lower < 1 < test.upper
    assert test.p_value > 0.01


def test_position_bias_is_inconclusive_with_few_clicks() -> None:
    test = LogModel.fit(world(4, queries=4, searches=5, noise=np.inf).log, settings=QUICK).tests["position"]
    assert test.verdict == "inconclusive"


def test_the_trust_of_a_simulated_log_is_recovered() -> None:
    made = world(5, queries=200, days=6, searches=60, noise=np.inf, mean=-2.0, trust=0.2)
    model = LogModel.fit(made.log, settings=QUICK)
    test = model.tests["trust"]
    assert test.verdict == "present"
    assert test.used
    assert test.estimate == pytest.approx(0.2, abs=0.05)
    assert test.lower < 0.2 < test.upper
    assert model.parameters.beta[0] == 0
    assert (model.parameters.beta[1:] < 0).all()
    assert np.abs(np.log(model.curve.values / made.curve)).max() < 0.2


def test_trust_is_absent_from_a_log_without_it() -> None:
    model = LogModel.fit(world(6, queries=200, noise=np.inf, mean=-2.0).log, settings=QUICK)
    assert model.tests["trust"].verdict == "absent"
    assert not model.form.trust
    assert (model.parameters.beta == 0).all()


def test_coupling_is_present_if_observation_depends_on_a_feature() -> None:
    model = LogModel.fit(world(1, features=2, coupling=0.5, noise=np.inf, queries=200).log, settings=QUICK)
    test = model.tests["coupling"]
    assert test.verdict == "present"
    assert test.estimate == pytest.approx(0.5, abs=0.15)
    assert test.gain > 3 * test.error


def test_coupling_is_absent_without_it() -> None:
    model = LogModel.fit(world(1, features=2, noise=np.inf, queries=200).log, settings=QUICK)
    assert model.tests["coupling"].verdict == "absent"
    assert not model.form.coupling


def popular(seed: int, flattening: float) -> Logged:
    """Return a log in which documents with more clicks on earlier days have a flatter curve."""
    from clickprism.click_models.popularity import percentiles

    rng = np.random.default_rng(seed)
    queries, documents, searches, days = 200, 6, 20, 5
    made = world(seed, queries=queries, noise=np.inf)
    relevance, before = made.relevance.reshape(queries, documents), np.zeros(queries * documents)
    rows, clicks = [], []
    for _ in range(days):
        order = np.argsort(rng.random((queries, documents)), axis=1) + documents * np.arange(queries)[:, None]
        steep = 1 - flattening * percentiles(before)[order]
        drawn = rng.binomial(searches, power(documents) ** steep * relevance.ravel()[order])
        np.add.at(before, order.ravel(), drawn.ravel())
        rows.append(order)
        clicks.append(drawn)
    log = clicks_of(made.log.clicks.lists, np.concatenate(rows), np.concatenate(clicks), searches)
    return Logged(log, np.repeat(np.arange(days), queries))


def test_popularity_is_present_if_popular_documents_are_observed_more_often() -> None:
    test = LogModel.fit(popular(7, 0.8), settings=QUICK).tests["popularity"]
    assert test.verdict == "present"
    assert test.estimate == pytest.approx(0.8, abs=0.3)
    assert test.lower > 0


def test_popularity_is_inconclusive_if_the_engine_may_react_to_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = Feedback("inconclusive", -1.6, 0.05)
    monkeypatch.setattr("clickprism.log_model.model.feedback", lambda *_, **__: unsure)
    test = LogModel.fit(popular(7, 0.8), settings=QUICK).tests["popularity"]
    assert test.verdict == "inconclusive"
    assert not test.used
    assert "reacts to clicks" in test.note


def test_popularity_is_absent_without_it() -> None:
    test = LogModel.fit(popular(7, 0.0), settings=QUICK).tests["popularity"]
    assert test.verdict == "absent"
    assert abs(test.estimate) < 0.25


def test_an_engine_that_reacts_to_clicks_is_found() -> None:
    made = world(8, queries=300, days=8, reaction=6.0, noise=0.3)
    found = feedback(made.log, made.curve)
    assert found.verdict == "present"
    assert found.p_value < 0.001


def test_an_engine_that_does_not_react_is_not_accused() -> None:
    # under the null hypothesis z is standard normal; a false alarm below -2.5 has a chance of .006
    values = np.array([feedback(made.log, made.curve).z for made in (world(seed) for seed in range(40))])
    assert np.abs(values.mean()) < 0.5  # standard error .16
    assert 0.6 < values.std() < 1.4
    assert (values > -2.5).mean() >= 0.95


def test_the_model_of_an_engine_that_does_not_react_to_clicks_reports_no_feedback() -> None:
    for seed in (1, 2, 3):
        made = world(seed, queries=300, days=6)
        model = LogModel.fit(made.log, settings=QUICK)
        assert model.feedback.verdict == "absent"
        assert model.feedback.lower < 0 < model.feedback.upper
        assert np.abs(np.log(model.curve.values / made.curve)).mean() < 0.1


def test_a_log_that_would_not_show_a_reaction_is_inconclusive() -> None:
    """Three days of 100 queries are too few: the verdict must not be "absent", whether the engine reacts or not."""
    for seed in (1, 2, 3):
        for reaction in (0.0, 3.0):
            made = world(seed, reaction=reaction)
            found = feedback(made.log, made.curve)
            assert found.verdict == "inconclusive"
            assert found.lower < -0.2


def test_documents_that_disappear_after_they_were_not_clicked_show_a_reaction() -> None:
    """Each query shows 3 of 6 documents a day, always at the same positions: only who is shown depends on clicks."""
    rng = np.random.default_rng(5)
    queries, days, searches = 300, 6, 20
    shown = np.tile(np.arange(3), (queries, 1))
    rows, clicks = [], []
    for _ in range(days):
        drawn = rng.binomial(searches, 0.3 * power(3), (queries, 3))
        rows.append(shown + 6 * np.arange(queries)[:, None])
        clicks.append(drawn)
        poor = drawn < searches * 0.3 * power(3)  # replaced by the document that shares the position
        shown = np.where(poor, (shown + 3) % 6, shown)
    log = Logged(
        clicks_of(lists_of(queries, 6), np.concatenate(rows), np.concatenate(clicks), searches),
        np.repeat(np.arange(days), queries),
    )
    assert feedback(log, power(3)).verdict == "present"


def test_feedback_is_inconclusive_on_one_day() -> None:
    made = world(9, days=1)
    found = feedback(made.log, made.curve)
    assert found.verdict == "inconclusive"
    assert np.isnan(found.z)


def test_feedback_is_inconclusive_if_nothing_moves() -> None:
    made = world(9, noise=0.0)
    assert feedback(made.log, made.curve).verdict == "inconclusive"


def test_the_model_fits_a_log_of_its_own_form() -> None:
    for options in ({}, {"level": 1.0}, {"steepness": 0.6}):
        made = world(10, queries=200, noise=np.inf, **options)  # type: ignore[arg-type]
        counts = count(made.log)
        found = goodness_of_fit(choose(replace(counts, first=counts.average)).fit)
        assert found.fits, options
        assert found.p_value > 0.001
        assert found.ratio.shape == found.z.shape == (6, len(found.bins))
        known = np.isfinite(found.ratio)
        assert np.abs(np.log(found.ratio[known])).mean() < 0.15


def test_the_model_does_not_fit_a_log_of_a_wrong_shape() -> None:
    """Documents that are first shown low are observed where others are not: no curve explains both."""
    made = world(10, queries=300, days=6, noise=1.0)
    log = made.log.clicks
    rng = np.random.default_rng(1)
    odd = (made.relevance < np.median(made.relevance))[log.rows]
    chance = np.where(odd, made.curve[::-1][log.positions - 1], made.curve[log.positions - 1] ** 2)
    clicks = rng.binomial(20, chance * np.maximum(made.relevance[log.rows], 0.2))
    wrong = Clicks(log.lists, log.offsets, log.rows, log.positions, clicks.astype(np.int64), log.impressions)
    model = LogModel.fit(Logged(wrong, made.log.days), settings=QUICK)
    assert not model.fit_quality.fits
    assert model.fit_quality.p_value < 1e-4
    assert model.fit_quality.largest > 0.25
    factor = f"no: off by a factor of up to {np.exp(model.fit_quality.largest):.2g}"
    assert any(factor in str(row) for row in model.tables()[1].rows)


def test_the_error_of_a_model_of_the_right_form_is_small() -> None:
    made = world(12, queries=200, days=5)
    counts = count(made.log)
    error = curve_error(fit_form(replace(counts, first=counts.average), Form(), Covariates()))
    assert error.shape == (6, 6)
    assert (error[0] == 0).all()
    assert np.sqrt(np.diagonal(error)).max() < 0.08


def test_the_error_is_large_if_poor_documents_have_a_steeper_curve() -> None:
    """Positions lower the log-odds of a click, so that o_k depends on the relevance of the document."""
    made = world(12, queries=200, days=5)
    log = made.log.clicks
    odds = np.log(made.relevance / (1 - made.relevance))[log.rows] - 1.2 * np.log(log.positions)
    clicks = np.random.default_rng(2).binomial(20, 1 / (1 + np.exp(-odds))).astype(np.int64)
    counts = count(Logged(Clicks(log.lists, log.offsets, log.rows, log.positions, clicks, log.impressions)))
    fit = fit_form(replace(counts, first=counts.average), Form(), Covariates())
    below = fit.problem.counts.positions - 1
    error = np.sqrt(np.diagonal(curve_error(fit)))
    shown = log.positions == 6
    first = made.relevance[log.rows[shown]].sum()
    truth = np.log((1 / (1 + np.exp(-odds[shown]))).sum() / first)
    assert error[5] > 0.1
    assert abs(fit.theta[below - 1] - truth) < 2 * error[5]


def test_nothing_measures_the_error_if_nothing_moves() -> None:
    counts = count(world(12, noise=0.0).log)
    assert (curve_error(fit_form(counts, Form(), Covariates())) == 0).all()


def test_expected_clicks_of_cells_with_too_few_are_not_compared() -> None:
    made = world(11, queries=5, searches=2, days=2)
    counts = count(made.log)
    found = goodness_of_fit(fit_form(counts, Form(), Covariates()))
    expected = counts.by_position(counts.clicks).min()
    assert expected < 5
    assert np.isnan(found.ratio).any()
    assert found.fits
