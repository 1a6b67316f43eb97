"""How well any method could rank by the clicks of a month and the imputed values: the exact posterior, with the truth.

It knows the click parameters of the simulation and how often each grade goes with an imputed value and a place in the
list, which no method does. Sorted by the expected gain, no ranking by the same evidence has a higher expected DCG.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clickprism.relevance.estimates import PairCounts
from clickprism.types import Float64, Int64
from reproduce.adr.runs import Run
from reproduce.adr.sums import pair_counts
from reproduce.adr.worlds import Site, site_of
from reproduce.adr.year import log_of

BINS, PLACES = 20, 5  # of the imputed values, and of the mean places in each of those
SPARE = 0.5  # pairs of each grade that a bin counts beside its own


def bounded(run: Run, folder: Path | None) -> tuple[Float64, dict[str, Any]]:
    """The expected gain of each candidate, [documents]; `settings.imputed` says whether imputed values are known."""
    site, log = site_of(run.world, folder), log_of(run.world, folder)
    counts = pair_counts(log.take(log.months == run.world.months - 1), site)
    imputed = run.needs.arrays()["imputed"] if run.settings["imputed"] else None
    return expected_gain(site, counts, imputed), {}


def expected_gain(site: Site, counts: PairCounts, imputed: Float64 | None) -> Float64:
    """E[2^grade - 1] given the clicks at each position, where the pair stood, and what is imputed, [documents].

    P(grade | clicks) is in proportion to P(clicks | grade) P(grade | bin), with the true P(click at k | grade) =
    theta_k (eps+_k gamma + eps-_k (1 - gamma)).
    """
    grades = site.judged.grades.astype(np.int64)
    highest = int(grades.max())
    shown, clicked = (np.asarray(of, np.float64) for of in (counts.impressions, counts.clicked))
    odds = np.empty((len(grades), highest + 1))
    for grade in range(highest + 1):
        share = grade / highest
        rate = np.clip(site.theta * (site.plus * share + site.minus * (1 - share)), 1e-9, 1 - 1e-9)
        odds[:, grade] = clicked @ np.log(rate) + (shown - clicked) @ np.log1p(-rate)
    place = shown @ np.arange(shown.shape[1]) / np.maximum(shown.sum(axis=1), 1.0)
    place[shown.sum(axis=1) == 0] = shown.shape[1]
    bins = _binned(place, np.zeros(len(grades), np.int64) if imputed is None else _parts(imputed, BINS))
    table = np.full((int(bins.max()) + 1, highest + 1), SPARE)
    np.add.at(table, (bins, grades), 1.0)
    odds += np.log(table / table.sum(axis=1, keepdims=True))[bins]
    likely = np.exp(odds - odds.max(axis=1, keepdims=True))
    return np.asarray(likely @ (2.0 ** np.arange(highest + 1) - 1) / likely.sum(axis=1))


def _parts(values: Float64, count: int) -> Int64:
    """Which of so many parts of about equal size each value is in, from the lowest; equal values share one.

    >>> _parts(np.array([3.0, 1.0, 1.0, 9.0]), 2).tolist()
    [1, 0, 0, 1]
    """
    ends = np.quantile(values, np.arange(1, count) / count)
    return np.searchsorted(ends, values, side="left").astype(np.int64)


def _binned(place: Float64, outer: Int64) -> Int64:
    """The bins of the places within each outer bin."""
    bins = np.empty(len(place), np.int64)
    for each in np.unique(outer):
        rows = np.flatnonzero(outer == each)
        bins[rows] = each * PLACES + _parts(place[rows], PLACES)
    return bins
