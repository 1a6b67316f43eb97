"""Cross encoders fine-tuned on clicks, one for each way to correct them (§4, §7.3), all by the same loop.

The encoder is MiniLM. Its last layer, the weights of its representation h and a weight of BM25 are trained; the layers
below are computed once for all rows of the table. The paper trains twelve layers of ERNIE 2.0 on ten million pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import nn

from clickprism.data.bm25 import BM25
from clickprism.rankers.language_model import CrossEncoder
from clickprism.rankers.text_tokens import DOCUMENT, QUERY, assemble
from clickprism.relevance.imputation import pairs_of
from clickprism.training.calibration import logistic
from clickprism.types import Float32, Float64
from reproduce.adr.pipeline import Counts
from reproduce.adr.world import SHOWN, World

BATCH: Final = 64  # pairs
RATES: Final = (2e-4, 1e-2)  # learning rates: of the layer, and of the weights after it
MOST: Final = 50.0  # impressions that a pair counts for at most
METHODS: Final = ("no_correction", "pal", "tal", "ipw", "display_filtering", "rand")


@dataclass(frozen=True, eq=False)
class Lower:
    """What the layers below the last one make of each candidate.

    Attributes:
        states: States of the tokens, [rows, tokens, width].
        kinds: What each token is of; negative for padding, [rows, tokens].
        words: BM25 as a share of the most that the query allows, standardised, [rows].
        cosine: Cosine of the mean states of query and document before any training, [rows].
        layer: The last layer, not fine-tuned.
    """

    states: torch.Tensor
    kinds: torch.Tensor
    words: torch.Tensor
    cosine: torch.Tensor
    layer: nn.Module


def _batches(rows: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def lower_layers(world: World, *, tokens: int) -> Lower:
    """Read all candidates once."""
    network = CrossEncoder(prior=False, tokens=tokens, query_tokens=min(10, tokens - 8)).build()
    pairs = pairs_of(network, world.queries, world.documents, *world.pairs)
    ids, _, kinds = (torch.from_numpy(each) for each in assemble(pairs))
    encoder = network.encoder.eval()
    with torch.inference_mode():
        states = [
            encoder(input_ids=ids[rows], attention_mask=(kinds[rows] >= 0).long(), output_hidden_states=True)
            .hidden_states[-2]
            .clone()
            for rows in _batches(torch.arange(len(ids)), BATCH)
        ]
    rows = world.queries.rows(world.pairs[0]), world.documents.rows(world.pairs[1])
    words = BM25().corpus(world.documents).score_texts(world.queries.texts, world.documents.texts, *rows)[1]
    standard = (words - words.mean()) / max(words.std(), 1e-9)
    shared = Lower(torch.cat(states), kinds, torch.from_numpy(standard).float(), torch.zeros(0), network.layers()[-1])
    return replace(shared, cosine=_Network(shared).represent_all(shared).mean(1))


@dataclass(frozen=True, eq=False)
class Encoded:
    """A fine-tuned cross encoder, applied to every candidate: y in (0, 1), [rows], and h, [rows, width]."""

    relevance: Float64
    representation: Float32


class _Network(nn.Module):
    """Log odds w . h + u . BM25 + b, with h the product of the mean states of query and document."""

    def __init__(self, lower: Lower) -> None:
        super().__init__()
        self.layer = deepcopy(lower.layer).requires_grad_(True).train(False)
        self.head = nn.Linear(lower.states.shape[-1] + 1, 1)
        self.curve = nn.Parameter(torch.zeros(3, SHOWN))  # log odds of theta, eps+ and eps-

    def represent(self, lower: Lower, rows: torch.Tensor) -> torch.Tensor:
        kinds = lower.kinds[rows]
        longest = int((kinds >= 0).sum(1).max())
        states, kinds = lower.states[rows, :longest], kinds[:, :longest]
        mask = torch.where(kinds >= 0, 0.0, torch.finfo(torch.float32).min)[:, None, None]
        made = self.layer(states, attention_mask=mask)
        made = made[0] if isinstance(made, tuple) else made
        sides = []
        for kind in (QUERY, DOCUMENT):
            own = (kinds == kind).unsqueeze(-1).float()
            mean = (made * own).sum(1) / own.sum(1).clamp_min(1)
            sides.append(nn.functional.normalize(mean, dim=-1))
        pooled: torch.Tensor = made.shape[-1] * sides[0] * sides[1]
        return pooled

    def represent_all(self, lower: Lower) -> torch.Tensor:
        with torch.inference_mode():
            parts = _batches(torch.arange(len(lower.states)), 4 * BATCH)
            return torch.cat([self.represent(lower, part) for part in parts]).clone()

    def odds(self, h: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(torch.cat([h, words[:, None]], dim=1)).squeeze(-1)
        return made


Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _plain(odds: torch.Tensor, clicks: torch.Tensor, shown: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of y, whatever the position."""
    c, n = clicks.sum(1), shown.sum(1)
    return c * nn.functional.softplus(-odds) + (n - c) * nn.functional.softplus(odds)


