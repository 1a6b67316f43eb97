"""Split clicks into padded batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from clickprism.types import Batch, Clicks, Int64


def pad(clicks: Clicks, chosen: Int64, *, scale: float = 1.0) -> Batch:
    """Return the chosen ranked lists as one padded batch; weighted counts are divided by `scale`."""
    lengths = clicks.offsets[chosen + 1] - clicks.offsets[chosen]
    places = np.arange(int(lengths.max(initial=0)))
    mask = places < lengths[:, None]
    entries = np.where(mask, clicks.offsets[chosen][:, None] + places, 0)
    features = np.take(clicks.lists.features, clicks.rows[entries], axis=0)
    counts = clicks.clicks[entries] / scale
    if clicks.weights is not None:
        counts *= clicks.weights[entries]
    positions = clicks.positions[entries].astype(np.int64)
    seen = None
    if clicks.seen is not None:
        seen = torch.from_numpy(np.where(mask, clicks.seen[entries] / scale, 0.0).astype(np.float32))
    if not mask.all():
        features[~mask] = 0.0
        counts[~mask] = 0.0
        positions[~mask] = 1
    return Batch(
        features=torch.from_numpy(features),
        mask=torch.from_numpy(mask),
        positions=torch.from_numpy(positions),
        clicks=torch.from_numpy(counts.astype(np.float32)),
        impressions=torch.from_numpy((clicks.impressions[chosen] / scale).astype(np.float32)),
        seen=seen,
    )


@dataclass(frozen=True, eq=False)
class Share:
    """The part of a batch that one process computes.

    Attributes:
        batch: the ranked lists of this process. If there are fewer lists than processes, one of another process with
            weight 0.
        weight: number of its lists, divided by that of the whole batch.
        lists: number of lists of the whole batch.
    """

    batch: Batch
    weight: float
    lists: int


def shares(
    clicks: Clicks, size: int, *, shuffle: tuple[int, int] | None = None, rank: int = 0, processes: int = 1
) -> Iterator[Share]:
    """Yield the part of one process of each batch of `size` ranked lists that are not empty.

    Lists are in order, or shuffled by (seed, epoch). The parts of a batch differ by at most one list, and have similar
    numbers of documents.
    """
    lengths = np.diff(clicks.offsets)
    chosen = np.flatnonzero(lengths > 0)
    scale = clicks.sessions / max(len(clicks), 1)
    if shuffle is not None:
        chosen = np.random.default_rng(shuffle).permutation(chosen)
    for start in range(0, len(chosen), size):
        whole = chosen[start : start + size]
        mine = whole
        if processes > 1:
            mine = whole[np.sort(np.argsort(-lengths[whole], kind="stable")[rank::processes])]
        yield Share(pad(clicks, mine if len(mine) else whole[:1], scale=scale), len(mine) / len(whole), len(whole))


def batches(clicks: Clicks, size: int, *, shuffle: tuple[int, int] | None = None) -> Iterator[Batch]:
    """Yield all ranked lists that are not empty in batches of `size`, in order or shuffled by (seed, epoch)."""
    return (share.batch for share in shares(clicks, size, shuffle=shuffle))
