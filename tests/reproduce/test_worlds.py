"""Simulated worlds: the same seed gives the same world, and each policy shows what it promises."""

import numpy as np
import pytest

from clickprism.click_models.pbm import count_positions
from clickprism.errors import SettingError
from reproduce.common.worlds import Policy, World, WorldSettings, draw_settings, make_world


def small_world(policy: Policy) -> World:
    return make_world(WorldSettings(policy=policy, queries=40, sessions=2000, days=4, features=12))


def positions_by_document(world: World) -> list[set[int]]:
    groups = count_positions(world.logged.clicks)
    return [set(cells.tolist()) for cells in np.split(groups.cells + 1, groups.offsets[1:-1])]


def test_the_same_settings_give_the_same_world() -> None:
    one, other = small_world("several"), small_world("several")
    assert (one.logged.clicks.clicks == other.logged.clicks.clicks).all()
    assert one.logged.clicks.sessions == 2000


def test_a_single_ranker_shows_every_document_at_one_position() -> None:
    assert max(map(len, positions_by_document(small_world("single")))) == 1


def test_documents_stay_within_their_block() -> None:
    for positions in positions_by_document(small_world("blocks")):
        assert max(positions) <= 5 or min(positions) > 5


@pytest.mark.parametrize(("policy", "positions"), [("first", {1}), ("shuffle", set(range(1, 11)))])
def test_the_log_marks_randomised_positions(policy: Policy, positions: set[int]) -> None:
    logged = small_world(policy).logged
    assert logged.randomised is not None
    assert set(logged.clicks.positions[logged.randomised].tolist()) == positions


def test_changing_rankers_follow_each_other() -> None:
    logged = small_world("changing").logged
    assert logged.days is not None
    assert logged.policy is not None
    assert (np.diff(logged.policy[np.argsort(logged.days, kind="stable")]) >= 0).all()


def test_feedback_shows_documents_at_several_positions() -> None:
    assert max(map(len, positions_by_document(small_world("feedback")))) > 1


def test_random_settings_contain_and_omit_each_bias() -> None:
    drawn = [draw_settings(seed) for seed in range(60)]
    for name in ("severity", "trust", "coupling", "attention"):
        values = np.array([getattr(each, name) for each in drawn])
        assert (values == 0).any(), name
        assert (values > 0).any(), name
    assert {each.policy for each in drawn} >= {"single", "blocks", "several", "swap", "first", "feedback"}


def test_observation_depends_on_documents_only_with_pbm() -> None:
    with pytest.raises(SettingError, match="browsing"):
        WorldSettings(browsing="ubm", coupling=0.3)
