"""Sums of clicks by pair and position, and the estimates of relevance that are computed from them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Protocol, final, runtime_checkable

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.log_model.parameters import ClickParameters
from clickprism.types import Bool, Float64, Int32, Int64, Text, check

SOURCES: Final = ("clicks", "position", "features", "imputation")
"""What an estimate may come from; "position" is where the logged ranker showed the document."""


@final
@dataclass(frozen=True, eq=False)
class PairCounts:
    """Sums over the impressions of each (query, document) at each position, all [pairs, positions].

    An impression has a click c (0 or 1). If the log has an examination model, an impression also has e, the estimated
    probability that it was observed.

    Attributes:
        impressions: Number of impressions.
        clicked: Sum of c.
        examination: Sum of e, or None.
        examination_clicked: Sum of e c, or None.
        examination_squared: Sum of e^2, or None.

    >>> day = PairCounts(np.array([[3, 0], [1, 2]]), np.array([[2, 0], [0, 1]]))
    >>> day.shown.tolist(), day.total().clicked.tolist()
    ([3, 3], [[2, 1]])
    """

    impressions: Int64
    clicked: Int64
    examination: Float64 | None = None
    examination_clicked: Float64 | None = None
    examination_squared: Float64 | None = None

    def __post_init__(self) -> None:
        shape = self.impressions.shape
        check(len(shape) == 2, f"impressions must be [pairs, positions], got {len(shape)} dimensions")
        for each, sums in zip(fields(self), self._sums, strict=True):
            if sums is None:
                continue
            name, number = each.name, np.integer if each.name in ("impressions", "clicked") else np.float64
            check(sums.shape == shape, f"{name} must be {list(shape)} as impressions are, got {list(sums.shape)}")
            wanted = "whole numbers" if number is np.integer else "float64"
            check(bool(np.issubdtype(sums.dtype, number)), f"{name} must be {wanted}, got {sums.dtype}")
            check(self.examination is not None or number is np.integer, f"{name} cannot be given without examination")
        if self.impressions.size:
            self._check_values()

    def _check_values(self) -> None:
        check(int(self.clicked.min()) >= 0, "clicked must not be negative")
        check(bool((self.clicked <= self.impressions).all()), "a pair cannot be clicked more often than it was shown")
        slack = 1e-6 * (1 + self.impressions)
        for name, sums, most in (
            ("examination", self.examination, self.impressions),
            ("examination_clicked", self.examination_clicked, self.clicked),
            ("examination_squared", self.examination_squared, self.examination),
        ):
            if sums is not None and most is not None:
                valid = (sums >= 0) & (sums <= most + slack)
                check(bool(valid.all()), f"{name} must be a sum of values between 0 and 1")

    def __len__(self) -> int:
        return len(self.impressions)

    def __repr__(self) -> str:
        shown, clicked = int(self.impressions.sum()), int(self.clicked.sum())
        return f"PairCounts({len(self)} pairs, {self.positions} positions, {shown} impressions, {clicked} clicked)"

    @property
    def positions(self) -> int:
        """Return the number of positions."""
        return int(self.impressions.shape[1])

    @property
    def shown(self) -> Int64:
        """Return the impressions of each pair at all positions, [pairs]."""
        return np.asarray(self.impressions.sum(axis=1), dtype=np.int64)

    def select(self, pairs: Int64 | Bool | slice) -> PairCounts:
        """Return the counts of some pairs, in this order."""
        selected: list[Any] = [None if sums is None else sums[pairs] for sums in self._sums]
        return PairCounts(*selected)

    def total(self) -> PairCounts:
        """Return the sums over all pairs, as the counts of one pair, [1, positions]."""
        totals: list[Any] = [None if sums is None else sums.sum(axis=0, keepdims=True) for sums in self._sums]
        return PairCounts(*totals)

    @property
    def _sums(self) -> list[Any]:
        return [getattr(self, each.name) for each in fields(self)]


def source_of(weight: Float64) -> Int32:
    """Return the source of estimates that use clicks if there are any, and an imputation otherwise, [pairs]."""
    return np.where(weight > 0, SOURCES.index("clicks"), SOURCES.index("imputation")).astype(np.int32)


@final
@dataclass(frozen=True, eq=False)
class Estimates:
    """Relevance of each pair as c_1, its click probability at position 1; all [pairs].

    Attributes:
        values: The estimates; nan if nothing is known.
        lower: Lower ends of the intervals; 0 if nothing is known.
        upper: Upper ends; 1 if nothing is known.
        variance: Variance of the estimate, computed at the middle of its interval, since at the estimate itself it
            would be 0 for every pair without clicks; nan if nothing is known.
        weight: Number of impressions at position 1 that the clicks of the pair are equivalent to; 0 without any.
        imputed_only: Whether the estimate does not use clicks of the pair.
        source: What most of the estimate comes from, as an index of `SOURCES`; by default "clicks" if the weight is
            above 0, else "imputation".
    """

    values: Float64
    lower: Float64
    upper: Float64
    variance: Float64
    weight: Float64
    imputed_only: Bool
    source: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))

    def __post_init__(self) -> None:
        if not len(self.source):
            object.__setattr__(self, "source", source_of(self.weight))
        for each in fields(self):
            shape = getattr(self, each.name).shape
            check(shape == (len(self),), f"{each.name} must have one value per pair, [{len(self)}], got {list(shape)}")

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Estimates({len(self)} pairs, {int(self.imputed_only.sum())} without clicks)"

    def select(self, pairs: Int64 | Bool | slice) -> Estimates:
        """Return the estimates of some pairs, in this order."""
        return Estimates(*(getattr(self, each.name)[pairs] for each in fields(self)))

    @property
    def source_names(self) -> Text:
        """Return the names of the sources, [pairs]."""
        return np.array(SOURCES)[self.source]

    def at_level(self, level: tuple[float, float]) -> Estimates:
        """Return the paper's gamma = (c_1 - beta_1) / alpha_1 for assumed alpha_1 and beta_1.

        Clicks do not identify this level; the order of documents does not depend on it.

        >>> one = Estimates(*(np.array([value]) for value in (0.6, 0.5, 0.7, 0.01, 9.0)), np.array([False]))
        >>> gamma = one.at_level((0.5, 0.4))
        >>> gamma.values.round(6).tolist(), gamma.lower.round(6).tolist(), gamma.variance.round(6).tolist()
        ([0.4], [0.2], [0.04])
        """
        slope, start = level
        if not slope > 0:
            raise SettingError("level", level, "have alpha_1 above 0")
        scaled = {name: (getattr(self, name) - start) / slope for name in ("values", "lower", "upper")}
        return replace(self, **scaled, variance=self.variance / slope**2)


@runtime_checkable
class Estimator(Protocol):
    """An estimator of relevance, which estimates a batch of pairs at a time."""

    name: ClassVar[str]

    def learn(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimator:
        """Return the estimator with the values that it has to learn from the whole log, or from a sample of it."""
        ...

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """Return the estimates of these pairs; an estimator that has not learned learns from these pairs first."""
        ...


def check_inputs(counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> None:
    """Raise `DataError` if the parameters have too few positions, or an imputation is not a probability."""
    deep, known = counts.positions, len(parameters)
    check(deep <= known, f"the counts have {deep} positions, but the click parameters only {known}")
    if imputed is not None:
        check(imputed.shape == (len(counts),), f"{len(counts)} pairs but imputations of shape {list(imputed.shape)}")
        check(bool(((imputed >= 0) & (imputed <= 1)).all()), "imputations must be between 0 and 1")


def require_imputed(imputed: Float64 | None) -> Float64:
    """Return the imputations, or raise `DataError` if there are none."""
    if imputed is None:
        raise DataError("this estimator needs an imputation for each pair")
    return np.asarray(imputed, dtype=np.float64)
