"""The cascade model: users read from the top down, click the first attractive document, and leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.fitted import Counted, FittedModel, Reading
from clickprism.click_models.users import Chain, ReadingUser
from clickprism.types import Clicks


@final
@dataclass(frozen=True)
class CascadeUser(ReadingUser):
    """P(first click at k) = a_k prod_{i<k} (1 - a_i), and no click after it (Craswell et al. 2008)."""

    name: ClassVar[str] = "cascade"

    @property
    def chain(self) -> Chain:
        """Return when the user continues: after no click."""
        return Chain(skip=1.0, low=0.0, high=0.0)


@final
@dataclass(frozen=True)
class CascadeModel(Counted):
    """P(first click at k) = a_k prod_{i<k} (1 - a_i), and no click after it (Craswell et al. 2008).

    The attraction of a document is its share of clicks in the sessions that observed it: those without a click above
    it. This is maximum likelihood, and unbiased if users leave after the first click. Later clicks are ignored.
    """

    name: ClassVar[str] = "cascade"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import down_to

        attraction = down_to("first", clicks).attraction(self.prior)
        reading = Reading(1.0, np.zeros(len(attraction)))
        return FittedModel("cascade", {"attraction": attraction}, attraction, reading)
