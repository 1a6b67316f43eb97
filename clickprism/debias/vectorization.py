"""Vectorization: relevance and observation as vectors, their product the logit of a click."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias.document import DocumentLearner, towered
from clickprism.debias.listwise import softmax_loss
from clickprism.errors import SettingError
from clickprism.types import Batch, Clicks

Base = Literal["mean", "first"]


@final
@dataclass(frozen=True)
class Vectorization:
    """Click logits r(x) . o_k with a vector a document and a vector a position (Chen, Liu, Liu, Sun, 2022).

    loss = - sum_i c_i log softmax_i(r(x) . o_k),  score = r(x) . base,  base = mean of o_k over what was shown

    r are outputs of the ranker's network, o is free. Any function of document and position is such a product if there
    are as many dimensions as positions; two dimensions hold log r(x) + log o_k, the usual product of probabilities. As
    published the base is, for each query, the mean of a density of o given x that is learned beside. Averaged over the
    log such a density's mean is the mean of o_k itself, which we take: one base for all, so that the score is that of
    an ordinary ranker. What stands here of the loss and the base follows the authors' public code.

    Unbiased when documents that look alike stood at different positions, the observation depends on the position only,
    and there are two dimensions or more; else the score is the mean log click probability over positions.

    Attributes:
        dimensions: of the vectors.
        base: "mean", as above, or "first": o_1, so that the score is the log click probability in the first place.
        observation_rate: the learning rate of o, as a multiple of the ranker's.
    """

    name: ClassVar[str] = "vectorization"
    learns_observation: ClassVar[bool] = True
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True
    dimensions: int = 3
    base: Base = "mean"
    observation_rate: float = 1.0

    def __post_init__(self) -> None:
        if self.dimensions < 1:
            raise SettingError("dimensions", self.dimensions, "be at least 1")
        if self.base not in get_args(Base):
            raise SettingError("base", self.base, f"be one of {', '.join(get_args(Base))}")
        if not 0 < self.observation_rate < math.inf:
            raise SettingError("observation_rate", self.observation_rate, "be above 0")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> VectorLearner:
        """A learner with a vector for each position of the log, cosines over positions at the start."""
        return VectorLearner(self, ranker, clicks)


@final
class VectorLearner(DocumentLearner):
    """The ranker, whose last layer is that of the relevance vectors times the base, and the observation vectors."""

    shown: torch.Tensor

    def __init__(self, settings: Vectorization, ranker: nn.Module, clicks: Clicks) -> None:
        network = towered(ranker, settings.name)
        super().__init__(ranker, clicks)
        self.settings, self._trunk, self._last = settings, network.trunk, network.last
        self.output = network.anew(settings.dimensions)[-1]
        self.vectors = nn.Parameter(_cosines(clicks.max_position, settings.dimensions))
        shown = np.bincount(clicks.positions - 1, weights=clicks.list_impressions)
        self.register_buffer("shown", torch.from_numpy(shown / shown.sum()).float())

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Softmax cross entropy of the products."""
        return {"click": softmax_loss(self.click_logits(batch), batch.clicks, mask=batch.mask)}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """r(x) . o_k, [lists, places]."""
        relevance = self.relevance(batch.features[batch.mask])
        products = (relevance * self.vectors[batch.positions[batch.mask] - 1]).sum(-1)
        return batch.features.new_zeros(batch.mask.shape).masked_scatter(batch.mask, products)

    def relevance(self, features: torch.Tensor) -> torch.Tensor:
        """r(x), [..., features] to [..., dimensions]."""
        vectors: torch.Tensor = self.output(self._trunk()(features))
        return vectors

    def base(self) -> torch.Tensor:
        """What relevance is projected on, [dimensions]."""
        return self.vectors[0] if self.settings.base == "first" else self.shown @ self.vectors

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log o_k(x) / o_1(x) = r(x) . (o_k - o_1), [..., positions]."""
        return self.relevance(features) @ (self.vectors - self.vectors[0]).T

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The network's group and that of the observation vectors."""
        network = [*self.ranker.parameters(), *self.output.parameters()]
        return [(1.0, network), (self.settings.observation_rate, [self.vectors])]

    def train(self, mode: bool = True) -> VectorLearner:
        """As ever; out of training, the last layer of the ranker becomes that of the score r(x) . base."""
        super().train(mode)
        if not mode:
            base = self.base().detach()
            folded = {name: (base @ value)[None] for name, value in self.output.state_dict().items()}
            self._last().load_state_dict(folded)
        return self


def _cosines(positions: int, dimensions: int) -> torch.Tensor:
    """Column j is cos(pi j (k - 1/2) / positions): all different, the first one 1, [positions, dimensions].

    Had all dimensions the same start, as ones would, a network that starts from 0 would never tell them apart.
    """
    places = (torch.arange(positions, dtype=torch.float64) + 0.5) / positions
    return torch.cos(math.pi * places[:, None] * torch.arange(dimensions)).float()
