"""The position-based model: whether a document is observed depends only on its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np

from clickprism.click_models.fitted import Browsing, FittedModel, Iterated, check_sessions, filled
from clickprism.click_models.users import Response, Shown, check_curve
from clickprism.settings import check_fields
from clickprism.types import Clicks, Float64, Int32, Int64, Lists

if TYPE_CHECKING:
    from clickprism.click_models.factors import Groups

EYE_TRACKING: Final = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


@final
@dataclass(frozen=True)
class PositionUser:
    """P(click at k) = v_k^tau a (Richardson et al. 2007), v from eye tracking (Joachims et al. 2005).

    Attributes:
        severity: tau, the strength of position bias; 0 means that every position is observed.
        curve: v, the observation probability at positions 1, 2, ...; the last value holds for all positions below.

    >>> PositionUser().observation(np.array([1, 2, 10, 11])).tolist()
    [0.68, 0.61, 0.06, 0.06]
    """

    name: ClassVar[str] = "pbm"

    severity: float = 1.0
    curve: tuple[float, ...] = EYE_TRACKING

    def __post_init__(self) -> None:
        check_fields(self, severity=(0, 100))
        check_curve("curve", self.curve)

    def observation(self, positions: Int64 | Int32) -> Float64:
        """Return the probability that a document at each position is observed: the true propensities, [positions]."""
        curve = np.asarray(self.curve, dtype=np.float64) ** self.severity
        result: Float64 = curve[np.minimum(positions, len(curve)) - 1]
        return result

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        from clickprism.click_models.kernels import by_entry, see

        return see(by_entry, shown, seed, self.observation(shown.positions).astype(np.float32))


class DocumentUser:
    """A user whose observation depends on the position and on the document: v_k^exponent, v as in `PositionUser`."""

    base: PositionUser

    def exponent(self, lists: Lists) -> Float64:
        """Return the exponent of each document, [documents]."""
        raise NotImplementedError

    def observation(self, lists: Lists, rows: Int64, positions: Int64 | Int32) -> Float64:
        """Return the probability that each document is observed at its position: the true propensities, [rows]."""
        return np.asarray(self.base.observation(positions) ** self.exponent(lists)[rows], dtype=np.float64)

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        from clickprism.click_models.kernels import by_entry, see

        observation = self.observation(shown.lists, shown.rows, shown.positions)
        return see(by_entry, shown, seed, observation.astype(np.float32))


@final
@dataclass(frozen=True)
class PositionModel(Iterated):
    """P(click at k) = theta_k a (Richardson et al. 2007; Craswell et al. 2008)."""

    name: ClassVar[str] = "pbm"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log; sessions may be merged by list."""
        from clickprism.click_models.factors import fit_factors

        check_sessions(clicks)
        groups, prior = count_positions(clicks), self.prior
        found = fit_factors(groups, tolerance=self.tolerance, max_iterations=self.max_iterations, prior=prior.pair)
        attraction = prior.spread(found.attraction, groups.rows, clicks.lists.documents)
        curve = filled(found.observation)
        parameters, browsing = {"attraction": attraction, "curve": curve}, Browsing(curve[:, None])
        return FittedModel("pbm", parameters, attraction, browsing, found.iterations, found.converged)


def count_positions(clicks: Clicks) -> Groups:
    """Return how often each document was shown and clicked at each position; cell k - 1 is for position k."""
    from clickprism.click_models.factors import Groups

    return Groups.of(clicks, clicks.positions.astype(np.int64) - 1, clicks.max_position)
