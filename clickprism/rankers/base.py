"""What a ranker is: settings of a network that any method's loss can train, or of an ensemble that trains itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

from clickprism.rankers.lambdamart import LambdaMART

if TYPE_CHECKING:
    from torch import nn


@runtime_checkable
class Towered(Protocol):
    """A network with a linear layer at the end, to which a method can add outputs or a second tower.

    Attributes:
        width: Number of inputs of the last layer.
    """

    width: int

    def trunk(self) -> nn.Sequential:
        """Return all layers but the last, with its own weights: [..., features] to [..., width]."""
        ...

    def last(self) -> nn.Linear:
        """Return the last layer, with its own weights: [..., width] to [..., 1]."""
        ...

    def new_like(self, outputs: int) -> nn.Sequential:
        """Return a network of this shape with new weights, linear at its end: [..., features] to [..., outputs]."""
        ...


@runtime_checkable
class Chained(Towered, Protocol):
    """A network that is a chain of layers."""

    def chain(self) -> nn.Sequential:
        """Return its layers, with its own weights: [..., features] to [..., 1]."""
        ...


@runtime_checkable
class NetworkRanker(Protocol):
    """Settings of a ranker that learns by gradients: a final, frozen dataclass."""

    name: ClassVar[str]

    def build(self, features: int) -> nn.Module:
        """Return a new network that maps [..., features] to scores [...], initialised from torch's generator."""
        ...


Ranker: TypeAlias = NetworkRanker | LambdaMART
