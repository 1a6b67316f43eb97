"""The position-based model: whether a document is seen depends on where it stands, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Bool, Float64, Int32, Int64
from clickprism.users.base import Response, Shown, check_curve, independent_log_likelihood

EYE_TRACKING: Final = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


@final
@dataclass(frozen=True)
class PositionUser:
    """P(click at k) = v_k^tau a (Richardson et al. 2007), v by eye tracking (Joachims et al. 2005).

    Attributes:
        severity: tau, how strong the bias is; 0 means that everything is seen.
        curve: v, the observation at positions 1, 2, ...; its last value holds for all positions below.

    >>> PositionUser().observation(np.array([1, 2, 10, 11])).tolist()
    [0.68, 0.61, 0.06, 0.06]
    """

    name: ClassVar[str] = "pbm"

    severity: float = 1.0
    curve: tuple[float, ...] = EYE_TRACKING

    def __post_init__(self) -> None:
        if not 0 <= self.severity < float("inf"):
            raise SettingError("severity", self.severity, "be 0 or more")
        check_curve("curve", self.curve)

    def observation(self, positions: Int64 | Int32) -> Float64:
        """The probability that a document at each position is seen: the true propensities, [positions]."""
        curve = np.asarray(self.curve, dtype=np.float64) ** self.severity
        result: Float64 = curve[np.minimum(positions, len(curve)) - 1]
        return result

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_position, see

        curve = self.observation(np.arange(1, len(self.curve) + 1)).astype(np.float32)
        return see(by_position, shown, seed, curve)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]: the sum of log v_k a over clicks and log(1 - v_k a) elsewhere."""
        return independent_log_likelihood(shown, clicks, self.observation(shown.positions) * shown.attraction)
