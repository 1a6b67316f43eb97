"""What is known of the relevance of each pair: an estimate, its interval, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Protocol, final, runtime_checkable

import numpy as np

from clickprism.errors import SettingError
from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.types import Bool, Float64, Int64, check


@final
@dataclass(frozen=True, eq=False)
class Estimates:
    """Relevance as the click probability c_1 that a document would have in the first slot, for each pair, [pairs].

    Attributes:
        values: the estimates; nan where nothing is known.
        lower: lower ends of the intervals; 0 where nothing is known.
        upper: upper ends; 1 where nothing is known.
        variance: of the estimate, at the middle of its interval, since at the estimate itself it would be 0 for every
            pair that was never clicked; nan where nothing is known.
        weight: how many impressions in the first slot the clicks of the pair are worth; 0 without any.
        imputed_only: whether the estimate is the imputation and no click speaks.
    """

    values: Float64
    lower: Float64
    upper: Float64
    variance: Float64
    weight: Float64
    imputed_only: Bool

    def __post_init__(self) -> None:
        for field in fields(self):
            shape = getattr(self, field.name).shape
            check(shape == (len(self),), f"{field.name} must be one a pair, [{len(self)}], got {list(shape)}")

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Estimates({len(self)} pairs, {int(self.imputed_only.sum())} of them imputed only)"

    def select(self, pairs: Int64 | Bool | slice) -> Estimates:
        """These pairs only, in this order."""
        return Estimates(*(getattr(self, field.name)[pairs] for field in fields(self)))

    def at_level(self, level: tuple[float, float]) -> Estimates:
        """The paper's gamma = (c_1 - beta_1) / alpha_1, where alpha_1 and beta_1 are assumed to be these.

        Clicks cannot tell the level; the order of documents does not depend on it.

        >>> one = Estimates(*(np.array([value]) for value in (0.6, 0.5, 0.7, 0.01, 9.0)), np.array([False]))
        >>> gamma = one.at_level((0.5, 0.4))
        >>> gamma.values.round(6).tolist(), gamma.lower.round(6).tolist(), gamma.variance.round(6).tolist()
        ([0.4], [0.2], [0.04])
        """
        slope, start = level
        if not slope > 0:
            raise SettingError("level", level, "have alpha_1 above 0")
        moved = {name: (getattr(self, name) - start) / slope for name in ("values", "lower", "upper")}
        return replace(self, **moved, variance=self.variance / slope**2)


@runtime_checkable
class Estimator(Protocol):
    """Anything that makes estimates of counts, a batch of pairs at a time."""

    name: ClassVar[str]

    def learn(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimator:
        """The same with everything settled that depends on the whole log; no settings are left to learn in it."""
        ...

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """The estimates of these pairs; one that has not learned learns of these pairs first."""
        ...


def check_inputs(counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> None:
    """Refuse counts at positions that the parameters do not know, and imputations that are none."""
    deep, known = counts.positions, len(parameters)
    check(deep <= known, f"counts go down to position {deep}, but parameters are known of {known}")
    if imputed is not None:
        check(imputed.shape == (len(counts),), f"{len(counts)} pairs but imputations of shape {list(imputed.shape)}")
        check(bool(((imputed >= 0) & (imputed <= 1)).all()), "imputations must be between 0 and 1")


def require_imputed(imputed: Float64 | None) -> Float64:
    """The imputations; where there are none, a `DataError`."""
    check(imputed is not None, "this estimator needs an imputation for each pair")
    return np.asarray(imputed, dtype=np.float64)
