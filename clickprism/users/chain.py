"""What cascade, click chain and Bayesian users share: they read from the top down and stop for good at some place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.types import Bool, Float64
from clickprism.users.base import Response, Shown, check_clicks


@final
@dataclass(frozen=True)
class Chain:
    """When a user goes on to the next document, who has seen all above it.

    Attributes:
        skip: the probability to go on after no click.
        low: the same after a click on a document of attraction 0.
        high: the same after a click on one of attraction 1; in between it is low (1 - a) + high a.
    """

    skip: float
    low: float
    high: float

    def click(self, shown: Shown, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_chain, see

        return see(by_chain, shown, seed, (np.float32(self.skip), np.float32(self.low), np.float32(self.high)))

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), summed exactly over where the user may have stopped, [sessions]."""
        from clickprism.users.kernels import chain_log_likelihood

        check_clicks(shown, clicks)
        result = np.empty(len(shown), dtype=np.float64)
        chain_log_likelihood(shown.offsets, shown.attraction, clicks, (self.skip, self.low, self.high), result)
        return result
