"""The user browsing model, fitted: P(click) = observation of position and last click x attraction of the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.observation.click_models.base import (
    FittedModel,
    Prior,
    check_patterns,
    check_sessions,
    check_steps,
    filled,
    unseen,
)
from clickprism.observation.click_models.behaviour import Browsing
from clickprism.observation.click_models.factors import NO_PRIOR, Groups, Pseudo, fit_factors
from clickprism.types import Clicks, Float64, Int64


@final
@dataclass(frozen=True, eq=False)
class BrowsingCounts:
    """How often each document was shown at each position below each last click, and clicked there.

    Attributes:
        rows: the documents, sorted, each once.
        groups: the counts of each of them; cell (k - 1) * depth + d is for position k and distance d to the last click
            above, 0 for none.
        depth: positions, and distances too.
        entries: the group of each entry of the log.
    """

    rows: Int64
    groups: Groups
    depth: int
    entries: Int64


@final
@dataclass(frozen=True, eq=False)
class BrowsingFit:
    """The user browsing model of a log.

    Attributes:
        attraction: the probability of a click once seen, of the documents `counts.rows`.
        table: observation by position (rows) and distance to the last click above (columns, 0 for none); nan where
            nothing was shown, 0 where nothing was clicked. The highest is 1, as for `PositionFit`.
        iterations: how many steps were taken.
        converged: whether the table has stopped.
    """

    attraction: Float64
    table: Float64
    iterations: int
    converged: bool


def count_browsing(clicks: Clicks) -> BrowsingCounts:
    """The counts of a log whose sessions are their own or merged by pattern."""
    check_patterns(clicks)
    from clickprism.observation.click_models.kernels import distances

    depth = clicks.max_position
    cells = np.empty(len(clicks.rows), dtype=np.int64)
    distances(clicks.offsets, clicks.positions, clicks.clicks > 0, cells)
    cells += (clicks.positions - 1) * np.int64(depth)
    keys, group = np.unique(clicks.rows * np.int64(depth * depth) + cells, return_inverse=True)
    rows, sizes = np.unique(keys // (depth * depth), return_counts=True)
    clicked, shown = (
        np.bincount(group, weights=weights, minlength=len(keys)).astype(np.float64)
        for weights in (clicks.clicks, clicks.list_impressions)
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    groups = Groups(offsets, keys % (depth * depth), clicked, shown, depth * depth)
    return BrowsingCounts(rows, groups, depth, group.astype(np.int64))


def fit_browsing(
    counts: BrowsingCounts,
    *,
    start: Float64 | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 10_000,
    prior: Pseudo = NO_PRIOR,
) -> BrowsingFit:
    """The user browsing model of a log by maximum likelihood, on counts: P(click at k) = o(k, d) a.

    Unbiased in the limit of many impressions if clicks follow the model and documents tie positions and last clicks
    together. Cost does not grow with sessions once they are counted.

    Args:
        counts: of the log, `count_browsing`.
        start: a table to start from, [positions, distances].
        tolerance: stop when no observation is further from its limit than this, relative to itself.
        max_iterations: steps at most; a dozen is usual.
        prior: clicks and skips that every probability starts with.
    """
    groups = counts.groups
    used, cells = np.unique(groups.cells, return_inverse=True)
    packed = Groups(groups.offsets, cells.astype(np.int64), groups.clicks, groups.impressions, len(used))
    begin = None if start is None else start.ravel()[used]
    found = fit_factors(packed, start=begin, tolerance=tolerance, max_iterations=max_iterations, prior=prior)
    nothing = np.nan if prior == NO_PRIOR else prior[0] / sum(prior)
    table = np.full(groups.size, nothing)
    table[used] = found.observation
    return BrowsingFit(found.attraction, table.reshape(counts.depth, counts.depth), found.iterations, found.converged)


@final
@dataclass(frozen=True)
class BrowsingModel:
    """P(click at k) = o(k, d) a, with d the distance to the last click above (Dupret and Piwowarski 2008).

    Attributes:
        prior: what every observation and attraction starts with; it settles the scale that clicks leave open.
        tolerance: stop when no observation is further from its limit than this, relative to itself.
        max_iterations: steps at most.
    """

    name: ClassVar[str] = "ubm"

    prior: Prior = field(default_factory=Prior)
    tolerance: float = 1e-4
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_steps(self.tolerance, self.max_iterations)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log of sessions, or of sessions merged by pattern."""
        check_sessions(clicks)
        counts = count_browsing(clicks)
        found = fit_browsing(
            counts, tolerance=self.tolerance, max_iterations=self.max_iterations, prior=self.prior.pair
        )
        attraction = np.full(clicks.lists.documents, unseen(found.attraction, self.prior))
        attraction[counts.rows] = found.attraction
        model = self.fitted({"attraction": attraction, "table": filled(found.table)})
        return replace(model, iterations=found.iterations, converged=found.converged)

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        return FittedModel("ubm", parameters, parameters["attraction"], Browsing(parameters["table"]))
