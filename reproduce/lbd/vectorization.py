"""Vectorization (Chen et al., KDD 2022): relevance and observation as vectors, as in the authors' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import nn

from clickprism.debias.base import DocumentLearner, Method, towered
from clickprism.debias.losses import softmax_loss
from clickprism.errors import SettingError
from clickprism.types import Batch, Clicks

LARGEST: Final = 5.0


@final
@dataclass(frozen=True)
class Vectorization(Method):
    """Click logits r(x) . o_k with a vector per document and a vector per position (Chen, Liu, Liu, Sun, 2022).

    click   = - sum_i c_i log softmax_i(r(x_i) . o_k(i))
    density = mean of (m(x) - o_k)^2 exp(-v(x)) + v(x), + density_penalty / 2 times the squared weights of m and v
    score   = r(x) . base,  base = sum of m(x) exp(-v(x)) / sum of exp(-v(x))

    r are outputs of the ranker's network, o is free and starts at 1, m and v are the mean and the log variance of o
    given x: a network 256-64 with ELU. o and the density do not learn in the first `freeze` steps. Two differences to
    the authors' code: the base is taken over a sample of the log instead of the documents of a query, so that documents
    can be scored one by one, and v is squashed into [-5, 5], since the density diverges otherwise when o hardly varies.

    Attributes:
        dimensions: of the vectors.
        freeze: number of steps in which only relevance learns.
        density_penalty: on the weights of the density network.
    """

    name = "vectorization"
    learns_observation = True
    takes_weights = True
    dimensions: int = 2
    freeze: int = 500
    density_penalty: float = 0.001

    def __post_init__(self) -> None:
        if self.dimensions < 1:
            raise SettingError("dimensions", self.dimensions, "be at least 1")
        if self.freeze < 0:
            raise SettingError("freeze", self.freeze, "not be negative")
        if not 0 <= self.density_penalty < float("inf"):
            raise SettingError("density_penalty", self.density_penalty, "not be negative")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> VectorLearner:
        """Return a learner with a vector of ones for each position of the log."""
        return VectorLearner(self, ranker, clicks)


@final
class VectorLearner(DocumentLearner):
    """The network of the relevance vectors, the observation vectors, and their density given the features."""

    steps: torch.Tensor

    def __init__(self, settings: Vectorization, ranker: nn.Module, clicks: Clicks) -> None:
        network = towered(ranker, settings.name)
        super().__init__(ranker, clicks)
        self.settings, self._trunk, self._last = settings, network.trunk, network.last
        self.output = nn.Linear(network.width, settings.dimensions)
        self.vectors = nn.Parameter(torch.ones(clicks.max_position, settings.dimensions))
        self.density = nn.Sequential(
            nn.Linear(clicks.lists.features.shape[1], 256),
            nn.ELU(),
            nn.Linear(256, 64),
            nn.ELU(),
            nn.Linear(64, 2 * settings.dimensions),
        )
        self.register_buffer("steps", torch.zeros(()))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return softmax cross entropy of the products, and the loss of the density."""
        logits, observed = self._products(batch)
        mean, log_variance = self._density(batch.features[batch.mask])
        terms = (mean - observed.detach()).square() * torch.exp(-log_variance) + log_variance
        weights = torch.stack([layer.weight.square().sum() for layer in self.density if isinstance(layer, nn.Linear)])
        by_list = torch.zeros_like(logits).masked_scatter(batch.mask, terms.mean(-1)).sum(-1) / batch.mask.sum(-1)
        density = by_list.mean() + self.settings.density_penalty / 2 * weights.sum()
        if self.steps < self.settings.freeze:
            density = density.detach()
        return {"click": softmax_loss(logits, batch.clicks, mask=batch.mask), "density": density}

    def _products(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return r(x) . o_k, [lists, places], and o_k of each document, [documents, dimensions]."""
        observed = self.vectors[batch.positions[batch.mask] - 1]
        if self.steps < self.settings.freeze:
            observed = observed.detach()
        products = (self.relevance(batch.features[batch.mask]) * observed).sum(-1)
        return batch.features.new_zeros(batch.mask.shape).masked_scatter(batch.mask, products), observed

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return r(x) . o_k, [lists, places]."""
        return self._products(batch)[0]

    def relevance(self, features: torch.Tensor) -> torch.Tensor:
        """Return r(x), [..., features] to [..., dimensions]."""
        vectors: torch.Tensor = self.output(self._trunk()(features))
        return vectors

    def base(self) -> torch.Tensor:
        """Return what relevance is projected on: the mean of the density, weighted by its precision, [dimensions]."""
        mean, log_variance = self._density(self.sample)
        return torch.sum(mean * torch.softmax(-log_variance, 0), 0)

    def _density(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean and the log variance of o given x, both [documents, dimensions]."""
        mean, log_variance = self.density(features).chunk(2, -1)
        return mean, LARGEST * torch.tanh(log_variance / LARGEST)

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Return log o_k(x) / o_1(x) = r(x) . (o_k - o_1), [..., positions]."""
        return self.relevance(features) @ (self.vectors - self.vectors[0]).T

    def statistics(self, batch: Batch) -> torch.Tensor:
        """Return nothing to add up; `update` counts steps."""
        return torch.zeros(1)

    def update(self, sums: torch.Tensor) -> None:
        """Count the steps."""
        self.steps.add_(1)

    def train(self, mode: bool = True) -> VectorLearner:
        """Switch the mode; out of training, the last layer of the ranker becomes that of the score r(x) . base."""
        super().train(mode)
        if not mode:
            base = self.base().detach()
            folded = {name: (base @ value)[None] for name, value in self.output.state_dict().items()}
            self._last().load_state_dict(folded)
        return self
