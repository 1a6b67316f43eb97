"""What is made of a log: counts for estimates, clicks in the first slot, click vectors."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np

from clickprism.log.schema import POSITIONS, WINDOWS, no_clicks, window_fields
from clickprism.relevance.estimates import PairCounts
from clickprism.types import Float32, Float64, Int64
from reproduce.adr.searches import SEEN, UNSEEN, Log
from reproduce.adr.worlds import Site

Examined: TypeAlias = Literal["display", "behaviour"]
HOURS: Final = {"day": 24, "week": 7 * 24, "month": 28 * 24}
BEFORE: Final = (0, 24, 7 * 24)  # hours from the end of a segment to the end of its window


def pair_counts(log: Log, site: Site, *, examined: Examined = "display") -> PairCounts:
    """The counts of every document at every position.

    The examination estimate of an impression is the probability that it was seen, given

    - "display": its position and whether it was on screen for less than 1 s, more than 5 s, or between. It averages to
      theta_k for every document alike;
    - "behaviour": its position and whether it was clicked, all that §6.1.1 has where positions are independent. It
      averages to theta_k over the log, but to more for what is clicked often.
    """
    shape = len(site.relevance), len(site.theta)
    impressions, clicked = _table(log, log.impressions, shape), _table(log, log.clicked, shape)
    if examined == "behaviour":
        shown, clicks = impressions.sum(axis=0), clicked.sum(axis=0)
        rest = np.clip((site.theta * shown - clicks) / np.maximum(shown - clicks, 1), 0.0, 1.0)
        estimates = np.stack([np.ones_like(rest), rest])
        groups = [(clicked, clicked), (impressions - clicked, np.zeros_like(clicked))]
    else:
        seen, unseen = site.theta * np.array(SEEN)[:, None], (1 - site.theta) * np.array(UNSEEN)[:, None]
        estimates = seen / (seen + unseen)
        short, long = ((log.short, log.short_clicked), (log.long, log.long_clicked))
        between = tuple(
            all_ - one - other for all_, one, other in zip((log.impressions, log.clicked), short, long, strict=True)
        )
        groups = [(_table(log, some, shape), _table(log, of, shape)) for some, of in (short, between, long)]
    sums = [np.zeros(shape) for _ in range(3)]
    for estimate, (some, of) in zip(estimates, groups, strict=True):
        sums = [a + b for a, b in zip(sums, (estimate * some, estimate * of, estimate**2 * some), strict=True)]
    return PairCounts(impressions, clicked, *sums)


def _table(log: Log, values: Int64, shape: tuple[int, int]) -> Int64:
    cells = np.bincount(log.rows * shape[1] + log.places, weights=values, minlength=shape[0] * shape[1])
    return np.rint(cells).astype(np.int64).reshape(shape)


def first_slot(log: Log, documents: int) -> tuple[Int64, Int64]:
    """Clicks and impressions of each document where exploration put it first, [documents]."""
    chosen = log.take(log.randomised)
    clicks, shown = (
        np.bincount(chosen.rows, weights=of, minlength=documents) for of in (chosen.clicked, chosen.impressions)
    )
    return np.rint(clicks).astype(np.int64), np.rint(shown).astype(np.int64)


def click_vectors(log: Log, site: Site, *, month: int, rows: Int64 | None = None) -> Float32:
    """The click vector of documents as of the end of a month, [rows, fields] (clickprism.log.schema, with examination).

    Every search is of another user. Dwell and display times are not simulated by the second; their fields are 0.
    """
    chosen = log.take(log.months == month)
    keep = np.arange(len(site.relevance)) if rows is None else rows
    parts = []
    for place, window in enumerate(WINDOWS):
        parts.append(_window(chosen.take(chosen.segments <= place), site, window, keep))
    return np.concatenate(parts, axis=1).astype(np.float32)


def _window(log: Log, site: Site, window: str, keep: Int64) -> Float64:
    counts = pair_counts(log, site)
    names = window_fields(examination=True)
    x = np.tile(np.array(no_clicks(HOURS[window], examination=True)), (len(keep), 1))
    sums = {"impressions": counts.impressions, "clicked": counts.clicked, "examination": counts.examination}
    for name, table in sums.items():
        values = np.asarray(table)[keep]
        x[:, names.index(name)] = values.sum(axis=1)
        for position in range(min(POSITIONS, values.shape[1])):
            x[:, names.index(f"{name}@{position + 1}")] = values[:, position]
        x[:, names.index(f"{name}@rest")] = values[:, POSITIONS:].sum(axis=1)
    x[:, names.index("clicks")] = x[:, names.index("clicked")]
    x[:, names.index("users")] = x[:, names.index("impressions")]
    ages = np.full(len(site.relevance), np.inf)
    np.minimum.at(ages, log.rows, log.ages + np.array(BEFORE)[log.segments])
    x[:, names.index("last_click_age")] = np.minimum(ages[keep], HOURS[window])
    return x
