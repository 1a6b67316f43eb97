"""The unexplored searches of a log as ranked lists with clicks: what competitors learn from."""

from __future__ import annotations

import numpy as np

from clickprism.types import Clicks, Int64
from reproduce.adr.searches import HIDDEN, Log
from reproduce.adr.worlds import Site

MOST = 50  # searches that a list counts as, at most: else the lists of a few head queries would be all there is
PATTERNS = 4  # of what was on screen, that the searches with one list are divided into


def list_log(site: Site, log: Log) -> Clicks:
    """Each version's list of each query once, as at most `MOST` searches at its own click rates."""
    lists, rows, places, clicks, shown = _added(site, log)
    return Clicks(site.judged.lists, _offsets(lists), rows, (places + 1).astype(np.int32), clicks, _first(lists, shown))


def display_log(site: Site, log: Log, *, seed: int) -> Clicks:
    """The same with `seen`: what was on screen at all, as a filter by display time sees it.

    Filtering is by the search, and a list of twenty has a million patterns of what was on screen. So the searches with
    one list are divided into four parts, each with a pattern drawn for all of it, and clicks drawn given that: every
    count has the right mean, and more of chance than a log of single searches.
    """
    random = np.random.default_rng([seed, 5])
    lists, rows, places, _, shown = _added(site, log)
    part = np.arange(PATTERNS)
    size = (shown[:, None] + part) // PATTERNS  # [entries, parts]; alike in all entries of a list
    seen = random.random(size.shape) < site.theta[places][:, None]
    clicks = random.binomial(size * seen, site.click_if_seen(rows, places)[:, None])
    displayed = seen | (random.random(size.shape) >= HIDDEN)
    entry, which = np.nonzero(size)
    order = np.lexsort((places[entry], which, lists[entry]))
    entry, which = entry[order], which[order]
    number = lists[entry] * PATTERNS + which
    impressions = size[entry, which]
    return Clicks(
        site.judged.lists,
        _offsets(number),
        rows[entry],
        (places[entry] + 1).astype(np.int32),
        clicks[entry, which],
        _first(number, impressions),
        seen=impressions * displayed[entry, which],
    )


def _added(site: Site, log: Log) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """List, row, place, clicks and impressions of each entry, by list and place."""
    whole = log.take(log.versions >= 0)
    query, deep = site.judged.lists.list_of[whole.rows], len(site.theta)
    lists = query * (int(whole.versions.max(initial=0)) + 1) + whole.versions
    keys, first, which = np.unique(lists * deep + whole.places, return_index=True, return_inverse=True)
    clicks, shown = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(clicks, which, whole.clicked)
    np.add.at(shown, which, whole.impressions)
    kept = np.minimum(shown, MOST)
    thinned = np.minimum(np.rint(clicks * kept / shown).astype(np.int64), kept)
    return keys // deep, whole.rows[first], keys % deep, thinned, kept


def _offsets(lists: Int64) -> Int64:
    return np.concatenate([[0], np.flatnonzero(np.diff(lists)) + 1, [len(lists)]]).astype(np.int64)


def _first(lists: Int64, values: Int64) -> Int64:
    return values[_offsets(lists)[:-1]]
