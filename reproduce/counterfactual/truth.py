"""The clicks that a ranker truly gets in a world: its users click on the lists of the ranker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from clickprism.click_models.popularity import item_ids
from clickprism.click_models.users import Shown, attraction
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import rank
from clickprism.types import Clicks, Float64, Int64, slices
from reproduce.common.composed import ComposedUser
from reproduce.common.worlds import World

SESSIONS = 200_000
PAIRS = 300_000
CHUNK = 50_000


@dataclass(frozen=True)
class Truth:
    """The truth about a ranker.

    Attributes:
        value: Clicks per search, for the true shares of queries.
        difference: Difference to the lists of the log, on the searches of the log.
    """

    value: float
    difference: float


def truth_of(world: World, scores: Float64, *, depth: int) -> Truth:
    """Simulate clicks of the users of every day on the lists of the ranker, and on those of the log."""
    days = list(_days(world))
    settings = SimulationSettings(length=depth)
    earned = [
        simulate(
            world.data.train,
            user,
            sessions=SESSIONS // len(days),
            seed=1000 + day,
            settings=settings,
            scores=scores,
            shares=world.shares,
        ).clicks
        for day, (user, _) in enumerate(days)
    ]
    sessions = sum(each.sessions for each in earned)
    value = sum(float(each.clicks.sum()) for each in earned) / sessions
    gained = [_gain(world, user, log, scores, depth=depth, seed=day) for day, (user, log) in enumerate(days)]
    difference = np.average(gained, weights=[log.sessions for _, log in days])
    return Truth(value, float(difference))


def _days(world: World) -> Iterator[tuple[ComposedUser, Clicks]]:
    """Return the users of each day and what they were shown; one day if users do not change."""
    logged, user = world.logged, world.user
    if world.settings.attention == 0 or logged.days is None:
        yield user, logged.clicks
        return
    items, past = item_ids(world.data.train.lists), np.zeros(world.data.train.lists.documents)
    for day in range(world.settings.days):
        log = logged.clicks.take(logged.days == day)
        yield replace(user, popular=user.popular.after(items, past)), log
        past = past + np.bincount(log.rows, weights=log.clicks, minlength=len(past))


def _gain(world: World, user: ComposedUser, log: Clicks, scores: Float64, *, depth: int, seed: int) -> float:
    """Return the additional clicks per search; both lists of a search use the same random numbers, to reduce noise."""
    judged = world.data.train
    attractive = attraction(judged, noise=world.attraction_noise)
    offsets, rows = rank(judged.lists, scores, length=depth, seed=0)
    shown = np.repeat(np.arange(len(log)), log.impressions)
    query = judged.lists.list_of[log.rows[log.offsets[:-1]]]
    times, total = max(1, PAIRS // len(shown)), 0
    for start in range(0, len(shown), CHUNK):
        part = shown[start : start + CHUNK]
        for time in range(times):

            def clicked(ends: Int64, of: Int64, chosen: Int64, salt: int) -> int:
                entries, bounds = slices(ends, chosen)
                page = Shown(judged.lists, bounds, of[entries], attractive[of[entries]], salt)
                return int(user.click(page, seed=77 + seed).clicks.sum())

            salt = start + len(shown) * time
            total += clicked(offsets, rows, query[part], salt) - clicked(log.offsets, log.rows, part, salt)
    return total / (len(shown) * times)
