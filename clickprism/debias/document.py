"""What learners share whose observation depends on the document: curve, exposure, the sample both are taken over."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import Learner
from clickprism.errors import SettingError
from clickprism.rankers.base import Towered
from clickprism.types import Clicks, Float64

BLOCK: Final = 65_536
SAMPLE: Final = 1_000
LARGEST_LOG: Final = 20.0  # beyond e^20 a ratio of observations is none


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
