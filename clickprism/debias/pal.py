"""Position-aware learning: the probability of a click as a product of two, both learned by gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import SIMILAR, Declared, Learner
from clickprism.debias.losses import count_loss, log_both, log_click, score, start_odds
from clickprism.errors import SettingError
from clickprism.types import Batch, Clicks, Float64

FALSE_AT_START = 0.1


@final
@dataclass(frozen=True)
class PositionAware(Declared):
    """P(click) = P(seen | k) P(click | x, seen), the likelihood of clicks and skips (Guo et al., 2019).

    loss = - [c log(theta_k s) + (n - c) log(1 - theta_k s)],  theta_k = sigmoid g_k, s = sigmoid f(x)

    With `trust`, P(click) = theta_k (eps+_k s + eps-_k (1 - s)), Eq. 1 of Zou et al. (2022): users believe what stands
    high. Only the products theta_k eps+_k and theta_k eps-_k can be told from clicks; the first is above the second by
    construction. Unbiased when the model holds and documents that look alike stand at different positions.

    Attributes:
        trust: learn how often what is not relevant is clicked at each position.
        observation_rate: the learning rate of theta, as a multiple of the ranker's.
        trust_rate: the same where trust is learned, two numbers a position that only together fit the clicks.
        start: theta at the start, at every position.
    """

    name = "pal"
    summary = "Position-based model of click probabilities, fitted by gradients; with trust bias if asked."
    corrects = ("position", "trust")
    needs = SIMILAR
    learns_observation = True
    trust: bool = False
    observation_rate: float = 5.0
    trust_rate: float = 20.0
    start: float = 0.9

    def __post_init__(self) -> None:
        for name in ("observation_rate", "trust_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, getattr(self, name), "be above 0")
        if not 0 < self.start < 1:
            raise SettingError("start", self.start, "be between 0 and 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> PositionAwareLearner:
        """A learner with one number (with trust: two) for each position of the log."""
        return PositionAwareLearner(self, ranker, clicks)


@final
class PositionAwareLearner(Learner):
    """The ranker and the log odds of being seen; with trust those of a false click too."""

    def __init__(self, settings: PositionAware, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.base_odds = start_odds(clicks, settings.start)
        positions = clicks.max_position
        self.seen = nn.Parameter(torch.full((positions,), math.log(settings.start / (1 - settings.start))))
        self.false: nn.Parameter | None = None
        if settings.trust:
            odds = math.log(FALSE_AT_START / (1 - FALSE_AT_START))
            self.false = nn.Parameter(torch.full((positions,), odds))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Cross entropy to the clicks."""
        return {"clicks": count_loss(batch, *self._log_click(batch))}

    def _log_click(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        scores, places = score(self.ranker, batch) + self.base_odds, batch.positions - 1
        seen, unseen = log_both(self.seen)
        if self.false is None:
            return log_click(scores, seen[places], unseen[places])
        false, true = log_both(self.false)
        relevant, irrelevant = log_both(scores)
        clicked = seen[places] + torch.logaddexp(relevant, irrelevant + false[places])
        return clicked, torch.logaddexp(unseen[places], seen[places] + irrelevant + true[places])

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Log of the click probability."""
        return self._log_click(batch)[0]

    def observation(self) -> Float64:
        """theta_k / theta_1; with trust (theta_k (eps+_k - eps-_k)) relative to the first."""
        curve = torch.sigmoid(self.seen.detach().double())
        if self.false is not None:
            curve = curve * torch.sigmoid(-self.false.detach().double())
        return np.asarray((curve / curve[0]).numpy())

    def background(self, clicks: Clicks) -> Float64:
        """Impressions times theta_k eps-_k."""
        if self.false is None:
            return super().background(clicks)
        false = torch.sigmoid(self.seen.detach().double()) * torch.sigmoid(self.false.detach().double())
        return np.asarray(clicks.list_impressions * false.numpy()[clicks.positions - 1])

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's group and the observation's."""
        ranker = (1.0, list(self.ranker.parameters()))
        if self.false is None:
            return [ranker, (self.settings.observation_rate, [self.seen])]
        return [ranker, (self.settings.trust_rate, [self.seen, self.false])]
