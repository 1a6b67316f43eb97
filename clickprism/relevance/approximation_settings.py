"""Settings of the approximation networks; this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, final

from clickprism.errors import SettingError
from clickprism.settings import check_fields

Preset: TypeAlias = Literal["default", "published"]


class Training(NamedTuple):
    """How the networks of a preset are fitted."""

    members: int  # Number of networks
    batch_size: int  # Number of pairs per step
    weight_decay: float  # Decoupled weight decay
    # Maximum number of impressions that a pair counts for, at its own click rate; 0 for no limit. Without it the few
    # pairs of the most frequent queries dominate
    most: int


TRAINING: Final[dict[Preset, Training]] = {"default": Training(5, 256, 1.0, 200), "published": Training(1, 128, 0.0, 0)}
"""`published` is §7.4 of Zou et al. 2022."""


@final
@dataclass(frozen=True, kw_only=True)
class ApproximateSettings:
    """Settings of the approximation networks.

    Attributes:
        preset: The default, or published: the networks of section 6.2 of the doubly robust paper (Zou et al. 2022).
        hidden: Number of units of a hidden layer; repeat the option for several layers.
        members: Number of networks, each with its own initial weights and held-out queries. The estimate is their mean,
            and their disagreement is part of its uncertainty. By default 5, with the preset published 1.
        epochs: Maximum number of epochs; training stops earlier if held-out queries do not improve for 8 epochs.
        seed: Random seed.
    """

    preset: Preset = "default"
    hidden: tuple[int, ...] = (64, 32, 16)
    members: int | None = None
    epochs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, preset=Preset, members=(1, None), epochs=(1, None), seed=(0, 2**32 - 1))
        if not self.hidden or min(self.hidden) < 1:
            raise SettingError("hidden", self.hidden, "name at least one layer, each with at least one unit")

    @property
    def published(self) -> bool:
        """Return whether the networks are those of the paper."""
        return self.preset == "published"

    @property
    def training(self) -> Training:
        """Return how the networks are fitted.

        >>> ApproximateSettings(preset="published").training.batch_size, ApproximateSettings(members=2).training.members
        (128, 2)
        """
        preset = TRAINING[self.preset]
        return preset if self.members is None else preset._replace(members=self.members)
