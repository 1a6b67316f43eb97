"""Click rates, the baselines of click models: one rate for all, one per position, one per document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.fitted import Browsing, Counted, FittedModel, by_document, check_sessions
from clickprism.types import Clicks


@final
@dataclass(frozen=True)
class GlobalRate(Counted):
    """P(click) = rho, the same everywhere."""

    name: ClassVar[str] = "global"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Count all clicks; sessions may be merged by list."""
        check_sessions(clicks)
        rate = self.prior.share(np.array([clicks.clicks.sum()]), np.array([clicks.list_impressions.sum()]))
        attraction = np.full(clicks.lists.documents, rate[0])
        return FittedModel("global", {"rate": rate[0]}, attraction, Browsing(np.ones((1, 1))))


@final
@dataclass(frozen=True)
class RankRate(Counted):
    """P(click at k) = rho_k."""

    name: ClassVar[str] = "rank"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Count clicks by position; sessions may be merged by list."""
        check_sessions(clicks)
        clicked, shown = (
            np.bincount(clicks.positions - 1, weights=weights).astype(np.float64)
            for weights in (clicks.clicks, clicks.list_impressions)
        )
        rates = self.prior.share(clicked, shown)
        return FittedModel("rank", {"rates": rates}, np.ones(clicks.lists.documents), Browsing(rates[:, None]))


@final
@dataclass(frozen=True)
class DocumentRate(Counted):
    """P(click) = rho of the document, at every position."""

    name: ClassVar[str] = "document"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Count clicks by document; sessions may be merged by list."""
        check_sessions(clicks)
        rates = self.prior.share(by_document(clicks, clicks.clicks), by_document(clicks, clicks.list_impressions))
        return FittedModel("document", {"attraction": rates}, rates, Browsing(np.ones((1, 1))))
