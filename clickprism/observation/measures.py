"""How well clicks are predicted: log-likelihood, perplexity and click rates, for every click model.

A model predicts each entry of a log twice: before any click of the session is known (the marginal probability), and
given the clicks above (the conditional one, for logs whose sessions stand one by one or merged by pattern). Marginal
probabilities give the perplexity, conditional ones the conditional perplexity and the log-likelihood: a session's
probability is the product of the conditional ones. All are exact on merged logs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Clicks, Float64

FLOOR: Final = 1e-6


def log_terms(probability: Float64, clicks: Clicks, *, floor: float = FLOOR) -> Float64:
    """Each entry's share of the log-likelihood, c log p + (n - c) log(1 - p), n its impressions, [entries].

    Probabilities are kept `floor` away from 0 and 1, so that a model that calls a click impossible, as the cascade
    model does a second one, gets a finite if very bad figure; with a floor of 0 it gets minus infinity.
    """
    if probability.shape != clicks.rows.shape:
        raise DataError(f"{len(clicks.rows)} entries but probabilities of shape {probability.shape}")
    if not ((probability >= 0) & (probability <= 1 + 1e-9)).all():
        raise DataError("click probabilities must be between 0 and 1")
    yes = np.clip(probability, floor, 1 - floor)
    hit, miss = clicks.clicks, clicks.list_impressions - clicks.clicks
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(hit > 0, yes, 1.0)), np.log1p(-np.where(miss > 0, yes, 0.0))
    result: Float64 = hit * logs[0] + miss * logs[1]
    return result


def log_likelihood(probability: Float64, clicks: Clicks, *, floor: float = FLOOR) -> float:
    """The mean log-likelihood of a session, of probabilities given the clicks above.

    >>> log = _one_session([1, 0])
    >>> round(float(np.exp(log_likelihood(np.array([0.5, 0.25]), log))), 6)
    0.375
    """
    return float(log_terms(probability, clicks, floor=floor).sum() / max(clicks.sessions, 1))


def perplexity(probability: Float64, clicks: Clicks, *, floor: float = FLOOR) -> Float64:
    """The perplexity at each position, 2^(- mean of log2 P(click or no click)) (Dupret and Piwowarski 2008).

    1 is a perfect prediction, 2 that of a coin. NaN at a position that the log does not show, [positions].

    >>> perplexity(np.array([0.5, 0.25]), _one_session([1, 0])).round(6).tolist()
    [2.0, 1.333333]
    """
    places = clicks.positions - 1
    size = clicks.max_position
    terms = np.bincount(places, weights=log_terms(probability, clicks, floor=floor), minlength=size)
    shown = np.bincount(places, weights=clicks.list_impressions, minlength=size)
    with np.errstate(invalid="ignore"):
        result: Float64 = np.exp(-terms / shown)
    return result


def mean_perplexity(probability: Float64, clicks: Clicks, *, floor: float = FLOOR) -> float:
    """The mean of `perplexity` over the positions that the log shows, each position counted alike."""
    return float(np.nanmean(perplexity(probability, clicks, floor=floor)))


def rate_error(probability: Float64, clicks: Clicks) -> float:
    """How far predicted click rates are off: the root of the mean square over impressions.

    The rates are those of a document at a position: clicks and predictions are added up over all lists that show it
    there. Of marginal probabilities.

    >>> round(rate_error(np.array([0.5, 0.5]), _one_session([1, 0])), 6)
    0.5
    """
    log_terms(probability, clicks)
    pair = np.unique(clicks.rows * (clicks.max_position + 1) + clicks.positions, return_inverse=True)[1]
    shown = np.bincount(pair, weights=clicks.list_impressions)
    gap = np.bincount(pair, weights=clicks.clicks - probability * clicks.list_impressions)
    return float(np.sqrt((gap**2 / np.maximum(shown, 1)).sum() / max(shown.sum(), 1)))


def _one_session(pattern: list[int]) -> Clicks:
    """One session for the examples above."""
    from clickprism.types import Lists

    size = len(pattern)
    lists = Lists(np.zeros((size, 0), np.float32), np.array([0, size]), np.array(["q"]))
    places = np.arange(1, size + 1, dtype=np.int32)
    return Clicks(lists, np.array([0, size]), np.arange(size), places, np.array(pattern), np.array([1]))
