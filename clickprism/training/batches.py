"""From clicks to padded batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from clickprism.types import Batch, Clicks, Int64


def pad(clicks: Clicks, chosen: Int64, *, scale: float = 1.0) -> Batch:
    """The chosen ranked lists as one batch, padded to the longest; counts are divided by `scale`."""
    lengths = clicks.offsets[chosen + 1] - clicks.offsets[chosen]
    places = np.arange(int(lengths.max(initial=0)))
    mask = places < lengths[:, None]
    entries = np.where(mask, clicks.offsets[chosen][:, None] + places, 0)
    features = np.take(clicks.lists.features, clicks.rows[entries], axis=0)
    counts = clicks.clicks[entries] / scale
    positions = clicks.positions[entries].astype(np.int64)
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
    )


def batches(clicks: Clicks, size: int, *, shuffle: tuple[int, int] | None = None) -> Iterator[Batch]:
    """All ranked lists that are not empty, `size` at a time, in order or shuffled by (seed, epoch)."""
    chosen = np.flatnonzero(np.diff(clicks.offsets) > 0)
    scale = clicks.sessions / max(len(clicks), 1)
    if shuffle is not None:
        chosen = np.random.default_rng(shuffle).permutation(chosen)
    for start in range(0, len(chosen), size):
        yield pad(clicks, chosen[start : start + size], scale=scale)
