"""The loop that fits small networks to counts of first-slot clicks: Adam, stopped by the clicks of other queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from clickprism.errors import DataError, TrainingError
from clickprism.relevance.approximate_settings import DescentSettings
from clickprism.types import Text

Split: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def cross_entropy(odds: torch.Tensor, clicks: torch.Tensor, skips: torch.Tensor) -> torch.Tensor:
    """- c log s(odds) - (n - c) log(1 - s(odds)) of each pair, [pairs].

    >>> cross_entropy(torch.zeros(1), torch.tensor([2.0]), torch.tensor([1.0])).div(np.log(2)).round(decimals=4).item()
    3.0
    """
    clicked, skipped = nn.functional.logsigmoid(odds), nn.functional.logsigmoid(-odds)
    return -(clicks * clicked + skips * skipped)


def split(query_ids: Text, share: float, *, seed: int, part: int = 0) -> Split:
    """The rows to learn from and those held out: all rows of a query on the same side.

    Args:
        query_ids: of each row.
        share: of the queries that are held out.
        seed: of which they are.
        part: with the same seed, other parts hold out other queries, as long as there are any.
    """
    queries, query = np.unique(query_ids, return_inverse=True)
    aside = np.zeros(len(queries), dtype=bool)
    size = round(share * len(queries))
    aside[np.roll(np.random.default_rng(seed).permutation(len(queries)), -part * size)[:size]] = True
    return torch.from_numpy(np.flatnonzero(~aside[query])), torch.from_numpy(np.flatnonzero(aside[query]))


def descend(
    network: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    *,
    weights: torch.Tensor,
    parts: Split,
    settings: DescentSettings,
    seed: int,
) -> list[float]:
    """Fit the network; it ends with its best weights, by the queries that were held out.

    Args:
        network: what is fitted, of which `loss` is a function.
        loss: the loss of each of some rows, summed over their impressions, [rows] to [rows].
        weights: how many impressions each row counts as, [rows]; the mean is over these.
        parts: the rows to learn from and those held out, as `split` makes them.
        settings: of the loop.
        seed: of the order of rows.

    Returns:
        The mean loss of each epoch on the held-out queries (without any: on all).
    """
    rows, aside = parts
    if len(rows) == 0 or float(weights[rows].sum()) == 0:
        raise DataError("there is no first-slot click to learn from", remedy="Give a longer log, or hold out less")
    judged = aside if len(aside) else rows
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    generator = torch.Generator().manual_seed(seed)
    scale = float(weights[rows].mean())
    best, values, waited = _weights(network), [_mean(loss, judged, weights)], 0
    for epoch in range(1, settings.epochs + 1):
        network.train()
        order = rows[torch.randperm(len(rows), generator=generator)]
        for start in range(0, len(order), settings.batch_size):
            batch = order[start : start + settings.batch_size]
            optimiser.zero_grad()
            torch.autograd.backward(loss(batch).mean() / scale)
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimiser.step()
        network.eval()
        value = _mean(loss, judged, weights)
        if not np.isfinite(value):
            raise TrainingError(f"the loss is {value} in epoch {epoch}; lower learning_rate ({settings.learning_rate})")
        waited = 0 if value < min(values) else waited + 1
        values.append(value)
        if waited == 0 or not len(aside):
            best = _weights(network)
        if len(aside) and waited >= settings.patience:
            break
    network.load_state_dict(best)
    network.eval()
    return values


@contextmanager
def torch_for(settings: DescentSettings, *, seed: int) -> Iterator[None]:
    """Torch with this seed and these threads; as it was before, afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(settings.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _mean(loss: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor, weights: torch.Tensor) -> float:
    with torch.no_grad():
        return float(loss(rows).double().sum() / weights[rows].double().sum())


def _weights(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
