"""The multi-layer ranker, in the shape the field compares with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, Literal, final

import torch
from torch import nn

from clickprism.errors import SettingError
from clickprism.settings import check_fields

ACTIVATIONS: Final = {"elu": nn.ELU, "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


@final
@dataclass(frozen=True)
class MLP:
    """Hidden layers of 512, 256 and 128 with ELU and LayerNorm, the network of ULTRA and of LBD's code.

    ULTRA and the code of LBD put a LayerNorm on the raw input too: `layer_norm="all"`. That removes the mean and the
    spread of the features of each document, which costs .03 nDCG(exp)@10 on the labels of MQ2008. So the default
    normalises the hidden layers only.

    Attributes:
        hidden: Units of each hidden layer.
        activation: After each hidden layer.
        layer_norm: Before which linear layers: "hidden", "all" (the raw input too) or "none".
        dropout: Share of hidden units that are dropped in training.
    """

    name: ClassVar[str] = "mlp"
    hidden: tuple[int, ...] = (512, 256, 128)
    activation: Literal["elu", "relu", "gelu", "tanh"] = "elu"
    layer_norm: Literal["hidden", "all", "none"] = "hidden"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, hidden="[1, inf)", dropout="[0, 1)")
        if not self.hidden:
            raise SettingError("hidden", self.hidden, "name at least one layer")

    def build(self, features: int) -> nn.Module:
        """Return a new network that maps [..., features] to scores [...]."""
        return MLPNetwork(self, features)


@final
class MLPNetwork(nn.Module):
    """Scores [...] from [..., features]."""

    def __init__(self, settings: MLP, features: int, outputs: int = 1) -> None:
        super().__init__()
        self.settings, self.features, self.width = settings, features, settings.hidden[-1]
        layers: list[nn.Module] = []
        widths = [features, *settings.hidden, outputs]
        for depth, (width, following) in enumerate(pairwise(widths)):
            if settings.layer_norm == "all" or (settings.layer_norm == "hidden" and depth > 0):
                layers.append(nn.LayerNorm(width))
            if depth > 0 and settings.dropout > 0:
                layers.append(nn.Dropout(settings.dropout))
            layers.append(nn.Linear(width, following))
            if depth < len(settings.hidden):
                layers.append(ACTIVATIONS[settings.activation]())
        self.layers = nn.Sequential(*layers)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[..., features] to [...]."""
        scores: torch.Tensor = self.layers(features).squeeze(-1)
        return scores

    def chain(self) -> nn.Sequential:
        """Return the layers: [..., features] to [..., 1]."""
        return self.layers

    def trunk(self) -> nn.Sequential:
        """Return all layers but the last: [..., features] to [..., width]."""
        return nn.Sequential(*list(self.layers)[:-1])

    def last(self) -> nn.Linear:
        """Return the last layer: [..., width] to [..., 1]."""
        layer: nn.Linear = self.layers[-1]  # type: ignore[assignment]
        return layer

    def new_like(self, outputs: int) -> nn.Sequential:
        """Return layers of this shape with new weights, from torch's generator, and this number of outputs."""
        return MLPNetwork(self.settings, self.features, outputs).layers
