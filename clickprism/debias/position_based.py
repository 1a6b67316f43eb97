"""The position-based model with relevance a function of features: fitted by EM, or with trust bias by gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import SIMILAR, Declared, Learner
from clickprism.debias.losses import by_position, count_loss, log_both, log_click, score, shown_at, skips, start_odds
from clickprism.errors import SettingError
from clickprism.types import Batch, Clicks, Float64

Form = Literal["likelihood", "regression", "drawn"]
LEAST = 1e-5
FALSE_AT_START = 0.1


@final
@dataclass(frozen=True)
class RegressionEM(Declared):
    """P(click) = theta_k s(f(x)): theta by EM, f by gradients (Wang et al., 2018).

    E: P(seen | skip)     = theta_k (1 - s) / (1 - theta_k s)
       P(relevant | skip) = (1 - theta_k) s / (1 - theta_k s),  and both are 1 given a click
    M: theta_k moves by `step` towards the mean of P(seen) over the batch; f is fitted to P(relevant)

    with s = sigmoid f(x). Where f takes one gradient step an E-step, as here, cross entropy to the posterior has the
    gradient of the log-likelihood of the clicks itself; the two forms differ in the value that is reported only.
    Unbiased when the observation depends on nothing but the position and documents with similar features are shown at
    different positions. Clicks identify theta_k / theta_1 well; how relevance and observation share their scale is
    known by the curvature of s only.

    Attributes:
        form: "likelihood" minimises - [c log(theta s) + (n - c) log(1 - theta s)]; "regression" is cross entropy to the
            posterior of relevance; "drawn", as published, is cross entropy to labels drawn 0 or 1 from it, one a list
            and document: the same on average, with noise.
        step: how far theta moves towards the mean posterior of a batch. Published with .05, which is too slow where
            relevance is rare.
        start: theta at the start, at every position.
        centred: add the log odds of the mean relevance to the scores, so that they start near 0.

    >>> RegressionEM.ultra()
    RegressionEM(form='drawn', step=0.05, start=0.9, centred=False)
    """

    name = "regression_em"
    summary = "Position-based model of click probabilities, fitted by expectation maximisation."
    corrects = ("position",)
    needs = SIMILAR
    learns_observation = True
    form: Form = "likelihood"
    step: float = 0.5
    start: float = 0.9
    centred: bool = True

    @classmethod
    def ultra(cls) -> RegressionEM:
        """Return the settings of the ULTRA toolbox (Ai et al., 2021), which papers compare with."""
        return cls(form="drawn", step=0.05, centred=False)

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise SettingError("form", self.form, f"be one of {', '.join(get_args(Form))}")
        if not 0 < self.step <= 1:
            raise SettingError("step", self.step, "be above 0 and at most 1")
        if not 0 < self.start < 1:
            raise SettingError("start", self.start, "be between 0 and 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> RegressionLearner:
        """A learner with one theta for each position of the log."""
        odds = start_odds(clicks, self.start) if self.centred else 0.0
        return RegressionLearner(self, ranker, clicks.max_position, odds)


@final
class RegressionLearner(Learner):
    """The ranker, and theta, which EM updates."""

    theta: torch.Tensor

    def __init__(self, settings: RegressionEM, ranker: nn.Module, positions: int, odds: float) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.base_odds = odds
        self.register_buffer("theta", torch.full((positions,), settings.start))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Cross entropy to the clicks, or to the posterior of relevance."""
        scores, seen, unseen = self._at(batch)
        if self.settings.form == "likelihood":
            return {"clicks": count_loss(batch, *log_click(scores, seen, unseen))}
        relevant, irrelevant = log_both(scores)
        with torch.no_grad():
            share = torch.exp(relevant + unseen - log_click(scores, seen, unseen)[1])
            if self.settings.form == "drawn":
                share = torch.bernoulli(share.clamp(0.0, 1.0))
            targets = batch.clicks + skips(batch) * share
            rest = skips(batch) * (1 - share)
        terms = targets * relevant + rest * irrelevant
        return {"relevance": -terms.masked_fill(~batch.mask, 0.0).sum(-1).mean()}

    @torch.no_grad()
    def statistics(self, batch: Batch) -> torch.Tensor:
        """The E-step for theta: expected impressions that were seen, and all impressions, [2, positions]."""
        scores, seen, unseen = self._at(batch)
        _, irrelevant = log_both(scores)
        share = torch.exp(irrelevant + seen - log_click(scores, seen, unseen)[1])
        positions = len(self.theta)
        looked = by_position(batch, batch.clicks + skips(batch) * share, positions)
        return torch.stack([looked, shown_at(batch, positions)])

    def update(self, sums: torch.Tensor) -> None:
        """The M-step for theta, at the positions that the batch has."""
        looked, shown = sums
        mean = torch.where(shown > 0, looked / shown.clamp_min(1e-12), self.theta)
        self.theta.lerp_(mean, self.settings.step).clamp_(LEAST, 1 - LEAST)

    def _at(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        theta = self.theta[batch.positions - 1]
        return score(self.ranker, batch) + self.base_odds, theta.log(), torch.log1p(-theta)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """log(theta_k s(f))."""
        return log_click(*self._at(batch))[0]

    def observation(self) -> Float64:
        """theta_k / theta_1."""
        curve = self.theta.double().numpy()
        return np.asarray(curve / curve[0])


@final
@dataclass(frozen=True)
class PositionAware(Declared):
    """P(click) = P(seen | k) P(click | x, seen), the likelihood of clicks and skips (Guo et al., 2019).

    loss = - [c log(theta_k s) + (n - c) log(1 - theta_k s)],  theta_k = sigmoid g_k, s = sigmoid f(x)

    With `trust`, P(click) = theta_k (eps+_k s + eps-_k (1 - s)), Eq. 1 of Zou et al. (2022): users trust high
    positions. Clicks identify only the products theta_k eps+_k and theta_k eps-_k; the first is above the second by
    construction. Unbiased when the model holds and documents with similar features have different positions.

    Attributes:
        trust: learn how often what is not relevant is clicked at each position.
        observation_rate: the learning rate of theta, as a multiple of the ranker's.
        trust_rate: the same where trust is learned, two numbers a position that only together fit the clicks.
        start: theta at the start, at every position.
    """

    name = "pal"
    summary = "Position-based model of click probabilities, fitted by gradients; with trust bias if asked."
    corrects = ("position", "trust")
    needs = SIMILAR
    learns_observation = True
    trust: bool = False
    observation_rate: float = 5.0
    trust_rate: float = 20.0
    start: float = 0.9

    def __post_init__(self) -> None:
        for name in ("observation_rate", "trust_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, getattr(self, name), "be above 0")
        if not 0 < self.start < 1:
            raise SettingError("start", self.start, "be between 0 and 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> PositionAwareLearner:
        """A learner with one number (with trust: two) for each position of the log."""
        return PositionAwareLearner(self, ranker, clicks)


@final
class PositionAwareLearner(Learner):
    """The ranker and the log odds of being seen; with trust those of a false click too."""

    def __init__(self, settings: PositionAware, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.base_odds = start_odds(clicks, settings.start)
        positions = clicks.max_position
        self.seen = nn.Parameter(torch.full((positions,), math.log(settings.start / (1 - settings.start))))
        self.false: nn.Parameter | None = None
        if settings.trust:
            odds = math.log(FALSE_AT_START / (1 - FALSE_AT_START))
            self.false = nn.Parameter(torch.full((positions,), odds))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Cross entropy to the clicks."""
        return {"clicks": count_loss(batch, *self._log_click(batch))}

    def _log_click(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        scores, places = score(self.ranker, batch) + self.base_odds, batch.positions - 1
        seen, unseen = log_both(self.seen)
        if self.false is None:
            return log_click(scores, seen[places], unseen[places])
        false, true = log_both(self.false)
        relevant, irrelevant = log_both(scores)
        clicked = seen[places] + torch.logaddexp(relevant, irrelevant + false[places])
        return clicked, torch.logaddexp(unseen[places], seen[places] + irrelevant + true[places])

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Log of the click probability."""
        return self._log_click(batch)[0]

    def observation(self) -> Float64:
        """theta_k / theta_1; with trust (theta_k (eps+_k - eps-_k)) relative to the first."""
        curve = torch.sigmoid(self.seen.detach().double())
        if self.false is not None:
            curve = curve * torch.sigmoid(-self.false.detach().double())
        return np.asarray((curve / curve[0]).numpy())

    def background(self, clicks: Clicks) -> Float64:
        """Impressions times theta_k eps-_k."""
        if self.false is None:
            return super().background(clicks)
        false = torch.sigmoid(self.seen.detach().double()) * torch.sigmoid(self.false.detach().double())
        return np.asarray(clicks.list_impressions * false.numpy()[clicks.positions - 1])

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's group and the observation's."""
        ranker = (1.0, list(self.ranker.parameters()))
        if self.false is None:
            return [ranker, (self.settings.observation_rate, [self.seen])]
        return [ranker, (self.settings.trust_rate, [self.seen, self.false])]
