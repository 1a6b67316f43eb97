"""The curve where nothing moved: from documents that the ranking could hardly tell apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.experiment.worlds import World, WorldSettings, make_world
from clickprism.observation.alike import fit_alike
from clickprism.users.pbm import EYE_TRACKING


def world(*, severity: float = 1.0, coupling: float = 0.0) -> World:
    plan = WorldSettings(policy="single", queries=300, sessions=40_000, features=12, days=1, seed=5)
    return make_world(replace(plan, severity=severity, coupling=coupling))


def test_one_ranker_and_no_document_ever_moved_still_tell_the_curve() -> None:
    found = fit_alike(world().logged.clicks)
    assert np.exp(found.below) == pytest.approx(np.array(EYE_TRACKING) / EYE_TRACKING[0], abs=0.15)
    assert found.gains.sum() > 2 * found.gains.std() * np.sqrt(len(found.gains))


def test_users_who_see_everything_have_no_curve() -> None:
    found = fit_alike(world(severity=0.0).logged.clicks)
    assert np.exp(found.below) == pytest.approx(np.ones(10), abs=0.15)
    assert found.gains.sum() < 2 * found.gains.std() * np.sqrt(len(found.gains))


def test_features_that_bend_it_are_found() -> None:
    bent = world(coupling=0.5)
    found = fit_alike(bent.logged.clicks, bend=True)
    lists = bent.logged.clicks.lists
    steep = np.maximum(1 + lists.features @ found.slopes + found.shift, 0)
    assert np.corrcoef(steep, bent.user.coupled.exponent(lists))[0, 1] > 0.85
    more = found.bent - found.gains
    assert more.sum() > 3 * more.std() * np.sqrt(len(more))
    plain = fit_alike(world().logged.clicks, bend=True)
    more = plain.bent - plain.gains
    assert more.sum() < 2 * more.std() * np.sqrt(len(more))


def test_too_few_queries_are_refused() -> None:
    with pytest.raises(DataError, match="too few queries"):
        fit_alike(make_world(WorldSettings(queries=8, sessions=300, days=1, features=12)).logged.clicks)
