"""InfoRank in our form: relevance and observation, held apart by their conditional mutual information.

`inforank_paper` is the method as printed; `independence` adds the same penalty to another method.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, final, get_args

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid, pad

from clickprism.debias.anchor import Anchor
from clickprism.debias.base import SIMILAR, Declared, DocumentLearner, Learner, RestoringMethod, at, towered
from clickprism.debias.losses import count_loss, log_both, log_click, mutual_information, start_odds
from clickprism.errors import SettingError
from clickprism.settings import choose
from clickprism.types import Batch, Clicks, Float64

Observation = Literal["position", "anchored"]
Of = Literal["dla", "pal", "regression_em", "lbd", "lbd_paper"]
LINEAR_RATE: Final = 3.0  # of a linear ranker beside a given curve: f and rho v nearly cancel, which takes long
LEAST_SHARE: Final = 1e-6  # of an observation, whose log odds are finite then
SURE: Final = 0.99  # the largest observation probability, where the curve rises below the first position


@final
@dataclass(frozen=True)
class InfoRank(Declared):
    """P(click) = P(relevant | o, x) P(observed | x, k), and eta times I(relevant; observed | x) (after InfoRank).

    loss = - [c log P + (n - c) log(1 - P)] + eta n I(R; O | x),  P = P(R | o, x) P(O | x, k)

    both a mean over sessions of a sum over the list. Relevance is f(x), the ranker, and f(x) - d(x) if not observed:
    any function of x and of a binary o. In the product it is the mean over o, P(R | x) of Eq. 15. The ranker alone is
    served: no position ever reaches it. Where the log says what was observed (`Clicks.seen`), observation is learned
    from that, relevance from what was observed, and d stays 0: the information has no part then.

    This is our form of InfoRank; `inforank_paper` is the printed one, in which relevance and observation both see
    features and position, and neither is identified (docs/independence.md). InfoRank- is `eta=0`.

    With `log_model`, where at least a fifth of the shown pairs were shown at several positions, the curve is that of
    the model of the log, and relevance in the model of clicks is f(x) + rho v: v is what the engine's order says beyond
    the features (`clickprism.debias.anchor`). Relevance is then conditioned on o = 1, and the information stays 0.

    Unbiased when clicks are a product of relevance and such an observation, the same for all documents at the first
    position, and documents with similar features were shown at different positions.

    Attributes:
        eta: Weight of the mutual information, a click's log-likelihood being 1.
        observation: What observation depends on besides the position: nothing ("position"), or the document, except
            at the first position ("anchored").
        log_model: Take the curve from the model of the log where documents were shown at several positions, and use
            what the engine's order says beyond the features.
        observation_rate: Learning rate of the curve over positions, as a multiple of the ranker's.
        start: P(observed) at the start: at every position, or at the first if the curve is that of the log's model.
    """

    name = "inforank"
    summary = "Model of relevance and observation with a penalty on their mutual information."
    corrects = ("position", "document")
    needs = SIMILAR
    learns_observation = True
    eta: float = 0.5
    observation: Observation = "position"
    log_model: bool = True
    observation_rate: float = 5.0
    start: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.eta < math.inf:
            raise SettingError("eta", self.eta, "be 0 or more")
        if self.observation not in get_args(Observation):
            raise SettingError("observation", self.observation, f"be one of {', '.join(get_args(Observation))}")
        if not 0 < self.observation_rate < math.inf:
            raise SettingError("observation_rate", self.observation_rate, "be above 0")
        if not 0 < self.start < 1:
            raise SettingError("start", self.start, "be between 0 and 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> InfoRankLearner:
        """Return a learner whose observation is the same for all documents at the start, and whose d is 0."""
        return InfoRankLearner(self, ranker, clicks, Anchor.of(clicks) if self._anchors(clicks) else None)

    def restored(self, ranker: nn.Module, clicks: Clicks, weights: Mapping[str, torch.Tensor]) -> InfoRankLearner:
        """Return the learner of a checkpoint, without fitting the model of the log again."""
        known = {name.removeprefix("anchor_"): weights[name].numpy() for name in weights if name.startswith("anchor_")}
        numbers = {name: float(known[name]) for name in ("centre", "rho") if known}
        anchor = Anchor(curve=known["curve"], engine=known["engine"], **numbers) if known else None
        return InfoRankLearner(self, ranker, clicks, anchor)

    def _anchors(self, clicks: Clicks) -> bool:
        return self.log_model and clicks.seen is None and clicks.max_position > 1


class Odds(NamedTuple):
    """Log odds of documents where they stood, each [documents].

    Attributes:
        seen: of P(R = 1 | O = 1, x).
        unseen: of P(R = 1 | O = 0, x).
        observed: of P(O = 1 | x).
    """

    seen: torch.Tensor
    unseen: torch.Tensor
    observed: torch.Tensor


@final
class InfoRankLearner(DocumentLearner):
    """The ranker, what relevance loses if not observed, a curve over positions, and what the document adds to it."""

    anchor_curve: torch.Tensor
    anchor_engine: torch.Tensor
    anchor_centre: torch.Tensor
    anchor_rho: torch.Tensor

    def __init__(self, settings: InfoRank, ranker: nn.Module, clicks: Clicks, anchor: Anchor | None) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.told, self.anchored = settings, clicks.seen is not None, anchor is not None
        self.base_odds = start_odds(clicks, settings.start)
        network, places = towered(ranker, settings.name), clicks.max_position
        self.curve: nn.Parameter | None = None
        if anchor is None:
            self.curve = nn.Parameter(_seen_odds(clicks, settings.start))
        else:
            for name in ("curve", "engine", "centre", "rho"):
                self.register_buffer(f"anchor_{name}", torch.as_tensor(getattr(anchor, name)).float())
            self.base_odds = start_odds(clicks, settings.start * _mean_observation(clicks, anchor))
        self.own = flat(nn.Sequential(nn.Linear(network.width, 1)))
        self.by_document = settings.observation == "anchored" and places > 1
        self.tower = flat(network.anew(places - 1)) if self.by_document else nn.Sequential()

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Return log odds of relevance, observed or not, and of observation, of documents at positions, [documents]."""
        network = towered(self.ranker, self.settings.name)
        hidden = network.trunk()(documents)
        scores = network.last()(hidden)[:, 0] + self.base_odds
        if self.anchored:
            beyond = -positions.to(documents).log() - documents @ self.anchor_engine - self.anchor_centre
            scores = scores + self.anchor_rho * beyond
        return Odds(scores, scores - self.own(hidden)[:, 0], at(self._observed(documents), positions))

    def _observed(self, documents: torch.Tensor) -> torch.Tensor:
        """Return the log odds of being observed at every position, [documents, positions]."""
        odds = self._curve_odds().expand(len(documents), -1)
        return odds + pad(self.tower(documents), (1, 0)) if self.by_document else odds

    def _curve_odds(self) -> torch.Tensor:
        if self.curve is not None:
            return self.curve
        return torch.logit((self.settings.start * self.anchor_curve).clamp_max(SURE))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The cross entropy of clicks (and of what was seen, where that is known), and the information."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        parts = {}
        if not self.told or batch.seen is None:
            clicked, skipped = (spread(each, batch.mask) for each in self._log_click(odds))
            parts["clicks"] = count_loss(batch, clicked, skipped)
        else:
            shown = batch.impressions[:, None].expand(batch.mask.shape)[batch.mask]
            seen, clicks = batch.seen[batch.mask], batch.clicks[batch.mask]
            parts["observation"] = _cross_entropy(seen, shown, odds.observed) / len(batch.mask)
            parts["clicks"] = _cross_entropy(clicks, seen, odds.seen) / len(batch.mask)
        if self.settings.eta > 0:
            parts["information"] = self.settings.eta * information(batch, odds)
        return parts

    def _log_click(self, odds: Odds) -> tuple[torch.Tensor, torch.Tensor]:
        """Log of the click probability and of its complement, [documents]."""
        observed, unobserved = log_both(odds.observed)
        if self.anchored:
            return log_click(odds.seen, observed, unobserved)
        (seen, not_seen), (unseen, not_unseen) = log_both(odds.seen), log_both(odds.unseen)
        relevant = torch.logaddexp(seen + observed, unseen + unobserved)
        irrelevant = torch.logaddexp(not_seen + observed, not_unseen + unobserved)
        return relevant + observed, torch.logaddexp(irrelevant, relevant + unobserved)

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log P(seen | x, k), [..., positions]."""
        observed = self._observed(features.reshape(-1, features.shape[-1]))
        return logsigmoid(observed).reshape(*features.shape[:-1], -1)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Log of the click probability, [lists, places]."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        clicked = logsigmoid(odds.seen) + logsigmoid(odds.observed) if self.told else self._log_click(odds)[0]
        return spread(clicked, batch.mask)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's group with what relevance loses, the tower's, and the curve's: each is clipped for itself."""
        linear = self.anchored and not len(towered(self.ranker, self.settings.name).trunk())
        relevance = [*self.ranker.parameters(), *self.own.parameters()]
        groups = [(LINEAR_RATE if linear else 1.0, relevance), (1.0, list(self.tower.parameters()))]
        curve = [] if self.curve is None else [self.curve]
        return [group for group in (*groups, (self.settings.observation_rate, curve)) if group[1]]


