"""InfoRank in our form: relevance and observation, held apart by their conditional mutual information.

`inforank_paper` is the method as printed; `independence` adds the same penalty to another method.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid, pad

from clickprism.debias.anchor import Anchor
from clickprism.debias.base import SIMILAR, DocumentLearner, Learner, Method, at, flat, spread, towered
from clickprism.debias.losses import count_loss, log_both, log_click, mutual_information, start_odds
from clickprism.settings import check_fields, choose
from clickprism.types import Batch, Clicks, Float64

LINEAR_RATE: Final = 3.0  # of a linear ranker beside a given curve: f and rho v nearly cancel, which takes long
LEAST_SHARE: Final = 1e-6  # least observation probability, so that its log odds are finite
SURE: Final = 0.99  # the largest observation probability, where the curve rises below the first position


@final
@dataclass(frozen=True)
class InfoRank(Method):
    """P(click) = P(relevant | o, x) P(observed | x, k), and eta times I(relevant; observed | x) (after InfoRank).

    loss = - [c log P + (n - c) log(1 - P)] + eta n I(R; O | x),  P = P(R | o, x) P(O | x, k)

    both a mean over sessions of a sum over the list. Relevance is f(x), the ranker, and f(x) - d(x) if not observed:
    any function of x and of a binary o. In the product it is the mean over o, P(R | x) of Eq. 15. The ranker alone is
    served: no position ever reaches it. Where the log says what was observed (`Clicks.seen`), observation is learned
    from that, relevance from what was observed, and d stays 0.

    This is our form of InfoRank; `inforank_paper` is the printed one, in which relevance and observation both depend on
    features and position, and neither is identified (docs/research/independence.md). InfoRank- is `eta=0`.

    With `log_model`, where documents shown at several positions identify the curve and the log model finds no coupling,
    the curve is that of the log model, and relevance in the model of clicks is f(x) + rho v: v is what the engine's
    order says beyond the features (`clickprism.debias.anchor`). Relevance is then conditioned on o = 1, and the
    information stays 0.

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
    observation: Literal["position", "anchored"] = "position"
    log_model: bool = True
    observation_rate: float = 5.0
    start: float = 0.9

    def __post_init__(self) -> None:
        check_fields(self, eta="[0, inf)", observation_rate="(0, inf)", start="(0, 1)")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> InfoRankLearner:
        """Return a learner whose observation is the same for all documents at the start, and whose d is 0."""
        anchors = self.log_model and clicks.seen is None and clicks.max_position > 1
        return InfoRankLearner(self, ranker, clicks, Anchor.of(clicks) if anchors else None)


class Odds(NamedTuple):
    """Log odds of documents where they were shown, each [documents].

    Attributes:
        seen: Of P(R = 1 | O = 1, x).
        unseen: Of P(R = 1 | O = 0, x).
        observed: Of P(O = 1 | x).
    """

    seen: torch.Tensor
    unseen: torch.Tensor
    observed: torch.Tensor


