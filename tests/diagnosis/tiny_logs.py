"""Small logs for the tests of diagnosis: each list as (documents from the top, clicked positions, searches, day)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from clickprism.data.logged import Logged
from clickprism.types import Clicks, Lists
from reproduce.common.worlds import WorldSettings, make_world

Page = tuple[Sequence[int], Sequence[int], int, int]


def log_of(pages: Sequence[Page], *, documents: Sequence[int], days: bool = False, features: int = 0) -> Logged:
    """A log over queries with so many documents each; pages name documents by row."""
    offsets = np.concatenate([[0], np.cumsum(documents)]).astype(np.int64)
    width = np.random.default_rng(0).normal(size=(int(offsets[-1]), features)).astype(np.float32)
    lists = Lists(width, offsets, np.array([f"q{place}" for place in range(len(documents))]))
    rows = np.concatenate([np.array(page[0], dtype=np.int64) for page in pages])
    positions = np.concatenate([np.arange(1, len(page[0]) + 1) for page in pages]).astype(np.int32)
    shown = np.repeat([page[2] for page in pages], [len(page[0]) for page in pages])
    clicked = np.concatenate([np.isin(np.arange(1, len(page[0]) + 1), page[1]) for page in pages])
    starts = np.concatenate([[0], np.cumsum([len(page[0]) for page in pages])]).astype(np.int64)
    impressions = np.array([page[2] for page in pages], dtype=np.int64)
    clicks = Clicks(lists, starts, rows, positions, np.where(clicked, shown, 0).astype(np.int64), impressions)
    return Logged(clicks, np.array([page[3] for page in pages], dtype=np.int64) if days else None)


def swapped(queries: int, *, first: tuple[int, int], second: tuple[int, int], searches: int = 100) -> Logged:
    """Of each query two documents, in both orders: clicks on either at position 1, and at position 2, of `searches`."""
    pages: list[Page] = []
    for query in range(queries):
        one, other = 2 * query, 2 * query + 1
        for top, below in ((one, other), (other, one)):
            place = (top - one, below - one)
            up, down = (first, second)[place[0]][0], (first, second)[place[1]][1]
            pages += [((top, below), (1,), up, 0), ((top, below), (2,), down, 0)]
            pages += [((top, below), (), searches - up - down, 0)]
    return log_of(pages, documents=[2] * queries)


@cache
def small_world(**settings: object) -> Logged:
    """The log of a small world."""
    made = {"queries": 200, "features": 12, "sessions": 60_000, **settings}
    return make_world(WorldSettings(**made)).logged  # type: ignore[arg-type]
