"""The click chain model: how good the clicked documents are determines whether users continue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.fitted import FittedModel, Iterated, Reading
from clickprism.click_models.users import Chain, ReadingUser, check_probability
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class ClickChainUser(ReadingUser):
    """P(observe k + 1 | observed k) = g_1 after no click, g_2 (1 - a_k) + g_3 a_k after a click (Guo et al. 2009).

    The first document is always observed. The defaults are those of navigational queries.

    Attributes:
        after_skip: g_1, the probability to continue after no click.
        after_irrelevant: g_2, the probability to continue after a click on a document of attraction 0.
        after_relevant: g_3, the probability to continue after a click on a document of attraction 1.
    """

    name: ClassVar[str] = "ccm"

    after_skip: float = 0.5
    after_irrelevant: float = 0.10
    after_relevant: float = 0.04

    def __post_init__(self) -> None:
        for field_name in ("after_skip", "after_irrelevant", "after_relevant"):
            check_probability(field_name, getattr(self, field_name))

    @classmethod
    def informational(cls, *, after_skip: float = 0.5) -> ClickChainUser:
        """Return a user who wants information from several pages: g_2, g_3 = .40, .27."""
        return cls(after_skip, 0.40, 0.27)

    @property
    def chain(self) -> Chain:
        """Return when the user continues."""
        return Chain(self.after_skip, self.after_irrelevant, self.after_relevant)


@final
@dataclass(frozen=True)
class ClickChainModel(Iterated):
    """P(observe k + 1 | observed k) = g_1 after no click, g_2 (1 - a) + g_3 a after a click (Guo et al. 2009).

    Attraction a of each document and three probabilities to continue, by exact EM. A clicked document is relevant with
    probability a; users then continue with g_3, else with g_2, so that continuing also informs about a. Unbiased in the
    limit of many sessions if users follow the model. g_2 and g_3 are identifiable only if clicked documents differ in
    attraction.
    """

    name: ClassVar[str] = "ccm"

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to single sessions, or to sessions merged by pattern."""
        from clickprism.click_models.tails import climb, count_tails, expect

        tails = count_tails(clicks)
        followed = tails.went + tails.unsure  # clicks that the list continues below

        def step(parameters: Float64) -> tuple[Float64, float]:
            (skip, low, high), attraction = parameters[:3], parameters[3:]
            after_click = low * (1 - attraction) + high * attraction
            expected = expect(tails, attraction=attraction, after_skip=float(skip), after_click=after_click)
            left = followed - expected.went
            went_relevant = expected.went * high * attraction / np.maximum(after_click, 1e-300)
            relevant = went_relevant + left * (1 - high) * attraction / np.maximum(1 - after_click, 1e-300)
            went = np.array([expected.continued, (expected.went - went_relevant).sum(), went_relevant.sum()])
            total = np.array([expected.paused, (followed - relevant).sum(), relevant.sum()])
            attraction = self.prior.share(tails.clicks + relevant, tails.clicks + expected.looks + followed)
            value = expected.log_likelihood + self.prior.log_density(parameters)
            return np.concatenate([self.prior.share(went, total), attraction]), value

        start = np.concatenate([[0.5, 0.6, 0.4], np.full(clicks.lists.documents, 0.5)])
        weights = tails.clicks + tails.skips + followed
        end = climb(step, start, weights=weights, tolerance=self.tolerance, max_iterations=self.max_iterations)
        (skip, low, high), attraction = end.parameters[:3], end.parameters[3:]
        parameters = {"after_skip": skip, "after_irrelevant": low, "after_relevant": high, "attraction": attraction}
        reading = Reading(float(skip), low * (1 - attraction) + high * attraction)
        return FittedModel("ccm", parameters, attraction, reading, end.iterations, end.converged)
