"""How the clicks of a pair are added up to an estimate of c_1.

Every estimate that uses clicks is a weighted sum of corrected ones, [sum of w_k (c - beta_k)] / [sum of w_k alpha_k]:

- "mean": w = 1 / alpha_k, the paper's mean over impressions of (c - beta_k) / alpha_k;
- "ratio": w = 1, self-normalised: [sum of (c - beta_k)] / [sum of alpha_k];
- "precision": w = alpha_k / (r_k (1 - r_k)) with the click rate r_k of position k in the log. For a document that is
  clicked at these rates no other weights have less variance. They are the same for all pairs, so that no click chooses
  its own weight, and they are measured: rates that follow from estimated parameters would give the most weight where
  those are too low.

Given where a pair was shown, w does not depend on its clicks: with the right parameters, each of the three is unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, final, get_args

import numpy as np

from clickprism.errors import SettingError
from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.intervals import Score, click_score, normal_quantile, parameter_variance
from clickprism.types import Float64, check

Weighting = Literal["mean", "ratio", "precision"]
EDGE: Final = 1e-4  # rates are kept this far from 0 and 1, since weights are divided by them


@final
@dataclass(frozen=True)
class Sums:
    """How clicks are added up, and what is said of the sum.

    Attributes:
        weighting: "mean", "ratio" or "precision", see above.
        rates: the click rate at each position, which "precision" needs; None learns them from the log.
        clip: whether values are kept within 0 and 1; the paper's estimators are unbiased only if they are not.
        confidence: the share of intervals that should hold the truth.
        parameter_uncertainty: whether intervals include that of alpha and beta, where it is known.
    """

    weighting: Weighting = "precision"
    rates: tuple[float, ...] | None = None
    clip: bool = False
    confidence: float = 0.95
    parameter_uncertainty: bool = True

    def __post_init__(self) -> None:
        if self.weighting not in get_args(Weighting):
            raise SettingError("weighting", self.weighting, f"be one of {', '.join(get_args(Weighting))}")
        if self.rates is not None and not all(0 < rate < 1 for rate in self.rates):
            raise SettingError("rates", self.rates, "be between 0 and 1")
        normal_quantile(self.confidence)

    def learn(self, counts: PairCounts) -> Sums:
        """The same with the click rates of this log, if it needs them and has none."""
        if self.rates is not None or self.weighting != "precision":
            return self
        shown, clicked = counts.impressions.sum(axis=0), counts.clicked.sum(axis=0)
        rates = np.clip((clicked + 0.5) / (shown + 1), EDGE, 1 - EDGE)
        return replace(self, rates=tuple(rates.tolist()))

    def weights(self, parameters: ClickParameters, positions: int) -> Float64:
        """The weight w of each position, 1 at the first, [positions]."""
        alpha = parameters.alpha[:positions]
        if self.weighting == "mean":
            return 1 / alpha
        if self.weighting == "ratio" or self.rates is None:
            return np.ones(positions)
        check(len(self.rates) >= positions, f"{positions} positions but click rates of {len(self.rates)}")
        rates = np.array(self.rates)[:positions]
        spread = rates * (1 - rates)
        return np.asarray(alpha * spread[0] / spread, dtype=np.float64)

    def score(self, counts: PairCounts, parameters: ClickParameters) -> tuple[Score, Float64]:
        """T(y) of the clicks, and the weights."""
        weights = self.weights(parameters, counts.positions)
        score = click_score(counts, parameters, weights)
        if self.parameter_uncertainty and not np.isnan(parameters.alpha_upper).all():
            near = np.clip(score.total / np.where(score.scale > 0, score.scale, 1), 0.0, 1.0)
            spread = score.spread.copy()
            spread[:, 0] += parameter_variance(counts, parameters, weights, near)
            score = replace(score, spread=spread)
        return score, weights

    def estimates(self, score: Score) -> Estimates:
        """Where T is 0, with its interval; nothing is known of pairs without impressions."""
        seen, scale = score.scale > 0, np.where(score.scale > 0, score.scale, 1.0)
        values = np.where(seen, score.total / scale, np.nan)
        lower, upper = score.interval(self.confidence)
        middle = (lower + upper) / 2
        variance = np.where(seen, score.variance(middle) / scale**2, np.nan)
        weight = np.divide(middle * (1 - middle), variance, out=np.zeros(len(values)), where=seen & (variance > 0))
        if self.clip:
            values = np.clip(values, 0.0, 1.0)
        return Estimates(values, lower, upper, variance, weight, np.zeros(len(values), dtype=np.bool_))
