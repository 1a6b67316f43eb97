"""The value of a click: carts, bookings, purchases or a weighted sum of them, given the click.

    value of d at the first position  =  c_1(d) v(d),      v(d) = E[outcome | click on d]

The model of the log estimates c_1, which it corrects for position bias. v needs no such correction: it is conditional
on the click, and a user who clicked has seen the document. Most pairs have few clicks, so v is a shrunk mean,

    v(d) = (outcomes of d + k m(d)) / (clicks of d + k),

where m(d) is predicted from the features if that predicts held-out outcomes better than the mean of all clicks does.
The prior strength k follows from how much the outcome rates of pairs differ beyond chance.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from clickprism.data.click_table import parse_outcome
from clickprism.data.logged import Logged
from clickprism.errors import SettingError, UnsupportedError
from clickprism.types import Float64, Int64

CLICK: Final = "click"
STRENGTH: Final = 10.0  # k in clicks, if the log does not show it
RANGE: Final = (0.5, 1000.0)  # range of k
FOLDS: Final = 5
RIDGE: Final = 10.0  # in clicks
FEWEST: Final = 30  # clicks with an outcome from which features are tried


@final
@dataclass(frozen=True, eq=False)
class ClickValue:
    """The expected value of a click on each document.

    Attributes:
        weights: Weight of each outcome.
        values: v, in units of the weights, [documents].
        errors: Standard error of v, [documents].
        strength: k, in clicks.
        mean: Mean value of all clicks.
        features: Whether features predict it.
    """

    weights: Mapping[str, float]
    values: Float64
    errors: Float64
    strength: float
    mean: float
    features: bool

    @property
    def sentence(self) -> str:
        """Return how the value was estimated."""
        named = " + ".join(name if weight == 1 else f"{weight:g}*{name}" for name, weight in self.weights.items())
        source = "predicted by the features" if self.features else "equal for all documents"
        return (
            f"The outcome is {named}: {self.mean:.3g} for the average click. Its value given a click is a mean over "
            f"the clicks of each pair, shrunk with {self.strength:.3g} clicks towards a value that is {source}."
        )

    def relative(self, logged: Logged) -> Logged:
        """Return the log with the value of a click on each document relative to the average click."""
        return replace(logged, values=self.values / max(self.mean, 1e-12))


def click_value(logged: Logged, outcome: str) -> ClickValue | None:
    """Estimate the value of clicks; return None if the outcome is the click itself.

    Args:
        logged: The log, with its outcomes.
        outcome: Name of an outcome, or a weighted sum of outcomes.
    """
    weights = parse_outcome(outcome)
    if set(weights) == {CLICK}:
        return None
    outcomes = logged.outcomes
    known = (CLICK, *(() if outcomes is None else outcomes.values))
    for name in weights:
        if name not in known:
            nearest = ", ".join(difflib.get_close_matches(name, known, 5, 0.0))
            must = f"name outcomes of the log ({nearest}). Outcomes of a table are named with outcomes= or --map"
            raise SettingError("outcome", outcome, must)
    if outcomes is None:
        raise UnsupportedError("the log has no outcomes besides clicks", remedy="Use --outcome click")
    documents = logged.clicks.lists.documents
    each = np.zeros(len(outcomes.rows))
    for name, weight in weights.items():
        each += weight * (1.0 if name == CLICK else outcomes.values[name])
    number = np.bincount(outcomes.rows, minlength=documents).astype(np.float64)
    total = np.bincount(outcomes.rows, weights=each, minlength=documents).astype(np.float64)
    if not total.any():
        raise UnsupportedError(f"no click of the log has the outcome {outcome!r}", remedy="Use --outcome click")
    mean = float(total.sum() / number.sum())
    prior, used = np.full(documents, mean), False
    if logged.has_features and np.count_nonzero(total) >= FEWEST:
        prior, used = _by_features(logged, number, total, mean)
    own = np.divide(total, number, out=np.zeros(documents), where=number > 0)
    noise = _noise(each, own[outcomes.rows], number)
    strength = _strength(number, own, prior, noise)
    values = (total + strength * prior) / (number + strength)
    errors = np.sqrt(noise / (number + strength))
    return ClickValue(weights, values, errors, strength, mean, used)


def _noise(each: Float64, own: Float64, number: Float64) -> float:
    """Return sigma^2, the variance of outcomes within a pair; over all clicks if each pair has one click."""
    free = len(each) - int((number > 0).sum())
    return float(((each - own) ** 2).sum() / free) if free else float(each.var())


def _strength(number: Float64, own: Float64, prior: Float64, noise: float) -> float:
    """Return k = sigma^2 / tau^2, where the means of pairs vary by tau^2 beyond chance.

    E[sum of n_d (mean of d - m_d)^2] = pairs sigma^2 + clicks tau^2 if m_d is known.
    """
    clicked = number > 0
    if number.max() < 2:
        return STRENGTH
    squares = float((number * (own - prior) ** 2)[clicked].sum())
    between = (squares - int(clicked.sum()) * noise) / float(number.sum())
    return float(np.clip(noise / between if between > 0 else RANGE[1], *RANGE))


def _by_features(logged: Logged, number: Float64, total: Float64, mean: float) -> tuple[Float64, bool]:
    """Return m of each document and whether features predict it better than the mean, on held-out queries."""
    lists = logged.clicks.lists
    features = lists.features.astype(np.float64)
    clicked = np.flatnonzero(number > 0)
    centre = np.nanmean(features[clicked], axis=0)
    spread = np.nanstd(features[clicked], axis=0)
    usable = np.isfinite(centre) & (spread > 0)
    if not usable.any():
        return np.full(lists.documents, mean), False
    scaled = (features[:, usable] - centre[usable]) / spread[usable]
    scaled = np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -5, 5)
    rates = total[clicked] / number[clicked]
    few = len(np.unique(lists.list_of[clicked])) < 2 * FOLDS
    fold = (np.arange(len(clicked)) if few else lists.list_of[clicked]) % FOLDS
    gains = np.zeros(FOLDS)
    for held_out in range(FOLDS):
        train, test = clicked[fold != held_out], fold == held_out
        if not test.any() or not len(train):
            continue
        own = float(total[train].sum() / number[train].sum())
        predicted = own + scaled[clicked[test]] @ _ridge(scaled, train, number, total, own)
        by_mean, by_features = (rates[test] - own) ** 2, (rates[test] - np.maximum(predicted, 0)) ** 2
        gains[held_out] = float((number[clicked[test]] * (by_mean - by_features)).sum())
    if not gains.mean() > gains.std(ddof=1) / np.sqrt(FOLDS):
        return np.full(lists.documents, mean), False
    return np.maximum(mean + scaled @ _ridge(scaled, clicked, number, total, mean), 0.0), True


def _ridge(scaled: Float64, rows: Int64, number: Float64, total: Float64, mean: float) -> Float64:
    """Return the coefficients of outcomes minus their mean on features, weighted by clicks."""
    own, weight = scaled[rows], number[rows]
    matrix = (own * weight[:, None]).T @ own + RIDGE * np.eye(scaled.shape[1])
    return np.asarray(np.linalg.solve(matrix, own.T @ (total[rows] - mean * weight)))
