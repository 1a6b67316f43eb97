"""A year of searches, as counts: all that any estimate needs, drawn exactly as if every search were made by itself.

In a cell (query, week or so, version of the ranker) the same list is shown over and over. How often each of its places
is seen, clicked, and how long it is on screen are then binomial numbers, one draw each however many searches there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np

from clickprism.types import Bool, Float64, Int64
from reproduce.adr.worlds import DAYS, Site, World, padded

SEGMENTS: Final = (1, 6, 21)  # days, the last first: a day, the rest of a week, the rest of a month
SEEN: Final = (0.058, 0.222, 0.720)  # display below 1 s, between, above 5 s, of what was seen (clickprism log simulate)
UNSEEN: Final = (0.962, 0.038, 0.000)  # of what was not
HIDDEN: Final = 0.6  # of the unseen: never on screen


@final
@dataclass(frozen=True, eq=False)
class Log:
    """Impressions with the same document, position, time and origin, and what came of them; one entry each.

    Attributes:
        rows: the document.
        places: the position, from 0.
        months: from 0.
        segments: which of `SEGMENTS`.
        randomised: whether exploration put it there.
        versions: of the ranker whose whole list was shown, unexplored; -1 in searches that were explored.
        impressions: how many.
        clicked: how many were clicked.
        seen: how many were truly seen.
        short: on screen for less than a second.
        long: on screen for more than five seconds.
        short_clicked: of the clicked ones, the short.
        long_clicked: of the clicked ones, the long.
        displayed: on screen at all.
        ages: hours from the last click to the segment's end; infinite without a click.
    """

    rows: Int64
    places: Int64
    months: Int64
    segments: Int64
    randomised: Bool
    versions: Int64
    impressions: Int64
    clicked: Int64
    seen: Int64
    short: Int64
    long: Int64
    short_clicked: Int64
    long_clicked: Int64
    displayed: Int64
    ages: Float64

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Bool) -> Log:
        """These entries only."""
        return Log(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def join(self, other: Log) -> Log:
        """The entries of both."""
        return Log(*(np.concatenate([getattr(x, name) for x in (self, other)]) for name in self.__dataclass_fields__))


def versions_of(world: World, month: int) -> Float64:
    """The share of searches that each version serves in a month, [rankers]: one gives way to the next.

    >>> versions_of(World(months=5, rankers=3), 1).tolist()
    [0.5, 0.5, 0.0]
    """
    now = (world.rankers - 1) * month / max(world.months - 1, 1)
    return np.asarray(np.maximum(1 - np.abs(np.arange(world.rankers) - now), 0.0))


def month_of(world: World, site: Site, month: int, choice: Float64) -> Log:
    """What happens in a month.

    Args:
        world: who searches how often.
        site: what they find.
        month: from 0.
        choice: the probability that exploration takes a candidate of the query, [documents].
    """
    random = np.random.default_rng([world.seed, 1, month])
    offsets = site.judged.lists.offsets
    lengths = np.diff(offsets)
    shares = np.outer(np.array(SEGMENTS) / DAYS, versions_of(world, month))
    searches = random.poisson(site.frequency[:, None, None] * shares)
    query, segment, version = (part.astype(np.int64) for part in np.nonzero(searches))
    count = searches[query, segment, version].astype(np.int64)
    ranked = _ranked(site, offsets)[version, query]  # [cells, longest]: rows of documents, best first
    inside = np.arange(ranked.shape[1]) < lengths[query][:, None]
    chances = np.where(inside, choice[ranked], 0.0)
    explored_count = random.binomial(count, world.randomised)
    taken = random.multinomial(explored_count, chances / chances.sum(axis=1, keepdims=True))
    taken[:, 0] += np.where(inside, 0, taken).sum(axis=1)  # what rounding left over
    taken *= inside
    shown = inside[:, : world.shown]
    whole = np.where(shown, (count - explored_count)[:, None], 0)
    kept = np.where(shown, explored_count[:, None] - taken[:, : world.shown], 0)
    kept[:, 0] = 0
    moved = np.where(shown, taken[:, : world.shown], 0)
    moved[:, 0] = 0
    places = np.arange(ranked.shape[1])
    none = np.full_like(version, -1)
    top = np.broadcast_to(ranked[:, :1], moved.shape)
    parts = [
        _Shown.of(whole, ranked[:, : world.shown], places[: world.shown], segment, version),
        _Shown.of(kept, ranked[:, : world.shown], places[: world.shown], segment, none),
        _Shown.of(moved, top, places[: world.shown], segment, none),
        _Shown.of(taken, ranked, np.zeros_like(places), segment, none, randomised=True),
    ]
    return _behaviour(site, _Shown(*map(np.concatenate, zip(*parts, strict=True))), month, random)


class _Shown(NamedTuple):
    """Impressions before anyone looks; one entry each."""

    rows: Int64
    places: Int64
    segments: Int64
    randomised: Bool
    versions: Int64
    impressions: Int64

    @classmethod
    def of(
        cls, counts: Int64, rows: Int64, places: Int64, segment: Int64, version: Int64, *, randomised: bool = False
    ) -> _Shown:
        """Of counts, [cells, columns], and the segment and version of each cell."""
        cell, column = np.nonzero(counts)
        flags, shown = np.full(len(cell), randomised), counts[cell, column].astype(np.int64)
        return cls(rows[cell, column], places[column], segment[cell], flags, version[cell], shown)


def _ranked(site: Site, offsets: Int64) -> Int64:
    """The rows of each query, best first, by each version, [rankers, queries, longest]; what pads comes last."""
    orders = []
    for scores in site.production:
        order = np.argsort(-padded(scores, offsets, fill=-np.inf), axis=1, kind="stable")
        orders.append(np.minimum(offsets[:-1][:, None] + order, offsets[1:][:, None] - 1))
    return np.stack(orders).astype(np.int64)


def _behaviour(site: Site, shown: _Shown, month: int, random: np.random.Generator) -> Log:
    """Who looks, who clicks, and for how long it is on screen."""
    rows, places, segments, randomised, versions, impressions = shown
    seen = random.binomial(impressions, site.theta[places])
    clicked = random.binomial(seen, site.click_if_seen(rows, places))
    unseen = impressions - seen
    short_clicked, short_passed = (random.binomial(some, SEEN[0]) for some in (clicked, seen - clicked))
    middle_or_long = SEEN[2] / (SEEN[1] + SEEN[2])
    long_clicked = random.binomial(clicked - short_clicked, middle_or_long)
    long_passed = random.binomial(seen - clicked - short_passed, middle_or_long)
    short_unseen = random.binomial(unseen, UNSEEN[0])
    hidden = random.binomial(short_unseen, HIDDEN / UNSEEN[0])
    with np.errstate(divide="ignore"):
        ages = np.array(SEGMENTS)[segments] * 24 * (1 - random.random(len(rows)) ** (1 / clicked))
    return Log(
        rows,
        places,
        np.full(len(rows), month),
        segments,
        randomised,
        versions,
        impressions,
        clicked,
        seen,
        short_clicked + short_passed + short_unseen,
        long_clicked + long_passed,
        short_clicked,
        long_clicked,
        impressions - hidden,
        np.where(clicked > 0, ages, np.inf),
    )
