"""What a ranker is: settings that build a network, or a tree ensemble that learns by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from clickprism.types import Float32, Float64

if TYPE_CHECKING:
    from torch import nn


@runtime_checkable
class NetworkRanker(Protocol):
    """Settings of a ranker that learns by gradients: any method's loss can train what `build` returns."""

    name: ClassVar[str]

    def build(self, features: int) -> nn.Module:
        """A new network that maps [..., features] to scores [...], initialised from torch's generator."""
        ...


class Scores(Protocol):
    """Anything that scores documents: a fitted network or a fitted ensemble."""

    def __call__(self, features: Float32) -> Float64:
        """[documents, features] to [documents]; higher ranks first."""
        ...


Settings = Any  # a ranker's frozen dataclass
