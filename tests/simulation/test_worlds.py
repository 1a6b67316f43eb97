"""Worlds by seed: the same seed is the same world, policies show what they say, and the log tells no truth."""

import numpy as np
import pytest

from clickprism.errors import SettingError
from clickprism.observation.counts import count
from clickprism.simulation.worlds import Policy, World, WorldSettings, draw_settings, make_world


def small(policy: Policy, **others: float) -> World:
    settings = WorldSettings(policy=policy, queries=40, sessions=2000, days=4, features=12, **others)  # type: ignore[arg-type]
    return make_world(settings)


def places(world: World) -> list[set[int]]:
    counts = count(world.logged.clicks)
    return [set(counts.positions[counts.rows == row].tolist()) for row in np.unique(counts.rows)]


def test_same_settings_same_world() -> None:
    one, other = small("several"), small("several")
    assert (one.logged.clicks.clicks == other.logged.clicks.clicks).all()
    assert one.logged.clicks.sessions == 2000


def test_a_single_ranker_shows_every_document_at_one_place() -> None:
    assert max(map(len, places(small("single")))) == 1


def test_blocks_never_mix() -> None:
    for seen in places(small("blocks")):
        assert max(seen) <= 5 or min(seen) > 5


@pytest.mark.parametrize(("policy", "where"), [("first", {1}), ("shuffle", set(range(1, 11)))])
def test_the_log_says_which_slots_chance_filled(policy: Policy, where: set[int]) -> None:
    logged = small(policy).logged
    assert logged.randomised is not None
    assert set(logged.clicks.positions[logged.randomised].tolist()) == where


def test_rankers_change_one_after_the_other() -> None:
    logged = small("changing").logged
    assert logged.days is not None
    assert logged.policy is not None
    assert (np.diff(logged.policy[np.argsort(logged.days, kind="stable")]) >= 0).all()


def test_past_clicks_move_documents_under_feedback_only() -> None:
    assert max(map(len, places(small("feedback")))) > 1


def test_queries_take_their_ranked_lists_along() -> None:
    logged = small("several").logged
    half = np.arange(40) < 20
    one, other = logged.of_queries(half), logged.of_queries(~half)
    assert one.clicks.sessions + other.clicks.sessions == 2000
    assert (one.clicks.lists.list_of[one.clicks.rows] < 20).all()


def test_drawn_settings_cover_each_bias() -> None:
    drawn = [draw_settings(seed) for seed in range(60)]
    for name in ("severity", "trust", "coupling", "attention"):
        values = np.array([getattr(each, name) for each in drawn])
        assert (values == 0).any(), name
        assert (values > 0).any(), name
    assert {each.policy for each in drawn} >= {"single", "blocks", "several", "swap", "first", "feedback"}


def test_documents_bend_only_what_positions_decide() -> None:
    with pytest.raises(SettingError, match="browsing"):
        WorldSettings(browsing="ubm", coupling=0.3)
