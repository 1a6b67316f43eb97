"""How well a fitted click model predicts clicks that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from clickprism.observation.measures import log_likelihood, perplexity, rate_error
from clickprism.types import Clicks, Float64


class ClickPredictor(Protocol):
    """What gives every entry of a log its click probability: a fitted click model, or the learner of a neural one."""

    def click_probability(self, clicks: Clicks) -> Float64:
        """The probability of a click on each entry before anything of the session is known, [entries]."""
        ...

    def conditional_probability(self, clicks: Clicks) -> Float64:
        """The probability of a click on each entry given the clicks above it, [entries]."""
        ...


@final
@dataclass(frozen=True, eq=False, repr=False)
class ClickEvaluation:
    """How well clicks were predicted; `clickprism.observation.measures` says what each figure is.

    Attributes:
        log_likelihood: of a session, on average.
        perplexity: by position, of clicks before any is known; NaN at a position that is not shown.
        conditional_perplexity: by position, given the clicks above.
        rate_error: of click rates.

    >>> ClickEvaluation(-1.5, np.array([1.5, 1.25]), np.array([1.25, 1.25]), 0.1)
    ClickEvaluation(log-likelihood -1.5000, perplexity 1.3750, conditional perplexity 1.2500, rate error 0.1000)
    """

    log_likelihood: float
    perplexity: Float64
    conditional_perplexity: Float64
    rate_error: float

    def __repr__(self) -> str:
        return (
            f"ClickEvaluation(log-likelihood {self.log_likelihood:.4f}, perplexity {self.mean_perplexity:.4f}, "
            f"conditional perplexity {self.mean_conditional_perplexity:.4f}, rate error {self.rate_error:.4f})"
        )

    @property
    def mean_perplexity(self) -> float:
        """Over the positions that are shown, each counted alike."""
        return float(np.nanmean(self.perplexity))

    @property
    def mean_conditional_perplexity(self) -> float:
        """Over the positions that are shown, each counted alike."""
        return float(np.nanmean(self.conditional_perplexity))


def evaluate_clicks(predictor: ClickPredictor, clicks: Clicks) -> ClickEvaluation:
    """Measure the predictions on a log whose sessions stand one by one or are merged by pattern."""
    marginal = predictor.click_probability(clicks)
    conditional = predictor.conditional_probability(clicks)
    return ClickEvaluation(
        log_likelihood(conditional, clicks),
        perplexity(marginal, clicks),
        perplexity(conditional, clicks),
        rate_error(marginal, clicks),
    )
