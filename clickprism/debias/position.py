"""LightGBM's own correction of position bias, on sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.debias.base import Declared
from clickprism.errors import SettingError
from clickprism.rankers.lambdamart import Boosting, LambdaMART
from clickprism.types import Clicks


@final
@dataclass(frozen=True)
class PositionBias(Declared):
    """Lambdarank on the clicks of each session, with a bias a position that LightGBM learns beside the trees.

    A document of a session has the score f(x) + b_k in training and f(x) in serving. For trees only.

    Each session is a group, its documents in the order of display, labelled by whether they were clicked. Sessions of
    the same list that were clicked alike are one group, weighted by their number: lambdarank multiplies the lambdas of
    a group by its weight, so the trees are the same. The bias is additive in the score and so multiplies the odds that
    one document is preferred to another; a position-based user multiplies the chance of a click instead, so this is a
    heuristic, and falls short of clicks per exposure with a good curve. LightGBM keeps the bias to itself: what was
    learned about observation is not reported.

    Attributes:
        regularisation: LightGBM's L2 penalty on b (`lambdarank_position_bias_regularization`).
    """

    name = "position"
    summary = "LightGBM's own position bias term; for trees only."
    corrects = ("position",)
    needs = ("single sessions",)
    needs_patterns = True
    regularisation: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.regularisation < float("inf"):
            raise SettingError("regularisation", self.regularisation, "not be negative")

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting:
        """A group for each way in which a list was clicked."""
        merged = clicks.merge(by="pattern")
        lengths = np.diff(merged.offsets)
        return Boosting(
            clicks.lists.features,
            merged.rows,
            lengths[lengths > 0],
            (merged.clicks > 0).astype(np.float64),
            positions=merged.positions,
            position_penalty=self.regularisation,
            weights=merged.impressions[lengths > 0].astype(np.float64),
        )
