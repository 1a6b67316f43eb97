"""Estimate the clicks of a new ranking in several ways; each gives the clicks of a session of every query.

With p the share of the sessions of a query that showed what the new ranking would show, and w = min(1 / p, clip), the
mean of w times the clicks is w p times the mean over the matching sessions. If there is one, that mean is unbiased,
whatever p is. The rest, 1 - w p, was not shown. Estimators differ in what must match, and in what replaces the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np

from clickprism.evaluation.counterfactual.support import (
    LEAST,
    Checks,
    Match,
    Matched,
    Placed,
    Predictions,
    Slope,
    sums,
)
from clickprism.types import Bool, Float64

Fill: TypeAlias = Literal["nothing", "mean", "model"]
PSEUDO: Final = 1.0  # impressions with the click rate of the position, added to the other sessions of a cell


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """An estimate and what it consists of.

    *Affected clicks* are the clicks per session of the log at each position where the new ranking has a document.
    """

    per_query: Float64  # Clicks of a session of each query; the mean over sessions is the estimate, [queries]
    per_list: Float64  # How much each session of a ranked list changes the estimate of its query, [ranked lists]
    model_variance: float  # Variance of the estimate by the clicks that the model is based on, given the queries
    curve_variance: float  # Variance of the estimate by the uncertainty of the curve
    below: float  # How much lower the value may be because of what was never shown
    above: float  # How much higher
    missing: float  # Share of the affected clicks on what was never shown, or was clipped
    modelled: float  # Share of the affected clicks that the model predicts
    # Share of the affected clicks that the model predicts by comparing positions that no document links
    unlinked: float
    clipped: float  # Share of the affected clicks whose weight was clipped
    effective: float  # Effective number of sessions, (sum of weights)^2 / sum of squared weights
    # By what share of the value the model would be too low, judged by documents that the log moved as the new ranking
    # does, and the standard error
    misfit: tuple[float, float]


def weighted(
    placed: Placed,
    predictions: Predictions,
    checks: Checks,
    *,
    match: Match,
    fill: Fill,
    discount: Float64,
    clip: float,
) -> Parts:
    """Weight the clicks of matching sessions, and replace what was never shown.

    Args:
        placed: The new ranking and the log.
        predictions: They replace what was not shown, or say how far off another replacement may be.
        checks: Corrections of the model and of days.
        match: What must be as in the new ranking: the whole list (IPS), the top down to the position (reward
            interaction, cascade doubly robust), or the document at the position (item-position).
        fill: What replaces what was not shown: "nothing", as in plain IPS, the "mean" of what was shown at the position
            (self-normalised), or the "model" (doubly robust).
        discount: Value of a click at each position, [positions].
        clip: Largest weight.
    """
    matched = placed.matched(match)
    share = placed.shares[:, None] * placed.filled
    kept = np.minimum(1.0, clip * matched.shown / placed.sessions[:, None])
    left = share * discount * (1 - kept)
    affected = share * discount * np.maximum(placed.rates_by_position, LEAST)
    scale, mean = np.ones(placed.depth), np.zeros(placed.depth)
    if fill == "mean":
        total = np.maximum((share * kept).sum(axis=0), LEAST)
        mean, scale = (share * kept * matched.rates).sum(axis=0) / total, share.sum(axis=0) / total
    earned = scale * kept * (matched.rates - mean) + placed.filled * mean
    below, above, variance, curve = 0.0, 0.0, 0.0, 0.0
    if fill == "model":
        rates = predictions.rates * checks.ratio
        filled, slack = _damped(placed, rates, left, checks.slope)
        earned = kept * matched.rates + (1 - kept) * filled
        low, high = _bounds(predictions, rates)
        known = np.where(predictions.known, checks.doubt * rates, 0.0)
        below = slack + float((left * np.where(predictions.known, np.minimum(known, rates), low)).sum())
        above = slack + float((left * np.where(predictions.known, known, high)).sum())
        variance = _model_variance(placed, predictions, rates, left)
        curve = predictions.curve_variance(placed.rows, left)
    else:
        low, high = _bounds(predictions, mean)
        below = float((left * low).sum()) if fill == "mean" else 0.0
        above = float((left * high).sum())
    missing = _share(affected, 1 - kept)
    weight = scale * kept * placed.sessions[:, None] / np.maximum(matched.shown, 1)
    if checks.days is not None:
        shift = checks.days.shift(placed, matched, weight)
        moved = abs(shift) / 2 * float((share * discount * earned).sum())
        earned, below, above = earned / (1 + shift), below + moved, above + moved
    return Parts(
        per_query=(earned * discount).sum(axis=1),
        per_list=_per_list(placed, matched, weight, discount),
        model_variance=variance,
        curve_variance=curve,
        below=below,
        above=above,
        missing=missing,
        modelled=missing if fill == "model" else 0.0,
        unlinked=0.0 if predictions.linked else _share(affected, (1 - kept) * ~predictions.known),
        clipped=_share(affected, (kept < 1) & (matched.shown > 0)),
        effective=_effective(matched, weight, affected),
        misfit=_misfit(placed, predictions, checks, discount),
    )


def position_based(placed: Placed, predictions: Predictions, checks: Checks, *, discount: Float64) -> Parts:
    """Predict all clicks by the model: relevance of the document times observation at its new position.

    Unbiased if the model is right.
    """
    share = placed.shares[:, None] * placed.filled
    affected = share * discount * np.maximum(placed.rates_by_position, LEAST)
    exposure = predictions.exposure[np.maximum(placed.rows, 0)]
    shown = placed.filled & (exposure > 0)
    earned, slack = _damped(placed, predictions.rates, share * discount, checks.slope)
    misfit = _misfit(placed, predictions, checks, discount)
    slack += (abs(misfit[0]) + 2 * misfit[1]) * float((share * discount * earned).sum())
    low, high = _bounds(predictions, predictions.rates)
    left = share * discount * ~shown
    weight = (share * discount * predictions.observation)[shown]
    effective = float(weight.sum() ** 2 / max((weight**2 / exposure[shown]).sum(), LEAST**2))
    return Parts(
        per_query=(earned * discount).sum(axis=1),
        per_list=np.zeros(len(placed.clicks)),
        model_variance=_model_variance(placed, predictions, predictions.rates, share * discount),
        curve_variance=predictions.curve_variance(placed.rows, share * discount),
        below=float((left * low).sum()) + slack,
        above=float((left * high).sum()) + slack,
        missing=_share(affected, placed.filled & ~shown),
        modelled=_share(affected, placed.matched("item").shown == 0),
        unlinked=0.0 if predictions.linked else _share(affected, ~predictions.known),
        clipped=0.0,
        effective=min(effective, float(placed.sessions.sum())),  # a session has several impressions
        misfit=misfit,
    )


def _share(affected: Float64, part: Float64 | Bool) -> float:
    """Return the share of the affected clicks in this part of each cell, [queries, positions]."""
    return float((affected * part).sum() / affected.sum())


def _damped(placed: Placed, rates: Float64, left: Float64, slope: Slope) -> tuple[Float64, float]:
    """Return predicted rates, their difference to the log times the slope of lists; and how far off the sum may be."""
    apart = placed.filled * (rates - placed.rates)
    slack = (abs(slope.value - 1) / 2 + 2 * slope.error) * abs(float((left * apart).sum()))
    return np.maximum(rates + (slope.value - 1) * apart, 0.0), slack


def _bounds(predictions: Predictions, rates: Float64) -> tuple[Float64, Float64]:
    """Return how much lower and how much higher rates may be, between those of nearly all documents."""
    return np.maximum(rates - predictions.low, 0), np.maximum(predictions.high - rates, 0)


def _model_variance(placed: Placed, predictions: Predictions, rates: Float64, left: Float64) -> float:
    """Return the variance of the weighted sum of rates by the clicks of the documents."""
    rows = np.maximum(placed.rows, 0)
    evidence = np.maximum(predictions.exposure + predictions.strength, LEAST)[rows]
    shown = predictions.exposure[rows] > 0
    return float((left**2 * rates * predictions.observation / evidence)[shown].sum())


def _misfit(placed: Placed, predictions: Predictions, checks: Checks, discount: Float64) -> tuple[float, float]:
    """Return `Parts.misfit`."""
    earned = placed.shares[:, None] * discount * predictions.rates
    error = np.maximum(checks.doubt - np.abs(checks.ratio - 1) / 2, 0) / 2
    total = max(float(earned.sum()), LEAST)
    return float((earned * (checks.ratio - 1)).sum() / total), float((earned * error).sum() / total)


def _per_list(placed: Placed, matched: Matched, weight: Float64, discount: Float64) -> Float64:
    """Return the weighted clicks of each session minus those predicted by other sessions, [ranked lists].

    The prediction includes the click rate of the position, because a cell with one session has no spread.
    """
    log, entries = placed.clicks, matched.entries
    query, column = placed.query[placed.owner[entries]], log.positions[entries] - 1
    clicked = log.clicks[entries] / log.list_impressions[entries]
    prior = PSEUDO * placed.rates_by_position[column]
    others = (matched.clicked[query, column] - clicked + prior) / (matched.shown[query, column] - 1 + PSEUDO)
    change = weight[query, column] * discount[column] * (clicked - others)
    return sums(placed.owner[entries], change, len(log))


def _effective(matched: Matched, weight: Float64, affected: Float64) -> float:
    """Return the effective number of sessions at each position, averaged by the affected clicks there."""
    total, squares = (matched.shown * weight).sum(axis=0), (matched.shown * weight**2).sum(axis=0)
    by_position = affected.sum(axis=0)
    return float(by_position @ (total**2 / np.maximum(squares, LEAST)) / by_position.sum())
