"""The ceiling: what the ranker reaches when it is told the grades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import nn

from clickprism.debias.base import Bias
from clickprism.debias.click import Click, ClickLearner
from clickprism.types import Clicks


@final
@dataclass(frozen=True)
class Labels:
    """Softmax cross entropy on the clicks of an ideal user, who sees everything and errs never.

    loss = - sum_i (2^y_i - 1) log softmax_i(f(x))

    A method takes clicks, never grades. So the grades y come as the clicks that `clickprism.ideal_clicks`
    makes of them: 2^y - 1 clicks in 2^ymax - 1 impressions. Whoever calls that function has chosen to use labels.
    """

    name: ClassVar[str] = "labels"
    summary: ClassVar[str] = "Softmax cross entropy on judged grades: the ceiling of a comparison."
    corrects: ClassVar[tuple[Bias, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ("judged grades",)
    learns_observation: ClassVar[bool] = False
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        """The learner of plain clicks: an ideal user's need no correction."""
        return Click().learner(ranker, clicks)
