"""LBD as published: observation that depends on the document, held by a Lipschitz penalty and Bernoulli dropping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final, get_args

import torch
from torch import nn

from clickprism.debias.document import DocumentLearner, at, on_entries, towered
from clickprism.debias.listwise import score, softmax_loss
from clickprism.debias.penalty import Form, check, penalised
from clickprism.errors import SettingError
from clickprism.rankers.base import Chained
from clickprism.types import Batch, Clicks, Float64

Trunk = Literal["towers", "shared"]
Ranked = Literal["relevance", "first"]
Penalised = Literal["log", "observation"]


@final
@dataclass(frozen=True)
class LipschitzBernoulli:
    """Softmax cross entropy of log r(x) + g log o_k(x), and a penalty on the slope of log o (Chen et al., 2022, LBD).

    loss = - sum_i c_i log softmax_i(log r(x_i) + g_i log o_k(x_i)) + penalty * mean of ||d log o_k(x) / d x||^power

    over the documents and positions of the batch, with g_i drawn for every document and step: 0 with probability
    `drop`, else 1. LBD-Lips is drop=0, LBD-Ber penalty=0, and Unlimited has neither. Where docs/methods/lbd_paper.md
    says that the paper, its appendix and its code differ, the settings say which is meant; the default is what §5
    prints, but for the penalty: that of o itself (`penalised="observation"`) can be escaped, as the softmax does not
    change when all o are scaled down.

    The order of relevance is right if the observation changes slowly enough with the document, which no log can show
    (docs/reproduce_lbd.md). `score="first"`, or `anchored`, ranks by what clicks identify, c_1(x) = r(x) o_1(x).

    Attributes:
        penalty: lambda; `inf` holds the observation to one curve over positions, exactly.
        drop: t, the share of documents whose observation is left out of a step.
        trunk: "towers" are two networks (§5); "shared" is one whose last layer has outputs for both (appendix C.2).
        score: "relevance" ranks by log r; "first" by log r + log o_1, which the network of the ranker then learns.
        anchored: hold log o_1(x) at 0 for every document.
        bounded: hold log o at 0 or below (log sigmoid of the output); the paper's code leaves it free.
        penalised: "log" for the slope of log o, "observation" for that of o.
        power: 2 for the mean square of the slope, 1 for its mean as printed.
        form: how the penalty is computed: "chain" and "autograd" are exact, "output" and "projection" unbiased draws.
        share: of the documents of a batch that the penalty is drawn over.
        observation_rate: the learning rate of the curve over positions, as a multiple of the ranker's.
    """

    name: ClassVar[str] = "lbd_paper"
    learns_observation: ClassVar[bool] = True
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True
    penalty: float = 0.01
    drop: float = 0.3
    trunk: Trunk = "towers"
    score: Ranked = "relevance"
    anchored: bool = False
    bounded: bool = False
    penalised: Penalised = "log"
    power: Literal[1, 2] = 2
    form: Form = "output"
    share: float = 0.25
    observation_rate: float = 10.0

    def __post_init__(self) -> None:
        if not self.penalty >= 0:
            raise SettingError("penalty", self.penalty, "not be negative")
        if not 0 <= self.drop <= 1:
            raise SettingError("drop", self.drop, "be in [0, 1]")
        for name, options in (("trunk", Trunk), ("score", Ranked), ("penalised", Penalised)):
            if getattr(self, name) not in get_args(options):
                raise SettingError(name, getattr(self, name), f"be one of {', '.join(get_args(options))}")
        check(form=self.form, power=self.power, share=self.share)
        if not 0 < self.observation_rate < math.inf:
            raise SettingError("observation_rate", self.observation_rate, "be above 0")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> LipschitzBernoulliLearner:
        """A learner whose observation is the same for all documents at the start."""
        return LipschitzBernoulliLearner(self, ranker, clicks)


@final
class LipschitzBernoulliLearner(DocumentLearner):
    """The ranker, a curve over positions, and a tower or head that says how documents differ from it."""

    def __init__(self, settings: LipschitzBernoulli, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker, clicks)
        self.settings = settings
        outputs = clicks.max_position - settings.anchored
        self.curve = nn.Parameter(torch.zeros(outputs))
        self.flat = settings.penalty == math.inf or outputs == 0
        self.own = nn.Sequential()
        if not self.flat:
            chain = towered(ranker, settings.name).anew(outputs)
            for parameter in chain[-1].parameters():
                nn.init.zeros_(parameter)
            self.own = chain if settings.trunk == "towers" else nn.Sequential(chain[-1])

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The cross entropy, and the penalty where there is one."""
        documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
        scores = score(self.ranker, batch)
        logs, penalty = self._log_observation(documents)
        seen = at(logs, positions)
        if self.settings.drop > 0:
            seen = seen * (torch.rand(len(seen)) >= self.settings.drop)
        if self.settings.score == "first":
            seen = seen - logs[:, 0]
        logits = scores + torch.zeros_like(scores).masked_scatter(batch.mask, seen)
        parts = {"click": softmax_loss(logits, batch.clicks, mask=batch.mask)}
        if self.settings.penalty > 0 and not self.flat:
            parts["penalty"] = self.settings.penalty * penalty
        return parts

    def _chain(self) -> nn.Sequential:
        """Features to deviations from the curve, [documents, positions]."""
        if self.settings.trunk == "shared":
            return nn.Sequential(*towered(self.ranker, self.settings.name).trunk(), *self.own)
        return self.own

    def _log_observation(self, documents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log o_k(x), [documents, positions], and the mean slope that is penalised."""
        settings = self.settings
        if self.flat or settings.penalty == 0 or not self.training:
            return self.log_observation(documents), self.curve.new_zeros(())
        raw, penalty = penalised(
            self._chain(),
            documents,
            form=settings.form,
            power=settings.power,
            slope=self._slope if settings.bounded or settings.penalised == "observation" else None,
            share=settings.share,
            by_hand=isinstance(self.ranker, Chained),
        )
        return self._of(self.curve + raw), penalty

    def _of(self, raw: torch.Tensor) -> torch.Tensor:
        """Log o of what curve and tower add up to."""
        logs = nn.functional.logsigmoid(raw) if self.settings.bounded else raw
        return nn.functional.pad(logs, (1, 0)) if self.settings.anchored else logs

    def _slope(self, deviation: torch.Tensor) -> torch.Tensor:
        """How fast what is penalised changes with the outputs of the tower."""
        raw = self.curve + deviation
        if not self.settings.bounded:
            return raw.exp()
        seen = torch.sigmoid(raw)
        return seen * (1 - seen) if self.settings.penalised == "observation" else 1 - seen

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log o_k(x) before dropping, [..., positions]."""
        flat = features.reshape(-1, features.shape[-1])
        raw = self.curve.expand(len(flat), -1)
        if not self.flat:
            raw = raw + self._chain()(flat)
        return self._of(raw).reshape(*features.shape[:-1], -1)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Score + log(t + (1 - t) o): the click under the observation that dropping leaves in expectation."""
        documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
        logs = self.log_observation(documents)
        seen = self._dropped(at(logs, positions))
        if self.settings.score == "first":
            seen = seen - logs[:, 0]
        scores = score(self.ranker, batch)
        return scores + torch.zeros_like(scores).masked_scatter(batch.mask, seen)

    def exposure(self, clicks: Clicks) -> Float64:
        """Impressions times o'_k(x) / o'_1(x), where o' = t + (1 - t) o as in `click_logits`, [entries]."""

        def relative(features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            logs = self._dropped(self.log_observation(features))
            return at(logs, positions) - logs[:, 0]

        return on_entries(relative, clicks) * clicks.list_impressions

    def _dropped(self, logs: torch.Tensor) -> torch.Tensor:
        """Log of t + (1 - t) o, the expectation of what dropping makes of o."""
        drop = self.settings.drop
        if drop == 1:
            return torch.zeros_like(logs)
        if drop > 0:
            return torch.logaddexp(logs + math.log(1 - drop), torch.full_like(logs, math.log(drop)))
        return logs

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's group, that of the tower or head, and the curve's: each is clipped for itself."""
        groups = [(1.0, list(self.ranker.parameters())), (1.0, list(self.own.parameters()))]
        return [*(group for group in groups if group[1]), (self.settings.observation_rate, [self.curve])]
