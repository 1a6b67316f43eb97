"""Settings of the approximation network; torch is imported only when a network is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, final, get_args

import numpy as np

from clickprism.errors import SettingError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from clickprism.relevance.pairs import FirstSlot

Form: TypeAlias = Literal["logit", "reward"]


@final
@dataclass(frozen=True, kw_only=True)
class DescentSettings:
    """How a small network is fitted to clicks on randomised first results.

    Attributes:
        epochs: Maximum number of epochs.
        batch_size: Number of pairs per step.
        learning_rate: Learning rate of Adam.
        weight_decay: Decoupled weight decay.
        patience: Stop after so many epochs without a better loss on held-out queries.
        held_out: Share of the queries that choose the best epoch; 0 uses the last epoch.
        most: Maximum number of impressions that a pair counts for, at its own click rate; 0 for no limit. Without it
            the few pairs of the most frequent queries dominate.
        threads: Number of threads of torch.
    """

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1.0
    patience: int = 8
    held_out: float = 0.2
    most: int = 200
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience", "threads"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")
        if not 0 < self.learning_rate <= 1:
            raise SettingError("learning_rate", self.learning_rate, "be above 0 and at most 1")
        if not 0 <= self.weight_decay < 10:
            raise SettingError("weight_decay", self.weight_decay, "be from 0 to 10")
        if not 0 <= self.held_out <= 0.9:
            raise SettingError("held_out", self.held_out, "be from 0 to .9")
        if self.most < 0:
            raise SettingError("most", self.most, "be 0 or more")

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
        form: How the imputation and the clicks are combined: logit, or reward (Eq. 5 of the doubly robust paper).
        hidden: Number of units of a hidden layer; repeat the option for several layers.
        members: Number of networks, each with its own initial weights and held-out queries. The estimate is their mean,
            and their disagreement is part of its uncertainty.
        evidence: Start the weight of the imputation at k / (k + n) after n impressions, with k fitted; false is the
            paper's form.
        fit: How the networks are fitted.
        seed: Random seed.
    """

    form: Form = "logit"
    hidden: tuple[int, ...] = (64, 32, 16)
    members: int = 5
    evidence: bool = True
    fit: DescentSettings = field(default_factory=DescentSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise SettingError("form", self.form, f"be one of {', '.join(get_args(Form))}")
        if self.members < 1:
            raise SettingError("members", self.members, "be at least 1")
        if not 0 <= self.seed < 2**32:
            raise SettingError("seed", self.seed, "be from 0 to 2^32 - 1")
        if not self.hidden or min(self.hidden) < 1:
            raise SettingError("hidden", self.hidden, "name at least one layer, each with at least one unit")

    def network(self, inputs: int, *, start: float = 0.0) -> nn.Module:
        """Return a new network, [pairs, inputs] to [pairs], whose initial output is `start` for every pair."""
        from torch import nn

        from clickprism.rankers.mlp import MLP, MLPNetwork

        network = MLPNetwork(MLP(hidden=self.hidden, activation="relu", layer_norm="none"), inputs)
        nn.init.zeros_(network.last().weight)
        nn.init.constant_(network.last().bias, start)
        return network