def _seen_odds(clicks: Clicks, start: float) -> torch.Tensor:
    """Log odds of being seen at each position: as the log tells, or all at the start, [positions]."""
    share = np.full(clicks.max_position, start)
    if clicks.seen is not None:
        places = clicks.positions - 1
        seen, shown = (np.bincount(places, weights=each) for each in (clicks.seen, clicks.list_impressions))
        share = (seen + 0.5) / (shown + 1)  # never 0 or 1
    return torch.from_numpy(np.log(share / (1 - share))).float()


def _mean_observation(clicks: Clicks, anchor: Anchor) -> float:
    """Return the mean observation of impressions relative to the first position, by the model of the log."""
    curve = anchor.curve.astype(np.float32)  # as a checkpoint keeps it, so that a resumed run has the same mean
    return float(np.average(curve[clicks.positions - 1], weights=clicks.list_impressions))


def information(batch: Batch, odds: Odds) -> torch.Tensor:
    """The mutual information of relevance and observation, summed over a list, a mean over sessions."""
    shown = batch.impressions[:, None].expand(batch.mask.shape)[batch.mask]
    return (shown * mutual_information(*odds)).sum() / len(batch.mask)


def spread(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values of the documents at their places, 0 where masked: [documents] to [lists, places]."""
    return torch.zeros(mask.shape, dtype=values.dtype).masked_scatter(mask, values)


def flat(network: nn.Sequential) -> nn.Sequential:
    """The network with a last layer of zeros, which says nothing at the start."""
    for parameter in network[-1].parameters():
        nn.init.zeros_(parameter)
    return network


def _cross_entropy(hits: torch.Tensor, tries: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    """Minus the log-likelihood of so many hits in so many tries, summed."""
    true, false = log_both(odds)
    return -(hits * true + (tries - hits).clamp_min(0.0) * false).sum()


@final
@dataclass(frozen=True)
class Independence(Declared):
    """The loss of another method on scores f(x) - (1 - o) d(x), and eta times I(relevant; seen | x) (InfoRank, Eq. 13).

    o is the observation that the method itself has learned so far, relative to the first position, without a gradient.
    So whatever depends on being seen goes into d, and the information takes it out again: with eta = 0 the method with
    a relevance that knows its observation, with a large eta the method itself. The ranker f is what is served, the
    relevance of what is seen.

    Unbiased where the method is. The information is that of the method's own probabilities; a listwise method knows
    its scores up to a constant only, which is taken as 0.

    Attributes:
        of: the method.
        settings: those of the method.
        eta: the weight of the information.
    """

    name = "independence"
    summary = "Another method, with InfoRank's penalty on relevance that depends on observation."
    corrects = ("position",)
    needs = SIMILAR
    learns_observation = True
    of: Of = "dla"
    settings: dict[str, Any] = field(default_factory=dict)
    eta: float = 0.5

    def __post_init__(self) -> None:
        if self.of not in get_args(Of):
            raise SettingError("of", self.of, f"be one of {', '.join(get_args(Of))}")
        if not 0 <= self.eta < math.inf:
            raise SettingError("eta", self.eta, "be 0 or more")
        self.method()

    def method(self) -> Any:
        """The method that is regularised."""
        from clickprism.debias import METHODS

        return choose(METHODS, {"name": self.of, **self.settings}, path="settings")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> IndependentLearner:
        """The learner of the method, around a ranker whose scores change with being seen."""
        return IndependentLearner(self, ranker, self.method().learner(ranker, clicks))

    def restored(self, ranker: nn.Module, clicks: Clicks, weights: Mapping[str, torch.Tensor]) -> IndependentLearner:
        """The learner of a checkpoint; a method that restores its own learns nothing from the log again."""
        method = self.method()
        if not isinstance(method, RestoringMethod):
            return self.learner(ranker, clicks)
        own = {key.removeprefix("inner."): each for key, each in weights.items() if key.startswith("inner.")}
        return IndependentLearner(self, ranker, method.restored(ranker, clicks, own))


@final
class IndependentLearner(Learner):
    """The learner of a method, and how much relevance is less if unseen."""

    def __init__(self, settings: Independence, ranker: nn.Module, inner: Learner) -> None:
        super().__init__(ranker)
        self.settings, self.inner = settings, inner
        self.own = flat(nn.Sequential(nn.Linear(towered(ranker, settings.name).width, 1)))

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Log odds of relevance, seen and unseen, and of the method's observation, of [documents, features]."""
        network = towered(self.ranker, self.settings.name)
        hidden = network.trunk()(documents)
        scores = network.last()(hidden)[:, 0] + self.inner.base_odds
        return Odds(scores, scores - self.own(hidden)[:, 0], self._observed(documents, positions))

    def _observed(self, documents: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Log odds of being seen, relative to the first position, as the method has it now, [documents]."""
        with torch.no_grad():
            if isinstance(self.inner, DocumentLearner):
                logs = self.inner.log_observation(documents)
                share = (at(logs, positions) - logs[:, 0]).exp()
            else:
                share = torch.from_numpy(self.inner.observation()).to(documents)[positions - 1]
            return torch.logit(share, eps=LEAST_SHARE)

    @contextmanager
    def _conditioned(self, batch: Batch) -> Iterator[Odds]:
        """Let the ranker say, for this batch, the relevance that its observation leaves."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        less = torch.sigmoid(-odds.observed) * (odds.seen - odds.unseen)

        def lessened(_: nn.Module, __: object, scores: torch.Tensor) -> torch.Tensor:
            return scores - (less if scores.ndim == 1 else spread(less, batch.mask))

        hook = self.ranker.register_forward_hook(lessened)
        try:
            yield odds
        finally:
            hook.remove()

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The parts of the method's own loss, and the information."""
        with self._conditioned(batch) as odds:
            parts = dict(self.inner.loss(batch))
        if self.settings.eta > 0:
            parts["information"] = self.settings.eta * information(batch, odds)
        return parts

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Those of the method, with the relevance that its observation leaves."""
        with self._conditioned(batch):
            return self.inner.click_logits(batch)

    def statistics(self, batch: Batch) -> torch.Tensor | None:
        """The method's."""
        with self._conditioned(batch):
            return self.inner.statistics(batch)

    def update(self, sums: torch.Tensor) -> None:
        """The method's."""
        self.inner.update(sums)

    def observation(self) -> Float64 | None:
        """The method's."""
        return self.inner.observation()

    def exposure(self, clicks: Clicks) -> Float64:
        """The method's."""
        return self.inner.exposure(clicks)

    def background(self, clicks: Clicks) -> Float64:
        """The method's."""
        return self.inner.background(clicks)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The method's groups; what relevance loses is learned at the common rate."""
        return [*self.inner.rates(), (1.0, list(self.own.parameters()))]
