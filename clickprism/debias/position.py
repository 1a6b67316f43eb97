"""LightGBM's own correction of position bias, on sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.debias.base import Method
from clickprism.rankers.lambdamart import Boosting, LambdaMART
from clickprism.settings import check_fields
from clickprism.types import Clicks


@final
@dataclass(frozen=True)
class PositionBias(Method):
    """Lambdarank on the clicks of each session, with a bias for each position that LightGBM learns beside the trees.

    A document of a session has the score f(x) + b_k in training and f(x) in serving. For trees only.

    Each session is a group, labelled by clicks; sessions of the same list with the same clicks are one group, weighted
    by their number, which gives the same trees. The bias is additive in the score and so multiplies the odds that one
    document is preferred to another; a position-based user multiplies the click probability instead. So this is a
    heuristic, and below clicks per exposure with a good curve. LightGBM does not report what it learned.

    Attributes:
        regularisation: LightGBM's L2 penalty on b (`lambdarank_position_bias_regularization`).
    """

    name = "position"
    summary = "LightGBM's own position bias term; for trees only."
    corrects = ("position",)
    needs = ("single sessions",)
    needs_patterns = True
    trees_only = True
    regularisation: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, regularisation="[0, inf)")

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting:
        """Return a group for each way in which a list was clicked."""
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
