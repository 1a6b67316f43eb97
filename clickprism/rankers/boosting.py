"""What trees grow on: documents in groups, each with a target, or an objective of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Clicks, Float32, Float64, Int32, Int64


class Objective(Protocol):
    """A loss of the scores of all rows, by its derivatives; it may learn an observation beside the trees."""

    def __call__(self, scores: Float64) -> tuple[Float64, Float64]:
        """The first and second derivative at these scores, [rows] each; called once a tree."""
        ...

    def observation(self) -> Float64 | None:
        """The observation by position relative to the first, as learned so far or given; None if there is none."""
        ...


@dataclass(frozen=True, eq=False)
class Boosting:
    """The rows that LightGBM sees, group by group; a document may stand in several groups.

    Weights belong to groups, not to rows: lambdarank looks at pairs, and a pair whose two rows weigh differently pulls
    one of them more than it pushes the other.

    Attributes:
        features: one row a document, [documents, features]; the rows below point into it.
        rows: the document of each row.
        lengths: how many rows each group has.
        targets: the gain of each row, 0 or more; lambdarank learns to order by it.
        positions: where each row was displayed, from 1, for LightGBM's own position bias; None to leave it out.
        position_penalty: LightGBM's `lambdarank_position_bias_regularization`, as it would act on rows of weight 1.
        weights: of each group; only ratios count. None weighs all alike.
        objective: the loss, in place of lambdarank on the targets.
    """

    features: Float32
    rows: Int64
    lengths: Int64
    targets: Float64
    positions: Int32 | None = None
    position_penalty: float = 0.0
    weights: Float64 | None = None
    objective: Objective | None = None

    def __post_init__(self) -> None:
        if not np.isfinite(self.targets).all() or float(self.targets.min(initial=0.0)) < 0:
            raise DataError("targets of LambdaMART must be finite and not negative")
        if len(self.lengths) == 0 or int(self.lengths.min()) < 1 or int(self.lengths.sum()) != len(self.rows):
            raise DataError(f"the groups of LambdaMART must be of 1 or more and add up to its {len(self.rows)} rows")
        for name, length in (
            ("targets", len(self.rows)),
            ("positions", len(self.rows)),
            ("weights", len(self.lengths)),
        ):
            values = getattr(self, name)
            if values is not None and values.shape != (length,):
                raise DataError(f"LambdaMART needs {length} {name}, got an array of shape {values.shape}")
        if self.weights is not None and not (np.isfinite(self.weights) & (self.weights >= 0)).all():
            raise DataError("weights of groups must be finite and not negative")
        if self.weights is not None and not self.weights.any():
            raise DataError("no group has a weight above 0")

    def observation(self) -> Float64 | None:
        """The observation that the objective learned or was given; None without one (LightGBM keeps its own)."""
        return None if self.objective is None else self.objective.observation()

    @property
    def repetition(self) -> float:
        """In how many groups a document stands, on average over the documents that do in any."""
        return len(self.rows) / int((np.bincount(self.rows) > 0).sum())

    def row_weights(self) -> Float64 | None:
        """The weight of each row, equal within a group; documents weigh 1 on average, all their rows together."""
        if self.weights is None and self.repetition == 1.0:
            return None
        groups = np.ones(len(self.lengths)) if self.weights is None else self.weights
        spread = np.repeat(groups, self.lengths)
        scaled: Float64 = spread * (len(spread) / (self.repetition * spread.sum()))
        return scaled


def shown(clicks: Clicks) -> tuple[Int64, Int64]:
    """The documents that a log shows, in the order of their lists, and how many there are of each such list."""
    rows = np.flatnonzero(np.bincount(clicks.rows, minlength=clicks.lists.documents))
    if len(rows) == 0:
        raise DataError("the log shows no documents")
    lengths = np.bincount(clicks.lists.list_of[rows], minlength=len(clicks.lists))
    return rows, lengths[lengths > 0]
