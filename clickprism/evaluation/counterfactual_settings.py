"""How a ranker is valued from a log: what is summed, how far weights go, and when the answer is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Float64

Measure: TypeAlias = Literal["clicks", "dcg"]
Unit: TypeAlias = Literal["query", "search"]
Name: TypeAlias = Literal[
    "ips", "snips", "reward-interaction", "cascade-dr", "item-position", "item-position-dr", "position-based"
]
NAMES: Final[tuple[Name, ...]] = get_args(Name)


@final
@dataclass(frozen=True)
class CounterfactualSettings:
    """When to trust a log, and how wide to be where it is silent.

    Attributes:
        clip: the largest weight of a session, one over the propensity; what is cut off counts as not shown.
        confidence: of the intervals.
        unit: what the intervals ask: "query", how it would be for other queries like these; "search", for other
            searches of the same queries, which is narrower.
        most_missing: refuse where more of the clicks at stake fall on what the log never showed; for "ips", "snips",
            "reward-interaction", "item-position", and for "position-based" on documents never shown at all.
        most_modelled: refuse a doubly robust or position-based value where a click model stands for more of the clicks
            at stake than this, as documents never stood where the ranker puts them.
        most_slack: refuse a doubly robust value where what the click model fills in is unsure by more than this share
            of the value.
        most_misfit: refuse the position-based value where it would be off by more than this share, going by documents
            that the log moved as the ranker does.
        least_effective: refuse below so many sessions in effect.
        least_queries: refuse below so many queries in effect, (sum of sessions)^2 / sum of squares; only where `unit`
            is "query".
        resamples: weighted logs for the uncertainty of the observation curve.
        seed: of those.
    """

    clip: float = 1000.0
    confidence: float = 0.95
    unit: Unit = "query"
    most_missing: float = 0.05
    most_modelled: float = 0.6
    most_slack: float = 0.1
    most_misfit: float = 0.02
    least_effective: float = 100.0
    least_queries: float = 10.0
    resamples: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.clip >= 1:
            raise SettingError("clip", self.clip, "be at least 1")
        if not 0 < self.confidence < 1:
            raise SettingError("confidence", self.confidence, "be between 0 and 1")
        if self.unit not in get_args(Unit):
            raise SettingError("unit", self.unit, f"be one of {', '.join(get_args(Unit))}")
        for name in ("most_missing", "most_modelled", "most_slack", "most_misfit"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(name, getattr(self, name), "be between 0 and 1")
        for name in ("least_effective", "least_queries"):
            if not getattr(self, name) >= 1:
                raise SettingError(name, getattr(self, name), "be at least 1")
        if self.resamples < 2:
            raise SettingError("resamples", self.resamples, "be at least 2")


def worth_of(measure: Measure, depth: int) -> Float64:
    """What a click at each position counts: 1, or 1 / log2(1 + position), [positions].

    >>> worth_of("dcg", 3).round(3).tolist()
    [1.0, 0.631, 0.5]
    """
    if measure not in get_args(Measure):
        raise SettingError("measure", measure, f"be one of {', '.join(get_args(Measure))}")
    if measure == "clicks":
        return np.ones(depth)
    worth: Float64 = 1 / np.log2(np.arange(2, depth + 2))
    return worth
