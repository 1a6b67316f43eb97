"""What an estimate of relevance needs of a log: sums over the impressions of each pair at each position."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Bool, Float64, Int64, check


@final
@dataclass(frozen=True, eq=False)
class PairCounts:
    """Sums over the impressions of each (query, document) at each position, position 1 first; each [pairs, positions].

    An impression has a click c (0 or 1) and, where the log was examined, an estimate e of how probably it was seen.

    Attributes:
        impressions: how many.
        clicked: the sum of c.
        examination: the sum of e; None where the log was not examined.
        examination_clicked: the sum of e c; None where it was not kept.
        examination_squared: the sum of e^2; None where it was not kept.

    >>> day = PairCounts(np.array([[3, 0], [1, 2]]), np.array([[2, 0], [0, 1]]))
    >>> day.add(day).impressions.tolist(), day.total().clicked.tolist()
    ([[6, 0], [2, 4]], [[2, 1]])
    """

    impressions: Int64
    clicked: Int64
    examination: Float64 | None = None
    examination_clicked: Float64 | None = None
    examination_squared: Float64 | None = None

    def __post_init__(self) -> None:
        shape = self.impressions.shape
        check(len(shape) == 2, f"impressions must be [pairs, positions], got {len(shape)} dimensions")
        for name in ("impressions", "clicked"):
            values = getattr(self, name)
            check(values.shape == shape, f"{name} must be {list(shape)} as impressions are, got {list(values.shape)}")
            check(bool(np.issubdtype(values.dtype, np.integer)), f"{name} must be whole numbers, got {values.dtype}")
        for name in ("examination", "examination_clicked", "examination_squared"):
            sums = getattr(self, name)
            if sums is not None:
                check(self.examination is not None, f"{name} means nothing without examination")
                check(sums.shape == shape, f"{name} must be {list(shape)} as impressions are, got {list(sums.shape)}")
                check(sums.dtype == np.float64, f"{name} must be float64, got {sums.dtype}")
        if self.impressions.size:
            self._check_values()

    def _check_values(self) -> None:
        check(int(self.clicked.min()) >= 0, "clicked must not be negative")
        check(bool((self.clicked <= self.impressions).all()), "a pair cannot be clicked more often than it was shown")
        if self.examination is None:
            return
        slack = 1e-6 * (1 + self.impressions)
        for name, most in (
            ("examination", self.impressions),
            ("examination_clicked", self.clicked),
            ("examination_squared", self.examination),
        ):
            sums = getattr(self, name)
            if sums is not None:
                sound = (sums >= 0) & (sums <= most + slack)
                check(bool(sound.all()), f"{name} must be a sum of what lies between 0 and 1")

    def __len__(self) -> int:
        return len(self.impressions)

    def __repr__(self) -> str:
        shown, clicked = int(self.impressions.sum()), int(self.clicked.sum())
        return f"PairCounts({len(self)} pairs, {self.positions} positions, {shown} impressions, {clicked} clicked)"

    @property
    def positions(self) -> int:
        """How many positions there are."""
        return int(self.impressions.shape[1])

    @property
    def shown(self) -> Int64:
        """The impressions of each pair at all positions, [pairs]."""
        return np.asarray(self.impressions.sum(axis=1), dtype=np.int64)

    def add(self, other: PairCounts) -> PairCounts:
        """The sums of both, of the same pairs in the same order; what one of them lacks, the sum lacks."""
        mine, theirs = self.impressions.shape, other.impressions.shape
        if mine != theirs:
            raise DataError(f"counts of {list(mine)} and {list(theirs)} (pairs, positions) cannot be added")
        sums = zip(self._sums, other._sums, strict=True)
        return _made([None if a is None or b is None else a + b for a, b in sums])

    def select(self, pairs: Int64 | Bool | slice) -> PairCounts:
        """These pairs only, in this order."""
        return _made([None if sums is None else sums[pairs] for sums in self._sums])

    def total(self) -> PairCounts:
        """The sums over all pairs, as the counts of one pair, [1, positions]."""
        return _made([None if sums is None else sums.sum(axis=0, keepdims=True) for sums in self._sums])

    @property
    def _sums(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]


def _made(sums: list[Any]) -> PairCounts:
    return PairCounts(*sums)
