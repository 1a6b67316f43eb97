"""InfoRank as printed: Eqs. 8 to 17 and appendix B.3; `inforank` is our own form of the method."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, final

import torch
from torch import nn
from torch.nn.functional import logsigmoid

from clickprism.debias.base import SIMILAR, DocumentLearner, Method, spread
from clickprism.debias.inforank import Odds, information
from clickprism.debias.losses import count_loss, log_both, log_click
from clickprism.errors import SettingError
from clickprism.rankers.attention import Attention, AttentionNetwork
from clickprism.rankers.base import Chained
from clickprism.settings import check_fields
from clickprism.types import Batch, Clicks

CONTEXT: Final = 2  # tokens beside those of the features: position and o


@final
@dataclass(frozen=True)
class InfoRankPaper(Method):
    """P(click) = P(R | o, x) P(O | x), x with the position, o cut at one half (InfoRank, Eqs. 8 to 17).

    loss = sum over the batch of [- c log P - (1 - c) log(1 - P) + eta I(R; O | x)] + l2 / 2 ||weights||^2

    With the attention ranker both probabilities come from one attention (Eqs. 8 to 11), with output p, and two separate
    networks on p. Position and o are tokens like those of the features; P(O | x) is
    estimated without the token of o. With other networks (DNN in the paper) there are two networks without shared
    parameters, and one-hot position and o are inputs of the first layer. o is 1 where P(O | x) is above one half.

    What is served is P(R | o, x) at the first position, with the o that most documents are estimated to have there: the
    paper does not say at which position it ranks. docs/research/methods/inforank_paper.md
    lists what it does not specify.

    Unbiased under no condition that clicks can check: relevance depends on the position and observation on the
    features, so that factors can move between the two (docs/research/independence.md).

    Attributes:
        eta: Weight of the mutual information.
        l2: Weight of the squared weights, without biases and normalisation.
        learning_rate: Learning rate of Adam; replaces that of the training settings.
        batch: Number of documents in a training step (whole lists are drawn); replaces the batch size.
    """

    name = "inforank_paper"
    summary = "InfoRank as printed: relevance and observation from attention over features and position."
    corrects = ("position", "document")
    needs = SIMILAR
    learns_observation = True
    published = True
    eta: float = 0.5
    l2: float = 0.01
    learning_rate: float = 0.001
    batch: int = 128

    def __post_init__(self) -> None:
        check_fields(self, eta="[0, inf)", l2="[0, inf)", learning_rate="(0, inf)", batch="[1, inf)")

    def published_ranker(self, ranker: Any) -> Any:
        """Return the attention of the paper: Eqs. 10 and 11, tokens of position and o, batch normalisation."""
        return replace(ranker, form="paper", context=CONTEXT, norm="batch") if isinstance(ranker, Attention) else ranker

    def published_training(self, clicks: Clicks) -> dict[str, Any]:
        """Return the training settings of appendix B.3; no gradient is clipped."""
        return {
            "optimiser": "adam",
            "learning_rate": self.learning_rate,
            "batch_size": max(1, round(self.batch / list_length(clicks))),
            "clip_norm": 0.0,
            "weight_decay": 0.0,
        }

    def learner(self, ranker: nn.Module, clicks: Clicks) -> InfoRankPaperLearner:
        """Return a learner around the network that is P(R | o, x) at the first position."""
        inputs = _AttentionInputs if isinstance(ranker, AttentionNetwork) else _LayerInputs
        return InfoRankPaperLearner(self, ranker, clicks, inputs(ranker, clicks.max_position))


def list_length(clicks: Clicks) -> float:
    """Return the mean number of documents of the lists that are not empty."""
    return len(clicks.rows) / max(1, int((clicks.offsets[1:] > clicks.offsets[:-1]).sum()))


class _AttentionInputs(nn.Module):
    """The tokens that the ranker does not have, of the other positions and of the other o, and the network of O."""

    def __init__(self, network: nn.Module, positions: int) -> None:
        super().__init__()
        attention, tokens = _attention(network)
        self.positions = nn.Parameter(torch.randn(positions - 1, tokens.shape[1]))
        self.other = nn.Parameter(torch.randn(1, tokens.shape[1]))
        self.tower = attention.head(1)

    def relevance(
        self, network: nn.Module, documents: torch.Tensor, positions: torch.Tensor, served: torch.Tensor
    ) -> torch.Tensor:
        """Return the log odds of P(R | o, x), [documents], where o is the one that is served, or the other."""
        attention, (first, own) = _attention(network)
        position = torch.cat([first[None], self.positions])[positions - 1]
        observation = torch.cat([self.other, own[None]])[served.long()]
        odds: torch.Tensor = attention.layers(attention.body(documents, torch.stack([position, observation], 1)))
        return odds[:, 0]

    def observation(self, network: nn.Module, documents: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the log odds of P(O | x), [documents]."""
        attention, (first, _) = _attention(network)
        position = torch.cat([first[None], self.positions])[positions - 1]
        odds: torch.Tensor = self.tower(attention.body(documents, position[:, None]))
        return odds[:, 0]

    def exchange(self, network: nn.Module) -> None:
        """Serve the other o."""
        own = _attention(network)[1].data[1:]
        before = own.clone()
        own.copy_(self.other.data)
        self.other.data.copy_(before)


def _attention(network: nn.Module) -> tuple[AttentionNetwork, torch.Tensor]:
    """Return the network with its tokens of position 1 and of the o that is served, [2, width]."""
    tokens = network.body.context if isinstance(network, AttentionNetwork) else None
    if not isinstance(network, AttentionNetwork) or tokens is None or len(tokens) != CONTEXT:
        raise SettingError("ranker.context", 0 if tokens is None else len(tokens), f"be {CONTEXT} for inforank_paper")
    return network, tokens


