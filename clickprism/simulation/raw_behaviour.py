"""What happens in the searches of a simulated raw log: what is shown, seen and clicked, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from clickprism.simulation.raw_searches import AGENTS, CRAWLER, KINDS, Searches
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.simulation.raw_world import World
from clickprism.types import Bool, Float32, Float64, Int64
from clickprism.users.base import Shown, User
from clickprism.users.trust import TrustUser

if TYPE_CHECKING:
    import pyarrow as pa

READ: Final = (9_000.0, 0.7)  # ms on screen of what is read: median, deviation of the logarithm
GLANCED: Final = (900.0, 0.6)  # of what is only glanced at
PASSED: Final = (350.0, 0.8)  # of what goes by unseen
GLANCES, HIDDEN = 0.1, 0.6  # shares: of the seen that is only glanced at, of the unseen that never comes on screen
STAY: Final = (60_000.0, 0.9)  # ms on a relevant page
LEAVE: Final = (6_000.0, 1.0)  # on an irrelevant one
TURN: Final = 25_000_000  # µs from one page of results to the next


def behaviour(
    searches: Searches, world: World, user: User, settings: RawLogSettings, *, day: int, first: int
) -> pa.Table:
    """A row for each document shown, with the truth beside it.

    Args:
        searches: some of a day.
        world: the search engine.
        user: who looks and clicks.
        settings: of the log.
        day: its number, from 0.
        first: the number of the first search.
    """
    import pyarrow as pa

    random = np.random.default_rng([settings.seed, 3, first])
    midnight = settings.midnight(day)
    ranked, lengths = world.rank(searches.query, searches.ranker)
    person = searches.robot < 0
    randomised = person & (random.random(len(searches)) < settings.randomised)
    _swap(ranked, randomised, np.floor(random.random(len(searches)) * lengths).astype(np.int64))
    lengths = np.where(person, lengths, np.minimum(lengths, settings.page))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = ranked[np.arange(ranked.shape[1]) < lengths[:, None]]
    shown = Shown(world.judged.lists, offsets, rows, world.attraction[rows], first)
    believed = Shown(shown.lists, offsets, rows, _believed(shown, settings.trust), first)
    response = user.click(believed, seed=settings.seed)
    search, position = shown.session_of, shown.positions
    page = (position - 1) // settings.page
    human = person[search]
    observed, clicked = response.observed & human, response.clicks & human
    deepest = _most(np.where(observed, page, 0), search, len(searches))
    page_clicked = _has_click(clicked, search, page, settings)
    clicked |= _robot_clicks(searches, search, position)
    here = page <= deepest[search]
    skipped = (page < deepest[search]) & ~page_clicked
    display, dwell = _display(observed, random), _dwell(clicked, world.attraction[rows], random)
    robot = searches.robot[search]
    display = np.where(human, display, random.integers(20, 200, len(rows)))
    dwell = np.where(human, dwell, random.integers(50, 500, len(rows)))
    blind = (_client(searches.user, 7) < settings.without_display) | (searches.robot == KINDS.index("crawler"))
    named = _client(searches.user, 11) >= settings.without_id
    agent = np.where(searches.robot == KINDS.index("crawler"), len(AGENTS), searches.user % len(AGENTS))
    table = pa.table(
        {
            "search": search + first,
            "query": searches.query[search] + 1,
            "text": pa.array(world.texts).take(pa.array(searches.query[search])),
            "document": world.documents[rows],
            "position": position.astype(np.int32),
            "time": pa.array(midnight + searches.time[search] + page * TURN).cast(pa.timestamp("us")),
            "searched": pa.array(midnight + searches.time[search]).cast(pa.timestamp("us")),
            "click": clicked,
            "click_ms": (2_000 + 3_000 * position + random.integers(0, 2_000, len(rows))).astype(np.int64),
            "display_ms": pa.array(display, mask=blind[search]),
            "dwell_ms": pa.array(dwell, mask=~clicked),
            "page_skipped": skipped,
            "user": pa.array(searches.user[search], mask=searches.user[search] == 0),
            "agent": pa.array([*AGENTS, CRAWLER]).take(pa.array(agent[search])),
            "ranker": pa.array([f"v{version + 1}" for version in range(settings.rankers)]).take(
                pa.array(searches.ranker[search])
            ),
            "randomised": randomised[search] & (position == 1),
            "named": named[search],
            "observed": observed,
            "attracted": response.attracted & human,
            "relevance": world.attraction[rows].astype(np.float64),
            "grade": world.judged.grades[rows],
            "robot": pa.array([*KINDS]).take(pa.array(robot, mask=robot < 0)),
            "row": rows,
        }
    )
    if settings.features:
        table = table.append_column("features", _features(world.judged.lists.features[rows]))
    return table.filter(pa.array(here))


def _features(views: Float32) -> pa.StructArray:
    """The features of each row, by name, to three digits."""
    import pyarrow as pa

    names = [f"view_{place + 1}" for place in range(views.shape[1])]
    return pa.StructArray.from_arrays([pa.array(column) for column in np.round(views.astype(np.float64), 3).T], names)


def _swap(ranked: Int64, chosen: Bool, places: Int64) -> None:
    """Put the document of a random place first, and the first one there."""
    searches = np.flatnonzero(chosen)
    ranked[searches, 0], ranked[searches, places[searches]] = ranked[searches, places[searches]], ranked[searches, 0]


def _believed(shown: Shown, trust: float) -> Float32:
    """How probably a seen document is clicked where it stands: a blend of its attraction and of `TrustUser`'s."""
    plus, minus = TrustUser().trust(shown.positions)
    blended = (1 - trust) * shown.attraction + trust * (plus * shown.attraction + minus * (1 - shown.attraction))
    return np.clip(blended, 0, 1).astype(np.float32)


