"""The user browsing model: observation depends on the position and on the distance to the last click above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np

from clickprism.click_models.fitted import (
    Browsing,
    FittedModel,
    Iterated,
    check_patterns,
    check_sessions,
    filled,
    last_click_distances,
)
from clickprism.click_models.users import Response, Shown, check_probability
from clickprism.errors import SettingError
from clickprism.types import Clicks, Float64, Int32, Int64

if TYPE_CHECKING:
    from clickprism.click_models.factors import Groups

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
        from clickprism.click_models.factors import fit_factors

        check_sessions(clicks)
        groups, prior, depth = count_browsing(clicks), self.prior, clicks.max_position
        found = fit_factors(groups, tolerance=self.tolerance, max_iterations=self.max_iterations, prior=prior.pair)
        attraction = prior.spread(found.attraction, groups.rows, clicks.lists.documents)
        table = filled(found.observation).reshape(depth, depth)
        parameters = {"attraction": attraction, "table": table}
        return FittedModel("ubm", parameters, attraction, Browsing(table), found.iterations, found.converged)


def count_browsing(clicks: Clicks) -> Groups:
    """Return how often each document was shown and clicked at each position and distance to the last click above.

    Cell (k - 1) * depth + d is for position k and distance d, 0 for no click above.
    """
    from clickprism.click_models.factors import Groups

    check_patterns(clicks)
    depth = clicks.max_position
    return Groups.of(clicks, (clicks.positions - 1) * np.int64(depth) + last_click_distances(clicks), depth * depth)
