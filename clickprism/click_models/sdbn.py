"""The simplified dynamic Bayesian network: users read on until a clicked document satisfies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

from clickprism.click_models.fitted import FittedModel, Prior, Reading, by_document
from clickprism.click_models.users import Chain, Response, Shown, check_probability
from clickprism.types import Bool, Clicks, Float64


@final
@dataclass(frozen=True)
class SimplifiedUser:
    """P(observe k + 1 | observed k) = 1 after no click, 1 - s_k after a click (Chapelle and Zhang 2009, gamma = 1).

    Attributes:
        satisfaction: s of a document of attraction 1; s_k is `satisfaction` times the attraction of the document.
    """

    name: ClassVar[str] = "sdbn"

    satisfaction: float = 1.0

    def __post_init__(self) -> None:
        check_probability("satisfaction", self.satisfaction)

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        return self._chain.click(shown, seed=seed)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Return log P(clicks) of each session, [sessions]."""
        return self._chain.log_likelihood(shown, clicks)

    @property
    def _chain(self) -> Chain:
        return Chain(skip=1.0, low=1.0, high=1 - self.satisfaction)


@final
@dataclass(frozen=True)
class SimplifiedModel:
    """P(observe k + 1 | observed k) = 1 after no click, 1 - s after a click (Chapelle and Zhang 2009, gamma = 1).

    Estimated by shares of counts, as by its authors: documents down to the last click count as observed, and s is the
    share of a document's clicks that were the last, without clicks at the end of the list. Users who continue without
    another click count as satisfied. So s is too high, the more the fewer clicks there are;
    `BayesianModel(perseverance=1)` fits the same model exactly.

    Attributes:
        prior: pseudo-counts of every probability.
    """

    name: ClassVar[str] = "sdbn"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import down_to

        down = down_to("last", clicks)
        followed = down.clicked * down.followed
        satisfaction = self.prior.share(by_document(clicks, followed * down.last), by_document(clicks, followed))
        return self.fitted({"attraction": down.attraction(self.prior), "satisfaction": satisfaction})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """Return the model with these parameters."""
        return FittedModel("sdbn", parameters, parameters["attraction"], Reading(1.0, 1 - parameters["satisfaction"]))
