"""What a method is: settings that turn a ranker into a learner, or a log into what trees grow on.

A learner has two faces. Networks are trained by its loss. Tree ensembles learn from one target a document, clicks per
exposure: there the learner says how much exposure each entry of the log had, after it was trained around a network if
its observation has to be learned. A method that boosts in a way of its own says so by `boosting` (`TreeMethod`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import nn

from clickprism.debias.losses import score
from clickprism.errors import SettingError
from clickprism.rankers.base import Towered
from clickprism.rankers.lambdamart import Boosting, LambdaMART
from clickprism.types import Batch, Clicks, Float64

Bias: TypeAlias = Literal["position", "document", "trust", "interaction"]
BIASES: Final[dict[Bias, str]] = {
    "position": "users observe lower positions less often",
    "document": "observation also depends on the document",
    "trust": "users click irrelevant documents at the top",
    "interaction": "observation depends on the clicks and documents above",
}


BLOCK: Final = 65_536
SAMPLE: Final = 1_000
LARGEST_LOG: Final = 20.0  # beyond e^20 a ratio of observations is none


class Learner(nn.Module, ABC):
    """A module in training: the ranker, whatever else the method learns, and the loss that joins them.

    A position-only method says its `loss` and its `observation`; one whose observation depends on the document says
    `click_logits` and `exposure` too.

    Attributes:
        ranker: the network that will rank, features in, scores out; all that is kept for serving.
        base_odds: what a method of probabilities adds to scores, P(relevant) = s(f(x) + base_odds); 0 for the others.
    """

    ranker: nn.Module
    base_odds: float = 0.0

    def __init__(self, ranker: nn.Module) -> None:
        super().__init__()
        self.ranker = ranker

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The parts of the loss by name, each a mean over sessions; their sum is minimised."""

    @abstractmethod
    def observation(self) -> Float64 | None:
        """The observation by position relative to the first, as learned or given; None if the method has none."""

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Log of the click probability at each place up to a constant a list, [lists, places]: score + log o.

        Its softmax against clicks that were held out is a validation that needs no labels, and that does not change
        when a function of the document moves between relevance and observation.
        """
        scores = score(self.ranker, batch)
        curve = self.observation()
        return scores if curve is None else scores + torch.from_numpy(np.log(curve)).to(scores)[batch.positions - 1]

    def exposure(self, clicks: Clicks) -> Float64:
        """How often each entry was seen, in units of the first position: impressions times observation, [entries]."""
        curve = self.observation()
        shown = clicks.list_impressions.astype(np.float64)
        return shown if curve is None else shown * curve[clicks.positions - 1]

    def background(self, clicks: Clicks) -> Float64:
        """The clicks that each entry would have had if nothing were relevant, 0 but where users trust, [entries]."""
        return np.zeros(len(clicks.rows))

    def statistics(self, batch: Batch) -> torch.Tensor | None:
        """Sums over the sessions of a batch that `update` learns from, beside the gradient; None for no such thing.

        They are taken before the gradient's step, and added up over processes where several train.
        """
        return None

    def update(self, sums: torch.Tensor) -> None:
        """Learn from the sums of one batch, after the gradient's step: such as a step of EM on a buffer."""

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """All parameters, in groups, each with its learning rate as a multiple of the common one."""
        return [(1.0, list(self.parameters()))]


