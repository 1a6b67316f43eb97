"""Settings of the approximation network; torch is imported only when a network is built."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.settings import check_fields

if TYPE_CHECKING:
    import torch
    from torch import nn

    from clickprism.relevance.pairs import FirstSlot

Preset: TypeAlias = Literal["default", "published"]
MEMBERS: Final[dict[str, int]] = {"default": 5, "published": 1}
FIT: Final[dict[str, dict[str, Any]]] = {
    "default": {"batch_size": 256, "weight_decay": 1.0, "most": 200},
    "published": {"batch_size": 128, "weight_decay": 0.0, "most": 0},
}
"""Settings that differ between the presets; those of `published` are from §7.4 of Zou et al. 2022."""


@final
@dataclass(frozen=True, kw_only=True)
class DescentSettings:
    """How a small network is fitted to clicks on randomised first results.

    Attributes:
        epochs: Maximum number of epochs.
        batch_size: Number of pairs per step; by default 256, with the preset published 128.
        learning_rate: Learning rate of Adam.
        weight_decay: Decoupled weight decay; by default 1, with the preset published 0.
        patience: Stop after this number of epochs without a better loss on held-out queries.
        held_out: Share of the queries that choose the best epoch; 0 uses the last epoch.
        most: Maximum number of impressions that a pair counts for, at its own click rate; 0 for no limit. Without it
            the few pairs of the most frequent queries dominate. By default 200, with the preset published 0.
        threads: Number of threads of torch.
    """

    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float | None = None
    patience: int = 8
    held_out: float = 0.2
    most: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        check_fields(self, epochs=(1, None), batch_size=(1, None), patience=(1, None), threads=(1, None))
        check_fields(self, learning_rate=(1e-12, 1), weight_decay=(0, 10), held_out=(0, 0.9), most=(0, None))

    def counts(self, slot: FirstSlot) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the clicks and skips of each pair, scaled to at most `most` impressions; each [pairs]."""
        import torch

        shown = slot.impressions.astype(np.float64)
        weight = np.minimum(shown, self.most) / shown if self.most else np.ones(len(shown))
        clicks, skips = slot.clicks * weight, (slot.impressions - slot.clicks) * weight
        return torch.from_numpy(clicks).float(), torch.from_numpy(skips).float()


@final
@dataclass(frozen=True, kw_only=True)
class ApproximateSettings:
    """Settings of the approximation network.

    Attributes:
        preset: The default, or published: the networks of section 6.2 of the doubly robust paper (Zou et al. 2022).
        hidden: Number of units of a hidden layer; repeat the option for several layers.
        members: Number of networks, each with its own initial weights and held-out queries. The estimate is their mean,
            and their disagreement is part of its uncertainty. By default 5, with the preset published 1.
        fit: How the networks are fitted.
        seed: Random seed.
    """

    preset: Preset = "default"
    hidden: tuple[int, ...] = (64, 32, 16)
    members: int | None = None
    fit: DescentSettings = field(default_factory=DescentSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, preset=Preset, members=(1, None), seed=(0, 2**32 - 1))
        if not self.hidden or min(self.hidden) < 1:
            raise SettingError("hidden", self.hidden, "name at least one layer, each with at least one unit")

    @property
    def published(self) -> bool:
        """Return whether the networks are those of the paper."""
        return self.preset == "published"

    def resolved(self) -> ApproximateSettings:
        """Return the same with every value that the preset decides.

        >>> ApproximateSettings(preset="published").resolved().fit.batch_size
        128
        """
        chosen = {name: value for name, value in FIT[self.preset].items() if getattr(self.fit, name) is None}
        members = MEMBERS[self.preset] if self.members is None else self.members
        return replace(self, members=members, fit=replace(self.fit, **chosen))

    def network(self, inputs: int, *, start: float = 0.0) -> nn.Module:
        """Return a new network, [pairs, inputs] to [pairs].

        Its initial output is `start` for every pair; that of the published one is random.
        """
        from torch import nn

        from clickprism.rankers.mlp import MLP, MLPNetwork

        network = MLPNetwork(MLP(hidden=self.hidden, activation="relu", layer_norm="none"), inputs)
        if not self.published:
            nn.init.zeros_(network.last().weight)
            nn.init.constant_(network.last().bias, start)
        return network
