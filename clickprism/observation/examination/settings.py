"""What the examination model learns from, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from clickprism.errors import SettingError

Clicks = Literal["all", "others", "none"]
MOST_VALUES: Final = 250  # of a feature: LightGBM then gives each a bin of its own


@dataclass(frozen=True)
class ExaminationSettings:
    """What the examination model learns from, and how.

    Attributes:
        positive_ms: on the screen for longer than this: examined.
        negative_ms: on the screen for shorter than this: not examined. What lies between is not learned from.
        missing: what a row without a display time says: nothing ("unused"), or that the document was never on the
            screen ("negative"), for producers that send a time only for what was shown.
        clicks: what it sees of clicks: all, as §6.1.1 has it; those on other documents only; or none. An estimate that
            sees whether this document was clicked is higher for what is relevant, which biases the doubly robust
            estimator (Eq. 4); as a click feature it is the best there is.
        held_out: the share of the searches that are not learned from, to measure on.
        least: positives and negatives to learn from, at least, and a tenth as many to measure on.
        deepest: greater positions, distances and pages count as this one.
        trees: how many.
        learning_rate: the weight of each tree.
        leaves: of each tree, at most.
        least_hessian: the sum of p (1 - p) over the rows of a leaf, at least; 4 times as many rows where p is 0.5.
        seed: chooses the searches that are held out; nothing else is random.

    >>> ExaminationSettings(negative_ms=6000)
    Traceback (most recent call last):
    clickprism.errors.SettingError: negative_ms must be from 1 to positive_ms (5000), got 6000
    """

    positive_ms: int = 5000
    negative_ms: int = 1000
    missing: Literal["unused", "negative"] = "unused"
    clicks: Clicks = "all"
    held_out: float = 0.2
    least: int = 50
    deepest: int = 100
    trees: int = 100
    learning_rate: float = 0.1
    leaves: int = 15
    least_hessian: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.negative_ms <= self.positive_ms:
            must = f"be from 1 to positive_ms ({self.positive_ms})"
            raise SettingError("negative_ms", self.negative_ms, must)
        if self.missing not in ("unused", "negative"):
            raise SettingError("missing", self.missing, "be one of unused, negative")
        if self.clicks not in get_args(Clicks):
            raise SettingError("clicks", self.clicks, f"be one of {', '.join(get_args(Clicks))}")
        if not 0.001 <= self.held_out <= 0.9:
            raise SettingError("held_out", self.held_out, "be from 0.001 to 0.9")
        for field, lowest in (("least", 1), ("trees", 1), ("leaves", 2), ("seed", 0)):
            if getattr(self, field) < lowest:
                raise SettingError(field, getattr(self, field), f"be at least {lowest}")
        if not 2 <= self.deepest <= MOST_VALUES:
            raise SettingError("deepest", self.deepest, f"be from 2 to {MOST_VALUES}")
        if not 0 < self.learning_rate <= 1:
            raise SettingError("learning_rate", self.learning_rate, "be in (0, 1]")
        if not self.least_hessian >= 0:
            raise SettingError("least_hessian", self.least_hessian, "not be negative")
