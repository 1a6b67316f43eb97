"""The dynamic Bayesian network model: read from the top down until satisfied by a click, or until patience ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from clickprism.types import Bool, Float64
from clickprism.users.base import Response, Shown, check_probability
from clickprism.users.chain import Chain


@final
@dataclass(frozen=True)
class BayesianUser:
    """P(see k + 1 | seen k) = gamma after no click, gamma (1 - s_k) after one (Chapelle and Zhang 2009).

    The first document is always seen. A clicked document satisfies with s = `satisfaction` times its attraction: the
    better the grade, the sooner the search ends, and a document of grade 0 that is clicked by noise seldom satisfies.

    Attributes:
        perseverance: gamma, to go on while unsatisfied; .9 is what its authors found best.
        satisfaction: s of a document of attraction 1.
    """

    name: ClassVar[str] = "dbn"

    perseverance: float = 0.9
    satisfaction: float = 1.0

    def __post_init__(self) -> None:
        check_probability("perseverance", self.perseverance)
        check_probability("satisfaction", self.satisfaction)

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        return self._chain.click(shown, seed)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]."""
        return self._chain.log_likelihood(shown, clicks)

    @property
    def _chain(self) -> Chain:
        return Chain(self.perseverance, self.perseverance, self.perseverance * (1 - self.satisfaction))
