"""The floor and the ceiling: clicks taken for relevance, and the grades themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from clickprism.debias.base import Declared, Learner
from clickprism.debias.losses import score, softmax_loss
from clickprism.types import Batch, Clicks


@final
@dataclass(frozen=True)
class Click(Declared):
    """No correction: softmax cross entropy on the clicks as they are.

    loss = - sum_i c_i log softmax_i(f(x))

    Unbiased when every document is observed alike: when the log has no position bias.
    """

    name = "click"
    summary = "Softmax cross entropy on raw clicks: the floor of a comparison."
    needs = ()
    takes_weights = True

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        """A learner with no observation model."""
        return ClickLearner(ranker)


@final
class ClickLearner(Learner):
    """The ranker and the loss on plain clicks."""

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Softmax cross entropy on the clicks."""
        return {"ranking": softmax_loss(score(self.ranker, batch), batch.clicks, mask=batch.mask)}

    def observation(self) -> None:
        """None: nothing is said about observation."""
        return


@final
@dataclass(frozen=True)
class Labels(Declared):
    """Softmax cross entropy on the clicks of an ideal user, who sees everything and errs never.

    loss = - sum_i (2^y_i - 1) log softmax_i(f(x))

    A method takes clicks, never grades. So the grades y come as the clicks that `clickprism.ideal_clicks`
    makes of them: 2^y - 1 clicks in 2^ymax - 1 impressions. Whoever calls that function has chosen to use labels.
    """

    name = "labels"
    summary = "Softmax cross entropy on judged grades: the ceiling of a comparison."
    needs = ("judged grades",)
    takes_weights = True

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        """The learner of plain clicks: an ideal user's need no correction."""
        return Click().learner(ranker, clicks)
