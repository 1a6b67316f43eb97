"""Settings of the examination model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from clickprism.errors import SettingError
from clickprism.settings import check_fields

Clicks = Literal["all", "others", "none"]
MOST_VALUES: Final = 250  # maximum values of a feature, so that LightGBM gives each its own bin


@dataclass(frozen=True, kw_only=True)
class ExaminationSettings:
    """How the examination model learns from display times.

    Attributes:
        positive_ms: A document displayed longer than this was examined, in milliseconds.
        negative_ms: A document displayed shorter than this was not examined, in milliseconds. Times between the two
            are not used.
        missing: Meaning of a missing display time: nothing (unused), or that the document was never displayed
            (negative), for systems that record a time only for displayed documents.
        clicks: Clicks that the model sees: all, as in section 6.1.1 of the doubly robust paper, which is best for click
            features; only those on other documents (others), for the estimator doubly_robust, which all would bias; or
            none.
        held_out: Share of the searches to measure on, which the model does not learn from.
        min_rows: Minimum number of positive and of negative examples to learn from; a tenth of it to measure on.
        max_position: Larger positions, distances and pages are treated as this one.
        trees: Number of trees.
        learning_rate: Weight of each tree.
        leaves: Maximum number of leaves of a tree.
        min_hessian: Minimum sum of p (1 - p) over the rows of a leaf; it is a quarter of the rows where p is 0.5.
        seed: Random seed of the held-out searches.

    >>> ExaminationSettings(negative_ms=6000)
    Traceback (most recent call last):
    clickprism.errors.SettingError: negative_ms must be from 1 to positive_ms (5000), got 6000
    """

    positive_ms: int = 5000
    negative_ms: int = 1000
    missing: Literal["unused", "negative"] = "unused"
    clicks: Clicks = "all"
    held_out: float = 0.2
    min_rows: int = 50
    max_position: int = 100
    trees: int = 100
    learning_rate: float = 0.1
    leaves: int = 15
    min_hessian: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.negative_ms <= self.positive_ms:
            must = f"be from 1 to positive_ms ({self.positive_ms})"
            raise SettingError("negative_ms", self.negative_ms, must)
        check_fields(self, missing=Literal["unused", "negative"], clicks=Clicks, held_out=(0.001, 0.9))
        check_fields(self, min_rows=(1, None), trees=(1, None), leaves=(2, None), seed=(0, None))
        check_fields(self, max_position=(2, MOST_VALUES), learning_rate=(1e-12, 1), min_hessian=(0, None))
