"""What a new ranking would earn, by several estimators: each says what a session of every query would, and how sure.

With p the share of the sessions of a query that showed what the new ranking would, and w = min(1 / p, clip), the mean
of w times the clicks is w p times their mean over the sessions that match: given that there is one, that mean is
unbiased, whatever p is. What is left over, 1 - w p, was not shown; estimators differ in what must match, and in what
stands for what was not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np

from clickprism.evaluation.counterfactual_checks import Days, Slope, shift_of
from clickprism.evaluation.counterfactual_model import HALF, LEAST, RewardModel
from clickprism.evaluation.counterfactual_support import Cells, Match, Placed
from clickprism.types import Bool, Float64

Fill: TypeAlias = Literal["nothing", "mean", "model"]
FURTHEST: Final = 4.0  # times that a rate may be corrected by
PSEUDO: Final = 1.0  # impressions at the rate of the position, beside what other sessions of a cell say


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """A value, taken apart.

    Attributes:
        per_query: what a session of the query would earn; the mean over sessions is the value, [queries].
        per_list: how far each session of a ranked list moves the value of its query, [ranked lists].
        model_variance: of the value, by the clicks that the model rests on, given the queries.
        curve_variance: of the value, by the curve.
        below: how much lower the value may be for what was never shown.
        above: how much higher.
        missing: of the clicks at stake, the share on what was never shown, or was clipped away.
        modelled: of the clicks at stake, the share for which a click model stands.
        clipped: of the clicks at stake, the share whose weight was clipped.
        effective: sessions that the value rests on, in effect: (sum of weights)^2 / sum of squares.
        misfit: by how much the model alone would be too low, as a share of the value, and how unsure that is: going by
            documents that the log moved as the new ranking does.
    """

    per_query: Float64
    per_list: Float64
    model_variance: float
    curve_variance: float
    below: float
    above: float
    missing: float
    modelled: float
    clipped: float
    effective: float
    misfit: tuple[float, float]


@final
@dataclass(frozen=True, eq=False)
class Checks:
    """What the log says of the click model and of its days; each corrects, and widens by half of the correction.

    Attributes:
        ratio: of clicks to those foretold when the log moved documents as the new ranking moves them, as far as the
            move goes; 1 where nothing moved, [queries, positions].
        doubt: how far off a rate so corrected may be, as a share: half the correction, and twice its error.
        slope: how much more lists earn that the model says earn more.
        days: how much was clicked on each; None where it is not known.
    """

    ratio: Float64
    doubt: Float64
    slope: Slope
    days: Days | None


def checks_of(placed: Placed, model: RewardModel, slope: Slope, days: Days | None) -> Checks:
    """Compare what the new ranking moves up, and what it moves down, with documents that the log moved so."""
    rows = np.maximum(placed.rows, 0)
    shown = placed.place < placed.depth
    length = np.abs(np.nan_to_num(np.log(model.curve) - model.stood[rows]))
    ratio, doubt = np.ones(placed.rows.shape), np.zeros(placed.rows.shape)
    for up in (True, False):
        new = placed.place + 1.0
        moved: Bool = shown & (new < model.mean_position - HALF if up else new > model.mean_position + HALF)
        found = model.moves(moved, up=up)
        at = placed.filled & moved[rows]
        if np.isnan(found.error):
            doubt[at] = 1.0
            continue
        ratio[at] = np.clip(np.exp(found.slope * length[at]), 1 / FURTHEST, FURTHEST)
        doubt[at] = np.abs(ratio[at] - 1) / 2 + 2 * found.error * length[at] * ratio[at]
    return Checks(ratio, doubt, slope, days)


def weighted(
    placed: Placed,
    model: RewardModel,
    checks: Checks,
    *,
    match: Match,
    fill: Fill,
    worth: Float64,
    clip: float,
) -> Parts:
    """Clicks of the sessions that match, weighted, and something in place of what was never shown.

    Args:
        placed: the new ranking over the log.
        model: what fills in, and says how far off other fillings may be.
        checks: of the model, and of days.
        match: what must be as in the new ranking: the whole list (IPS), the top down to the position (reward
            interaction, cascade doubly robust), or the document at the position (item-position).
        fill: what stands for what was not shown: "nothing", as in plain IPS, the "mean" of what was at that position
            (self-normalised), or the "model" (doubly robust).
        worth: of a click at each position, [positions].
        clip: the largest weight.
    """
    cells = placed.cells(match)
    share = placed.shares[:, None] * placed.filled
    kept = np.minimum(1.0, clip * cells.shown / placed.sessions[:, None])
    left = share * worth * (1 - kept)
    at_stake = share * worth * np.maximum(placed.rates_by_position, LEAST)
    scale, mean = np.ones(placed.depth), np.zeros(placed.depth)
    if fill == "mean":
        there = (share * kept).sum(axis=0)
        mean = (share * kept * cells.rates).sum(axis=0) / np.maximum(there, LEAST)
        scale = share.sum(axis=0) / np.maximum(there, LEAST)
    earned = scale * kept * (cells.rates - mean) + placed.filled * mean
    below, above, variance, curve = 0.0, 0.0, 0.0, 0.0
    if fill == "model":
        filled = model.rates(placed.rows) * checks.ratio
        damped, slack = _damped(placed, filled, left, checks.slope)
        earned = kept * cells.rates + (1 - kept) * damped
        below, above = (slack + each for each in _model_slack(placed, model, checks, left))
        exposure = model.exposure[np.maximum(placed.rows, 0)] + model.worth
        variance = float((left**2 * filled * model.curve / exposure).sum())
        curve = float(model.drawn(placed.rows, left).var()) if len(model.draws) else 0.0
    else:
        low, high = model.bounds()
        below = float((left * np.maximum(mean - low, 0)).sum()) if fill == "mean" else 0.0
        above = float((left * np.maximum(high - mean, 0)).sum())
    missing = float((at_stake * (1 - kept)).sum() / at_stake.sum())
    weight = scale * kept * placed.sessions[:, None] / np.maximum(cells.shown, 1)
    if checks.days is not None:
        shift = shift_of(placed, cells, weight, checks.days)
        moved = abs(shift) / 2 * float((share * worth * earned).sum())
        earned, below, above = earned / (1 + shift), below + moved, above + moved
    return Parts(
        per_query=(earned * worth).sum(axis=1),
        per_list=_per_list(placed, cells, weight, worth),
        model_variance=variance,
        curve_variance=curve,
        below=below,
        above=above,
        missing=missing,
        modelled=missing if fill == "model" else 0.0,
        clipped=float((at_stake * ((kept < 1) & (cells.shown > 0))).sum() / at_stake.sum()),
        effective=_effective(cells, weight, at_stake),
        misfit=_misfit(placed, model, checks, worth),
    )


def position_based(placed: Placed, model: RewardModel, checks: Checks, *, worth: Float64) -> Parts:
    """Every document by its clicks over its exposure, at its new position by the curve: c_1(d) o_k / o_1.

    Unbiased where clicks are observation by position times relevance, and nothing else.
    """
    share = placed.shares[:, None] * placed.filled
    at_stake = share * worth * np.maximum(placed.rates_by_position, LEAST)
    rows = np.maximum(placed.rows, 0)
    exposure = model.exposure[rows]
    seen = placed.filled & (exposure > 0)
    rates = np.where(seen, model.clicked[rows] / np.maximum(exposure, LEAST) * model.curve, 0.0)
    stand_in = (share * rates).sum(axis=0) / np.maximum((share * seen).sum(axis=0), LEAST)
    earned = np.where(seen, rates, placed.filled * stand_in)
    low, high = model.bounds()
    left = share * worth * ~seen
    earned, slack = _damped(placed, earned, share * worth, checks.slope)
    misfit = _misfit(placed, model, checks, worth)
    slack += (abs(misfit[0]) + 2 * misfit[1]) * float((share * worth * earned).sum())
    per_cell = share * worth * model.curve
    spread = (per_cell[seen] ** 2 / exposure[seen]).sum()
    per_draw = model.drawn(placed.rows, share * worth) if len(model.draws) else np.zeros(1)
    return Parts(
        per_query=(earned * worth).sum(axis=1),
        per_list=np.zeros(len(placed.clicks)),
        model_variance=float(((share * worth)[seen] ** 2 * (rates * model.curve)[seen] / exposure[seen]).sum()),
        curve_variance=float(per_draw.var()),
        below=float((left * np.maximum(stand_in - low, 0)).sum()) + slack,
        above=float((left * np.maximum(high - stand_in, 0)).sum()) + slack,
        missing=_unseen(placed, model, at_stake),
        modelled=float((at_stake * (placed.cells("item").shown == 0)).sum() / at_stake.sum()),
        clipped=0.0,
        effective=float(per_cell[seen].sum() ** 2 / max(spread, LEAST**2)),
        misfit=misfit,
    )


def _damped(placed: Placed, filled: Float64, left: Float64, slope: Slope) -> tuple[Float64, float]:
    """What the model fills in, its difference to the log by the slope of lists; and how far off that may be in all."""
    apart = placed.filled * (filled - placed.rates)
    slack = (abs(slope.value - 1) / 2 + 2 * slope.error) * abs(float((left * apart).sum()))
    return np.maximum(filled + (slope.value - 1) * apart, 0.0), slack


def _model_slack(placed: Placed, model: RewardModel, checks: Checks, left: Float64) -> tuple[float, float]:
    """How far the model may be off in all: of documents it knows by what moved, of others by all documents."""
    low, high = model.bounds()
    rates = model.rates(placed.rows) * checks.ratio
    known = (model.exposure[np.maximum(placed.rows, 0)] > 0) & (not model.unlinked)
    down = np.where(known, rates * np.minimum(checks.doubt, 1), np.maximum(rates - low, 0))
    up = np.where(known, rates * checks.doubt, np.maximum(high - rates, 0))
    return float((left * down).sum()), float((left * up).sum())


def _misfit(placed: Placed, model: RewardModel, checks: Checks, worth: Float64) -> tuple[float, float]:
    earned = placed.shares[:, None] * worth * model.rates(placed.rows)
    error = np.maximum(checks.doubt - np.abs(checks.ratio - 1) / 2, 0) / 2
    return float((earned * (checks.ratio - 1)).sum() / earned.sum()), float((earned * error).sum() / earned.sum())


def _unseen(placed: Placed, model: RewardModel, at_stake: Float64) -> float:
    never = placed.filled & (model.exposure[np.maximum(placed.rows, 0)] == 0)
    return float((at_stake * never).sum() / at_stake.sum())


def _per_list(placed: Placed, cells: Cells, weight: Float64, worth: Float64) -> Float64:
    """The weighted clicks of each session less those that the other sessions of its cells foretell, [ranked lists].

    A session is foretold by the others, and by the rate of the position, as a cell with one session knows no spread.
    """
    log, entries = placed.clicks, cells.entries
    query, column = placed.query[placed.owner[entries]], log.positions[entries] - 1
    clicked = log.clicks[entries] / log.list_impressions[entries]
    prior = placed.rates_by_position[column]
    others = (cells.clicked[query, column] - clicked + PSEUDO * prior) / (cells.shown[query, column] - 1 + PSEUDO)
    moved = weight[query, column] * worth[column] * (clicked - others)
    return np.bincount(placed.owner[entries], weights=moved, minlength=len(log)).astype(np.float64)


def _effective(cells: Cells, weight: Float64, at_stake: Float64) -> float:
    """Sessions in effect at each position, averaged by the clicks at stake there."""
    total, squares = (cells.shown * weight).sum(axis=0), (cells.shown * weight**2).sum(axis=0)
    stake = at_stake.sum(axis=0)
    return float(stake @ (total**2 / np.maximum(squares, LEAST)) / stake.sum())
