"""InfoRank's regulariser on another method: its relevance may change with being seen, and is held from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final, get_args

import torch
from torch import nn

from clickprism.debias.base import SIMILAR, Declared, DocumentLearner, Learner, RestoringMethod, at, towered
from clickprism.debias.inforank import Odds, flat, information, spread
from clickprism.errors import SettingError
from clickprism.settings import choose
from clickprism.types import Batch, Clicks, Float64

Of = Literal["dla", "pal", "regression_em", "lbd", "lbd_paper"]
Given = Literal["smooth", "hard"]
LEAST: Final = 1e-6


@final
@dataclass(frozen=True)
class Independence(Declared):
    """The loss of another method on scores f(x) - (1 - o) d(x), and eta times I(relevant; seen | x) (InfoRank, Eq. 13).

    o is the observation that the method itself has learned so far, relative to the first position, without a gradient:
    as it is ("smooth"), or 1 where above one half and else 0 ("hard"). So whatever depends on being seen goes into d,
    and the information takes it out again: with eta = 0 the method with a relevance that knows its observation, with a
    large eta the method itself. The ranker f is what is served, the relevance of what is seen.

    Unbiased where the method is. The information is that of the method's own probabilities; a listwise method knows
    its scores up to a constant only, which is taken as 0.

    Attributes:
        of: the method.
        settings: those of the method.
        eta: the weight of the information.
        given: what relevance is conditioned on.
    """

    name = "independence"
    summary = "Another method, with InfoRank's penalty on relevance that depends on observation."
    corrects = ("position",)
    needs = SIMILAR
    learns_observation = True
    of: Of = "dla"
    settings: dict[str, Any] = field(default_factory=dict)
    eta: float = 0.5
    given: Given = "smooth"

    def __post_init__(self) -> None:
        for name, known in (("of", Of), ("given", Given)):
            if getattr(self, name) not in get_args(known):
                raise SettingError(name, getattr(self, name), f"be one of {', '.join(get_args(known))}")
        if not 0 <= self.eta < math.inf:
            raise SettingError("eta", self.eta, "be 0 or more")
        self.method()

    def method(self) -> Any:
        """The method that is regularised."""
        from clickprism.debias import METHODS

        return choose(METHODS, {"name": self.of, **self.settings}, path="settings")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> IndependentLearner:
        """The learner of the method, around a ranker whose scores change with being seen."""
        return IndependentLearner(self, ranker, self.method().learner(ranker, clicks))

    def restored(self, ranker: nn.Module, clicks: Clicks, weights: Mapping[str, torch.Tensor]) -> IndependentLearner:
        """The learner of a checkpoint; a method that restores its own learns nothing from the log again."""
        method = self.method()
        if not isinstance(method, RestoringMethod):
            return self.learner(ranker, clicks)
        own = {key.removeprefix("inner."): each for key, each in weights.items() if key.startswith("inner.")}
        return IndependentLearner(self, ranker, method.restored(ranker, clicks, own))


@final
class IndependentLearner(Learner):
    """The learner of a method, and how much relevance is less if unseen."""

    def __init__(self, settings: Independence, ranker: nn.Module, inner: Learner) -> None:
        super().__init__(ranker)
        self.settings, self.inner = settings, inner
        self.own = flat(nn.Sequential(nn.Linear(towered(ranker, settings.name).width, 1)))

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Log odds of relevance, seen and unseen, and of the method's observation, of [documents, features]."""
        network = towered(self.ranker, self.settings.name)
        hidden = network.trunk()(documents)
        scores = network.last()(hidden)[:, 0] + self.inner.base_odds
        return Odds(scores, scores - self.own(hidden)[:, 0], self._observed(documents, positions))

    def _observed(self, documents: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Log odds of being seen, relative to the first position, as the method has it now, [documents]."""
        with torch.no_grad():
            if isinstance(self.inner, DocumentLearner):
                logs = self.inner.log_observation(documents)
                share = (at(logs, positions) - logs[:, 0]).exp()
            else:
                share = torch.from_numpy(self.inner.observation()).to(documents)[positions - 1]
            return torch.logit(share, eps=LEAST)

    @contextmanager
    def _conditioned(self, batch: Batch) -> Iterator[Odds]:
        """Let the ranker say, for this batch, the relevance that its observation leaves."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        seen = torch.sigmoid(odds.observed) if self.settings.given == "smooth" else (odds.observed > 0).to(odds.seen)
        less = (1 - seen) * (odds.seen - odds.unseen)

        def lessened(_: nn.Module, __: object, scores: torch.Tensor) -> torch.Tensor:
            return scores - (less if scores.ndim == 1 else spread(less, batch.mask))

        hook = self.ranker.register_forward_hook(lessened)
        try:
            yield odds
        finally:
            hook.remove()

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The parts of the method's own loss, and the information."""
        with self._conditioned(batch) as odds:
            parts = dict(self.inner.loss(batch))
        if self.settings.eta > 0:
            parts["information"] = self.settings.eta * information(batch, odds)
        return parts

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Those of the method, with the relevance that its observation leaves."""
        with self._conditioned(batch):
            return self.inner.click_logits(batch)

    def statistics(self, batch: Batch) -> torch.Tensor | None:
        """The method's."""
        with self._conditioned(batch):
            return self.inner.statistics(batch)

    def update(self, sums: torch.Tensor) -> None:
        """The method's."""
        self.inner.update(sums)

    def observation(self) -> Float64 | None:
        """The method's."""
        return self.inner.observation()

    def exposure(self, clicks: Clicks) -> Float64:
        """The method's."""
        return self.inner.exposure(clicks)

    def background(self, clicks: Clicks) -> Float64:
        """The method's."""
        return self.inner.background(clicks)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The method's groups; what relevance loses is learned at the common rate."""
        return [*self.inner.rates(), (1.0, list(self.own.parameters()))]
