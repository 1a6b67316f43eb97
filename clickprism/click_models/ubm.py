"""The user browsing model: observation depends on the position and on the distance to the last click above."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np

from clickprism.click_models.fitted import (
    Browsing,
    FittedModel,
    Iterated,
    Prior,
    check_patterns,
    check_sessions,
    filled,
)
from clickprism.click_models.users import Response, Shown, check_probability
from clickprism.errors import SettingError
from clickprism.types import Clicks, Float64, Int32, Int64

if TYPE_CHECKING:
    from clickprism.click_models.factors import Factors, Groups

PUBLISHED: Final = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)


@final
@dataclass(frozen=True)
class BrowsingUser:
    """P(click at k) = o(k, d) a, with d the distance to the last click above (Dupret and Piwowarski 2008).

    For positions below the table its last row holds. Distances that are longer than that row use its longest distance.

    Attributes:
        table: row k is for position k and has k values: those for distances 1 to k - 1, then that for no click above.

    >>> BrowsingUser().observation(np.array([1, 3, 3, 12, 12]), np.array([0, 2, 0, 1, 0])).tolist()
    [1.0, 1.0, 0.95, 0.12, 0.43]
    """

    name: ClassVar[str] = "ubm"

    table: tuple[tuple[float, ...], ...] = PUBLISHED

    def __post_init__(self) -> None:
        if len(self.table) < 2:
            raise SettingError("table", self.table, "have at least two rows")
        for position, row in enumerate(self.table, start=1):
            if len(row) != position:
                raise SettingError("table", row, f"have {position} values in row {position}")
            check_probability("table", *row)

    def observation(self, positions: Int64 | Int32, last_clicks: Int64) -> Float64:
        """Return P(observed) at each position, given the position of the last click above it, 0 for none."""
        rows = np.minimum(positions, len(self.table)) - 1
        distances = np.where(last_clicks == 0, 0, np.minimum(positions - last_clicks, rows))
        return np.asarray(self._square[rows, distances], dtype=np.float64)

    @property
    def _square(self) -> Float64:
        """The table with a column for each distance, 0 for no click above, [positions, distances]."""
        square = np.zeros((len(self.table), len(self.table)))
        for row, values in enumerate(self.table):
            square[row, : row + 1] = values[-1:] + values[:-1]
        return square

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        from clickprism.click_models.kernels import by_last_click, see

        return see(by_last_click, shown, seed, self._square.astype(np.float32))


@final
@dataclass(frozen=True)
class BrowsingModel(Iterated):
    """P(click at k) = o(k, d) a, with d the distance to the last click above (Dupret and Piwowarski 2008)."""

    name: ClassVar[str] = "ubm"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        check_sessions(clicks)
        counts = count_browsing(clicks)
        found = fit_browsing(counts, tolerance=self.tolerance, max_iterations=self.max_iterations, prior=self.prior)
        attraction = self.prior.spread(found.attraction, counts.rows, clicks.lists.documents)
        table = filled(found.observation)
        parameters = {"attraction": attraction, "table": table}
        return FittedModel("ubm", parameters, attraction, Browsing(table), found.iterations, found.converged)


@final
@dataclass(frozen=True, eq=False)
class BrowsingCounts:
    """How often each document was shown and clicked at each position and distance to the last click above.

    Attributes:
        rows: documents, sorted, each once.
        groups: counts of each document; cell (k - 1) * depth + d is for position k and distance d, 0 for no click.
        depth: number of positions, and of distances.
    """

    rows: Int64
    groups: Groups
    depth: int


def count_browsing(clicks: Clicks) -> BrowsingCounts:
    """Return the counts of a log of single sessions, or of sessions merged by pattern."""
    from clickprism.click_models.factors import Groups
    from clickprism.click_models.kernels import last_click_distances

    check_patterns(clicks)
    depth = clicks.max_position
    cells = np.empty(len(clicks.rows), dtype=np.int64)
    last_click_distances(clicks.offsets, clicks.positions, clicks.clicks > 0, cells)
    cells += (clicks.positions - 1) * np.int64(depth)
    keys, group = np.unique(clicks.rows * np.int64(depth * depth) + cells, return_inverse=True)
    rows, sizes = np.unique(keys // (depth * depth), return_counts=True)
    clicked, shown = (
        np.bincount(group, weights=weights, minlength=len(keys)).astype(np.float64)
        for weights in (clicks.clicks, clicks.list_impressions)
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    groups = Groups(offsets, keys % (depth * depth), clicked, shown, depth * depth)
    return BrowsingCounts(rows, groups, depth)


def fit_browsing(
    counts: BrowsingCounts,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 10_000,
    prior: Prior | None = None,
) -> Factors:
    """Fit P(click at k) = o(k, d) a by maximum likelihood on counts; `observation` of the result is a table.

    The table has a row for each position and a column for each distance to the last click above, 0 for none. Without a
    prior its maximum is 1, cells that were never shown are nan, and cells without clicks are 0. Attraction is that of
    the documents `counts.rows`. Unbiased in the limit of many impressions if clicks follow the model and documents link
    the cells. The cost does not depend on the number of sessions.

    Args:
        counts: counts of the log, `count_browsing`.
        tolerance: stop when the relative distance of every observation probability to its limit is below this.
        max_iterations: maximum number of steps; a dozen is usual.
        prior: pseudo-counts of every probability.
    """
    from clickprism.click_models.factors import NO_PRIOR, Groups, fit_factors

    groups = counts.groups
    used, cells = np.unique(groups.cells, return_inverse=True)
    packed = Groups(groups.offsets, cells.astype(np.int64), groups.clicks, groups.impressions, len(used))
    pseudo = NO_PRIOR if prior is None else prior.pair
    found = fit_factors(packed, tolerance=tolerance, max_iterations=max_iterations, prior=pseudo)
    table = np.full(groups.size, np.nan if pseudo == NO_PRIOR else pseudo[0] / sum(pseudo))
    table[used] = found.observation
    return replace(found, observation=table.reshape(counts.depth, counts.depth))
