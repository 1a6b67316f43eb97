"""Who searches for what and when, in a simulated raw log: people by the hour, and robots in bursts.

People stay far below any robot rule, and robots pass it by far, so that what a rule filters can be told beforehand: a
person above a limit goes on under a new name, as behind a private window.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, final

import numpy as np

from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.simulation.raw_world import World
from clickprism.types import Int64

HOURS: Final = (3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 10, 10, 11, 11, 10, 10, 10, 10, 11, 12, 12, 10, 7, 5)
MINUTE: Final = 60_000_000  # in µs, as all times here
DAY: Final = 24 * 60 * MINUTE
LAST: Final = DAY - 2 * MINUTE  # no search later in the day, so that all its pages are of one day
MOST: Final = {"day": 40, "minute": 3, "query": 2}  # searches of one person: in a day, in a minute, for one query
ROBOTS: Final = {
    "fast": (90, MINUTE),
    "crawler": (40, 600 * MINUTE),
    "spammer": (40, 120 * MINUTE),
    "repeat": (50, 90 * MINUTE),
}
"""The kinds of robots: searches in a burst, and how long it takes. They come between 2 and 22 o'clock."""
KINDS: Final = tuple(ROBOTS)
AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/131.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/129.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_6 like Mac OS X) Safari/604.1",
    "shop-app/4.2 (Android 14)",
)
CRAWLER: Final = "Mozilla/5.0 (compatible; IndexBot/2.1; +https://example.org/bot)"


@final
@dataclass(frozen=True, eq=False)
class Searches:
    """The searches of a day in the order of their times, one entry each in every field.

    Attributes:
        time: µs since the day began.
        query: its number.
        ranker: which one serves it.
        user: the number of who searches; 0 for nobody known.
        robot: the place in `KINDS` of a robot, -1 for people.
        burst: the number of the robot's burst, 0 for people.
    """

    time: Int64
    query: Int64
    ranker: Int64
    user: Int64
    robot: Int64
    burst: Int64

    def __len__(self) -> int:
        return len(self.time)

    def part(self, chosen: slice | Int64) -> Searches:
        """Some of them, in this order."""
        return Searches(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


@final
class Crowd:
    """Who comes on which day."""

    def __init__(self, world: World, settings: RawLogSettings) -> None:
        self.world, self.settings = world, settings
        random = np.random.default_rng([settings.seed, 1])
        self.people = settings.people or max(50, settings.searches // 10)
        activity = 1 / (np.arange(self.people) + 10.0)
        self._activity = np.cumsum(random.permutation(activity / activity.sum()))
        weekly = 1 + 0.2 * np.sin(2 * np.pi * np.arange(settings.days) / 7)
        self.per_day = random.multinomial(settings.searches, weekly / weekly.sum())
        wanted = settings.robots * settings.searches / len(KINDS)
        kinds = [kind for kind, (size, _) in enumerate(ROBOTS.values()) for _ in range(int(np.ceil(wanted / size)))]
        self._kinds = np.array(kinds, dtype=np.int64)
        self._days = random.integers(0, settings.days, len(kinds))

    def searches(self, day: int) -> Searches:
        """All searches of a day."""
        random = np.random.default_rng([self.settings.seed, 2, day])
        versions = self.world.versions(day)
        parts = [self._people(day, versions, random)]
        parts += [self._burst(int(burst), versions, random) for burst in np.flatnonzero(self._days == day)]
        names = [field.name for field in fields(Searches)]
        joined = Searches(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
        return joined.part(np.argsort(joined.time, kind="stable"))

    def _people(self, day: int, versions: np.ndarray, random: np.random.Generator) -> Searches:
        count = int(self.per_day[day])
        hour = random.choice(len(HOURS), count, p=np.array(HOURS) / sum(HOURS))
        time = np.minimum((hour * 60 + random.random(count) * 60) * MINUTE, LAST).astype(np.int64)
        user = np.searchsorted(self._activity, random.random(count), side="right")
        user = np.minimum(user, self.people - 1) + 1
        query = np.minimum(np.searchsorted(self.world.shares, random.random(count)), len(self.world.shares) - 1)
        groups = {"day": user, "minute": user * (DAY // MINUTE) + time // MINUTE, "query": user * 2**32 + query}
        often = np.zeros(count, dtype=np.bool_)
        for name, group in groups.items():
            often |= _times_before(group) >= MOST[name]
        first = 10 * self.people + len(self._kinds) + int(self.per_day[:day].sum())
        user = np.where(often, first + np.arange(count), user)
        user[random.random(count) < 0.02] = 0
        zero = np.zeros(count, dtype=np.int64)
        return Searches(time // 1000 * 1000, query, self._rankers(versions, count, random), user, zero - 1, zero)

    def _burst(self, burst: int, versions: np.ndarray, random: np.random.Generator) -> Searches:
        kind = int(self._kinds[burst])
        size, long = ROBOTS[KINDS[kind]]
        begin = random.integers(2 * 60 * MINUTE, 22 * 60 * MINUTE - long) // MINUTE * MINUTE
        time = np.sort(begin + random.integers(0, long, size)) // 1000 * 1000
        queries = np.searchsorted(self.world.shares, random.random(size)).clip(max=len(self.world.shares) - 1)
        ranker = self._rankers(versions, size, random)
        if KINDS[kind] == "repeat":
            queries[:], ranker[:] = queries[0], ranker[0]
        each = np.ones(size, dtype=np.int64)
        return Searches(time, queries, ranker, each * (2 * self.people + burst), each * kind, each * burst)

    @staticmethod
    def _rankers(versions: np.ndarray, count: int, random: np.random.Generator) -> Int64:
        return np.minimum(np.searchsorted(np.cumsum(versions), random.random(count)), len(versions) - 1)


def _times_before(groups: Int64) -> Int64:
    """How often each entry's value stands before it.

    >>> _times_before(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(groups) else order
    result = np.empty(len(groups), dtype=np.int64)
    result[order] = np.arange(len(groups)) - np.repeat(starts, np.diff([*starts, len(groups)]))
    return result
