"""What a method is: settings that turn a ranker into a learner, or a log into what trees grow on.

Networks are trained by a learner's loss. Tree ensembles learn from one target for each document, clicks per exposure:
the learner computes the exposure of each entry of the log, after it was trained around a network if its observation has
to be learned. A method may also give LightGBM rows or an objective of its own (`Method.boosting`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Literal, TypeAlias

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
SIMILAR: Final = ("similar documents at several positions",)
BLOCK: Final = 65_536
SAMPLE: Final = 1_000
LARGEST_LOG: Final = 20.0  # limit of the log of a ratio of observations


class Method:
    """A method: a final, frozen dataclass of settings that inherits from this class and defines `learner`.

    Help, refusals, `auto` and the docs are generated from what it declares.

    Attributes:
        name: The method's short name.
        summary: What the method does, in one sentence.
        corrects: The biases that it corrects, keys of `BIASES`.
        needs: What the log, or the user, must provide beyond lists, positions and clicks.
        learns_observation: Whether a learner must be trained before it can compute the exposure of a log.
        needs_patterns: Whether its loss joins several clicks of a session; sessions may then be merged only if the same
            documents were clicked (`Clicks.merge(by="pattern")`).
        takes_weights: Whether clicks may carry weights (`Clicks.weighted`).
        published: Whether it is a paper to the letter, which `auto` does not try.
        trees_only: Whether it has no loss for networks, and so no `learner`.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    corrects: ClassVar[tuple[Bias, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    learns_observation: ClassVar[bool] = False
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    published: ClassVar[bool] = False
    trees_only: ClassVar[bool] = False

    def learner(self, ranker: nn.Module, clicks: Clicks) -> Learner:
        """Return a learner around `ranker` for a log such as `clicks`, whose positions and counts may set it up."""
        must = f"be {LambdaMART.name} for the method {self.name}, which grows trees and has no loss for a network"
        raise SettingError("ranker", type(ranker).__name__, must)

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting | None:
        """Return rows, groups and targets, or an objective, for trees; None for clicks per exposure."""
        return None

    def published_ranker(self, ranker: Any) -> Any:
        """Return the settings of the ranker with the values that the paper specifies."""
        return ranker

    def published_training(self, clicks: Clicks) -> dict[str, Any]:
        """Return the fields of the training settings that the paper specifies, with its values."""
        return {}


class Learner(nn.Module, ABC):
    """A module in training: the ranker, whatever else the method learns, and the loss that joins them.

    A method whose observation depends on positions only defines `loss` and `observation`; one whose observation depends
    on the document defines `click_logits` and `exposure` too.

    Attributes:
        ranker: The network that will rank; it alone is kept for serving.
        base_odds: What a method of probabilities adds to scores, P(relevant) = s(f(x) + base_odds); 0 for the others.
        observation_model: The form of observation that the method chose, and why, in a line; empty without a choice.
    """

    ranker: nn.Module
    base_odds: float = 0.0
    observation_model: str = ""

    def __init__(self, ranker: nn.Module) -> None:
        super().__init__()
        self.ranker = ranker

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the parts of the loss by name, each a mean over sessions; their sum is minimised."""

    @abstractmethod
    def observation(self) -> Float64 | None:
        """Return the observation by position relative to the first, learned or given; None if the method has none."""

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the log of the click probability, up to a constant for each list, [lists, places].

        Its softmax against held-out clicks is a validation without labels, which does not change when a function of
        the document moves between relevance and observation.
        """
        scores = score(self.ranker, batch)
        curve = self.observation()
        return scores if curve is None else scores + torch.from_numpy(np.log(curve)).to(scores)[batch.positions - 1]

    def exposure(self, clicks: Clicks) -> Float64:
        """Return impressions times observation, in units of the first position, [entries]."""
        curve = self.observation()
        shown = clicks.list_impressions.astype(np.float64)
        return shown if curve is None else shown * curve[clicks.positions - 1]

    def background(self, clicks: Clicks) -> Float64:
        """Return the clicks expected if nothing were relevant: 0 unless users trust high positions, [entries]."""
        return np.zeros(len(clicks.rows))

    def statistics(self, batch: Batch) -> torch.Tensor | None:
        """Return sums over the sessions of a batch for `update`, taken before the gradient step; None if not used."""
        return None

    def update(self, sums: torch.Tensor) -> None:
        """Learn from the sums of one batch after the gradient step, such as a step of EM on a buffer."""

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return all parameters in groups, each with its learning rate as a multiple of the common one."""
        return [(1.0, list(self.parameters()))]


class DocumentLearner(Learner):
    """A learner with log o_k(x), an observation that depends on the document.

    Clicks identify o_k(x) / o_1(x), which does not change when a function of the document moves from observation to
    relevance. Clicks per such exposure estimate c_1(x) = r(x) o_1(x).
    """

    sample: torch.Tensor

    def __init__(self, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        rows = np.unique(clicks.rows)
        chosen = clicks.lists.features[rows[:: max(1, -(-len(rows) // SAMPLE))]]
        self.register_buffer("sample", torch.from_numpy(np.array(chosen, dtype=np.float32)), persistent=False)

    @abstractmethod
    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Return log o_k(x) at every position, [..., features] to [..., positions]."""

    def log_exposure(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the log exposure of an impression, log o_k(x) / o_1(x), [documents]."""
        logs = self.log_observation(features)
        return at(logs, positions) - logs[:, 0]

    def observation(self) -> Float64:
        """Return the geometric mean of o_k(x) / o_1(x) over a sample of the documents shown."""
        with torch.no_grad():
            logs = self.log_observation(self.sample).double()
            curve = (logs - logs[:, :1]).mean(0)
        return curve.clamp(-LARGEST_LOG, LARGEST_LOG).exp().numpy()

    def exposure(self, clicks: Clicks) -> Float64:
        """Return impressions times the exposure of each document, [entries]."""
        logs = np.empty(len(clicks.rows))
        with torch.no_grad():
            for start in range(0, len(logs), BLOCK):
                part = slice(start, start + BLOCK)
                features = torch.from_numpy(np.array(clicks.lists.features[clicks.rows[part]], dtype=np.float32))
                positions = torch.from_numpy(clicks.positions[part].astype(np.int64))
                logs[part] = self.log_exposure(features, positions).double().numpy()
        return np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG)) * clicks.list_impressions


def at(logs: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the value at the position of each document, [documents, positions] to [documents]."""
    return logs.gather(1, positions[:, None] - 1)[:, 0]


def dropped(logs: torch.Tensor, drop: float) -> torch.Tensor:
    """Return log(t + (1 - t) o): the observation after LBD's Bernoulli dropping, in expectation."""
    if drop in (0, 1):
        return logs if drop == 0 else torch.zeros_like(logs)
    return torch.logaddexp(logs + math.log1p(-drop), torch.full_like(logs, math.log(drop)))


def towered(ranker: nn.Module, method: str) -> Towered:
    """Return the ranker as layers with a linear one at the end, from which a second tower can be built."""
    if not isinstance(ranker, Towered):
        kind = type(ranker).__name__
        must = f"be a network with a linear layer at the end, such as linear, mlp or attention, for {method}"
        raise SettingError("ranker", kind, must)
    return ranker


def spread(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the values of documents at their places, 0 where masked: [documents] to [lists, places]."""
    return torch.zeros(mask.shape, dtype=values.dtype).masked_scatter(mask, values)


def flat(network: nn.Sequential) -> nn.Sequential:
    """Return the network with zeros as its last layer, so that it has no effect at the start."""
    for parameter in network[-1].parameters():
        nn.init.zeros_(parameter)
    return network
