"""What every simulated user must keep, run over the whole registry."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clickprism.click_models import USERS
from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.coupled import CoupledUser
from clickprism.click_models.dbn import BayesianUser, SimplifiedUser
from clickprism.click_models.dcm import DependentUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.popularity import PopularityUser
from clickprism.click_models.trust import TrustUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Response, Shown, User
from clickprism.settings import build, resolve
from clickprism.types import Bool, Lists
from tests.click_models.likelihood import log_likelihood_of

OTHERS: dict[str, User] = {
    "pbm": PositionUser(severity=0.5),
    "ubm": BrowsingUser(table=((0.5,), (0.5, 0.5), (0.5, 0.5, 0.5))),
    "cascade": BayesianUser(perseverance=0.9),
    "dcm": DependentUser(continuation=(0.9, 0.1)),
    "ccm": ClickChainUser.informational(),
    "dbn": BayesianUser(perseverance=0.5),
    "sdbn": SimplifiedUser(satisfaction=0.5),
    "trust": TrustUser(setting="hyperbolic"),
    "coupled": CoupledUser(columns=(0, 2), weights=(-0.5, 0.8)),
    "popularity": PopularityUser(strength=0.5),
}


def make_user(name: str) -> User:
    user: User = resolve(USERS, name, path="user")()
    if isinstance(user, PopularityUser):
        return user.after(np.array([f"q/{place}" for place in range(1, 41)]), np.arange(40))
    return CoupledUser(columns=(0, 1), weights=(0.3, -0.2)) if isinstance(user, CoupledUser) else user


@pytest.fixture(params=sorted(USERS))
def user(request: pytest.FixtureRequest) -> User:
    return make_user(request.param)


def make_shown(lengths: list[int], *, seed: int = 0, start: int = 0) -> Shown:
    rng = np.random.default_rng(seed)
    lists = Lists(rng.uniform(-1, 1, (40, 3)).astype(np.float32), np.array([0, 40]), np.array(["q"]))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = rng.integers(0, 40, offsets[-1])
    grades = np.array([0.1, 0.16, 0.28, 0.52, 1.0], dtype=np.float32)
    return Shown(lists, offsets, rows, rng.choice(grades, offsets[-1]), start)


def part(shown: Shown, first: int, end: int) -> Shown:
    low, high = shown.offsets[first], shown.offsets[end]
    offsets = shown.offsets[first : end + 1] - low
    return Shown(shown.lists, offsets, shown.rows[low:high], shown.attraction[low:high], shown.start + first)


def joined(response: Response) -> Bool:
    return np.stack([response.clicks, response.observed, response.attracted])


def patterns(shown: Shown, session: int) -> tuple[Shown, Bool]:
    """One session, repeated for every pattern of clicks that it can have."""
    low, high = int(shown.offsets[session]), int(shown.offsets[session + 1])
    count = 2 ** (high - low)
    every = np.array(list(product([False, True], repeat=high - low)), dtype=np.bool_)
    offsets = np.arange(count + 1, dtype=np.int64) * (high - low)
    rows, attraction = np.tile(shown.rows[low:high], count), np.tile(shown.attraction[low:high], count)
    return Shown(shown.lists, offsets, rows, attraction), every.ravel()


def test_it_is_registered_under_its_name_and_built_from_plain_settings(user: User) -> None:
    assert USERS[user.name].endswith(f":{type(user).__name__}")
    assert build(type(user), {}, path="user").name == user.name


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(user: User) -> None:
    shown = make_shown([10] * 200)
    first = joined(user.click(shown, seed=7))
    assert np.array_equal(first, joined(user.click(shown, seed=7)))
    assert not np.array_equal(first[0], user.click(shown, seed=8).clicks)
    assert not np.array_equal(first[2], user.click(shown, seed=8).attracted)


def test_what_is_shown_is_not_changed(user: User) -> None:
    shown = make_shown([10, 0, 3, 12])
    arrays: list[NDArray[Any]] = [shown.offsets, shown.rows, shown.attraction, shown.lists.features]
    before = [array.copy() for array in arrays]
    user.click(shown, seed=1)
    assert all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True))


def test_a_click_is_observation_times_attraction(user: User) -> None:
    response = user.click(make_shown([10] * 500), seed=3)
    assert np.array_equal(response.clicks, response.observed & response.attracted)
    assert (response.attracted & ~response.observed).any(), "attraction is drawn for what was not seen too"


def test_parts_make_the_whole(user: User) -> None:
    shown = make_shown([4, 10, 0, 7, 1, 30, 10, 2] * 25, start=11)
    whole = joined(user.click(shown, seed=5))
    cuts = [0, 1, 67, 68, 200]
    parts = [joined(user.click(part(shown, a, b), seed=5)) for a, b in pairwise(cuts)]
    assert np.array_equal(whole, np.concatenate(parts, axis=1))
    assert not np.array_equal(whole, joined(user.click(replace(shown, start=12), seed=5)))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 6])
def test_the_likelihood_sums_to_one(user: User, length: int) -> None:
    for seed in range(3):
        shown, every = patterns(make_shown([length], seed=seed), 0)
        assert np.exp(log_likelihood_of(user, shown, every)).sum() == pytest.approx(1, abs=1e-9)


def test_the_likelihood_is_the_frequency_of_simulated_patterns(user: User) -> None:
    sessions, length = 50_000, 4
    one = make_shown([length], seed=4)
    attraction = np.array([0.3, 0.6, 0.2, 0.5], dtype=np.float32)
    offsets = np.arange(sessions + 1, dtype=np.int64) * length
    shown = Shown(one.lists, offsets, np.tile(one.rows, sessions), np.tile(attraction, sessions))
    code = user.click(shown, seed=2).clicks.reshape(sessions, length) @ (2 ** np.arange(length)[::-1])
    seen = np.bincount(code, minlength=2**length) / sessions
    every = patterns(replace(one, attraction=attraction), 0)
    expected = np.exp(log_likelihood_of(user, *every))
    error = np.sqrt(expected * (1 - expected) / sessions)
    assert (np.abs(seen - expected) <= 4 * error + 1e-12).all()


def test_its_own_clicks_are_likelier_under_it_than_under_another(user: User) -> None:
    shown = make_shown([10] * 4000)
    clicks = user.click(shown, seed=1).clicks
    assert log_likelihood_of(user, shown, clicks).sum() > log_likelihood_of(OTHERS[user.name], shown, clicks).sum()


def test_empty_short_and_long_lists_work(user: User) -> None:
    nothing = make_shown([])
    assert user.click(nothing, seed=0).clicks.shape == (0,)
    assert log_likelihood_of(user, nothing, np.zeros(0, dtype=np.bool_)).shape == (0,)
    shown = make_shown([0, 1, 0, 200, 15, 0])
    response = user.click(shown, seed=0)
    assert response.clicks.shape == (216,)
    likelihood = log_likelihood_of(user, shown, response.clicks)
    assert likelihood.shape == (6,)
    assert likelihood[[0, 2, 5]].tolist() == [0, 0, 0]
    assert np.isfinite(likelihood).all()
