"""The dependent click model, fitted: after a click, whether users go on depends on its position."""

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
class DependentModel:
    """P(see k + 1 | seen k) = 1 after no click, lambda_k after one (Guo, Liu and Wang 2009).

    Shares of counts, as its authors do: what stands above or at the last click counts as seen, and lambda_k is the
    share of clicks at k with another below. Users who went on and clicked no more count as gone, so lambda is too low
    and attraction too high, the more so the seldomer users click: a lower bound of the likelihood is maximised.

    Attributes:
        prior: what every probability starts with.
    """

    name: ClassVar[str] = "dcm"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log of sessions, or of sessions merged by pattern."""
        down = down_to("last", clicks)
        attraction = self.prior.share(by_document(clicks, down.clicked), by_document(clicks, down.seen))
        could = down.clicked * down.followed
        gone, all_ = (
            np.bincount(clicks.positions - 1, weights=weights).astype(np.float64)
            for weights in (could * down.last, could)
        )
        return self.fitted({"attraction": attraction, "continuation": self.prior.share(all_ - gone, all_)})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        attraction = parameters["attraction"]
        reading = Reading(1.0, np.ones(len(attraction)), parameters["continuation"])
        return FittedModel("dcm", parameters, attraction, reading)
