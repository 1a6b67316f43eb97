"""How a ranker is trained on the targets of some queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism.choice.targets import as_clicks
from clickprism.errors import DataError
from clickprism.types import Bool, Float64, Lists

if TYPE_CHECKING:
    import torch

    from clickprism.model import Model

BATCH: Final = 16
STEPS: Final = 64  # an epoch, at most
EPOCHS: Final = 40
PATIENCE: Final = 5
HELD_OUT: Final = 0.15  # of the queries, whose targets say when a network has learned enough
HIDDEN: Final = (64, 32)
MEMBERS: Final = 5  # networks whose mean is taken: single ones are far from steady
BLENDED: Final = (1, 3)  # a linear ranker and the networks
RATE: Final = 0.02
DECAY: Final = 1e-3


def train(
    lists: Lists, target: Float64, ranker: str, *, queries: Bool, seed: int, weights: Float64 | None = None
) -> Model:
    """The model of a ranker of `RANKERS`, from the targets of some queries.

    Args:
        lists: the documents; features are normalised.
        target: of each document, NaN where there is none, [documents].
        ranker: by name.
        queries: which to learn from, [lists]. Networks hold some of them out to stop by their likelihood.
        seed: of everything random.
        weights: how much each query counts, [lists]; all alike if none are given. Trees heed none.
    """
    if not (np.nan_to_num(target) > 0)[queries[lists.list_of]].any():
        raise DataError("there is nothing to learn from: no document has a click left", remedy="Log more searches")
    if ranker == "lambdamart":
        return _trees(lists, target, queries, seed)
    target = target / np.maximum(_totals(lists, target), 1e-12)
    if weights is not None:
        target = target * (weights / max(float(weights.mean()), 1e-12))[lists.list_of]
    if ranker == "linear":
        return _network(lists, target, ranker, queries, seed)
    networks = blended([_network(lists, target, "mlp", queries, seed + number) for number in range(MEMBERS)])
    if ranker == "mlp":
        return networks
    return blended([_network(lists, target, "linear", queries, seed), networks], weights=BLENDED)


def _totals(lists: Lists, target: Float64) -> Float64:
    """The sum of the targets of each document's query: queries count alike, however much is clicked there."""
    sums = np.bincount(lists.list_of, weights=np.nan_to_num(target), minlength=len(lists))
    return sums[lists.list_of].astype(np.float64)


def _trees(lists: Lists, target: Float64, queries: Bool, seed: int) -> Model:
    from clickprism.debias.click import Click
    from clickprism.rankers.lambdamart import LambdaMART
    from clickprism.training.fit import fit
    from clickprism.training.settings import FitSettings

    chosen = LambdaMART(trees=100, learning_rate=0.05, leaves=16, shrinkage=0.0)
    settings = FitSettings(threads=1, seed=seed)
    return fit(as_clicks(lists, target, queries), method=Click(), ranker=chosen, settings=settings, show=False).model


def _network(lists: Lists, target: Float64, ranker: str, queries: Bool, seed: int) -> Model:
    from clickprism.debias.click import Click
    from clickprism.rankers.linear import Linear
    from clickprism.rankers.mlp import MLP
    from clickprism.training.fit import fit
    from clickprism.training.settings import FitSettings

    chosen: Any = Linear() if ranker == "linear" else MLP(hidden=HIDDEN, activation="relu", layer_norm="none")
    held = queries & (np.random.default_rng([seed, 5]).random(len(queries)) < HELD_OUT)
    stop, learn = as_clicks(lists, target, held), as_clicks(lists, target, queries & ~held)
    if not stop.weighted_clicks.any() or not learn.weighted_clicks.any():
        stop, learn = None, as_clicks(lists, target, queries)  # type: ignore[assignment]
    batch = max(BATCH, len(learn) // STEPS)
    rate, decay = (0.05, 0.0) if ranker == "linear" else (RATE, DECAY)
    settings = FitSettings(
        epochs=EPOCHS, patience=PATIENCE, batch_size=batch, learning_rate=rate, weight_decay=decay, threads=1, seed=seed
    )
    return fit(learn, method=Click(), ranker=chosen, settings=settings, validation=stop, show=False).model


def blended(members: Sequence[Model], *, weights: Sequence[float] | None = None) -> Model:
    """The mean, by weight, of linear rankers and networks of two hidden ReLU layers, as one such network.

    It is served, exported and explained as any network is.

    Side by side, the hidden layers of the networks are those of a wider one whose other weights are 0. A linear ranker
    is max(w . x + c, 0) - max(-w . x - c, 0), two units of each layer.
    """
    import torch

    from clickprism.model import Model
    from clickprism.rankers.linear import LinearNetwork
    from clickprism.rankers.mlp import MLP

    parts = []
    for member in members:
        network = member.network
        if isinstance(network, LinearNetwork):
            weight, bias = network.output.weight.detach(), network.output.bias.detach()
            both = torch.cat([weight, -weight]), torch.cat([bias, -bias])
            parts.append((*both, torch.eye(2), torch.zeros(2), torch.tensor([[1.0, -1.0]]), torch.zeros(1)))
        else:
            parts.append(tuple(tensor.detach() for tensor in network.state_dict().values()))
    ranker = MLP(
        hidden=(sum(len(part[1]) for part in parts), sum(len(part[3]) for part in parts)),
        activation="relu",
        layer_norm="none",
    )
    features = members[0].features
    made = ranker.build(features)
    weights = weights or [1.0] * len(parts)
    shares = [weight / sum(weights) for weight in weights]
    state = dict(
        zip(
            made.state_dict(),
            (
                torch.cat([part[0] for part in parts]),
                torch.cat([part[1] for part in parts]),
                _diagonal([part[2] for part in parts]),
                torch.cat([part[3] for part in parts]),
                torch.cat([part[4] * share for part, share in zip(parts, shares, strict=True)], dim=1),
                torch.stack([part[5] * share for part, share in zip(parts, shares, strict=True)]).sum(dim=0),
            ),
            strict=True,
        )
    )
    made.load_state_dict(state)
    return Model(ranker, made.eval(), features=features, method=members[0].method)


def _diagonal(blocks: Sequence[torch.Tensor]) -> torch.Tensor:
    """One matrix with these along its diagonal, and 0 elsewhere."""
    made = blocks[0].new_zeros(sum(len(block) for block in blocks), sum(block.shape[1] for block in blocks))
    row = column = 0
    for block in blocks:
        made[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return made
