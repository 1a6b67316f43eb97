"""How well a click model predicts clicks that it was not fitted to. All are exact on merged sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.errors import DataError
from clickprism.observation.click_models.base import FittedModel, log_probability
from clickprism.types import Clicks, Float64


@final
@dataclass(frozen=True, eq=False)
class Quality:
    """What a click model is judged by, on a log.

    Attributes:
        log_likelihood: log P(clicks) of a session, on average; natural logarithm, more is better.
        perplexity: 2^(-mean log2 P(click or not)), before anything of the session is known, on average over positions:
            1 is perfect, 2 a coin.
        conditional_perplexity: the same with P given the clicks above.
        rate_error: mean squared distance of predicted and actual click rate, of entries of the same ranked lists,
            weighted by impressions.
        by_rank: perplexity at positions 1, 2, ..., nan where nothing was shown.
    """

    log_likelihood: float
    perplexity: float
    conditional_perplexity: float
    rate_error: float
    by_rank: Float64


def assess(model: FittedModel, clicks: Clicks) -> Quality:
    """Judge a model by a log of sessions, or of sessions merged by pattern (by list, where the model needs no more)."""
    if len(clicks.rows) == 0:
        raise DataError("there are no sessions to judge a click model by")
    marginal, conditional = model.click_probability(clicks), model.conditional_probability(clicks)
    by_rank = perplexity(clicks, marginal)
    return Quality(
        log_likelihood=float(log_probability(clicks, conditional).sum()) / clicks.sessions,
        perplexity=float(np.nanmean(by_rank)),
        conditional_perplexity=float(np.nanmean(perplexity(clicks, conditional))),
        rate_error=rate_error(clicks, marginal),
        by_rank=by_rank,
    )


def perplexity(clicks: Clicks, probability: Float64) -> Float64:
    """2^(-mean log2 P(click or not)) at positions 1, 2, ..., with P kept 1e-6 from 0 and 1; nan where none was shown.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> positions, four = np.array([1, 2], np.int32), np.array([4])
    >>> log = Clicks(lists, np.array([0, 2]), np.array([0, 1]), positions, np.array([2, 0]), four)
    >>> perplexity(log, np.array([0.5, 0.2])).round(4).tolist()
    [2.0, 1.25]
    """
    places = clicks.positions - 1
    terms = np.bincount(places, weights=log_probability(clicks, probability))
    shown = np.bincount(places, weights=clicks.list_impressions)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(-terms / np.where(shown > 0, shown, np.nan)), dtype=np.float64)


def rate_error(clicks: Clicks, probability: Float64) -> float:
    """Mean squared distance of predicted and actual click rates.

    Actual rates are of document and position, over all sessions that showed one at the other; the predicted rate is
    the mean over the same sessions. Weighted by impressions.
    """
    depth = clicks.max_position + 1
    _, pair = np.unique(clicks.rows * depth + clicks.positions, return_inverse=True)
    shown = clicks.list_impressions
    total, actual, predicted = (np.bincount(pair, weights=sums) for sums in (shown, clicks.clicks, shown * probability))
    return float((((actual - predicted) / total) ** 2 * total).sum() / total.sum())
