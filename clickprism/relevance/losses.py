"""How well estimates of c_1 predict first-slot clicks, and whether one does so better than another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.stats import norm

from clickprism.relevance.randomised import FirstSlot
from clickprism.types import Float64


@final
@dataclass(frozen=True)
class Losses:
    """Cross entropy an impression, by name, and how much lower that of the last is than each other's.

    Attributes:
        queries: that were tested on.
        impressions: of them.
        values: the mean loss of each, by name; lower is better.
        gains: by name, how much lower the last one's is, with the ends of an interval over queries.
    """

    queries: int
    impressions: int
    values: Mapping[str, float]
    gains: Mapping[str, tuple[float, float, float]]


def compare_losses(slot: FirstSlot, values: Mapping[str, Float64], *, confidence: float = 0.95) -> Losses:
    """The losses on first-slot clicks, paired by query; the last of `values` is compared with each other.

    Args:
        slot: the clicks.
        values: estimates of each pair by name, in (0, 1), [pairs].
        confidence: of the intervals.

    >>> slot = FirstSlot.of(np.array(["q", "r"]), np.array(["a", "b"]), np.array([1, 0]), impressions=np.array([2, 2]))
    >>> found = compare_losses(slot, {"half": np.full(2, 0.5), "rate": np.array([0.5, 0.25])})
    >>> round(found.values["half"], 4), round(found.values["rate"], 4)
    (0.6931, 0.4904)
    """
    queries, query = np.unique(slot.query_ids, return_inverse=True)
    skips, shown = slot.impressions - slot.clicks, np.bincount(query, weights=slot.impressions)
    total = float(shown.sum())
    sums = {
        name: np.bincount(query, weights=-slot.clicks * np.log(each) - skips * np.log1p(-each))
        for name, each in values.items()
    }
    last, z, gains = list(sums)[-1], float(norm.ppf((1 + confidence) / 2)), {}
    for name in list(sums)[:-1]:
        apart = sums[name] - sums[last]
        gain = float(apart.sum()) / total
        spread = float(np.sqrt(((apart - gain * shown) ** 2).sum())) / total
        gains[name] = (gain, gain - z * spread, gain + z * spread)
    return Losses(len(queries), int(total), {name: float(of.sum()) / total for name, of in sums.items()}, gains)
