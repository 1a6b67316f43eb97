"""What a simulation knows and a log never tells, beside the clicks it made: for tests and measures only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from clickprism.types import Clicks, Float64, Int64, check, merged


@dataclass(frozen=True, eq=False)
class Truth:
    """What a simulation knows and a log never tells, entry by entry beside the `Clicks` of the same simulation.

    Attributes:
        observed: in how many impressions the document was seen.
        attracted: in how many it would have been clicked if seen.
    """

    observed: Int64
    attracted: Int64

    def __post_init__(self) -> None:
        for name in ("observed", "attracted"):
            kind = getattr(self, name).dtype
            check(bool(np.issubdtype(kind, np.integer)), f"{name} must be whole numbers, got {kind}")


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clicks of simulated users with the truth beside them; only the clicks may reach a learner."""

    clicks: Clicks
    truth: Truth

    def __post_init__(self) -> None:
        entries = len(self.clicks.rows)
        for name in ("observed", "attracted"):
            counts = getattr(self.truth, name)
            check(counts.shape == (entries,), f"{entries} entries but {name} of shape {counts.shape}")

    def merge(self, *, by: Literal["list", "pattern"] = "list") -> Simulation:
        """`Clicks.merge`, with the truth kept beside the clicks."""
        clicks, (observed, attracted) = merged(self.clicks, (self.truth.observed, self.truth.attracted), by)
        return Simulation(clicks, Truth(observed, attracted))

    def with_seen(self) -> Simulation:
        """The same simulation of a site that logs what was seen, as by a viewport beacon."""
        return Simulation(replace(self.clicks, seen=self.truth.observed), self.truth)

    @cached_property
    def observation(self) -> Float64:
        """The share of impressions that was seen at each position, position 1 first: the true propensities."""
        places = self.clicks.positions - 1
        shown = np.bincount(places, weights=self.clicks.list_impressions)
        return np.bincount(places, weights=self.truth.observed) / np.maximum(shown, 1)
