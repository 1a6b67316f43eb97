"""The exact likelihood of simulated users, by their definitions: clicks and fitted models must agree with it."""

from __future__ import annotations

import numpy as np

from clickprism.click_models.pbm import DocumentUser, PositionUser
from clickprism.click_models.trust import TrustUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import ReadingUser, Shown, User
from clickprism.types import Bool, Float64, Int64


def log_likelihood_of(user: User, shown: Shown, clicks: Bool) -> Float64:
    """Return log P(clicks | ranked list) of each session, [sessions]."""
    probability = click_probability(user, shown, clicks)
    with np.errstate(divide="ignore"):
        terms = np.log(np.where(clicks, probability, 1 - probability))
    return np.bincount(shown.session_of, weights=terms, minlength=len(shown)).astype(np.float64)


def click_probability(user: User, shown: Shown, clicks: Bool) -> Float64:
    """Return P(click | clicks above) of each entry, [entries]."""
    attraction = shown.attraction.astype(np.float64)
    if isinstance(user, ReadingUser):
        return attraction * _read(user, shown, clicks)
    if isinstance(user, BrowsingUser):
        return attraction * user.observation(shown.positions, _last_clicks(shown, clicks))
    if isinstance(user, DocumentUser):
        return attraction * user.observation(shown.lists, shown.rows, shown.positions)
    if isinstance(user, TrustUser):
        plus, minus = user.trust(shown.positions)
        return user.observation(shown.positions) * (plus * attraction + minus * (1 - attraction))
    assert isinstance(user, PositionUser)
    return attraction * user.observation(shown.positions)


def _last_clicks(shown: Shown, clicks: Bool) -> Int64:
    """Return the position of the last click above each entry, 0 for none."""
    last = np.zeros(len(clicks), np.int64)
    for entry in range(1, len(clicks)):
        if shown.positions[entry] > 1:
            last[entry] = shown.positions[entry - 1] if clicks[entry - 1] else last[entry - 1]
    return last


def _read(user: ReadingUser, shown: Shown, clicks: Bool) -> Float64:
    """Return P(observed | clicks above), by Bayes' rule from each entry to the next."""
    chain, observed = user.chain, np.ones(len(clicks))
    for entry in range(1, len(clicks)):
        position = shown.positions[entry]
        if position == 1:
            continue
        attraction, before = float(shown.attraction[entry - 1]), observed[entry - 1]
        if clicks[entry - 1]:
            factor = chain.at_position[min(position - 2, len(chain.at_position) - 1)]
            observed[entry] = (chain.low * (1 - attraction) + chain.high * attraction) * factor
        else:
            not_clicked = 1 - before * attraction
            observed[entry] = before * (1 - attraction) / not_clicked * chain.skip if not_clicked > 0 else 0.0
    return observed
