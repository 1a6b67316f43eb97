"""The position-based model, fitted: P(click) = observation of the position x attraction of the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.observation.click_models.base import FittedModel, Prior, check_sessions, check_steps, filled, unseen
from clickprism.observation.click_models.behaviour import Browsing
from clickprism.observation.click_models.factors import NO_PRIOR, Groups, Pseudo, fit_factors
from clickprism.observation.counts import Counts, count
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True, eq=False)
class PositionFit:
    """The position-based model of a log.

    Attributes:
        attraction: the probability of a click once seen, of the documents `np.unique(counts.rows)`.
        curve: theta, the observation at positions 1, 2, ...; nan where nothing was shown, 0 where nothing was clicked.
            Counts know theta and attraction only up to a factor that they may trade; here the highest theta is 1.
        iterations: how many steps were taken.
        converged: whether the curve has stopped.
    """

    attraction: Float64
    curve: Float64
    iterations: int
    converged: bool


def fit_position(
    counts: Counts,
    *,
    start: Float64 | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 10_000,
    prior: Pseudo = NO_PRIOR,
) -> PositionFit:
    """The position-based model of a log by maximum likelihood, on counts: P(click at k) = theta_k a.

    Unbiased in the limit of many impressions if clicks follow the model and documents tie the positions together:
    whatever stands at k in one session stands elsewhere in another (several rankers, shuffles, swaps). Where they fall
    into groups of positions without a common document, theta is comparable only within a group.

    Args:
        counts: of the log, also with fractions, such as the weights of a bootstrap.
        start: a curve to start from, such as that of the whole log for its resamples, [positions].
        tolerance: stop when no theta is further from its limit than this, relative to itself.
        max_iterations: steps at most; a dozen is usual.
        prior: clicks and skips that every probability starts with; then theta is not scaled to 1.

    >>> counts = Counts(np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2]), np.array([40., 20, 20, 10]), np.full(4, 100.))
    >>> fitted = fit_position(counts)
    >>> fitted.curve.round(4).tolist(), fitted.attraction.round(4).tolist()
    ([1.0, 0.5], [0.4, 0.2])
    """
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
    found = fit_factors(groups, start=start, tolerance=tolerance, max_iterations=max_iterations, prior=prior)
    return PositionFit(found.attraction, found.observation, found.iterations, found.converged)


@final
@dataclass(frozen=True)
class PositionModel:
    """P(click at k) = theta_k a (Richardson et al. 2007; Craswell et al. 2008).

    Attributes:
        prior: what every theta and attraction starts with; it settles the scale that clicks leave open.
        tolerance: stop when no theta is further from its limit than this, relative to itself.
        max_iterations: steps at most.
    """

    name: ClassVar[str] = "pbm"

    prior: Prior = field(default_factory=Prior)
    tolerance: float = 1e-4
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_steps(self.tolerance, self.max_iterations)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log; sessions may be merged by list."""
        check_sessions(clicks)
        counts = count(clicks)
        found = fit_position(
            counts, tolerance=self.tolerance, max_iterations=self.max_iterations, prior=self.prior.pair
        )
        attraction = np.full(clicks.lists.documents, unseen(found.attraction, self.prior))
        attraction[np.unique(counts.rows)] = found.attraction
        model = self.fitted({"attraction": attraction, "curve": filled(found.curve)})
        return replace(model, iterations=found.iterations, converged=found.converged)

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        return FittedModel("pbm", parameters, parameters["attraction"], Browsing(parameters["curve"][:, None]))
