"""The dynamic Bayesian network: users read on until a clicked document satisfies them or they give up.

Its simplified form (SDBN) has users who never give up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.fitted import Counted, FittedModel, Iterated, Reading, by_document
from clickprism.click_models.users import Chain, ReadingUser, check_probability
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class BayesianUser(ReadingUser):
    """P(observe k + 1 | observed k) = gamma after no click, gamma (1 - s_k) after a click (Chapelle and Zhang 2009).

    The first document is always observed.

    Attributes:
        perseverance: gamma, the probability to continue while not satisfied; the authors found .9 best.
        satisfaction: s of a document of attraction 1; s_k is `satisfaction` times the attraction of the document.
    """

    name: ClassVar[str] = "dbn"

    perseverance: float = 0.9
    satisfaction: float = 1.0

    def __post_init__(self) -> None:
        check_probability("perseverance", self.perseverance)
        check_probability("satisfaction", self.satisfaction)

    @property
    def chain(self) -> Chain:
        """Return when the user continues."""
        return Chain(self.perseverance, self.perseverance, self.perseverance * (1 - self.satisfaction))


@final
@dataclass(frozen=True)
class BayesianModel(Iterated):
    """P(observe k + 1 | observed k) = gamma after no click, gamma (1 - s) after a click (Chapelle and Zhang 2009).

    Attraction a and satisfaction s of each document and one perseverance gamma, by exact EM, which sums over how far
    users read below their last click. Unbiased in the limit of many sessions if users follow the model. s is not
    identifiable for a document whose clicks were all at the end of the list.

    Attributes:
        perseverance: gamma if it is known; None estimates it.
    """

    name: ClassVar[str] = "dbn"

    perseverance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.perseverance is not None:
            check_probability("perseverance", self.perseverance)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import climb, count_tails, expect

        known, tails = self.perseverance, count_tails(clicks)
        documents = clicks.lists.documents
        followed = tails.went + tails.unsure  # clicks that the list continues below

        def step(parameters: Float64) -> tuple[Float64, float]:
            gamma, (attraction, satisfaction) = float(parameters[0]), parameters[1:].reshape(2, documents)
            gamma = gamma if known is None else known
            after_click = gamma * (1 - satisfaction)
            expected = expect(tails, attraction=attraction, after_skip=gamma, after_click=after_click)
            satisfied = (followed - expected.went) * satisfaction / np.maximum(1 - after_click, 1e-300)
            went_on = expected.continued + float(expected.went.sum())
            unsatisfied = expected.paused + float((followed - satisfied).sum())
            if known is None:
                gamma = float(self.prior.share(np.array([went_on]), np.array([unsatisfied]))[0])
            attraction = self.prior.share(tails.clicks, tails.clicks + expected.looks)
            value = expected.log_likelihood + self.prior.log_density(parameters if known is None else parameters[1:])
            return np.concatenate([[gamma], attraction, self.prior.share(satisfied, followed)]), value

        start = np.concatenate([[0.5 if known is None else known], np.full(2 * documents, 0.5)])
        weights = np.concatenate([tails.clicks + tails.skips, followed])
        end = climb(step, start, weights=weights, tolerance=self.tolerance, max_iterations=self.max_iterations)
        attraction, satisfaction = end.parameters[1:].reshape(2, documents)
        gamma = float(end.parameters[0])
        parameters = {"perseverance": end.parameters[0], "attraction": attraction, "satisfaction": satisfaction}
        reading = Reading(gamma, gamma * (1 - satisfaction))
        return FittedModel("dbn", parameters, attraction, reading, end.iterations, end.converged)


@final
@dataclass(frozen=True)
class SimplifiedUser(ReadingUser):
    """P(observe k + 1 | observed k) = 1 after no click, 1 - s_k after a click (Chapelle and Zhang 2009, gamma = 1).

    Attributes:
        satisfaction: s of a document of attraction 1; s_k is `satisfaction` times the attraction of the document.
    """

    name: ClassVar[str] = "sdbn"

    satisfaction: float = 1.0

    def __post_init__(self) -> None:
        check_probability("satisfaction", self.satisfaction)

    @property
    def chain(self) -> Chain:
        """Return when the user continues."""
        return Chain(skip=1.0, low=1.0, high=1 - self.satisfaction)


@final
@dataclass(frozen=True)
class SimplifiedModel(Counted):
    """P(observe k + 1 | observed k) = 1 after no click, 1 - s after a click (Chapelle and Zhang 2009, gamma = 1).

    Estimated by shares of counts, as by its authors: documents down to the last click count as observed, and s is the
    share of a document's clicks that were the last, without clicks at the end of the list. Users who continue without
    another click count as satisfied. So s is too high, the more the fewer clicks there are;
    `BayesianModel(perseverance=1)` fits the same model exactly.
    """

    name: ClassVar[str] = "sdbn"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import down_to

        down = down_to("last", clicks)
        followed = down.clicked * down.followed
        satisfaction = self.prior.share(by_document(clicks, followed * down.last), by_document(clicks, followed))
        attraction = down.attraction(self.prior)
        parameters = {"attraction": attraction, "satisfaction": satisfaction}
        return FittedModel("sdbn", parameters, attraction, Reading(1.0, 1 - satisfaction))