@final
class InfoRankLearner(DocumentLearner):
    """The ranker, what relevance loses if not observed, a curve over positions, and what the document adds to it.

    Attributes:
        curve: Log odds of being observed at each position: learned, or those of the anchor, [positions].
        anchor: What the log said before; None if the curve is learned.
    """

    curve: torch.Tensor

    def __init__(self, settings: InfoRank, ranker: nn.Module, clicks: Clicks, anchor: Anchor | None) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.has_seen, self.anchor = settings, clicks.seen is not None, anchor
        network, places, start = towered(ranker, settings.name), clicks.max_position, settings.start
        if anchor is None:
            self.curve = nn.Parameter(_observed_odds(clicks, start))
        else:
            self.register_buffer("curve", torch.logit((start * anchor.curve).clamp_max(SURE)))
            start *= float(np.average(anchor.curve.numpy()[clicks.positions - 1], weights=clicks.list_impressions))
        self.base_odds = start_odds(clicks, start)
        self.own = flat(nn.Sequential(nn.Linear(network.width, 1)))
        self.by_document = settings.observation == "anchored" and places > 1
        self.tower = flat(network.new_like(places - 1)) if self.by_document else nn.Sequential()

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Return log odds of relevance, observed or not, and of observation, of documents at positions, [documents]."""
        scores, less = relevance(self.ranker, self.own, documents, self.base_odds)
        if self.anchor is not None:
            scores = scores + self.anchor.beyond(documents, positions)
        return Odds(scores, scores - less, at(self._observed(documents), positions))

    def _observed(self, documents: torch.Tensor) -> torch.Tensor:
        """Return the log odds of being observed at every position, [documents, positions]."""
        odds = self.curve.expand(len(documents), -1)
        return odds + pad(self.tower(documents), (1, 0)) if self.by_document else odds

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the cross entropy of clicks (and of what was observed, if the log has it), and the information."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        parts = {}
        if not self.has_seen or batch.seen is None:
            clicked, skipped = (spread(each, batch.mask) for each in self._log_click(odds))
            parts["clicks"] = count_loss(batch, clicked, skipped)
        else:
            seen, clicks = batch.seen[batch.mask], batch.clicks[batch.mask]
            parts["observation"] = _cross_entropy(seen, _shown(batch), odds.observed) / len(batch.mask)
            parts["clicks"] = _cross_entropy(clicks, seen, odds.seen) / len(batch.mask)
        if self.settings.eta > 0:
            parts["information"] = self.settings.eta * information(batch, odds)
        return parts

    def _log_click(self, odds: Odds) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log of the click probability and of its complement, [documents]."""
        observed, unobserved = log_both(odds.observed)
        if self.anchor is not None:
            return log_click(odds.seen, observed, unobserved)
        (seen, not_seen), (unseen, not_unseen) = log_both(odds.seen), log_both(odds.unseen)
        relevant = torch.logaddexp(seen + observed, unseen + unobserved)
        irrelevant = torch.logaddexp(not_seen + observed, not_unseen + unobserved)
        return relevant + observed, torch.logaddexp(irrelevant, relevant + unobserved)

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Return log P(observed | x, k), [..., positions]."""
        observed = self._observed(features.reshape(-1, features.shape[-1]))
        return logsigmoid(observed).reshape(*features.shape[:-1], -1)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the log of the click probability, [lists, places]."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        clicked = logsigmoid(odds.seen) + logsigmoid(odds.observed) if self.has_seen else self._log_click(odds)[0]
        return spread(clicked, batch.mask)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return the groups of the ranker with d, of the tower and of the curve: each is clipped separately."""
        linear = self.anchor is not None and not len(towered(self.ranker, self.settings.name).trunk())
        groups = [
            (LINEAR_RATE if linear else 1.0, [*self.ranker.parameters(), *self.own.parameters()]),
            (1.0, list(self.tower.parameters())),
            (self.settings.observation_rate, [self.curve] if isinstance(self.curve, nn.Parameter) else []),
        ]
        return [group for group in groups if group[1]]


