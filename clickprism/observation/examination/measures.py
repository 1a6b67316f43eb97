"""How good estimates are, from counts: exact, whatever the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from clickprism.log.schema import EXAMINATION_UNIT
from clickprism.types import Bool, Int64


@dataclass(frozen=True)
class Bin:
    """The rows whose estimates lie in [low, high): their mean estimate, and the share of them that is positive."""

    low: float
    high: float
    rows: int
    estimate: float
    share: float


@dataclass(frozen=True)
class Quality:
    """How good estimates are on some rows.

    Attributes:
        rows: how many.
        positive: the share of the rows that is positive.
        auc: the probability that a positive has a higher estimate than a negative, a tie counting half; nan if there
            is no positive or no negative.
        log_loss: the mean of -log e of positives and -log(1 - e) of negatives, in nats.
        entropy: the log loss of the best constant.
        calibration_error: the mean over rows of |mean estimate - share of positives| in ten bins of equal width.
        bins: these bins, without those that are empty.
    """

    rows: int
    positive: float
    auc: float
    log_loss: float
    entropy: float
    calibration_error: float
    bins: tuple[Bin, ...]


def quality(units: Int64, positive: Bool, rows: Int64) -> Quality:
    """How good estimates are on cells.

    Args:
        units: the estimate of each cell, in units of 2^-20.
        positive: whether the rows of the cell are positive.
        rows: how many they are.

    >>> found = quality(np.array([2**19, 2**18]), np.array([True, False]), np.array([2, 6]))
    >>> found.auc, found.calibration_error
    (1.0, 0.3125)
    """
    bins, error = _reliability(units, positive, rows)
    total = int(rows.sum())
    share = int(rows[positive].sum()) / total if total else math.nan
    return Quality(
        rows=total,
        positive=share,
        auc=auc(units, positive, rows),
        log_loss=log_loss(units, positive, rows),
        entropy=sum(-p * math.log(p) for p in (share, 1 - share) if p > 0) if total else math.nan,
        calibration_error=error,
        bins=bins,
    )


def auc(units: Int64, positive: Bool, rows: Int64) -> float:
    """The area under the ROC curve: (wins + ties / 2) / (positives x negatives), in whole numbers of any size."""
    levels, place = np.unique(units, return_inverse=True)
    counts = np.zeros((len(levels), 2), dtype=np.int64)
    np.add.at(counts, (place, positive.astype(np.int64)), rows)
    below = twice = positives = 0
    for negative_here, positive_here in counts.tolist():
        twice += positive_here * (2 * below + negative_here)
        below += negative_here
        positives += positive_here
    return twice / (2 * positives * below) if positives and below else math.nan


def log_loss(units: Int64, positive: Bool, rows: Int64) -> float:
    """The mean log loss; estimates closer to 0 or 1 than half a unit count as half a unit away."""
    total = int(rows.sum())
    if not total:
        return math.nan
    share = np.clip(units / EXAMINATION_UNIT, 0.5 / EXAMINATION_UNIT, 1 - 0.5 / EXAMINATION_UNIT)
    losses = -np.log(np.where(positive, share, 1 - share)) * rows
    return math.fsum(losses.tolist()) / total


def _reliability(units: Int64, positive: Bool, rows: Int64, *, bins: int = 10) -> tuple[tuple[Bin, ...], float]:
    place = np.minimum(units * bins // EXAMINATION_UNIT, bins - 1)
    found, away = [], 0.0
    for number in range(bins):
        here = place == number
        count = int(rows[here].sum())
        if count:
            estimate = int((units[here] * rows[here]).sum()) / (EXAMINATION_UNIT * count)
            share = int(rows[here & positive].sum()) / count
            found.append(Bin(number / bins, (number + 1) / bins, count, estimate, share))
            away += abs(estimate - share) * count
    total = int(rows.sum())
    return tuple(found), away / total if total else math.nan
