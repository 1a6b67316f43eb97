"""What a method is: settings that turn a ranker into a learner, and a log into exposure.

A method has two faces. For networks it makes a `Learner`: a module with a loss on batches. For tree ensembles, which
learn from one target a document, it says how much exposure each entry of the log had: the target is clicks per
exposure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from clickprism.types import Clicks, Float64

if TYPE_CHECKING:
    import torch
    from torch import nn

    from clickprism.types import Batch


class Learner(Protocol):
    """A module in training: the ranker, whatever else the method learns, and the loss that joins them."""

    @property
    def ranker(self) -> nn.Module:
        """The network that will rank: features in, scores out; all that is kept for serving."""
        ...

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The parts of the loss by name, each a mean over sessions; their sum is minimised."""
        ...

    def observation(self) -> Float64 | None:
        """The observation by position relative to the first, as learned or given; None if the method has none."""
        ...


class Method(Protocol):
    """Settings of a debiasing method, a frozen dataclass that is final."""

    name: ClassVar[str]

    def learner(self, ranker: nn.Module, clicks: Clicks) -> Learner:
        """A learner around `ranker` for a log such as `clicks`, whose positions and counts may set it up."""
        ...

    def exposure(self, clicks: Clicks) -> Float64:
        """How often each entry was seen, in units of the first position: impressions times observation, [entries]."""
        ...
