"""The dual learning algorithm: relevance and observation learned together, each correcting the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import nn

from clickprism.debias.base import SIMILAR, Learner, Method
from clickprism.debias.losses import score, softmax_loss
from clickprism.settings import check_fields
from clickprism.types import Batch, Clicks, Float64

LARGEST_LOG = 60.0  # limit of the log of a weight: infinity times no click would not be 0


@final
@dataclass(frozen=True)
class DualLearning(Method):
    """Two softmax cross entropies that weight each other (Ai et al., 2018).

    ranking     = - sum_i c_i (o_1 / o_k(i)) log softmax_i(f(x))
    observation = - sum_i c_i (r_1 / r_i) log softmax_i(g_k(i)),  r = exp f, o = exp g

    with one free logit g for each position, r_1 the relevance of the first document of the list, and weights without a
    gradient. Unbiased when the observation depends on nothing but the position, documents with similar features have
    different positions, and no weight is cut: then both factors are recovered up to a constant.

    Attributes:
        max_weight: Weights above this are cut to it; 0 cuts nothing. In the first steps of a wide network, relevance
            weights can be in the thousands; one such step fills Adagrad's memory, and the observation hardly moves
            after it. The default is above the ratios of usual logs (11 at position 10 of the eye-tracking curve).
        observation_rate: Learning rate of g, as a multiple of the ranker's. At the ranker's own rate the ranker is at
            its best long before g is right (up to three times too high at the lower positions, measured on MQ2008 and
            the embedded data).
        link: "free" uses g itself; "elu" uses ELU(g), which does not fall below -1, as ULTRA does.

    >>> DualLearning.ultra()
    DualLearning(max_weight=0.0, observation_rate=1.0, link='elu')
    """

    name = "dla"
    summary = "Learns relevance and the position curve together; each weights the clicks for the other."
    corrects = ("position",)
    needs = SIMILAR
    learns_observation = True
    takes_weights = True
    max_weight: float = 50.0
    observation_rate: float = 10.0
    link: Literal["free", "elu"] = "free"

    @classmethod
    def ultra(cls) -> DualLearning:
        """Return the settings of the ULTRA toolbox (Ai et al., 2021), which papers compare with."""
        return cls(max_weight=0.0, observation_rate=1.0, link="elu")

    def __post_init__(self) -> None:
        check_fields(self, max_weight="[0, inf)", observation_rate="(0, inf)")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> DualLearner:
        """Return a learner with one observation logit for each position of the log, all 0 at the start."""
        return DualLearner(self, ranker, clicks.max_position)


@final
class DualLearner(Learner):
    """The ranker and the observation logits."""

    def __init__(self, settings: DualLearning, ranker: nn.Module, positions: int) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.logits = nn.Parameter(torch.zeros(positions))

    @property
    def log_observation(self) -> torch.Tensor:
        """Return g, the log observation up to a constant, [positions]."""
        return self.logits if self.settings.link == "free" else nn.functional.elu(self.logits)

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the two cross entropies, each weighted by the other side."""
        scores, curve = score(self.ranker, batch), self.log_observation
        logits = curve[batch.positions - 1]
        by_observation = self._weight(curve[0] - logits)
        by_relevance = self._weight(scores[:, :1] - scores)
        return {
            "ranking": softmax_loss(scores, batch.clicks * by_observation, mask=batch.mask),
            "observation": softmax_loss(logits, batch.clicks * by_relevance, mask=batch.mask),
        }

    def _weight(self, log_weight: torch.Tensor) -> torch.Tensor:
        limit = math.log(self.settings.max_weight) if self.settings.max_weight > 0 else LARGEST_LOG
        return log_weight.detach().clamp_max(limit).exp()

    def observation(self) -> Float64:
        """Return exp(g_k - g_1)."""
        curve = self.log_observation.detach().double()
        return (curve - curve[0]).exp().numpy()

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return the ranker's group and the observation's."""
        return [(1.0, list(self.ranker.parameters())), (self.settings.observation_rate, [self.logits])]
