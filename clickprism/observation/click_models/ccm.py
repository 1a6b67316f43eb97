"""The click chain model, fitted: how good the clicked documents are decides whether users go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.observation.click_models.base import FittedModel, Prior, check_steps
from clickprism.observation.click_models.behaviour import Reading
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class ClickChainModel:
    """P(see k + 1 | seen k) = gamma_1 after no click, gamma_2 (1 - a) + gamma_3 a after one (Guo et al. 2009).

    Attraction a of each document and three probabilities to go on, by exact EM. A clicked document is relevant with
    probability a, and then users go on with gamma_3, else with gamma_2: so going on tells of a too. Unbiased in the
    limit of many sessions if users behave so. gamma_2 and gamma_3 stand apart only where clicked documents differ in a.

    Attributes:
        prior: what every probability starts with.
        tolerance: the way that probabilities may have left to go.
        max_iterations: steps of EM, at most.
    """

    name: ClassVar[str] = "ccm"

    prior: Prior = field(default_factory=Prior)
    tolerance: float = 1e-4
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_steps(self.tolerance, self.max_iterations)

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log of sessions, or of sessions merged by pattern."""
        from clickprism.observation.click_models.em import climb
        from clickprism.observation.click_models.tails import count_tails, expect

        tails = count_tails(clicks)
        could = tails.went + tails.unsure

        def step(parameters: Float64) -> tuple[Float64, float]:
            (skip, low, high), attraction = parameters[:3], parameters[3:]
            after_click = low * (1 - attraction) + high * attraction
            found = expect(tails, attraction=attraction, after_skip=float(skip), after_click=after_click)
            went_well = found.went * high * attraction / np.maximum(after_click, 1e-300)
            left_well = (could - found.went) * (1 - high) * attraction / np.maximum(1 - after_click, 1e-300)
            well = went_well + left_well
            went = np.array([found.continued, (found.went - went_well).sum(), went_well.sum()])
            asked = np.array([found.paused, (could - well).sum(), well.sum()])
            better = self.prior.share(tails.clicks + well, tails.clicks + found.looks + could)
            value = found.log_likelihood + self.prior.log_density(parameters)
            return np.concatenate([self.prior.share(went, asked), better]), value

        start = np.concatenate([[0.5, 0.6, 0.4], np.full(clicks.lists.documents, 0.5)])
        weights = tails.clicks + tails.skips + could
        end = climb(step, start, weights=weights, tolerance=self.tolerance, max_iterations=self.max_iterations)
        names = ("after_skip", "after_irrelevant", "after_relevant")
        shared = dict(zip(names, end.parameters[:3], strict=True))
        model = self.fitted({**shared, "attraction": end.parameters[3:]})
        return replace(model, iterations=end.iterations, converged=end.converged)

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        attraction = parameters["attraction"]
        low, high = float(parameters["after_irrelevant"]), float(parameters["after_relevant"])
        reading = Reading(float(parameters["after_skip"]), low * (1 - attraction) + high * attraction)
        return FittedModel("ccm", parameters, attraction, reading)
