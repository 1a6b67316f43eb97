"""How sure an approximated estimate is, learned from first-slot clicks on queries that it has not seen.

What the networks of an approximation disagree about is how well they are fitted, not how far the truth may be. So the
truth of a pair is taken for Beta-distributed around its estimate m, with the variance m (1 - m) rho,

    rho(n) = 1 / (1 + prior + each n) + floor

after n impressions in the click vector: fewer with more evidence, but never below what the networks cannot tell. The
clicks of a pair are then beta-binomial, and the likelihood of held-out clicks chooses the three numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaincinv, gammaln

from clickprism.errors import SettingError
from clickprism.relevance.estimates import Estimates
from clickprism.types import Float64, Int64

LIKELY: Final = (np.log(10.0), np.log(0.1), np.log(0.01))
DOUBT: Final = 2.0
"""Where the logarithms of the three numbers are without any clicks, and their standard deviation then."""
PAIRS: Final = 20_000
SMALL: Final = 1e-6


@final
@dataclass(frozen=True)
class Certainty:
    """What estimates are worth, in impressions in the first slot.

    Attributes:
        prior: of a pair that was never shown.
        each: what an impression anywhere adds.
        floor: 1 / what no estimate is worth more than.
    """

    prior: float
    each: float
    floor: float

    def __post_init__(self) -> None:
        for name in ("prior", "each", "floor"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise SettingError(name, value, "be above 0")

    @classmethod
    def fit(cls, values: Float64, clicks: Int64, impressions: Int64, shown: Float64) -> Certainty:
        """Learn from clicks that the estimates have not seen; pairs with several first-slot impressions tell.

        Args:
            values: the estimates, [pairs].
            clicks: in the first slot, [pairs].
            impressions: in the first slot, [pairs].
            shown: impressions of each pair in its click vector, [pairs].
        """
        several = np.flatnonzero(impressions >= 2)
        several = several[:: max(1, len(several) // PAIRS)]
        m, n, c = np.clip(values[several], SMALL, 1 - SMALL), impressions[several], clicks[several]

        def loss(logs: Float64) -> float:
            s = 1 / cls(*np.exp(np.clip(logs, -20.0, 20.0)).tolist()).share(shown[several]) - 1
            a, b = s * m, s * (1 - m)
            told = gammaln(c + a) - gammaln(a) + gammaln(n - c + b) - gammaln(b) - gammaln(n + s) + gammaln(s)
            return float(((logs - LIKELY) ** 2).sum() / (2 * DOUBT**2) - told.sum())

        best = minimize(loss, np.array(LIKELY), method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 1e-2})
        return cls(*np.exp(np.clip(best.x, -20.0, 20.0)).tolist())

    def share(self, shown: Float64) -> Float64:
        """Rho, the variance as a share of m (1 - m), [pairs]."""
        return np.minimum(1 / (1 + self.prior + self.each * shown) + self.floor, 0.999)

    def estimates(self, values: Float64, shown: Float64, spread: Float64, *, confidence: float = 0.95) -> Estimates:
        """Estimates with their intervals: those of the Beta distribution of each, [pairs].

        Args:
            values: within (0, 1), [pairs].
            shown: impressions of each pair in its click vector, [pairs].
            spread: the standard deviation over the members of an approximation, [pairs].
            confidence: of the intervals.

        >>> made = Certainty(24.0, 0.5, 1e-9).estimates(np.array([0.5]), np.array([151.0]), np.zeros(1))
        >>> made.lower.round(3).tolist(), made.upper.round(3).tolist(), made.weight.tolist()
        ([0.402], [0.598], [75.5])
        """
        m = np.clip(values, SMALL, 1 - SMALL)
        variance = m * (1 - m) * self.share(shown) + spread**2
        worth = np.maximum(m * (1 - m) / variance - 1, SMALL)
        tail = (1 - confidence) / 2
        lower, upper = (np.asarray(betaincinv(worth * m, worth * (1 - m), end), np.float64) for end in (tail, 1 - tail))
        return Estimates(m, lower, upper, variance, self.each * shown, shown <= 0)
