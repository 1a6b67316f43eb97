"""The simplified dynamic Bayesian network, fitted: users read on until a click satisfies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

from clickprism.observation.click_models.base import FittedModel, Prior, by_document
from clickprism.observation.click_models.behaviour import Reading
from clickprism.observation.click_models.closed import down_to
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class SimplifiedModel:
    """P(see k + 1 | seen k) = 1 after no click, 1 - s after one (Chapelle and Zhang 2009, with gamma = 1).

    Shares of counts, as its authors do: what stands above or at the last click counts as seen, and s is the share of a
    document's clicks that were the last, the end of the list aside. Users who went on and clicked no more count as
    satisfied, so s is too high, the more so the seldomer users click; `BayesianModel(perseverance=1)` is exact.

    Attributes:
        prior: what every probability starts with.
    """

    name: ClassVar[str] = "sdbn"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log of sessions, or of sessions merged by pattern."""
        down = down_to("last", clicks)
        attraction = self.prior.share(by_document(clicks, down.clicked), by_document(clicks, down.seen))
        could = down.clicked * down.followed
        satisfaction = self.prior.share(by_document(clicks, could * down.last), by_document(clicks, could))
        return self.fitted({"attraction": attraction, "satisfaction": satisfaction})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        return FittedModel("sdbn", parameters, parameters["attraction"], Reading(1.0, 1 - parameters["satisfaction"]))
