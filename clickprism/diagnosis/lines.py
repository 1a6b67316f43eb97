"""Counts of documents at their places: all searches together, in two halves by chance, or day by day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import of_entries, units
from clickprism.diagnosis.days import days_of
from clickprism.diagnosis.sight import Sight
from clickprism.types import Bool, Clicks, Float64, Int64

ENOUGH: Final = 12.0  # queries in effect; else documents are taken to be independent


@final
@dataclass(frozen=True, eq=False)
class Lines:
    """One line for a document at a place, those of a group together.

    Attributes:
        rows: the document of each group, [groups].
        part: which half of the searches a group counts, [groups]; 0 where they are not halved.
        query: of each group, [groups].
        group: of each line, [lines].
        places: of each line, [lines].
        days: of each line, [lines]; 0 where days are not told apart.
        searches: that showed it there, [lines].
        shown: those in which the reader came so far, as far as the chances of a chain tell, [lines].
        clicks: [lines].
        position_of: the position of each place, from 0, [places].
        mean: what is expected of a group's rate, [groups].
        strength: in clicks, of that; 0 where nothing is expected.
    """

    rows: Int64
    part: Int64
    query: Int64
    group: Int64
    places: Int64
    days: Int64
    searches: Float64
    shown: Float64
    clicks: Float64
    position_of: Int64
    mean: Float64
    strength: float = 0.0

    @property
    def starts(self) -> Int64:
        """The first line of each group, [groups]."""
        return np.flatnonzero(np.diff(self.group, prepend=-1)).astype(np.int64)

    @property
    def ends(self) -> Int64:
        """Where each group begins, and the end of all, [groups + 1]."""
        return np.append(self.starts, len(self.group)).astype(np.int64)

    def total(self, values: Float64) -> Float64:
        """Sums over the lines of each group, [groups]."""
        return np.bincount(self.group, weights=values, minlength=len(self.rows)).astype(np.float64, copy=False)

    def of_parts(self, values: Float64, documents: int) -> Float64:
        """Values of lines added up by document and half, [documents, 2]."""
        key = (self.rows * 2 + self.part)[self.group]
        return np.bincount(key, weights=values, minlength=2 * documents).astype(np.float64).reshape(documents, 2)

    def units(self) -> Int64:
        """What is taken to be independent: the query of each group, or the document where few queries hold all."""
        return units(self.query, self.rows, self.total(self.clicks), enough=ENOUGH)

    def moved(self) -> Lines:
        """Only the groups that stood at several positions and were clicked."""
        depth = int(self.position_of.max()) + 1
        held = np.unique(self.group * depth + self.position_of[self.places]) // depth
        several = np.bincount(held, minlength=len(self.rows)) > 1
        return self.take(several & (self.total(self.clicks) > 0))

    def take(self, groups: Bool) -> Lines:
        """Only these groups."""
        kept = groups[self.group]
        group = (np.cumsum(groups) - 1)[self.group[kept]]
        return Lines(
            self.rows[groups],
            self.part[groups],
            self.query[groups],
            group,
            self.places[kept],
            self.days[kept],
            self.searches[kept],
            self.shown[kept],
            self.clicks[kept],
            self.position_of,
            self.mean[groups],
            self.strength,
        )


def lines_of(clicks: Clicks, sight: Sight) -> Lines:
    """All searches together; only documents that moved."""
    return _counted(clicks, sight, clicks.impressions[None], clicks.clicks[None]).moved()


def halves(clicks: Clicks, sight: Sight, *, seed: int) -> Lines:
    """Each search is put into one of two halves by chance: what one half tells does not hang on clicks of the other."""
    rng = np.random.default_rng(seed)
    first = rng.binomial(clicks.impressions, 0.5).astype(np.int64)
    shown = np.repeat(first, np.diff(clicks.offsets))
    if clicks.are_patterns:
        taken = np.where(clicks.clicks > 0, shown, 0)
    else:  # which searches of a list had the click is not told: any may
        taken = rng.hypergeometric(clicks.clicks, clicks.list_impressions - clicks.clicks, shown)
    searches = np.stack([first, clicks.impressions - first])
    return _counted(clicks, sight, searches, np.stack([taken, clicks.clicks - taken]))


def daily_lines(logged: Logged, sight: Sight) -> Lines:
    """Day by day, all documents."""
    clicks = logged.clicks
    days = of_entries(clicks, days_of(logged))
    return _counted(clicks, sight, clicks.impressions[None], clicks.clicks[None], days)


def _counted(clicks: Clicks, sight: Sight, searches: Int64, taken: Int64, days: Int64 | None = None) -> Lines:
    """Count by document, half, day and place: searches [halves, ranked lists] and clicks [halves, entries]."""
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))[sight.entries]
    rows = clicks.rows[sight.entries]
    day = np.zeros(len(rows), dtype=np.int64) if days is None else days[sight.entries]
    count, width = int(day.max(initial=0)) + 1, len(sight.position_of)
    known, line = np.unique((rows * count + day) * width + sight.places, return_inverse=True)
    found = []
    for part in range(len(searches)):
        made = searches[part][owner].astype(np.float64)
        counts = [np.bincount(line, weights=each, minlength=len(known)) for each in (made, made * sight.chance)]
        clicked = np.bincount(line, weights=taken[part][sight.entries], minlength=len(known))
        kept = counts[0] > 0
        of_group = 2 * (known[kept] // (width * count)) + part
        found.append((of_group, known[kept] % (width * count), counts[0][kept], counts[1][kept], clicked[kept]))
    of_group, rest, made, shown, clicked = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((rest, of_group))
    groups, group = np.unique(of_group[order], return_inverse=True)
    documents = groups // 2
    return Lines(
        documents,
        groups % 2,
        clicks.lists.list_of[documents],
        group.astype(np.int64),
        rest[order] % width,
        rest[order] // width,
        made[order],
        shown[order],
        clicked[order].astype(np.float64),
        sight.position_of,
        np.ones(len(groups)),
    )
