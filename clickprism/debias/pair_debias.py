"""PairDebias: pairs of a clicked and an unclicked document, each divided by how its position biases it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final, get_args

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from clickprism.debias.base import Learner
from clickprism.debias.lambdas import ratio_debiased
from clickprism.debias.listwise import score
from clickprism.debias.pointwise import by_position, shown_at, skips
from clickprism.errors import SettingError
from clickprism.rankers.boosting import Boosting
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.types import Batch, Clicks, Float64

SkipBias = Literal["none", "learned"]


@final
@dataclass(frozen=True)
class PairDebias:
    """Logistic loss on pairs (i clicked, j not) of a session, divided by two biases (Hu et al., 2019).

    loss = sum_ij log(1 + exp(f_j - f_i)) / (t+_k(i) t-_k(j))
    t+_k = (cost+_k / cost+_1)^(1 / (p + 1)),  cost+_k = mean over impressions at k of sum_j loss_ij / t-_k(j)
    t-_k likewise, from sum_i loss_ij / t+_k(i)

    t is learned from the pair losses beside the gradient. The derivation takes the chance of a click to be t+_k times
    that of relevance, and the chance of a skip to be t-_k times that of irrelevance; under a position-based user the
    second does not hold, so the method is a heuristic. Costs are divided by the impressions of the position, so that
    short lists do not make low positions look biased, and are running sums, so that a batch without a click at the
    first position does no harm.

    Attributes:
        p: the power of the regulariser on t, for networks; the larger, the nearer t is to 1.
        tree_p: the same for trees, which rank below raw clicks at 0 (docs/methods/trees.md).
        step: the weight of a batch in the running costs.
        floor: t is raised to it; a position that was never clicked has none.
        skip_bias: "learned" is the published form; "none" holds t- at 1, and ranks better: where the ranking that was
            shown is any good, t- falls with the position, against its meaning, and draws t+ up with it.
    """

    name: ClassVar[str] = "pair_debias"
    learns_observation: ClassVar[bool] = True
    needs_patterns: ClassVar[bool] = True
    p: float = 0.0
    tree_p: float = 1.0
    step: float = 0.01
    floor: float = 0.01
    skip_bias: SkipBias = "none"

    def __post_init__(self) -> None:
        for name in ("p", "tree_p"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "not be negative")
        if not 0 < self.step <= 1:
            raise SettingError("step", self.step, "be above 0 and at most 1")
        if not 0 < self.floor <= 1:
            raise SettingError("floor", self.floor, "be above 0 and at most 1")
        if self.skip_bias not in get_args(SkipBias):
            raise SettingError("skip_bias", self.skip_bias, f"be one of {', '.join(get_args(SkipBias))}")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> PairLearner:
        """A learner with two biases for each position of the log, all 1 at the start."""
        return PairLearner(self, ranker, clicks.max_position)

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting:
        """For trees: lambdas in place of the logistic loss; costs are those of the whole log, without `step`."""
        return ratio_debiased(clicks, ranker, p=self.tree_p, floor=self.floor, skips=self.skip_bias == "learned")


@final
class PairLearner(Learner):
    """The ranker, the running costs and the biases."""

    costs: torch.Tensor
    clicked: torch.Tensor
    skipped: torch.Tensor

    def __init__(self, settings: PairDebias, ranker: nn.Module, positions: int) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.register_buffer("costs", torch.zeros(3, positions))
        self.register_buffer("clicked", torch.ones(positions))
        self.register_buffer("skipped", torch.ones(positions))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The debiased pair losses: the mean over sessions of their sum."""
        places = batch.positions - 1
        pairs = self._pairs(batch) / self.clicked[places][:, :, None] / self.skipped[places][:, None, :]
        return {"ranking": pairs.sum((1, 2)).mean()}

    def _pairs(self, batch: Batch) -> torch.Tensor:
        """Sessions in which i was clicked and j was not, times the pair's loss, [lists, places i, places j]."""
        scores = score(self.ranker, batch)
        shown = batch.impressions[:, None].clamp_min(1e-12)
        there = batch.mask[:, :, None] & batch.mask[:, None, :]
        weights = batch.clicks[:, :, None] * (skips(batch) / shown)[:, None, :]
        losses = softplus(scores[:, None, :] - scores[:, :, None])
        return torch.where(there, weights * losses, torch.zeros_like(losses))

    @torch.no_grad()
    def statistics(self, batch: Batch) -> torch.Tensor:
        """The costs of clicked and unclicked documents and the impressions, [3, positions]."""
        pairs, places, positions = self._pairs(batch), batch.positions - 1, len(self.clicked)
        clicked = (pairs / self.skipped[places][:, None, :]).sum(2)
        skipped = (pairs / self.clicked[places][:, :, None]).sum(1)
        return torch.stack(
            [by_position(batch, clicked, positions), by_position(batch, skipped, positions), shown_at(batch, positions)]
        )

    def update(self, sums: torch.Tensor) -> None:
        """Running costs, and the biases from them."""
        self.costs.lerp_(sums, self.settings.step)
        biases = [self.clicked, self.skipped] if self.settings.skip_bias == "learned" else [self.clicked]
        for bias, cost in zip(biases, self.costs, strict=False):
            mean = cost / self.costs[2].clamp_min(1e-12)
            if mean[0] > 0:
                ratio = (mean / mean[0]) ** (1 / (self.settings.p + 1))
                bias.copy_(torch.where(self.costs[2] > 0, ratio.clamp_min(self.settings.floor), bias))

    def observation(self) -> Float64:
        """t+."""
        return np.asarray(self.clicked.double().numpy())
