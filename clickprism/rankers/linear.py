"""The linear ranker: f(x) = w.x + b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import nn


@final
@dataclass(frozen=True)
class Linear:
    """A weight a feature, all 0 at the start: the seed decides nothing but the order of the batches."""

    name: ClassVar[str] = "linear"

    def build(self, features: int) -> nn.Module:
        """A new network that maps [..., features] to scores [...]."""
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
        """The one layer: [..., features] to [..., 1]."""
        return nn.Sequential(self.output)

    def trunk(self) -> nn.Sequential:
        """No layers: the features themselves."""
        return nn.Sequential()

    def last(self) -> nn.Linear:
        """The one layer."""
        return self.output

    def anew(self, outputs: int) -> nn.Sequential:
        """A chain of the same shape with weights of its own, all 0, and so many outputs."""
        return nn.Sequential(_zeros(self.output.in_features, outputs))


def _zeros(features: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(features, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
