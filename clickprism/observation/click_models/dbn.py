"""The dynamic Bayesian network model, fitted: users read on until a click satisfies them or their patience ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.observation.click_models.base import FittedModel, Prior, check_steps
from clickprism.observation.click_models.behaviour import Reading
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True)
class BayesianModel:
    """P(see k + 1 | seen k) = gamma after no click, gamma (1 - s) after one (Chapelle and Zhang 2009).

    Attraction a and satisfaction s of each document and one perseverance gamma, by exact EM: the sum over how far users
    read below their last click. Unbiased in the limit of many sessions if users behave so. Of a document whose clicks
    all stood at the end of the list nothing is known of s.

    Attributes:
        prior: what every probability starts with.
        perseverance: gamma, if it is known and need not be learned.
        tolerance: the way that probabilities may have left to go.
        max_iterations: steps of EM, at most.
    """

    name: ClassVar[str] = "dbn"

    prior: Prior = field(default_factory=Prior)
    perseverance: float | None = None
    tolerance: float = 1e-4
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_steps(self.tolerance, self.max_iterations)
        if self.perseverance is not None and not 0 <= self.perseverance <= 1:
            raise SettingError("perseverance", self.perseverance, "be a probability, between 0 and 1")

    def fit(self, clicks: Clicks) -> FittedModel:
        """Fit to a log of sessions, or of sessions merged by pattern."""
        from clickprism.observation.click_models.em import climb
        from clickprism.observation.click_models.tails import count_tails, expect

        known, tails = self.perseverance, count_tails(clicks)
        documents = clicks.lists.documents
        could = tails.went + tails.unsure

        def step(parameters: Float64) -> tuple[Float64, float]:
            gamma, (attraction, satisfaction) = float(parameters[0]), parameters[1:].reshape(2, documents)
            gamma = gamma if known is None else known
            after_click = gamma * (1 - satisfaction)
            found = expect(tails, attraction=attraction, after_skip=gamma, after_click=after_click)
            satisfied = (could - found.went) * satisfaction / np.maximum(1 - after_click, 1e-300)
            went_on = found.continued + float(found.went.sum())
            asked = found.paused + float((could - satisfied).sum())
            if known is None:
                gamma = float(self.prior.share(np.array([went_on]), np.array([asked]))[0])
            better = self.prior.share(tails.clicks, tails.clicks + found.looks), self.prior.share(satisfied, could)
            value = found.log_likelihood + self.prior.log_density(parameters if known is None else parameters[1:])
            return np.concatenate([[gamma], *better]), value

        start = np.concatenate([[0.5 if known is None else known], np.full(2 * documents, 0.5)])
        weights = np.concatenate([tails.clicks + tails.skips, could])
        end = climb(step, start, weights=weights, tolerance=self.tolerance, max_iterations=self.max_iterations)
        attraction, satisfaction = end.parameters[1:].reshape(2, documents)
        model = self.fitted({"perseverance": end.parameters[0], "attraction": attraction, "satisfaction": satisfaction})
        return replace(model, iterations=end.iterations, converged=end.converged)

    @staticmethod
    def fitted(parameters: Mapping[str, Float64]) -> FittedModel:
        """The model with these parameters."""
        gamma = float(parameters["perseverance"])
        reading = Reading(gamma, gamma * (1 - parameters["satisfaction"]))
        return FittedModel("dbn", parameters, parameters["attraction"], reading)