def _most(values: Int64, search: Int64, searches: int) -> Int64:
    """The highest value of each search."""
    result = np.zeros(searches, dtype=np.int64)
    np.maximum.at(result, search, values)
    return result


def _has_click(clicked: Bool, search: Int64, page: Int64, settings: RawLogSettings) -> Bool:
    """Whether the page of each row has a click."""
    pages = -(-settings.length // settings.page)
    key = search * pages + page
    clicks = np.bincount(key, weights=clicked, minlength=int(key.max(initial=0)) + 1)
    return np.asarray(clicks[key] > 0)


def _robot_clicks(searches: Searches, search: Int64, position: Int64) -> Bool:
    """Fast ones click the first two, spammers everything, repeaters always the same."""
    kind, burst = searches.robot[search], searches.burst[search]
    fast = (kind == KINDS.index("fast")) & (position <= 2)
    repeat = (kind == KINDS.index("repeat")) & (position == 1 + burst % 3)
    return np.asarray(fast | repeat | (kind == KINDS.index("spammer")))


def _display(observed: Bool, random: np.random.Generator) -> Int64:
    """The time on screen in ms: long for what is read, short for what goes by, with some overlap."""
    chance, spread = random.random(len(observed)), random.standard_normal(len(observed))
    seen = np.where(chance < GLANCES, _lognormal(GLANCED, spread), _lognormal(READ, spread))
    unseen = np.where(chance < HIDDEN, 0.0, _lognormal(PASSED, spread))
    return np.where(observed, seen, unseen).astype(np.int64)


def _dwell(clicked: Bool, relevance: Float32, random: np.random.Generator) -> Int64:
    """The time on the page in ms: long where it is relevant, with the probability of its attraction."""
    chance, spread = random.random(len(clicked)), random.standard_normal(len(clicked))
    return np.where(chance < relevance, _lognormal(STAY, spread), _lognormal(LEAVE, spread)).astype(np.int64)


def _lognormal(shape: tuple[float, float], spread: Float64) -> Float64:
    median, deviation = shape
    return np.asarray(median * np.exp(deviation * spread))


def _client(users: Int64, salt: int) -> Float64:
    """A number from 0 to 1 that belongs to a user, whatever the day."""
    mixed = (users.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
