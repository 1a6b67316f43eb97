"""LBD, the form that wins: an observation that each document bends, anchored, chosen by clicks held out."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, final

import torch
from torch import nn

from clickprism.debias.base import Bias
from clickprism.debias.document import DocumentLearner, on_entries
from clickprism.debias.listwise import score, softmax_loss
from clickprism.debias.steepness import (
    Choice,
    DocumentObservation,
    ObservationSettings,
    learn_observation,
    observation_like,
    packed,
    unpacked,
)
from clickprism.errors import SettingError
from clickprism.types import Batch, Clicks, Float64

log = logging.getLogger(__name__)
ANCHORED_DROP: Final = 0.15
LARGE: Final = 1e3  # features are of the order of 1 where they are normalised


@final
@dataclass(frozen=True)
class Decoupling:
    """Softmax cross entropy with every click divided by the observation of its document at its position.

    loss = - sum_i c_i / o_k(x_i) log softmax_i(f(x)),  log o_k(x) = s(x) (log o_1 + b_k)

    It keeps what LBD (Chen et al., 2022) is about, an observation that depends on the document and a Lipschitz penalty
    on it, and changes what the paper's form gets wrong (`lbd_paper`; figures in docs/methods/lbd.md). The observation
    is learned before the ranker, beside a network that may say anything of relevance (`learn_observation`): a ranker
    that is too simple would put what it cannot say into the observation. It is anchored, 0 = b_1: clicks say how the
    observation of a document falls below the first position, not what it is there. The penalty is the one under which
    clicks on queries held out are the most probable; the curve alone, without any document in it, is among the choices.
    Where documents shown at several positions identify the curve and the log model finds no coupling, the observation
    is the log model's curve: joint learning over-corrects the logs of good engines.

    `first` says what no click can: how often the first result is looked at. At 1 the ranker learns c_1(x), the click in
    the first place, just as clicks identify it. Below 1 the way in which a document bends the curve is taken to hold
    for the first place too, and what that hides there is given back. The default lies between the two ends of what is
    plausible, always and the .68 of eye tracking. The first result is never taken to be overlooked more than the others
    are, on average, beside it: where the log shows no position bias, `first` does nothing.

    Unbiased for relevance when o has this form, the companion can express relevance, documents that look alike stood
    at different positions, and `first` is right; for c_1 when it is 1.

    Attributes:
        observation: how o is learned.
        first: the observation of the average document at the first position, at least.
        drop: t of LBD's Bernoulli dropping, in expectation: o becomes t + (1 - t) o. 1 is `click`. By default .2 where
            the curve is anchored, else 0.
        max_weight: weights above this are cut to it.
    """

    name: ClassVar[str] = "lbd"
    summary: ClassVar[str] = "Weights each click by the inverse observation of its document at its position."
    corrects: ClassVar[tuple[Bias, ...]] = ("position", "document")
    needs: ClassVar[tuple[str, ...]] = ("similar documents at several positions",)
    learns_observation: ClassVar[bool] = False
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True
    observation: ObservationSettings = field(default_factory=ObservationSettings)
    first: float = 0.8
    drop: float | None = None
    max_weight: float = 50.0

    def __post_init__(self) -> None:
        if not 0 < self.first <= 1:
            raise SettingError("first", self.first, "be above 0 and at most 1")
        if self.drop is not None and not 0 <= self.drop <= 1:
            raise SettingError("drop", self.drop, "be in [0, 1]")
        if not 1 <= self.max_weight < math.inf:
            raise SettingError("max_weight", self.max_weight, "be at least 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> DecoupledLearner:
        """A learner with the observation that the log gives; a doubt about it goes to the log of this module."""
        learner = DecoupledLearner(self, ranker, clicks, *learn_observation(clicks, self.observation))
        if learner.doubt:
            log.warning("%s: %s", self.name, learner.doubt)
        return learner

    def restored(self, ranker: nn.Module, clicks: Clicks, weights: Mapping[str, torch.Tensor]) -> DecoupledLearner:
        """The learner of a checkpoint: the choice is the one that was made, whatever this machine would choose."""
        choices = unpacked(weights["tried"])
        features, positions = clicks.lists.features.shape[1], clicks.max_position
        observed = observation_like(choices[0], self.observation.shape, features=features, positions=positions)
        return DecoupledLearner(self, ranker, clicks, observed, choices)


@final
class DecoupledLearner(DocumentLearner):
    """The ranker, and an observation that is learned already.

    Attributes:
        choices: the penalties that were tried, the chosen one first.
    """

    scale: torch.Tensor
    log_first: torch.Tensor
    tried: torch.Tensor

    def __init__(
        self,
        settings: Decoupling,
        ranker: nn.Module,
        clicks: Clicks,
        observed: DocumentObservation,
        choices: tuple[Choice, ...],
    ) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.observed, self.choices = settings, observed, choices
        self.register_buffer("scale", observed.steepness(self.sample).detach().mean().clamp_min(1e-3))
        below = observed.below.detach().mean() * self.scale if len(observed.below) else torch.zeros(())
        self.register_buffer("log_first", below.clamp(math.log(settings.first), 0.0))
        self.register_buffer("tried", packed(choices))

    @property
    def doubt(self) -> str:
        """What speaks against the choice, with a remedy: the curve alone where features are too large to bend it."""
        bends, largest = self.settings.observation.penalties, float(self.sample.abs().max())
        if not bends or not self.choices or self.choices[0].penalty < math.inf or not largest > LARGE:
            return ""
        return (
            f"the observation is the curve alone, and features go up to {largest:.3g}: documents may fail to bend it "
            "for that alone. Normalise the features (data.normalise=quantile, or clickprism.data.normalise)"
        )

    @property
    def unit(self) -> float:
        """The observation of the average document at the first position, after dropping: weights are 1 there."""
        return self.drop + (1 - self.drop) * math.exp(float(self.log_first))

    @property
    def drop(self) -> float:
        """t: as set, or by whether the curve is anchored."""
        if self.settings.drop is not None:
            return self.settings.drop
        return ANCHORED_DROP if bool(self.observed.anchored) else 0.0

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log o_k(x), [..., positions]."""
        flat = features.reshape(-1, features.shape[-1])
        at_first = self.log_first * self.observed.steepness(flat) / self.scale
        return self._dropped(self.observed(flat) + at_first[:, None]).reshape(*features.shape[:-1], -1)

    def log_observation_at(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Log o_k(x) where each document stood, [documents]: s(x) b_k at once, however deep lists are."""
        below, steepness = self.observed.at(features, positions)
        return self._dropped(below + self.log_first * steepness / self.scale)

    def _dropped(self, logs: torch.Tensor) -> torch.Tensor:
        """Log of t + (1 - t) o."""
        drop = self.drop
        if drop == 0:
            return logs
        kept = torch.log1p(torch.tensor(-drop)) + logs
        return torch.logaddexp(kept, torch.full_like(logs, math.log(drop)))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Softmax cross entropy on the weighted clicks."""
        documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
        with torch.no_grad():
            logs = self.log_observation_at(documents, positions) - math.log(self.unit)
            weights = torch.exp(-logs.clamp_min(-math.log(self.settings.max_weight)))
        weighted = batch.clicks * torch.ones_like(batch.clicks).masked_scatter(batch.mask, weights)
        return {"ranking": softmax_loss(score(self.ranker, batch), weighted, mask=batch.mask)}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Score + log o, [lists, places]."""
        documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
        scores, logs = score(self.ranker, batch), self.log_observation_at(documents, positions)
        return scores + torch.zeros_like(scores).masked_scatter(batch.mask, logs)

    def exposure(self, clicks: Clicks) -> Float64:
        """Impressions times o_k(x), in units of the average document's at the first position, [entries]."""
        return on_entries(self.log_observation_at, clicks) * clicks.list_impressions / self.unit

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's parameters; the observation's stay as they are."""
        return [(1.0, list(self.ranker.parameters()))]
