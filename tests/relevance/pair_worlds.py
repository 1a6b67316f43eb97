"""Clicks on pairs with known relevance, for tests of estimators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clickprism.click_models.trust import TrustUser
from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.pairs import PairCounts
from clickprism.types import Float64, Int64

SIGNAL = (0.85, 0.2)  # how probably a display time is long if the document was seen, and if not


@dataclass(frozen=True, eq=False)
class Users:
    """Users with trust: theta, plus and minus of each position; and the same as parameters in the gauge."""

    theta: Float64
    plus: Float64
    minus: Float64

    @classmethod
    def of(cls, *, positions: int = 10, trust: bool = True) -> Users:
        places = np.arange(1, positions + 1)
        user = TrustUser()
        plus, minus = user.trust(places) if trust else (np.ones(positions), np.zeros(positions))
        return cls(user.observation(places), plus, minus)

    @property
    def parameters(self) -> ClickParameters:
        return ClickParameters.of_trust(self.theta, self.plus, self.minus)

    @property
    def level(self) -> tuple[float, float]:
        return float(self.theta[0] * (self.plus[0] - self.minus[0])), float(self.theta[0] * self.minus[0])

    def first_slot(self, gamma: Float64) -> Float64:
        slope, start = self.level
        return slope * gamma + start

    def examination(self) -> tuple[Float64, Float64]:
        """The two values that e has at each position, after a long and a short display time; its mean is theta."""
        yes, no = SIGNAL
        long = self.theta * yes / (self.theta * yes + (1 - self.theta) * no)
        short = self.theta * (1 - yes) / (self.theta * (1 - yes) + (1 - self.theta) * (1 - no))
        return long, short

    def show(self, gamma: Float64, impressions: Int64, *, seed: int) -> PairCounts:
        """Show each pair this often at each position, [pairs, positions]; e is estimated from display times alone."""
        rng = np.random.default_rng(seed)
        clicked_if_seen = gamma[:, None] * self.plus + (1 - gamma[:, None]) * self.minus
        long, short = self.examination()
        seen = rng.binomial(impressions, self.theta)
        clicked = rng.binomial(seen, clicked_if_seen)
        clicked_long = rng.binomial(clicked, SIGNAL[0])
        longs = clicked_long + rng.binomial(seen - clicked, SIGNAL[0]) + rng.binomial(impressions - seen, SIGNAL[1])
        return PairCounts(
            impressions,
            clicked,
            longs * long + (impressions - longs) * short,
            clicked_long * long + (clicked - clicked_long) * short,
            longs * long**2 + (impressions - longs) * short**2,
        )


def estimates_around(values: list[float], *, weight: float = 50.0, half: float = 0.1) -> Estimates:
    """Estimates with intervals of this half width; nan is a pair about which nothing is known."""
    given: Float64 = np.array(values)
    return Estimates(
        given,
        np.nan_to_num(given - half),
        np.nan_to_num(given + half, nan=1.0),
        np.where(np.isnan(given), np.nan, (half / 1.96) ** 2),
        np.full(len(given), weight),
        np.zeros(len(given), dtype=np.bool_),
    )


def within(measured: Float64, expected: float, *, errors: float = 3.0) -> bool:
    """Whether the mean of what was measured is within so many standard errors of what was expected."""
    return bool(abs(measured.mean() - expected) <= errors * measured.std(ddof=1) / np.sqrt(len(measured)))
