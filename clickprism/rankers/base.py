"""What a ranker is: settings of a network that any method's loss can train, or of an ensemble that trains itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

from clickprism.rankers.lambdamart import LambdaMART

if TYPE_CHECKING:
    from torch import nn


@runtime_checkable
class Chained(Protocol):
    """A network that is a chain of layers with a linear one at the end: what a second tower can be built like."""

    def chain(self) -> nn.Sequential:
        """Its layers, with its own weights: [..., features] to [..., 1]."""
        ...

    def anew(self, outputs: int) -> nn.Sequential:
        """A chain of the same shape with new weights: [..., features] to [..., outputs]."""
        ...


@runtime_checkable
class Towered(Protocol):
    """A network with a linear layer at the end: what a method can give other outputs, or build a second tower like.

    Attributes:
        width: what the last layer takes.
    """

    width: int

    def trunk(self) -> nn.Sequential:
        """All before the last layer, with its own weights: [..., features] to [..., width]."""
        ...

    def last(self) -> nn.Linear:
        """The last layer, with its own weights: [..., width] to [..., 1]."""
        ...

    def anew(self, outputs: int) -> nn.Sequential:
        """A network of this shape with new weights, a linear layer at its end: [..., features] to [..., outputs]."""
        ...


@runtime_checkable
class NetworkRanker(Protocol):
    """Settings of a ranker that learns by gradients: a frozen dataclass that is final."""

    name: ClassVar[str]

    def build(self, features: int) -> nn.Module:
        """A new network that maps [..., features] to scores [...], initialised from torch's generator."""
        ...


Ranker: TypeAlias = NetworkRanker | LambdaMART
