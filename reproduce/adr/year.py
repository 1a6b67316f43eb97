"""The year of a world, month by month; exploration may go by what the months before have left open."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clickprism.types import Float64
from reproduce.adr.searches import Log, month_of
from reproduce.adr.sums import first_slot
from reproduce.adr.worlds import Site, World, padded, site_of
from reproduce.common.kept import keep

DRAWS = 64  # of Thompson sampling, of each query and month: how often a candidate wins is how often it is taken
STRENGTH = 4.0  # impressions that the prior of a document counts for


def log_of(world: World, folder: Path | None) -> Log:
    """All that happens in the months of a world."""
    log: Log = keep(("log", world, folder), lambda: _simulated(world, site_of(world, folder)))
    return log


def _simulated(world: World, site: Site) -> Log:
    log: Log | None = None
    for month in range(world.months):
        explored = uniform(site) if log is None or world.exploration == "uniform" else thompson(world, site, log)
        now = month_of(world, site, month, explored)
        log = now if log is None else log.join(now)
    if log is None:
        raise ValueError("a world has at least one month")
    return log


def uniform(site: Site) -> Float64:
    """Each candidate of a query alike, [documents]."""
    lengths = np.diff(site.judged.lists.offsets)
    return np.repeat(1 / lengths, lengths)


def thompson(world: World, site: Site, log: Log) -> Float64:
    """How often each candidate of a query would be the best of a draw from what its clicks leave possible, [documents].

    c_1 of a document is Beta(a + clicks, b + skips) by its impressions in the first slot, explored or not, with the
    mean of all documents and `STRENGTH` impressions as the prior.
    """
    first = log.take(log.places == 0)
    documents, offsets = len(site.relevance), site.judged.lists.offsets
    clicks, shown = (
        np.bincount(first.rows, weights=of, minlength=documents) for of in (first.clicked, first.impressions)
    )
    explored_clicks, explored = first_slot(log, documents)
    prior = explored_clicks.sum() / max(explored.sum(), 1) if explored.sum() else clicks.sum() / max(shown.sum(), 1)
    random = np.random.default_rng([world.seed, 2, int(log.months.max())])
    alike = STRENGTH * np.array([prior, 1 - prior])
    wins = np.zeros((len(offsets) - 1, int(np.diff(offsets).max())))
    for _ in range(DRAWS):
        drawn = padded(random.beta(alike[0] + clicks, alike[1] + shown - clicks), offsets, fill=-1.0)
        wins[np.arange(len(wins)), drawn.argmax(axis=1)] += 1 / DRAWS
    inside = np.arange(wins.shape[1]) < np.diff(offsets)[:, None]
    return wins[inside]