class _LayerInputs(nn.Module):
    """What one-hot position and o add to the first layer, relative to what is served, and the network of P(O | x)."""

    def __init__(self, network: nn.Module, positions: int) -> None:
        super().__init__()
        if not isinstance(network, Chained):
            must = "be linear, mlp or attention for inforank_paper"
            raise SettingError("ranker", type(network).__name__, must)
        first = _first(network.chain())
        bound = 1 / math.sqrt(first.in_features)

        def table(rows: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(rows, first.out_features).uniform_(-bound, bound))

        self.positions, self.other = table(positions - 1), table(1)
        self.tower, self.tower_positions = network.new_like(1), table(positions - 1)

    def relevance(
        self, network: nn.Module, documents: torch.Tensor, positions: torch.Tensor, served: torch.Tensor
    ) -> torch.Tensor:
        """Return the log odds of P(R | o, x), [documents], where o is the one that is served, or the other."""
        return _through(_chain(network), documents, _row(self.positions, positions) + ~served[:, None] * self.other)

    def observation(self, _: nn.Module, documents: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the log odds of P(O | x), [documents]."""
        return _through(self.tower, documents, _row(self.tower_positions, positions))

    def exchange(self, network: nn.Module) -> None:
        """Serve the other o."""
        _first(_chain(network)).bias.data += self.other.data[0]
        self.other.data.neg_()


def _chain(network: Any) -> nn.Sequential:
    layers: nn.Sequential = network.chain()
    return layers


def _first(chain: nn.Sequential) -> nn.Linear:
    return next(layer for layer in chain if isinstance(layer, nn.Linear))


def _row(table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the rows of positions, those of the first all 0."""
    return nn.functional.pad(table, (0, 0, 1, 0))[positions - 1]


def _through(chain: nn.Sequential, documents: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Return the output of the layers, [documents], with `added` to that of the first linear one."""
    values, first = documents, _first(chain)
    for layer in chain:
        values = layer(values) + added if layer is first else layer(values)
    return values[:, 0]


@final
class InfoRankPaperLearner(DocumentLearner):
    """The ranker, which is P(R | o, x) at the first position, and the other parts of the paper's networks.

    Attributes:
        serves: The o that the ranker is served with.
    """

    serves: torch.Tensor

    def __init__(
        self, settings: InfoRankPaper, ranker: nn.Module, clicks: Clicks, inputs: _AttentionInputs | _LayerInputs
    ) -> None:
        super().__init__(ranker, clicks)
        self.settings, self.inputs = settings, inputs
        self.places, self.length = clicks.max_position, list_length(clicks)
        self.register_buffer("serves", torch.ones(()))

    def train(self, mode: bool = True) -> InfoRankPaperLearner:
        """Set the mode; before scoring, serve the o that most documents are estimated to have at the first position.

        The probabilities do not change, only which of the two relevances the ranker itself has.
        """
        super().train(mode)
        if not mode:
            with torch.no_grad():
                first = torch.ones(len(self.sample), dtype=torch.int64)
                odds = self.inputs.observation(self.ranker, self.sample.to(next(self.parameters()).dtype), first)
                if float((odds > 0).double().mean() > 0.5) != float(self.serves):
                    self.inputs.exchange(self.ranker)
                    self.serves.copy_(1 - self.serves)
        return self

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Odds:
        """Return the log odds of relevance, for o = 1 and o = 0, and of observation, of [documents, features].

        Both values of o go through the network together, so that batch normalisation does not remove their difference.
        """
        observed = torch.arange(2 * len(documents)) < len(documents)
        twice = documents.repeat(2, 1), positions.repeat(2)
        seen, unseen = self.inputs.relevance(self.ranker, *twice, observed == self.serves.bool()).chunk(2)
        return Odds(seen, unseen, self.inputs.observation(self.ranker, documents, positions))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return cross entropy (Eq. 16), mutual information (Eq. 13) and squared weights, all over the batch size."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        clicked, skipped = (spread(each, batch.mask) for each in self._log_click(odds))
        parts = {"clicks": count_loss(batch, clicked, skipped) / self.length}
        if self.settings.eta > 0:
            parts["information"] = self.settings.eta * information(batch, odds) / self.length
        if self.settings.l2 > 0:
            squares = [weight.square().sum() for weight in self.parameters() if weight.ndim > 1]
            parts["weights"] = self.settings.l2 / 2 / self.settings.batch * torch.stack(squares).sum()
        return parts

    def _log_click(self, odds: Odds) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logs of P(C | x) and of its complement, Eq. 12 with o = 1 where P(O | x) > .5, [documents]."""
        relevant = torch.where(odds.observed > 0, odds.seen, odds.unseen)
        return log_click(relevant, *log_both(odds.observed))

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        """Return log P(O | x) at every position, [..., positions]."""
        flat = features.reshape(-1, features.shape[-1])
        places = [self.log_observation_at(flat, torch.full((len(flat),), k)) for k in range(1, self.places + 1)]
        return torch.stack(places, -1).reshape(*features.shape[:-1], -1)

    def log_observation_at(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return log P(O | x) of documents where they were shown, [documents]."""
        return logsigmoid(self.inputs.observation(self.ranker, features, positions))

    def log_exposure(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return log P(O | x) relative to that at the first position, [documents]."""
        first = torch.ones_like(positions)
        return self.log_observation_at(features, positions) - self.log_observation_at(features, first)

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return the log of the click probability, [lists, places]."""
        odds = self.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        return spread(self._log_click(odds)[0], batch.mask)
