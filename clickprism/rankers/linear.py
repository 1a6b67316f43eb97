"""The linear ranker: f(x) = w.x + b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import nn


@final
@dataclass(frozen=True)
class Linear:
    """One weight for each feature, all 0 at the start: the seed only determines the order of the batches."""

    name: ClassVar[str] = "linear"

    def build(self, features: int) -> nn.Module:
        """Return a new network that maps [..., features] to scores [...]."""
        return LinearNetwork(features)


@final
class LinearNetwork(nn.Module):
    """Scores [...] from [..., features]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.width = features
        self.output = _zeros(features, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[..., features] to [...]."""
        scores: torch.Tensor = self.output(features).squeeze(-1)
        return scores

    def chain(self) -> nn.Sequential:
        """Return the one layer: [..., features] to [..., 1]."""
        return nn.Sequential(self.output)

    def trunk(self) -> nn.Sequential:
        """Return no layers: the features themselves."""
        return nn.Sequential()

    def last(self) -> nn.Linear:
        """Return the one layer."""
        return self.output

    def new_like(self, outputs: int) -> nn.Sequential:
        """Return a separate layer with this number of outputs; all weights are 0."""
        return nn.Sequential(_zeros(self.width, outputs))


def _zeros(features: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(features, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
