"""Estimators of relevance: inverse propensity, affine and imputation (Zou et al. 2022, §3 and §4); the list of all.

All estimate c_1, the click probability in the first slot (`clickprism.observation.parameters`). Given a batch of pairs
they return arrays, so a log of any size runs through them; what depends on the whole log is settled by `learn` before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.estimates import Estimates, Estimator, check_inputs, require_imputed
from clickprism.relevance.sums import Sums, Weighting
from clickprism.settings import choose
from clickprism.types import Float64

ESTIMATORS: Final = {
    "ipw": "clickprism.relevance.estimators:InversePropensity",
    "affine": "clickprism.relevance.estimators:Affine",
    "imputation": "clickprism.relevance.estimators:Imputed",
    "doubly_robust": "clickprism.relevance.doubly_robust:DoublyRobust",
    "shrunk": "clickprism.relevance.shrinkage:Shrunk",
}
DEFAULT: Final = "shrunk"


@final
@dataclass(frozen=True, kw_only=True)
class EstimateSettings:
    """How the relevance of the pairs of a log is estimated.

    Attributes:
        estimator: Estimator (shrunk, affine, ipw, doubly_robust or imputation) and its
            settings, such as --estimator.k 5 (impressions at position 1 that the prior of shrunk is equivalent to).
        weighting: Weights of the impressions of a pair: equal after correction (mean), by how much each says about
            relevance (ratio), or by the smallest variance (precision).
        confidence: Confidence level of the intervals.
        depth: Ignore impressions below this position, and below the last position of the parameters.
        min_users: Ignore the clicks on pairs seen by fewer users (privacy); 0 ignores none. By default the k of the
            log's windows, 5.
    """

    estimator: dict[str, Any] = field(default_factory=dict)
    weighting: Weighting = "precision"
    confidence: float = 0.95
    depth: int = 10
    min_users: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimator", {"name": DEFAULT, **self.estimator})
        if self.depth < 1:
            raise SettingError("depth", self.depth, "be at least 1")
        if self.min_users is not None and self.min_users < 0:
            raise SettingError("min_users", self.min_users, "be 0 or more")
        self.build()

    def build(self) -> Estimator:
        """Return the estimator with its settings."""
        made: Any = choose(ESTIMATORS, self.estimator, path="estimator")
        if hasattr(made, "sums"):
            made = replace(made, sums=replace(made.sums, weighting=self.weighting, confidence=self.confidence))
        estimator: Estimator = made
        return estimator


@final
@dataclass(frozen=True)
class Affine:
    """Corrects each click for trust and position: (c - beta_k) / alpha_k, averaged (§3; Vardasbi et al. 2020).

    Unbiased if alpha and beta are right (Theorem 1); pairs without impressions have none.

    Attributes:
        sums: how clicks are added up; `Sums(weighting="mean")` is the paper's form.

    >>> parameters = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    >>> counts = PairCounts(np.array([[10, 20]]), np.array([[4, 5]]))
    >>> for weighting in ("mean", "ratio"):  # (4 / 1 + 3 / .5) / 30 and (4 + 3) / (10 + 10)
    ...     Affine(Sums(weighting)).estimate(counts, parameters).values.round(4).tolist()
    [0.3333]
    [0.35]
    """

    name: ClassVar[str] = "affine"

    sums: Sums = field(default_factory=Sums)

    def learn(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Affine:
        """The same with the click rates of the log."""
        return replace(self, sums=self.sums.learn(counts))

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """The estimates of these pairs, [pairs]."""
        check_inputs(counts, parameters)
        sums = self.sums.learn(counts)
        return sums.estimates(sums.score(counts, parameters)[0])


@final
@dataclass(frozen=True)
class InversePropensity:
    """Corrects each click for position alone: c / theta_k, averaged (§3).

    Blind to trust: it is the affine estimate with alpha = theta_k / theta_1 and beta = 0, whatever beta is. Where theta
    is not known, alpha stands for it, as it does under the position-based model.

    Attributes:
        sums: how clicks are added up; `Sums(weighting="mean")` is the paper's form.
        least: propensities below this, relative to position 1, are raised to it, which limits the variance and biases.
    """

    name: ClassVar[str] = "ipw"

    sums: Sums = field(default_factory=Sums)
    least: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.least < 1:
            raise SettingError("least", self.least, "be 0 or more and below 1")

    def learn(
        self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None
    ) -> InversePropensity:
        """The same with the click rates of the log."""
        return replace(self, sums=self.sums.learn(counts))

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """The estimates of these pairs, [pairs]."""
        return Affine(self.sums).estimate(counts, self._blind(parameters))

    def _blind(self, parameters: ClickParameters) -> ClickParameters:
        theta = parameters.alpha if parameters.theta is None else parameters.theta / parameters.theta[0]
        return ClickParameters(np.maximum(theta, self.least), np.zeros(len(theta)), parameters.theta)


@final
@dataclass(frozen=True)
class Imputed:
    """The imputation alone (§4), whatever was clicked.

    Its interval is not known from itself: it is 0 to 1. `shrunk` learns from the log how far to trust the imputation,
    and so has an interval for pairs without impressions too.
    """

    name: ClassVar[str] = "imputation"

    def learn(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Imputed:
        """Itself: there is nothing to learn."""
        return self

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """The imputations."""
        check_inputs(counts, parameters, imputed)
        values = require_imputed(imputed)
        unknown = np.full(len(values), np.nan)
        return Estimates(
            values,
            np.zeros(len(values)),
            np.ones(len(values)),
            unknown,
            np.zeros(len(values)),
            np.ones(len(values), bool),
        )
