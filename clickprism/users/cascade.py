"""The cascade model: read from the top down, click the first attractive document, and leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from clickprism.types import Bool, Float64
from clickprism.users.base import Response, Shown
from clickprism.users.chain import Chain


@final
@dataclass(frozen=True)
class CascadeUser:
    """P(first click at k) = a_k prod_{i<k} (1 - a_i), and no click after it (Craswell et al. 2008)."""

    name: ClassVar[str] = "cascade"

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        return self._chain.click(shown, seed)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]; -inf where there are two clicks."""
        return self._chain.log_likelihood(shown, clicks)

    @property
    def _chain(self) -> Chain:
        return Chain(skip=1.0, low=0.0, high=0.0)
