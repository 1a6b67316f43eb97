"""How the value of a ranker is estimated from a log, and when the estimate is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np

from clickprism.errors import SettingError
from clickprism.settings import suggest
from clickprism.types import Float64

Measure: TypeAlias = Literal["clicks", "dcg"]
Unit: TypeAlias = Literal["query", "search"]
Name: TypeAlias = Literal[
    "ips", "snips", "reward-interaction", "cascade-dr", "item-position", "item-position-dr", "position-based"
]
NAMES: Final[tuple[Name, ...]] = get_args(Name)


@final
@dataclass(frozen=True, kw_only=True)
class CounterfactualSettings:
    """How the value of a ranker is estimated from a log, and when the estimate is refused.

    Attributes:
        measure: What is counted: "clicks" per search, or "dcg", in which a click at position k counts 1 / log2(1 + k).
        depth: Number of positions that count.
        estimator: Estimator to use: ips, snips, reward-interaction, cascade-dr, item-position, item-position-dr or
            position-based; may be repeated. By default all.
        unit: Whether intervals hold for other queries like these ("query"), or for other searches of the same queries
            ("search"), which gives narrower intervals.
        confidence: Confidence level of the intervals.
        clip: Largest weight of a session, that is, one over its propensity. The clipped part counts as not shown.
        most_missing: Refuse if a larger share of the affected clicks is on documents that the log never showed at the
            position where the ranker puts them.
        most_modelled: Refuse a doubly robust or position-based estimate if a click model predicts a larger share of
            the affected clicks.
        most_slack: Refuse a doubly robust estimate if the predictions of its click model are uncertain by a larger
            share of the value.
        most_misfit: Refuse the position-based estimate if its error on documents shown at several positions is a
            larger share of the value.
        least_effective: Refuse if the effective number of sessions is smaller.
        least_queries: Refuse if the effective number of queries is smaller; only if the unit is "query".
        resamples: Number of bootstrap samples for the uncertainty of the observation curve.
        seed: Random seed of the bootstrap.
    """

    measure: Measure = "clicks"
    depth: int = 10
    estimator: tuple[Name, ...] = NAMES
    unit: Unit = "query"
    confidence: float = 0.95
    clip: float = 1000.0
    most_missing: float = 0.05
    most_modelled: float = 0.6
    most_slack: float = 0.1
    most_misfit: float = 0.02
    least_effective: float = 100.0
    least_queries: float = 10.0
    resamples: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.measure not in get_args(Measure):
            raise SettingError("measure", self.measure, f"be one of {', '.join(get_args(Measure))}")
        if self.depth < 1:
            raise SettingError("depth", self.depth, "be at least 1")
        for estimator in self.estimator:
            if estimator not in NAMES:
                raise SettingError("estimator", estimator, f"be a known estimator ({suggest(estimator, NAMES)})")
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
    if measure == "clicks":
        return np.ones(depth)
    worth: Float64 = 1 / np.log2(np.arange(2, depth + 2))
    return worth
