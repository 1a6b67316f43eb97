"""The dependent click model: whether users continue after a click depends on its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.fitted import Counted, FittedModel, Reading
from clickprism.click_models.users import Chain, ReadingUser, check_curve
from clickprism.types import Clicks


@final
@dataclass(frozen=True)
class DependentUser(ReadingUser):
    """P(observe k + 1 | observed k) = 1 after no click at k, lambda_k after a click (Guo, Liu and Wang 2009).

    Attributes:
        continuation: lambda, the probability to continue after a click at position 1, 2, ...; the last value holds for
            all positions below. The default is about what the model finds in the Yandex log, at every position.
    """

    name: ClassVar[str] = "dcm"

    continuation: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        check_curve("continuation", self.continuation)

    @property
    def chain(self) -> Chain:
        """Return when the user continues."""
        return Chain(skip=1.0, low=1.0, high=1.0, at_position=self.continuation)


@final
@dataclass(frozen=True)
class DependentModel(Counted):
    """P(observe k + 1 | observed k) = 1 after no click at k, lambda_k after a click (Guo, Liu and Wang 2009).

    Estimated by shares of counts, as by its authors: documents down to the last click count as observed, and lambda_k
    is the share of clicks at k with another click below. Users who continue without another click count as gone. So
    lambda is too low and attraction too high, the more the fewer clicks there are: this maximises a lower bound of the
    likelihood.
    """

    name: ClassVar[str] = "dcm"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import down_to

        down = down_to("last", clicks)
        followed = down.clicked * down.followed
        last, total = (
            np.bincount(clicks.positions - 1, weights=weights).astype(np.float64)
            for weights in (followed * down.last, followed)
        )
        continuation = self.prior.share(total - last, total)
        attraction = down.attraction(self.prior)
        parameters = {"attraction": attraction, "continuation": continuation}
        return FittedModel("dcm", parameters, attraction, Reading(1.0, np.ones(len(attraction)), continuation))
