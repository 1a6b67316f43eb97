"""The cascade model, fitted: users read from the top down and leave with the first click."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from clickprism.observation.click_models.base import FittedModel, Prior, by_document
from clickprism.observation.click_models.behaviour import Reading
from clickprism.observation.click_models.closed import down_to
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class CascadeModel:
    """P(first click at k) = a_k prod_{i<k} (1 - a_i), and no click after it (Craswell et al. 2008).

    The attraction of a document is the share of clicks in the sessions that saw it, which are those without a click
    above it: maximum likelihood, unbiased if users leave with the first click. Clicks below the first are left out.

    Attributes:
        prior: what every attraction starts with.
    """

    name: ClassVar[str] = "cascade"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log of sessions, or of sessions merged by pattern."""
        down = down_to("first", clicks)
        return self.fitted(
            {"attraction": self.prior.share(by_document(clicks, down.clicked), by_document(clicks, down.seen))}
        )

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        attraction = parameters["attraction"]
        return FittedModel("cascade", parameters, attraction, Reading(1.0, np.zeros(len(attraction))))
