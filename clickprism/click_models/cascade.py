"""The cascade model: users read from the top down, click the first attractive document, and leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, final

import numpy as np

from clickprism.click_models.fitted import FittedModel, Prior, Reading
from clickprism.click_models.users import Chain, Response, Shown
from clickprism.types import Bool, Clicks, Float64

_CHAIN: Final = Chain(skip=1.0, low=0.0, high=0.0)


@final
@dataclass(frozen=True)
class CascadeUser:
    """P(first click at k) = a_k prod_{i<k} (1 - a_i), and no click after it (Craswell et al. 2008)."""

    name: ClassVar[str] = "cascade"

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        return _CHAIN.click(shown, seed=seed)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Return log P(clicks) of each session, [sessions]; -inf for sessions with two clicks."""
        return _CHAIN.log_likelihood(shown, clicks)


@final
@dataclass(frozen=True)
class CascadeModel:
    """P(first click at k) = a_k prod_{i<k} (1 - a_i), and no click after it (Craswell et al. 2008).

    The attraction of a document is its share of clicks in the sessions that observed it: those without a click above
    it. This is maximum likelihood, and unbiased if users leave after the first click. Later clicks are ignored.

    Attributes:
        prior: pseudo-counts of every attraction.
    """

    name: ClassVar[str] = "cascade"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import down_to

        return self.fitted({"attraction": down_to("first", clicks).attraction(self.prior)})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """Return the model with these parameters."""
        attraction = parameters["attraction"]
        return FittedModel("cascade", parameters, attraction, Reading(1.0, np.zeros(len(attraction))))
