"""The position-based model with relevance a function of features: fitted by EM, or with trust bias by gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import SIMILAR, Learner, Method
from clickprism.debias.losses import by_position, count_loss, log_both, log_click, score, shown_at, skips, start_odds
from clickprism.settings import check_fields
from clickprism.types import Batch, Clicks, Float64

LEAST = 1e-5
FALSE_AT_START = 0.1


@final
@dataclass(frozen=True)
class RegressionEM(Method):
    """P(click) = theta_k s(f(x)): theta by EM, f by gradients (Wang et al., 2018).

    E: P(observed | skip) = theta_k (1 - s) / (1 - theta_k s)
       P(relevant | skip) = (1 - theta_k) s / (1 - theta_k s),  and both are 1 given a click
    M: theta_k moves by `step` towards the mean of P(observed) over the batch; f is fitted to P(relevant)

    with s = sigmoid f(x). With one gradient step for each E-step, cross entropy to the posterior has the gradient of
    the log-likelihood of the clicks. Unbiased when the observation depends on nothing but the position and documents
    with similar features are shown at different positions. Clicks identify theta_k / theta_1 well; only the curvature
    of s tells how relevance and observation share their scale.

    Attributes:
        form: "likelihood" minimises - [c log(theta s) + (n - c) log(1 - theta s)]; "drawn", as published, is cross
            entropy to labels drawn 0 or 1 from the posterior of relevance: the same on average, with noise.
        step: How far theta moves towards the mean posterior of a batch. Published with .05, which is too slow where
            relevance is rare.
        start: theta at the start, at every position.
        centred: Add the log odds of the mean relevance to the scores, so that they start near 0.

    >>> RegressionEM.ultra()
    RegressionEM(form='drawn', step=0.05, start=0.9, centred=False)
    """

    name = "regression_em"
    summary = "Position-based model of click probabilities, fitted by expectation maximisation."
    corrects = ("position",)
    needs = SIMILAR
    learns_observation = True
    form: Literal["likelihood", "drawn"] = "likelihood"
    step: float = 0.5
    start: float = 0.9
    centred: bool = True

    @classmethod
    def ultra(cls) -> RegressionEM:
        """Return the settings of the ULTRA toolbox (Ai et al., 2021), which papers compare with."""
        return cls(form="drawn", step=0.05, centred=False)

    def __post_init__(self) -> None:
        check_fields(self, step="(0, 1]", start="(0, 1)")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> RegressionLearner:
        """Return a learner with one theta for each position of the log."""
        odds = start_odds(clicks, self.start) if self.centred else 0.0
        return RegressionLearner(self, ranker, clicks.max_position, odds)


@final
class RegressionLearner(Learner):
    """The ranker, and theta, which EM updates."""

    theta: torch.Tensor

    def __init__(self, settings: RegressionEM, ranker: nn.Module, positions: int, odds: float) -> None:
        super().__init__(ranker)
        self.settings, self.base_odds = settings, odds
        self.register_buffer("theta", torch.full((positions,), settings.start))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the cross entropy to the clicks, or to labels drawn from the posterior of relevance."""
        scores, observed, unobserved = self._at(batch)
        if self.settings.form == "likelihood":
            return {"clicks": count_loss(batch, *log_click(scores, observed, unobserved))}
        relevant, irrelevant = log_both(scores)
        with torch.no_grad():
            share = torch.exp(relevant + unobserved - log_click(scores, observed, unobserved)[1])
            drawn = skips(batch) * torch.bernoulli(share.clamp(0.0, 1.0))
        terms = (batch.clicks + drawn) * relevant + (skips(batch) - drawn) * irrelevant
        return {"relevance": -terms.masked_fill(~batch.mask, 0.0).sum(-1).mean()}

    @torch.no_grad()
    def statistics(self, batch: Batch) -> torch.Tensor:
        """Return the E-step for theta: expected observed impressions, and all impressions, [2, positions]."""
        scores, observed, unobserved = self._at(batch)
        share = torch.exp(log_both(scores)[1] + observed - log_click(scores, observed, unobserved)[1])
        expected = by_position(batch, batch.clicks + skips(batch) * share, len(self.theta))
        return torch.stack([expected, shown_at(batch, len(self.theta))])

    def update(self, sums: torch.Tensor) -> None:
        """Take the M-step for theta, at the positions that the batch has."""
        expected, shown = sums
        mean = torch.where(shown > 0, expected / shown.clamp_min(1e-12), self.theta)
        self.theta.lerp_(mean, self.settings.step).clamp_(LEAST, 1 - LEAST)

    def _at(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        theta = self.theta[batch.positions - 1]
        return score(self.ranker, batch) + self.base_odds, theta.log(), torch.log1p(-theta)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return log(theta_k s(f))."""
        return log_click(*self._at(batch))[0]

    def observation(self) -> Float64:
        """Return theta_k / theta_1."""
        curve = self.theta.double().numpy()
        return np.asarray(curve / curve[0])


@final
@dataclass(frozen=True)
class PositionAware(Method):
    """P(click) = P(observed | k) P(click | x, observed), the likelihood of clicks and skips (Guo et al., 2019).

    loss = - [c log(theta_k s) + (n - c) log(1 - theta_k s)],  theta_k = sigmoid g_k, s = sigmoid f(x)

    With `trust`, P(click) = theta_k (eps+_k s + eps-_k (1 - s)), Eq. 1 of Zou et al. (2022): users trust high
    positions. Clicks identify only the products theta_k eps+_k and theta_k eps-_k; the first is above the second by
    construction. Unbiased when the model holds and documents with similar features have different positions.

    Attributes:
        trust: Learn how often irrelevant documents are clicked at each position.
        observation_rate: Learning rate of theta, as a multiple of the ranker's.
        trust_rate: The same with trust, where two numbers for each position fit the clicks only together.
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
        check_fields(self, observation_rate="(0, inf)", trust_rate="(0, inf)", start="(0, 1)")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> PositionAwareLearner:
        """Return a learner with one number (with trust: two) for each position of the log."""
        return PositionAwareLearner(self, ranker, clicks)


@final
class PositionAwareLearner(Learner):
    """The ranker and the log odds of being observed; with trust those of a false click too."""

    def __init__(self, settings: PositionAware, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker)
        self.settings, self.base_odds = settings, start_odds(clicks, settings.start)

        def odds(share: float) -> nn.Parameter:
            return nn.Parameter(torch.full((clicks.max_position,), math.log(share / (1 - share))))

        self.seen = odds(settings.start)
        self.false = odds(FALSE_AT_START) if settings.trust else None

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the cross entropy to the clicks."""
        return {"clicks": count_loss(batch, *self._log_click(batch))}

    def _log_click(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        scores, places = score(self.ranker, batch) + self.base_odds, batch.positions - 1
        seen, unseen = (each[places] for each in log_both(self.seen))
        if self.false is None:
            return log_click(scores, seen, unseen)
        false, true = (each[places] for each in log_both(self.false))
        relevant, irrelevant = log_both(scores)
        clicked = seen + torch.logaddexp(relevant, irrelevant + false)
        return clicked, torch.logaddexp(unseen, seen + irrelevant + true)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the log of the click probability."""
        return self._log_click(batch)[0]

    def observation(self) -> Float64:
        """Return theta_k / theta_1; with trust, theta_k (eps+_k - eps-_k) relative to the first."""
        curve = torch.sigmoid(self.seen.detach().double())
        if self.false is not None:
            curve = curve * torch.sigmoid(-self.false.detach().double())
        return np.asarray((curve / curve[0]).numpy())

    def background(self, clicks: Clicks) -> Float64:
        """Return impressions times theta_k eps-_k."""
        if self.false is None:
            return super().background(clicks)
        false = torch.sigmoid(self.seen.detach().double()) * torch.sigmoid(self.false.detach().double())
        return np.asarray(clicks.list_impressions * false.numpy()[clicks.positions - 1])

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return the ranker's group and the observation's."""
        settings, curves = self.settings, [self.seen, *([] if self.false is None else [self.false])]
        rate = settings.trust_rate if settings.trust else settings.observation_rate
        return [(1.0, list(self.ranker.parameters())), (rate, curves)]
