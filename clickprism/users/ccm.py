"""The click chain model: read from the top down; how good the clicked documents are decides whether to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from clickprism.types import Bool, Float64
from clickprism.users.base import Response, Shown, check_probability
from clickprism.users.chain import Chain


@final
@dataclass(frozen=True)
class ClickChainUser:
    """P(see k + 1 | seen k) = gamma_1 after no click, gamma_2 (1 - a_k) + gamma_3 a_k after one (Guo et al. 2009).

    The first document is always seen. The defaults are those of navigational queries.

    Attributes:
        after_skip: gamma_1, to go on after no click.
        after_irrelevant: gamma_2, to go on after a click on a document of attraction 0.
        after_relevant: gamma_3, to go on after a click on one of attraction 1.
    """

    name: ClassVar[str] = "ccm"

    after_skip: float = 0.5
    after_irrelevant: float = 0.10
    after_relevant: float = 0.04

    def __post_init__(self) -> None:
        for field in ("after_skip", "after_irrelevant", "after_relevant"):
            check_probability(field, getattr(self, field))

    @classmethod
    def navigational(cls, *, after_skip: float = 0.5) -> ClickChainUser:
        """A user who wants one page: gamma_2, gamma_3 = .10, .04."""
        return cls(after_skip, 0.10, 0.04)

    @classmethod
    def informational(cls, *, after_skip: float = 0.5) -> ClickChainUser:
        """A user who wants to know about something: gamma_2, gamma_3 = .40, .27."""
        return cls(after_skip, 0.40, 0.27)

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        return self._chain.click(shown, seed)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]."""
        return self._chain.log_likelihood(shown, clicks)

    @property
    def _chain(self) -> Chain:
        return Chain(self.after_skip, self.after_irrelevant, self.after_relevant)