class DocumentLearner(Learner):
    """A learner that says log o_k(x); what it says of curves and exposure is relative to o_1(x).

    That ratio does not change when a function of the document moves from observation to relevance, and so it is what
    clicks can tell. Clicks per such exposure estimate c_1(x) = r(x) o_1(x).
    """

    sample: torch.Tensor

    def __init__(self, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        rows = np.unique(clicks.rows)
        chosen = clicks.lists.features[rows[:: max(1, -(-len(rows) // SAMPLE))]]
        self.register_buffer("sample", torch.from_numpy(np.array(chosen, dtype=np.float32)), persistent=False)

    @abstractmethod
    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log o_k(x) at every position, [..., features] to [..., positions]."""

    def log_observation_at(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Log o_k(x) where each document stood, [documents, features] and [documents] to [documents]."""
        return at(self.log_observation(features), positions)

    def observation(self) -> Float64:
        """The observation of the average document shown: the geometric mean of o_k(x) / o_1(x) over a sample."""
        with torch.no_grad():
            logs = self.log_observation(self.sample).double()
            curve = (logs - logs[:, :1]).mean(0)
        return curve.clamp(-LARGEST_LOG, LARGEST_LOG).exp().numpy()

    def exposure(self, clicks: Clicks) -> Float64:
        """Impressions times o_k(x) / o_1(x) of each document, [entries]."""

        def relative(features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            logs = self.log_observation(features)
            return at(logs, positions) - logs[:, 0]

        return on_entries(relative, clicks) * clicks.list_impressions


def at(logs: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Of log o at every position, [documents, positions], that at one of each document, [documents]."""
    return logs.gather(1, positions[:, None] - 1)[:, 0]


def on_entries(log_observation_at: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], clicks: Clicks) -> Float64:
    """The observation of each entry of a log, by a map of features and positions to log o, [entries]."""
    logs = np.empty(len(clicks.rows))
    with torch.no_grad():
        for start in range(0, len(logs), BLOCK):
            part = slice(start, start + BLOCK)
            features = torch.from_numpy(np.array(clicks.lists.features[clicks.rows[part]], dtype=np.float32))
            positions = torch.from_numpy(clicks.positions[part].astype(np.int64))
            logs[part] = log_observation_at(features, positions).double().numpy()
    return np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG))


def towered(ranker: nn.Module, method: str) -> Towered:
    """The ranker as layers with a linear one at the end, which a second tower can be built like."""
    if not isinstance(ranker, Towered):
        kind = type(ranker).__name__
        must = f"be a network with a linear layer at the end, such as linear, mlp or attention, for {method}"
        raise SettingError("ranker", kind, must)
    return ranker


@runtime_checkable
class NetworkMethod(Protocol):
    """Settings of a method that gives a network its loss, a frozen dataclass that is final.

    Attributes:
        name: the method's short name.
        learns_observation: whether a learner must be trained before it can say the exposure of a log.
        needs_patterns: whether its loss joins several clicks of a session, such as those of a pair: then sessions may
            be merged only where they were clicked alike (`Clicks.merge(by="pattern")`).
    """

    name: ClassVar[str]
    learns_observation: ClassVar[bool]
    needs_patterns: ClassVar[bool]

    def learner(self, ranker: nn.Module, clicks: Clicks) -> Learner:
        """A learner around `ranker` for a log such as `clicks`, whose positions and counts may set it up."""
        ...


@runtime_checkable
class RestoringMethod(Protocol):
    """A method whose learner takes long to set up, or comes out different by a hair: a resumed run restores it."""

    def restored(self, ranker: nn.Module, clicks: Clicks, weights: Mapping[str, torch.Tensor]) -> Learner:
        """The learner that `weights`, a state dict, fit into: nothing is learned from the log again."""
        ...


@runtime_checkable
class PublishedMethod(Protocol):
    """A method that is a paper to the letter: it also fixes the parts of ranker and training that the paper names."""

    def published_ranker(self, ranker: Any) -> Any:
        """Return the settings of the ranker with what the paper says of it."""
        ...

    def published_training(self, clicks: Clicks) -> dict[str, Any]:
        """Return the fields of the training settings that the paper names, with its values."""
        ...


@runtime_checkable
class TreeMethod(Protocol):
    """Settings of a method that boosts trees in a way of its own, a frozen dataclass that is final.

    A method may be both; trees are then grown by `boosting`.

    Attributes:
        name: the method's short name.
        needs_patterns: whether it joins several clicks of a session, as above.
    """

    name: ClassVar[str]
    needs_patterns: ClassVar[bool]

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting:
        """What trees grow on for this log: rows, groups and targets, or an objective."""
        ...


class Declared:
    """What every method in the registry declares about itself: help, refusals, `auto` and docs are made of it.

    Attributes:
        name: the method's short name.
        summary: what the method does, in one sentence.
        corrects: the biases that it corrects, keys of `BIASES`.
        needs: what the log, or the user, must provide beyond lists, positions and clicks.
        learns_observation: whether a learner must be trained before it can say the exposure of a log.
        needs_patterns: whether its loss joins several clicks of a session (see `NetworkMethod`).
        takes_weights: whether clicks may carry weights (`Clicks.weighted`).
        published: whether it is a paper to the letter, which `auto` does not try.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    corrects: ClassVar[tuple[Bias, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    learns_observation: ClassVar[bool] = False
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    published: ClassVar[bool] = False


SIMILAR: Final = ("similar documents at several positions",)
Method: TypeAlias = NetworkMethod | TreeMethod
