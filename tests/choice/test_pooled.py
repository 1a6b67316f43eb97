"""One likelihood for all documents: its gradient, the truth it finds in worlds, and what it does not make up."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

from clickprism.choice.places import places_by_day, places_of
from clickprism.choice.pooled import Pooled, _Form, _Lines, fit_pooled
from clickprism.click_models.pbm import EYE_TRACKING
from clickprism.errors import DataError
from clickprism.simulation.worlds import World, WorldSettings, make_world
from clickprism.types import Float64, Lists

PLAN = WorldSettings(policy="single", queries=300, sessions=40_000, features=12, days=1, seed=5)
FORMS = (
    _Form(curve=False),
    _Form(),
    _Form(bend=True),
    _Form(popular=True),
    _Form(popular=True, browsing=True, bend=True),
)


@cache
def world(**changes: object) -> World:
    return make_world(replace(PLAN, **changes))  # type: ignore[arg-type]


def curve(found: Pooled, of: World) -> Float64:
    """By position, in logs that cannot be told from a first place that is always seen."""
    places = places_of(of.logged.clicks)
    counts = np.bincount(places.position_of)
    return np.exp(np.bincount(places.position_of, weights=found.below) / counts)


def sure(values: Float64, errors: float) -> bool:
    return bool(values.sum() > errors * values.std() * np.sqrt(len(values)))


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_that_of_finite_differences(form: _Form) -> None:
    logged = world(queries=30, sessions=3000, features=5, days=3).logged
    lists, rng = logged.clicks.lists, np.random.default_rng(1)
    assert logged.days is not None
    places, everything = places_by_day(logged.clicks, logged.days), np.ones(len(lists), bool)
    lines = _Lines.of(places, lists, everything, form)
    vector = rng.normal(0.0, 0.1, sum(lines._sizes(form)))
    _, gradient = lines.value(vector, form)
    _, push = lines._prior(vector, form)
    for place in rng.choice(len(vector), 12):
        step = np.zeros(len(vector))
        step[place] = 1e-5
        ends = [lines.value(vector + sign * step, form)[0].sum() for sign in (1, -1)]
        assert_allclose((ends[0] - ends[1]) / 2e-5, gradient[place], rtol=1e-4, atol=1e-4)
        priors = [lines._prior(vector + sign * step, form)[0] for sign in (1, -1)]
        assert_allclose((priors[0] - priors[1]) / 2e-5, push[place], rtol=1e-5, atol=1e-5)


def test_one_ranker_and_no_document_ever_moved_still_tell_the_curve() -> None:
    found = fit_pooled(world().logged.clicks)
    assert curve(found, world()) == pytest.approx(np.array(EYE_TRACKING) / EYE_TRACKING[0], abs=0.1)
    assert sure(found.gains, 2)
    assert not found.browsing
    assert (found.bends == 1).all()


def test_an_engine_that_heeds_clicks_does_not_mislead_it() -> None:
    heeded = world(policy="feedback", days=5)
    assert curve(fit_pooled(heeded.logged.clicks), heeded) == pytest.approx(
        np.array(EYE_TRACKING) / EYE_TRACKING[0], abs=0.1
    )


def test_users_who_see_everything_have_no_curve() -> None:
    fair = world(severity=0.0)
    found = fit_pooled(fair.logged.clicks)
    assert curve(found, fair) == pytest.approx(np.ones(10), abs=0.15)
    assert not sure(found.gains, 2)


def test_features_that_bend_it_are_found_and_none_are_made_up() -> None:
    bent = world(coupling=0.5)
    found = fit_pooled(bent.logged.clicks, bend=True)
    exponent = bent.user.coupled.exponent(bent.logged.clicks.lists)
    assert np.corrcoef(np.maximum(found.bends, 0), exponent)[0, 1] > 0.9
    assert sure(found.more, 3)
    for plain in (world(), world(trust=0.5), world(trust=0.5, policy="several")):
        assert not sure(fit_pooled(plain.logged.clicks, bend=True).more, 3)


def test_users_who_heed_the_clicks_above_are_found() -> None:
    assert fit_pooled(world(browsing="ubm").logged.clicks).browsing
    assert not fit_pooled(world().logged.clicks).browsing


def test_eyes_that_past_clicks_draw_are_found() -> None:
    for attention, drawn in ((0.7, True), (0.0, False)):
        logged = world(attention=attention, days=5, sessions=80_000).logged
        assert logged.days is not None
        places = places_by_day(logged.clicks, logged.days)
        assert places.clicks.sum() == logged.clicks.clicks.sum()
        assert places.impressions.sum() == places_of(logged.clicks).impressions.sum()
        found = fit_pooled(logged.clicks, places=places)
        assert (found.popular > 0.2) is drawn
        assert not found.browsing


def test_queries_without_documents_change_nothing() -> None:
    clicks = world(queries=60, sessions=6000).logged.clicks
    lists = clicks.lists
    more = Lists(lists.features, np.append(lists.offsets, lists.offsets[-1]), np.append(lists.query_ids, "nothing"))
    assert_allclose(fit_pooled(replace(clicks, lists=more)).below, fit_pooled(clicks).below, atol=0.02)


def test_too_few_queries_are_refused() -> None:
    with pytest.raises(DataError, match="too few queries"):
        fit_pooled(make_world(WorldSettings(queries=8, sessions=300, days=1, features=12)).logged.clicks)
