"""How likely a candidate makes clicks on rankings that its observation was not fitted to.

The rankings of a query are numbered by how often they were shown; every second one is held out. The observation model
is fitted to the others, scores are by models that did not see the query, and

    expected clicks on d at k = seen_dk r_d + background_dk,    r_d = T exp(b s_d) / sum over the query of exp(b s)

with T the sum of the query's targets by the rankings kept, and b, the one number that makes probabilities of scores,
fitted to the clicks there. Counted is where the clicks of a query fell, not how many they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from clickprism.choice.candidates import POOLED, Candidate
from clickprism.choice.exposure import as_it_is, by_places, by_trust
from clickprism.choice.material import Material
from clickprism.choice.moved import SCALES, MovedSettings, fit_moved
from clickprism.choice.places import places_of
from clickprism.choice.pooled import fit_pooled
from clickprism.choice.targets import Exposure, targets
from clickprism.click_models.pbm import count
from clickprism.click_models.trust import fit_trust
from clickprism.errors import ClickprismError
from clickprism.types import Bool, Clicks, Float64, Int64, Lists

STEEPEST: Final = 4.0  # of log b, either way
LEAST_CLICKS: Final = 500.0  # on rankings held out


def held_out(clicks: Clicks) -> Bool:
    """Whether each ranked list shows every second ranking of its query, from the second most shown, [ranked lists].

    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4, 6]), np.array([0, 1, 1, 0, 0, 1]), np.array([1, 2] * 3, np.int32),
    ...     np.array([1, 0, 1, 0, 0, 0]), np.array([3, 4, 5]))
    >>> held_out(log).tolist()
    [False, True, False]
    """
    depth = clicks.max_position + 1
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2**63, clicks.lists.documents * depth, dtype=np.uint64)
    code = np.add.reduceat(codes[clicks.rows * depth + clicks.positions], clicks.offsets[:-1])
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    rankings, ranking = np.unique(np.stack([query.astype(np.uint64), code]), axis=1, return_inverse=True)
    owner, shown = rankings[0], np.bincount(ranking, weights=clicks.impressions)
    order = np.lexsort((-shown, owner))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order)) - np.searchsorted(owner[order], owner[order])
    return np.asarray(number[ranking] % 2 == 1)


def likelihoods(clicks: Clicks, scores: Mapping[str, Float64]) -> dict[str, float]:
    """Log-likelihood a click on the rankings held out, by candidate; none where too few are clicked.

    Args:
        clicks: the log, as `Material.clicks`.
        scores: by candidate, [documents] each.
    """
    held = held_out(clicks)
    learn, check = (_material(clicks.take(np.flatnonzero(part))) for part in (~held, held))
    if check.clicks.clicks.sum() < LEAST_CLICKS or check.clicks.max_position != learn.clicks.max_position:
        return {}
    found: dict[str, float] = {}
    for method in dict.fromkeys(Candidate.parse(name).method for name in scores):
        try:
            mine, other = _exposures(method, learn, check)
        except ClickprismError:
            continue
        total = np.nan_to_num(targets(mine, learn.lists.documents))
        fitted, held_lines = (_Lines.of(each, learn.lists, total) for each in (mine, other))
        for name, each in scores.items():
            if Candidate.parse(name).method == method:
                found[name] = held_lines.value(each, fitted.steepness(each))
    return found


def _material(clicks: Clicks) -> Material:
    return Material(clicks, places_of(clicks))


def _exposures(method: str, learn: Material, check: Material) -> tuple[Exposure, Exposure]:
    """How often documents were seen in both parts, by an observation model fitted to the first."""
    both = learn, check
    if method == "click":
        return as_it_is(learn), as_it_is(check)
    if method == "trust":
        fitted = fit_trust(count(learn.clicks))
        return by_trust(learn, fitted), by_trust(check, fitted)
    if method in POOLED:
        pooled = fit_pooled(learn.clicks, bend=method != POOLED[0], places=learn.places)
        one, other = (by_places(each, pooled.below, pooled.steepness(each.places)) for each in both)
        return one, other
    settings = MovedSettings(scales=SCALES if method == "bend" else (), browsing=method == "browsing")
    moved = fit_moved(learn.clicks, settings, places=learn.places)
    one, other = (by_places(each, moved.below, moved.steepness(learn.lists)[each.places.rows]) for each in both)
    return one, other


class _Lines(NamedTuple):
    """Documents at positions, those of clicked queries: lines are sums over places.

    Attributes:
        lists: the documents.
        rows: of each line, [lines].
        clicks: [lines].
        seen: [lines].
        background: [lines].
        total: the sum of the targets of each query, [lists].
    """

    lists: Lists
    rows: Int64
    clicks: Float64
    seen: Float64
    background: Float64
    total: Float64

    @classmethod
    def of(cls, exposure: Exposure, lists: Lists, target: Float64) -> _Lines:
        """Those of an exposure."""
        depth = int(exposure.positions.max(initial=0)) + 1
        keys, line = np.unique(exposure.rows * depth + exposure.positions, return_inverse=True)
        columns = (exposure.clicks, exposure.seen, exposure.background)
        clicks, seen, background = (np.bincount(line, weights=each).astype(np.float64) for each in columns)
        total = np.bincount(lists.list_of, weights=target, minlength=len(lists)).astype(np.float64)
        return cls(lists, keys // depth, clicks, seen, background, total)

    def value(self, scores: Float64, steepness: float) -> float:
        """Log-likelihood a click."""
        lists, owner = self.lists, self.lists.list_of
        highest = np.maximum.reduceat(scores, lists.offsets[:-1])
        weight = np.exp(steepness * (scores - highest[owner]))
        worth = self.total[owner] * weight / np.bincount(owner, weights=weight)[owner]
        expected = np.maximum(self.seen * worth[self.rows] + self.background, 1e-9)
        query = owner[self.rows]
        hoped = np.bincount(query, weights=expected, minlength=len(lists))[query]
        return float(self.clicks @ np.log(expected / hoped) / self.clicks.sum())

    def steepness(self, scores: Float64) -> float:
        """The b that makes the clicks the most likely."""
        scale = float(scores.std()) or 1.0
        found = minimize_scalar(
            lambda log: -self.value(scores, np.exp(log) / scale), bounds=(-STEEPEST, STEEPEST), method="bounded"
        )
        return float(np.exp(found.x) / scale)
