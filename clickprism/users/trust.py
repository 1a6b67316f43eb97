"""Trust bias: users look at positions as in the PBM, and believe what stands high to be better than it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Bool, Float64, Int32, Int64
from clickprism.users.base import Response, Shown, independent_log_likelihood
from clickprism.users.pbm import PositionUser


@final
@dataclass(frozen=True)
class TrustUser:
    """P(click at k) = theta_k (plus_k a + minus_k (1 - a)) (Agarwal et al. 2019).

    Here `attracted` in the truth means: taken for relevant at the position where it stood. Two published settings:

    - "eye-tracking": theta as in `PositionUser`, plus = 1 - (k + 1)/100, minus = .65/k; where the line would fall below
      minus (past position 98), plus = minus.
    - "hyperbolic": theta = .35/k + .65/(1 + .05 (k - 1)), plus = 1/(1 + .005 (k - 1)), minus = .65/k. It was published
      with a = grade / ymax: simulate it with `gain="linear"` and `noise=0`.

    Attributes:
        setting: which of the two.
        severity: theta is taken to this power; 0 means that everything is seen.
    """

    name: ClassVar[str] = "trust"

    setting: Literal["eye-tracking", "hyperbolic"] = "eye-tracking"
    severity: float = 1.0

    def __post_init__(self) -> None:
        if self.setting not in ("eye-tracking", "hyperbolic"):
            raise SettingError("setting", self.setting, "be 'eye-tracking' or 'hyperbolic'")
        if not 0 <= self.severity < float("inf"):
            raise SettingError("severity", self.severity, "be 0 or more")

    def observation(self, positions: Int64 | Int32) -> Float64:
        """Theta: the probability that a document at each position is seen, [positions]."""
        if self.setting == "eye-tracking":
            return PositionUser(self.severity).observation(positions)
        return np.asarray((0.35 / positions + 0.65 / (1 + 0.05 * (positions - 1))) ** self.severity, dtype=np.float64)

    def trust(self, positions: Int64 | Int32) -> tuple[Float64, Float64]:
        """(plus, minus): how probably a relevant and an irrelevant document, once seen, are clicked at each position.

        The affine correction of clicks (Vardasbi et al. 2020) has alpha = theta (plus - minus), beta = theta minus.
        """
        minus = 0.65 / np.asarray(positions, dtype=np.float64)
        if self.setting == "eye-tracking":
            return np.maximum(1 - (positions + 1) / 100, minus), minus
        return 1 / (1 + 0.005 * (positions - 1)), minus

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_position, see

        longest = int(np.diff(shown.offsets).max(initial=1))
        curve = self.observation(np.arange(1, longest + 1)).astype(np.float32)
        believed = Shown(shown.lists, shown.offsets, shown.rows, self._believed(shown).astype(np.float32), shown.start)
        return see(by_position, believed, seed, curve)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]."""
        return independent_log_likelihood(shown, clicks, self.observation(shown.positions) * self._believed(shown))

    def _believed(self, shown: Shown) -> Float64:
        plus, minus = self.trust(shown.positions)
        return plus * shown.attraction + minus * (1 - shown.attraction)
