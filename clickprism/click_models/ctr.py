"""Click rates, the baselines of click models: one rate for all, one per position, one per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.fitted import Browsing, FittedModel, Prior, by_document, check_sessions
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class GlobalRate:
    """P(click) = rho, the same everywhere.

    Attributes:
        prior: pseudo-counts of the rate.
    """

    name: ClassVar[str] = "global"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Count all clicks; sessions may be merged by list."""
        check_sessions(clicks)
        rate = self.prior.share(np.array([clicks.clicks.sum()]), np.array([clicks.list_impressions.sum()]))
        return self.fitted({"rate": rate[0], "documents": np.array(clicks.lists.documents)})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """Return the model with these parameters."""
        attraction = np.full(int(parameters["documents"]), float(parameters["rate"]))
        return FittedModel("global", parameters, attraction, Browsing(np.ones((1, 1))))


@final
@dataclass(frozen=True)
class RankRate:
    """P(click at k) = rho_k.

    Attributes:
        prior: pseudo-counts of each rate.
    """

    name: ClassVar[str] = "rank"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Count clicks by position; sessions may be merged by list."""
        check_sessions(clicks)
        clicked, shown = (
            np.bincount(clicks.positions - 1, weights=weights).astype(np.float64)
            for weights in (clicks.clicks, clicks.list_impressions)
        )
        rates = self.prior.share(clicked, shown)
        return self.fitted({"rates": rates, "documents": np.array(clicks.lists.documents)})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """Return the model with these parameters."""
        attraction = np.ones(int(parameters["documents"]))
        return FittedModel("rank", parameters, attraction, Browsing(parameters["rates"][:, None]))


@final
@dataclass(frozen=True)
class DocumentRate:
    """P(click) = rho of the document, at every position.

    Attributes:
        prior: pseudo-counts of each rate.
    """

    name: ClassVar[str] = "document"

    prior: Prior = field(default_factory=Prior)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Count clicks by document; sessions may be merged by list."""
        check_sessions(clicks)
        rates = self.prior.share(by_document(clicks, clicks.clicks), by_document(clicks, clicks.list_impressions))
        return self.fitted({"attraction": rates})

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """Return the model with these parameters."""
        return FittedModel("document", parameters, parameters["attraction"], Browsing(np.ones((1, 1))))
