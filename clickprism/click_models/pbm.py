"""The position-based model: whether a document is observed depends only on its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np

from clickprism.click_models.fitted import Browsing, FittedModel, Iterated, Prior, check_sessions, filled
from clickprism.click_models.users import Response, Shown, check_curve
from clickprism.errors import DataError
from clickprism.settings import check_fields
from clickprism.types import Clicks, Float64, Int32, Int64

if TYPE_CHECKING:
    from clickprism.click_models.factors import Factors

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


@final
@dataclass(frozen=True)
class PositionModel(Iterated):
    """P(click at k) = theta_k a (Richardson et al. 2007; Craswell et al. 2008)."""

    name: ClassVar[str] = "pbm"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log; sessions may be merged by list."""
        check_sessions(clicks)
        counts = count(clicks)
        found = fit_position(counts, tolerance=self.tolerance, max_iterations=self.max_iterations, prior=self.prior)
        attraction = self.prior.spread(found.attraction, np.unique(counts.rows), clicks.lists.documents)
        curve = filled(found.observation)
        parameters, browsing = {"attraction": attraction, "curve": curve}, Browsing(curve[:, None])
        return FittedModel("pbm", parameters, attraction, browsing, found.iterations, found.converged)


@final
@dataclass(frozen=True, eq=False)
class Counts:
    """How often each document was shown and clicked at each position.

    A document is a row of `Clicks.lists`, so it belongs to one query: the same page for another query is another
    document. Each pair of row and position occurs once; pairs are sorted by row, then by position.

    Attributes:
        rows: document of each pair, [pairs].
        positions: from 1, [pairs].
        clicks: clicks on the document at that position, [pairs].
        impressions: impressions of the document at that position, [pairs].
    """

    rows: Int64
    positions: Int64
    clicks: Float64
    impressions: Float64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def max_position(self) -> int:
        """Return the lowest position that was shown."""
        return int(self.positions.max(initial=0))


def count(clicks: Clicks) -> Counts:
    """Return the counts of a log; they do not depend on whether sessions are merged.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([3, 1, 2, 0]), np.array([5, 4]))
    >>> counts = count(log)
    >>> counts.positions.tolist(), counts.clicks.tolist(), counts.impressions.tolist()
    ([1, 2], [5.0, 1.0], [9.0, 9.0])
    """
    if clicks.weights is not None:
        remedy = "Estimate on the log as it was clicked, before it is corrected"
        raise DataError("clicks that carry weights are corrected already: their counts say nothing", remedy=remedy)
    depth = clicks.max_position + 1
    keys, pair = np.unique(clicks.rows * depth + clicks.positions, return_inverse=True)
    return Counts(
        rows=keys // depth,
        positions=keys % depth,
        clicks=np.bincount(pair, weights=clicks.clicks, minlength=len(keys)).astype(np.float64),
        impressions=np.bincount(pair, weights=clicks.list_impressions, minlength=len(keys)).astype(np.float64),
    )


def fit_position(
    counts: Counts,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 10_000,
    prior: Prior | None = None,
) -> Factors:
    """Fit P(click at k) = theta_k a by maximum likelihood on counts; `observation` of the result is theta.

    Unbiased in the limit of many impressions if clicks follow the model and the positions are linked by documents shown
    at several of them (several rankers, shuffles, swaps). If groups of positions have no document in common, theta is
    comparable only within a group. Attraction is that of the documents `np.unique(counts.rows)`.

    Args:
        counts: counts of the log.
        tolerance: stop when the relative distance of every theta to its limit is below this.
        max_iterations: maximum number of steps; a dozen is usual.
        prior: pseudo-counts of every probability. Without them, theta is scaled to a maximum of 1.

    >>> counts = Counts(np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2]), np.array([40., 20, 20, 10]), np.full(4, 100.))
    >>> fitted = fit_position(counts)
    >>> fitted.observation.round(4).tolist(), fitted.attraction.round(4).tolist()
    ([1.0, 0.5], [0.4, 0.2])
    """
    from clickprism.click_models.factors import NO_PRIOR, Groups, fit_factors

    rows, document = np.unique(counts.rows, return_inverse=True)
    order = np.argsort(document, kind="stable")
    sizes = np.bincount(document, minlength=len(rows))
    groups = Groups(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        (counts.positions[order] - 1).astype(np.int64),
        counts.clicks[order].astype(np.float64),
        counts.impressions[order].astype(np.float64),
        counts.max_position,
    )
    pseudo = NO_PRIOR if prior is None else prior.pair
    return fit_factors(groups, tolerance=tolerance, max_iterations=max_iterations, prior=pseudo)
