"""What a log says against its own click model, and against users who stay the same: both widen what is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.evaluation.counterfactual_model import LEAST, RewardModel
from clickprism.evaluation.counterfactual_support import Cells, Placed
from clickprism.observation.curve import sums
from clickprism.types import Float64, Int64

BEFORE: Final = 0.5  # how far a slope may be from 1, as a standard deviation, before the log is asked
CALM: Final = 100.0  # clicks that every day is drawn towards the others by


@final
@dataclass(frozen=True)
class Slope:
    """How much more a list earns that the click model says earns one click more.

    1 where clicks at one position do not heed the others; below it where a good document above ends the search.

    Attributes:
        value: the slope, drawn towards 1 as far as the log leaves it open.
        error: its standard deviation.
    """

    value: float
    error: float


@final
@dataclass(frozen=True, eq=False)
class Days:
    """When the sessions of a log were, and how much was clicked then.

    Attributes:
        day: of each ranked list, from 0, [ranked lists].
        levels: clicks of each day over those that the same documents at the same positions got on others, [days].
    """

    day: Int64
    levels: Float64


def slope_of(placed: Placed, model: RewardModel, *, worth: Float64, day: Int64 | None, seed: int) -> Slope:
    """Compare what lists of the same query earned on the same day with what the model foretells of them.

    With sessions dealt into halves A and B, m the foretold and e the earned clicks of a list, each less its mean over
    the sessions of the query and day,

        slope = sum of n m_A e_B / sum of n m_A m_B

    which is 1 where the model is right, as the noise of the halves is independent.

    Args:
        placed: the new ranking over the log.
        model: of clicks.
        worth: of a click at each position, [positions].
        day: of each ranked list, from 0; None where it is not known, [ranked lists].
        seed: of the halves.
    """
    log, owner = placed.clicks, placed.owner
    group = placed.query if day is None else placed.query * (int(day.max()) + 1) + day
    _, group = np.unique(group, return_inverse=True)
    rng = np.random.default_rng(seed)
    first = rng.binomial(log.impressions, 0.5)
    clicks = rng.hypergeometric(log.clicks, log.list_impressions - log.clicks, first[owner])
    curve, value = model.curve[log.positions - 1], worth[log.positions - 1]
    foretold: list[Float64] = []
    earned: list[Float64] = []
    sizes = [first, log.impressions - first]
    for size, clicked in zip(sizes, (clicks.astype(np.float64), (log.clicks - clicks).astype(np.float64)), strict=True):
        got, seen = (sums(log.rows, each, len(model.prior)) for each in (clicked, size[owner] * curve))
        relevance = (got + model.worth / 2 * model.prior) / (seen + model.worth / 2)
        mean = clicked / np.maximum(size[owner], 1)
        for kept, values in ((foretold, relevance[log.rows] * curve), (earned, mean)):
            kept.append(sums(owner, values * value, len(log)))
    top, bottom = np.zeros(group.max() + 1), np.zeros(group.max() + 1)
    for half, size in enumerate(sizes):
        other, told, got = (_around(group, size, each) for each in (foretold[1 - half], foretold[half], earned[half]))
        top += np.bincount(group, weights=size * other * got)
        bottom += np.bincount(group, weights=size * other * told)
    if bottom.sum() <= LEAST:
        return Slope(1.0, BEFORE)
    found = top.sum() / bottom.sum()
    variance = ((top - found * bottom) ** 2).sum() / bottom.sum() ** 2
    kept_share = BEFORE**2 / (BEFORE**2 + variance)
    return Slope(float(1 + kept_share * (found - 1)), float(np.sqrt(kept_share * variance)))


def _around(group: Int64, sizes: Int64, values: Float64) -> Float64:
    """Less the mean over the sessions of the group, [ranked lists]."""
    mean = np.bincount(group, weights=sizes * values) / np.maximum(np.bincount(group, weights=sizes), 1)
    around: Float64 = values - mean[group]
    return around


def days_of(placed: Placed, day: Int64) -> Days:
    """How much was clicked on each day.

    Args:
        placed: the new ranking over the log.
        day: of each ranked list, from 0, [ranked lists].
    """
    log, count = placed.clicks, int(day.max()) + 1
    cells, cell = np.unique(log.rows * placed.depth + log.positions - 1, return_inverse=True)
    clicked, shown = (
        sums(cell * count + day[placed.owner], each.astype(np.float64), len(cells) * count).reshape(-1, count)
        for each in (log.clicks, log.list_impressions)
    )
    others = shown.sum(axis=1, keepdims=True) - shown
    rate, rest = clicked / np.maximum(shown, 1), (clicked.sum(axis=1, keepdims=True) - clicked) / np.maximum(others, 1)
    weight = shown * others / np.maximum(shown + others, 1)
    levels = (CALM + (weight * rate).sum(axis=0)) / (CALM + (weight * rest).sum(axis=0))
    return Days(day, levels)


def shift_of(placed: Placed, cells: Cells, weight: Float64, days: Days) -> float:
    """By which share the sessions that match earn more for the days they were on, not for what they were shown.

    Args:
        placed: the new ranking over the log.
        cells: the sessions that match.
        weight: of each, [queries, positions].
        days: how much was clicked on each.
    """
    log, entries = placed.clicks, cells.entries
    owner = placed.owner[entries]
    heavy = weight[placed.query[owner], log.positions[entries] - 1] * log.list_impressions[entries]
    matched = np.bincount(days.day[owner], weights=heavy, minlength=len(days.levels))
    every = np.bincount(days.day, weights=log.impressions, minlength=len(days.levels))
    return float((matched / matched.sum() - every / every.sum()) @ days.levels) if len(entries) else 0.0
