"""Padded batches of clicks, and the training loop: rounds of steps, the best one kept, early stopping.

Rankers (`training.network`), language models (`training.text`) and the observation of LBD are trained by this one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import numpy as np

from clickprism.types import Batch, Clicks, Float64, Int64

if TYPE_CHECKING:
    import torch

Stopped: TypeAlias = Literal["epochs", "patience", "interrupted"]
LEAST_QUERIES: Final = 20  # held-out queries from which standard errors are used
SURE: Final = 2.5  # standard errors by which held-out clicks must be more likely for a round to be the best


@dataclass(frozen=True, eq=False)
class Measured:
    """How good a round is.

    Attributes:
        value: What is reported.
        by_query: The value of each held-out query, [queries]; None if only the mean is known.
        higher: Whether a higher value is better.
    """

    value: float
    by_query: Float64 | None = None
    higher: bool = True

    def beats(self, best: Measured) -> bool:
        """Return whether this is better, by query: whether the mean gain is above 2.5 of its standard errors.

        The likelihood of held-out clicks can rise a little, for many epochs, while relevance and observation drift
        apart (docs/research/stopping.md). With fewer than 20 queries, or one number only, the larger value is better.

        >>> best, gains = Measured(0.0, np.zeros(30)), np.tile([-0.5, 1.5, 1.0], 10)
        >>> Measured(0.67, gains).beats(best), Measured(0.17, gains - 0.5).beats(best)
        (True, False)
        """
        if self.by_query is None or best.by_query is None or len(self.by_query) < LEAST_QUERIES:
            return self.value > best.value if self.higher else self.value < best.value
        gain = self.by_query - best.by_query
        return bool(gain.mean() > SURE * gain.std(ddof=1) / np.sqrt(len(gain)))


@dataclass
class Standing:
    """Progress of a loop: rounds done, the best round and its value, and the validations since."""

    epoch: int = 0
    best_epoch: int = 0
    best_value: float | None = None
    waited: int = 0


class Task(Protocol):
    """What a training loop calls: train one round, measure it, and remember the best."""

    def train(self, number: int) -> None:
        """Take the steps of a round, such as an epoch."""
        ...

    def measure(self, number: int) -> Measured | None:
        """Return how good the weights are after a round; None if it is not measured."""
        ...

    def keep(self) -> None:
        """Remember the weights as the best."""
        ...


def run(task: Task, standing: Standing, *, rounds: int, patience: int, best: Measured | None = None) -> Iterator[int]:
    """Train round by round and yield the number of each, until `patience` validations in a row were not the best.

    Args:
        task: What is trained.
        standing: Where it is, changed in place; a resumed run starts with that of its checkpoint.
        rounds: Largest number of rounds.
        patience: 0 never stops early.
        best: The best validation so far, of a resumed run.
    """
    while standing.epoch < rounds and not (patience and standing.waited >= patience):
        number = standing.epoch + 1
        task.train(number)
        measured = task.measure(number)
        standing.epoch = number
        if best is None or (measured is not None and measured.beats(best)):
            standing.best_epoch, standing.waited, best = number, 0, measured
            standing.best_value = None if measured is None else measured.value
            task.keep()
        elif measured is not None:
            standing.waited += 1
        yield number


def pad(clicks: Clicks, chosen: Int64, *, scale: float = 1.0) -> Batch:
    """Return the chosen ranked lists as one padded batch; weighted counts are divided by `scale`."""
    import torch

    lengths = clicks.offsets[chosen + 1] - clicks.offsets[chosen]
    places = np.arange(int(lengths.max(initial=0)))
    mask = places < lengths[:, None]
    entries = np.where(mask, clicks.offsets[chosen][:, None] + places, 0)
    features = np.take(clicks.lists.features, clicks.rows[entries], axis=0)
    features[~mask] = 0.0
    counts = clicks.clicks[entries] / scale
    if clicks.weights is not None:
        counts *= clicks.weights[entries]

    def tensor(values: Float64) -> torch.Tensor:
        return torch.from_numpy(np.where(mask, values, 0.0).astype(np.float32))

    return Batch(
        features=torch.from_numpy(features),
        mask=torch.from_numpy(mask),
        positions=torch.from_numpy(np.where(mask, clicks.positions[entries], 1).astype(np.int64)),
        clicks=tensor(counts),
        impressions=torch.from_numpy((clicks.impressions[chosen] / scale).astype(np.float32)),
        seen=None if clicks.seen is None else tensor(clicks.seen[entries] / scale),
    )


def batches(clicks: Clicks, size: int, *, shuffle: tuple[int, int] | None = None) -> Iterator[Batch]:
    """Yield all ranked lists that are not empty in batches of `size`, in order or shuffled by (seed, epoch)."""
    chosen = np.flatnonzero(np.diff(clicks.offsets) > 0)
    scale = clicks.sessions / max(len(clicks), 1)
    if shuffle is not None:
        chosen = np.random.default_rng(shuffle).permutation(chosen)
    for start in range(0, len(chosen), size):
        yield pad(clicks, chosen[start : start + size], scale=scale)


def likelihoods(click_logits: Callable[[Batch], torch.Tensor], clicks: Clicks) -> Float64:
    """Return the log-likelihood of the clicks on each ranked list that is not empty, [ranked lists]."""
    import torch

    from clickprism.debias.losses import log_softmax

    with torch.no_grad():
        found = [
            (batch.clicks * log_softmax(click_logits(batch), batch.mask)).sum(-1) for batch in batches(clicks, 1024)
        ]
    return torch.cat(found).double().numpy()


def held_out_likelihood(click_logits: Callable[[Batch], torch.Tensor], clicks: Clicks) -> Measured:
    """Return the log-likelihood of held-out clicks, of a list on average and of each query; it needs no label."""
    each = likelihoods(click_logits, clicks)
    first = clicks.offsets[:-1][np.diff(clicks.offsets) > 0]
    queries = np.unique(clicks.lists.list_of[clicks.rows[first]], return_inverse=True)[1]
    return Measured(float(each.mean()), np.bincount(queries, weights=each).astype(np.float64))