def relevance(
    ranker: nn.Module, own: nn.Module, documents: torch.Tensor, base_odds: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log odds of relevance if observed, f(x), and d(x), from one pass of the hidden layers, [documents]."""
    network = towered(ranker, "inforank")
    hidden = network.trunk()(documents)
    return network.last()(hidden)[:, 0] + base_odds, own(hidden)[:, 0]


def information(batch: Batch, odds: Odds) -> torch.Tensor:
    """Return the mutual information of relevance and observation, summed over a list, a mean over sessions."""
    return (_shown(batch) * mutual_information(*odds)).sum() / len(batch.mask)


def _shown(batch: Batch) -> torch.Tensor:
    """Return the impressions of each document, [documents]."""
    return batch.impressions[:, None].expand(batch.mask.shape)[batch.mask]


def _observed_odds(clicks: Clicks, start: float) -> torch.Tensor:
    """Return log odds of being observed at each position: as the log records it, or `start` everywhere, [positions]."""
    share = np.full(clicks.max_position, start)
    if clicks.seen is not None:
        places = clicks.positions - 1
        seen, shown = (np.bincount(places, weights=each) for each in (clicks.seen, clicks.list_impressions))
        share = (seen + 0.5) / (shown + 1)  # never 0 or 1
    return torch.from_numpy(np.log(share / (1 - share))).float()


def _cross_entropy(hits: torch.Tensor, tries: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    """Return the negative binomial log-likelihood of hits in tries, summed."""
    true, false = log_both(odds)
    return -(hits * true + (tries - hits).clamp_min(0.0) * false).sum()


@final
@dataclass(frozen=True)
class Independence(Method):
    """The loss of another method on f(x) - (1 - o) d(x), and eta times I(relevant; observed | x) (InfoRank, Eq. 13).

    o is the observation that the method itself has learned so far, relative to the first position, without a gradient.
    So whatever depends on being observed goes into d, and the information removes it again: with eta = 0 this is the
    method with a relevance that depends on its observation, with a large eta the method itself. The ranker f is served.

    Unbiased where the method is. The information is that of the method's own probabilities; a listwise method has
    scores up to a constant only, which is taken as 0.

    Attributes:
        of: The method.
        settings: Settings of the method.
        eta: Weight of the information.
    """

    name = "independence"
    summary = "Another method, with InfoRank's penalty on relevance that depends on observation."
    corrects = ("position",)
    needs = SIMILAR
    learns_observation = True
    of: Literal["dla", "pal", "regression_em", "lbd", "lbd_paper"] = "dla"
    settings: dict[str, Any] = field(default_factory=dict)
    eta: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self, eta="[0, inf)")
        self.method()

    def method(self) -> Any:
        """Return the method that is regularised."""
        from clickprism.debias import METHODS

        return choose(METHODS, {"name": self.of, **self.settings}, path="settings")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> IndependentLearner:
        """Return the learner of the method, around a ranker whose scores depend on being observed."""
        return IndependentLearner(self, ranker, self.method().learner(ranker, clicks))


@final
class IndependentLearner(Learner):
    """The learner of a method, and a network for how much lower relevance is if not observed."""

    def __init__(self, settings: Independence, ranker: nn.Module, inner: Learner) -> None:
        super().__init__(ranker)
        self.settings, self.inner = settings, inner
        self.own = flat(nn.Sequential(nn.Linear(towered(ranker, settings.name).width, 1)))

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Return log odds of relevance, observed or not, and of the method's observation, of [documents, features]."""
        scores, less = relevance(self.ranker, self.own, documents, self.inner.base_odds)
        with torch.no_grad():
            if isinstance(self.inner, DocumentLearner):
                logs = self.inner.log_observation(documents)
                share = (at(logs, positions) - logs[:, 0]).exp()
            else:
                share = torch.from_numpy(self.inner.observation()).to(documents)[positions - 1]
            observed = torch.logit(share, eps=LEAST_SHARE)
        return Odds(scores, scores - less, observed)

    @contextmanager
    def _conditioned(self, batch: Batch) -> Iterator[Odds]:
        """Make the ranker return, for this batch, the relevance given the method's observation."""
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
        """Return the parts of the method's own loss, and the information."""
        with self._conditioned(batch) as odds:
            parts = dict(self.inner.loss(batch))
        if self.settings.eta > 0:
            parts["information"] = self.settings.eta * information(batch, odds)
        return parts

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the click logits of the wrapped method, with the relevance given its observation."""
        with self._conditioned(batch):
            return self.inner.click_logits(batch)

    def statistics(self, batch: Batch) -> torch.Tensor | None:
        """Return the statistics of the wrapped method."""
        with self._conditioned(batch):
            return self.inner.statistics(batch)

    def observation(self) -> Float64 | None:
        """Return the observation of the wrapped method."""
        return self.inner.observation()

    def exposure(self, clicks: Clicks) -> Float64:
        """Return the exposure of the wrapped method."""
        return self.inner.exposure(clicks)

    def background(self, clicks: Clicks) -> Float64:
        """Return the background of the wrapped method."""
        return self.inner.background(clicks)

    def update(self, sums: torch.Tensor) -> None:
        """Update the method."""
        self.inner.update(sums)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """Return the method's groups, and d at the common rate."""
        return [*self.inner.rates(), (1.0, list(self.own.parameters()))]
