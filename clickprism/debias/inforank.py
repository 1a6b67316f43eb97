"""InfoRank: relevance and observation, both of features, held apart by their conditional mutual information."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, final, get_args

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid, pad

from clickprism.debias.base import Bias
from clickprism.debias.document import DocumentLearner, at, towered
from clickprism.debias.information import mutual_information
from clickprism.debias.pointwise import count_loss, log_both, log_click, start_odds
from clickprism.errors import SettingError
from clickprism.types import Batch, Clicks

Given = Literal["smooth", "hard", "observed"]
Observation = Literal["position", "anchored", "free"]
Towers = Literal["separate", "shared"]
Ranked = Literal["first", "relevance"]


@final
@dataclass(frozen=True)
class InfoRank:
    """P(click) = P(relevant | o, x) P(seen | x, k), and eta times I(relevant; seen | x) (InfoRank, Eqs. 12 to 17).

    loss = - [c log P + (n - c) log(1 - P)] + eta n I(R; O | x),  P = P(R | o, x) P(O | x, k)

    both a mean over sessions of a sum over the list. Relevance is f(x), the ranker, and f(x) - d(x) if unseen; that is
    any function of x and of a binary o, and the ranker alone is what is served: no position ever reaches it. Where the
    log tells what was seen (`Clicks.seen`), observation is learned from that, relevance from what was seen, and d, of
    which such a log says nothing, stays 0: the information has no part then.

    The information is 0 as soon as d is 0, whatever stands in the observation: it cannot say which of the two a
    function of the document belongs to, so the defaults rank by what clicks identify, c_1(x) = r(x) o_1(x)
    (docs/independence.md). InfoRank as published: `position=True, observation="free", given="hard", towers="shared",
    score="relevance"`. InfoRank-, without the information, is `eta=0`.

    Unbiased when clicks are a product of relevance and such an observation, the same for all documents at the first
    position, and documents that look alike stand at different positions.

    Attributes:
        eta: the weight of the mutual information, a click's log-likelihood being 1.
        given: the o that relevance is conditioned on where the log does not tell. "smooth" is its mean over o, P(R | x)
            of Eq. 15; "hard" is o = 1 where P(O) is above one half, as printed; "observed" is o = 1, as clicks mean it.
        observation: what being seen depends on besides the position: on nothing ("position"), on the document, but at
            the first position ("anchored"), or on the document at all of them ("free").
        position: let relevance see the position too, as printed; the ranker that is served is its value at the first.
        towers: "separate" networks, or one for both but for the last layer ("shared").
        score: with a free observation, rank by P(R) P(O) at the first position ("first") or by P(R) ("relevance").
        observation_rate: the learning rate of the curve over positions, as a multiple of the ranker's.
        start: P(seen) at the start, at every position (with a free observation and score "first": where c_1 is 0).
    """

    name: ClassVar[str] = "inforank"
    summary: ClassVar[str] = "Model of relevance and observation with a penalty on their mutual information."
    corrects: ClassVar[tuple[Bias, ...]] = ("position", "document")
    needs: ClassVar[tuple[str, ...]] = ("similar documents at several positions",)
    learns_observation: ClassVar[bool] = True
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    eta: float = 0.5
    given: Given = "smooth"
    observation: Observation = "position"
    position: bool = False
    towers: Towers = "separate"
    score: Ranked = "first"
    observation_rate: float = 5.0
    start: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.eta < math.inf:
            raise SettingError("eta", self.eta, "be 0 or more")
        options = {"given": Given, "observation": Observation, "towers": Towers, "score": Ranked}
        for name, known in options.items():
            if getattr(self, name) not in get_args(known):
                raise SettingError(name, getattr(self, name), f"be one of {', '.join(get_args(known))}")
        if not 0 < self.observation_rate < math.inf:
            raise SettingError("observation_rate", self.observation_rate, "be above 0")
        if not 0 < self.start < 1:
            raise SettingError("start", self.start, "be between 0 and 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> InfoRankLearner:
        """A learner whose observation is one for all documents at the start, and relevance the same if unseen."""
        return InfoRankLearner(self, ranker, clicks)


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
    """The ranker, what relevance loses if unseen, a curve over positions, and what the document adds to it."""

    def __init__(self, settings: InfoRank, ranker: nn.Module, clicks: Clicks) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.told = settings, clicks.seen is not None
        self.base_odds = start_odds(clicks, settings.start)
        network, places = towered(ranker, settings.name), clicks.max_position
        self.curve = nn.Parameter(_seen_odds(clicks, settings.start))
        self.own = flat(nn.Sequential(nn.Linear(network.width, places if settings.position else 1)))
        outputs = {"position": 0, "anchored": places - 1, "free": places}[settings.observation]
        self.tower, self.by_document = nn.Sequential(), outputs > 0
        if self.by_document:
            shared = settings.towers == "shared"
            self.tower = flat(nn.Sequential(nn.Linear(network.width, outputs)) if shared else network.anew(outputs))

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Log odds of relevance, seen and unseen, and of observation, of [documents, features] at [documents]."""
        scores, own, observed = self._outputs(documents)
        if self.settings.position:
            scores = scores + at(pad(own[:, 1:], (1, 0)), positions)
        return Odds(scores, scores - own[:, 0], at(observed, positions))

    def _outputs(self, documents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log odds of relevance if seen, [documents]; what else changes them; those of being seen, [documents, k]."""
        settings, network = self.settings, towered(self.ranker, self.settings.name)
        hidden = network.trunk()(documents)
        scores, observed = network.last()(hidden)[:, 0] + self.base_odds, self.curve.expand(len(documents), -1)
        if self.by_document:
            change = self.tower(hidden if settings.towers == "shared" else documents)
            observed = observed + (pad(change, (1, 0)) if settings.observation == "anchored" else change)
        if settings.observation == "free" and settings.score == "first":
            scores, first = _split(scores, observed[:, :1])
            observed = torch.cat([first, observed[:, 1:]], dim=1)
        return scores, self.own(hidden), observed

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
        if self.settings.given == "observed":
            return log_click(odds.seen, observed, unobserved)
        if self.settings.given == "hard":
            return log_click(torch.where(odds.observed > 0, odds.seen, odds.unseen), observed, unobserved)
        (seen, not_seen), (unseen, not_unseen) = log_both(odds.seen), log_both(odds.unseen)
        relevant = torch.logaddexp(seen + observed, unseen + unobserved)
        irrelevant = torch.logaddexp(not_seen + observed, not_unseen + unobserved)
        return relevant + observed, torch.logaddexp(irrelevant, relevant + unobserved)

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Log P(seen | x, k), [..., positions]."""
        observed = self._outputs(features.reshape(-1, features.shape[-1]))[2]
        return logsigmoid(observed).reshape(*features.shape[:-1], -1)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Log of the click probability, [lists, places]."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        clicked = logsigmoid(odds.seen) + logsigmoid(odds.observed) if self.told else self._log_click(odds)[0]
        return spread(clicked, batch.mask)

    def rates(self) -> list[tuple[float, list[nn.Parameter]]]:
        """The ranker's group with what relevance loses, the tower's, and the curve's: each is clipped for itself."""
        groups = [(1.0, [*self.ranker.parameters(), *self.own.parameters()]), (1.0, list(self.tower.parameters()))]
        return [*(group for group in groups if group[1]), (self.settings.observation_rate, [self.curve])]


def _seen_odds(clicks: Clicks, start: float) -> torch.Tensor:
    """Log odds of being seen at each position: as the log tells, or all at the start, [positions]."""
    share = np.full(clicks.max_position, start)
    if clicks.seen is not None:
        places = clicks.positions - 1
        seen, shown = (np.bincount(places, weights=each) for each in (clicks.seen, clicks.list_impressions))
        share = (seen + 0.5) / (shown + 1)  # never 0 or 1
    return torch.from_numpy(np.log(share / (1 - share))).float()


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


def _split(clicked: torch.Tensor, share: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log odds of r and of o_1, [documents] and [documents, 1], from those of c_1 and of (o_1 - c_1) / (1 - c_1).

    So c_1 = r o_1 is an output of its own, any r and o_1 in (0, 1) can be said, and no other can.
    """
    low = logsigmoid(share)
    return clicked - low[:, 0], torch.logaddexp(clicked[:, None], low) - logsigmoid(-share)


def _cross_entropy(hits: torch.Tensor, tries: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    """Minus the log-likelihood of so many hits in so many tries, summed."""
    true, false = log_both(odds)
    return -(hits * true + (tries - hits).clamp_min(0.0) * false).sum()
