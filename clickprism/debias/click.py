"""The floor and the ceiling of a comparison: raw clicks as relevance, and the grades themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from clickprism.debias.base import Learner, Method
from clickprism.debias.losses import score, softmax_loss
from clickprism.types import Batch, Clicks


@final
@dataclass(frozen=True)
class Click(Method):
    """No correction: softmax cross entropy on raw clicks.

    loss = - sum_i c_i log softmax_i(f(x))

    Unbiased when every document is observed equally often: when the log has no position bias.
    """

    name = "click"
    summary = "Softmax cross entropy on raw clicks: the floor of a comparison."
    takes_weights = True

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        """Return a learner without an observation model."""
        return ClickLearner(ranker)


@final
class ClickLearner(Learner):
    """The ranker and the loss on raw clicks."""

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the softmax cross entropy on the clicks."""
        return {"ranking": softmax_loss(score(self.ranker, batch), batch.clicks, mask=batch.mask)}

    def observation(self) -> None:
        """Return None: there is no observation model."""
        return


@final
@dataclass(frozen=True)
class Labels(Method):
    """Softmax cross entropy on the clicks of an ideal user, who observes everything and makes no mistake.

    loss = - sum_i (2^y_i - 1) log softmax_i(f(x))

    A method takes clicks, never grades, so the grades y come as the clicks that `clickprism.ideal_clicks` makes of
    them: 2^y - 1 clicks in 2^ymax - 1 impressions. Only code that calls this function uses labels.
    """

    name = "labels"
    summary = "Softmax cross entropy on judged grades: the ceiling of a comparison."
    needs = ("judged grades",)
    takes_weights = True

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        """Return the learner of raw clicks: those of an ideal user need no correction."""
        return ClickLearner(ranker)