def _by_position(odds: torch.Tensor, clicks: torch.Tensor, shown: torch.Tensor, curve: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of theta_k y (PAL; Guo et al. 2019)."""
    return _entropy(torch.sigmoid(curve[0]) * torch.sigmoid(odds)[:, None], clicks, shown)


def _by_trust(odds: torch.Tensor, clicks: torch.Tensor, shown: torch.Tensor, curve: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of theta_k (eps+_k y + eps-_k (1 - y)), Eq. 1 (TAL).

    eps+ is at least eps-: without this, y and 1 - y can change places.
    """
    theta, more, minus = torch.sigmoid(curve)
    plus = minus + (1 - minus) * more
    y = torch.sigmoid(odds)[:, None]
    return _entropy(theta * (plus * y + minus * (1 - y)), clicks, shown)


def _entropy(chance: torch.Tensor, clicks: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
    chance = chance.clamp(1e-6, 1 - 1e-6)
    return -(clicks * torch.log(chance) + (shown - clicks) * torch.log1p(-chance)).sum(1)


def training_data(method: str, log: Counts, rand: Counts, propensities: Float64) -> tuple[Float64, Float64, Loss]:
    """Return clicks, impressions, each [rows, positions], and the loss of a method; clicks of IPW are c / theta_k.

    Args:
        method: One of `METHODS`.
        log: Counts of what the engine ranked.
        rand: Counts of randomised first results.
        propensities: theta_k / theta_1 by randomised first results, [positions].
    """
    clicks, shown = log.clicked.astype(np.float64), log.impressions.astype(np.float64)
    loss: Loss = _plain
    if method == "rand":
        clicks, shown = rand.clicked.astype(np.float64), rand.impressions.astype(np.float64)
    elif method == "display_filtering":
        shown = np.maximum(log.displayed, log.clicked).astype(np.float64)
    elif method == "ipw":
        clicks = np.minimum(clicks / propensities, shown)
    elif method in ("pal", "tal"):
        loss = _by_position if method == "pal" else _by_trust
    total = shown.sum(axis=1, keepdims=True)
    factor = np.minimum(total, MOST) / np.maximum(total, 1)
    return clicks * factor, shown * factor, loss


def fit_encoder(
    lower: Lower, clicks: Float64, shown: Float64, loss: Loss = _plain, *, epochs: int, seed: int
) -> Encoded:
    """Fine-tune a cross encoder on the clicks of a method, and apply it to every candidate."""
    rows = np.flatnonzero(shown.sum(axis=1) > 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _Network(lower)
        inputs = torch.stack([lower.cosine, lower.words], dim=1).double().numpy()[rows]
        mean, spread = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-9)
        found = logistic((inputs - mean) / spread, clicks[rows].sum(1), shown[rows].sum(1), ridge=1.0)
        with torch.no_grad():  # start from the cosine and BM25, weighted by these clicks
            slopes = found[:-1] / spread
            network.head.weight[0, :-1] = slopes[0] / (network.head.in_features - 1)
            network.head.weight[0, -1] = slopes[1]
            network.head.bias.fill_(float(found[-1] - slopes @ mean))
            network.curve[:2] += 2.0  # at first nearly every position is observed, and hardly any is trusted
            network.curve[2] -= 2.0
        groups = [
            {"params": list(network.layer.parameters()), "lr": RATES[0]},
            {"params": list(network.head.parameters()), "lr": RATES[1]},
            {"params": [network.curve], "lr": 10 * RATES[1]},
        ]
        optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
        given = [torch.from_numpy(each).float() for each in (clicks, shown)]
        scale, generator = float(shown[rows].sum(axis=1).mean()), torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            order = torch.from_numpy(rows)[torch.randperm(len(rows), generator=generator)]
            for batch in _batches(order, BATCH):
                optimiser.zero_grad()
                odds = network.odds(network.represent(lower, batch), lower.words[batch])
                made = loss(odds, given[0][batch], given[1][batch], network.curve).mean() / scale
                torch.autograd.backward(made)
                optimiser.step()
        h = network.represent_all(lower)
        with torch.inference_mode():
            y = torch.sigmoid(network.odds(h, lower.words)).clamp(1e-4, 1 - 1e-4)
    return Encoded(y.double().numpy(), h.float().numpy())
