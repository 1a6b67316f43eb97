"""One target a document: what it would be clicked in the first place, by an observation model's word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.types import Bool, Clicks, Float64, Int64, Lists

SHRINKAGE: Final = 10.0  # impressions in the first place


@final
@dataclass(frozen=True, eq=False)
class Exposure:
    """What an observation model says of a log: lines of documents at places, or entries of ranked lists.

    Attributes:
        rows: the document, [lines].
        positions: from 0, [lines].
        clicks: [lines].
        shown: impressions, [lines].
        seen: how often it was seen there, in units of the first position, [lines].
        background: the clicks there that came without relevance, [lines].
    """

    rows: Int64
    positions: Int64
    clicks: Float64
    shown: Float64
    seen: Float64
    background: Float64


def targets(exposure: Exposure, documents: int, *, shrinkage: float = SHRINKAGE) -> Float64:
    """The estimated click of each document in the first place, [documents]; NaN where it was never shown.

    target = (sum of clicks - sum of background + s m) / (sum of seen + s)

    Little evidence is drawn towards m as if by s more impressions in the first place. m is the mean, over the
    impressions of the document, of what stands at their positions earned while seen: who stands low is most likely
    worse than the whole of the log.

    >>> one = np.array([0, 0]), np.array([0, 1]), np.array([6.0, 3.0]), np.array([10.0, 10.0])
    >>> targets(Exposure(*one, seen=np.array([10.0, 5.0]), background=np.zeros(2)), 1, shrinkage=0).tolist()
    [0.6]
    """
    caused = exposure.clicks - exposure.background
    earned = np.bincount(exposure.positions, weights=caused) / np.maximum(
        np.bincount(exposure.positions, weights=exposure.seen), 1e-12
    )
    prior = exposure.shown * np.maximum(earned, 0.0)[exposure.positions]
    clicked, seen, times, hoped = (
        np.bincount(exposure.rows, weights=each, minlength=documents)
        for each in (caused, exposure.seen, exposure.shown, prior)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (clicked + shrinkage * hoped / times) / np.maximum(seen + shrinkage, 1e-12)
    return np.where(times > 0, np.maximum(found, 0.0), np.nan)


def as_clicks(lists: Lists, target: Float64, queries: Bool) -> Clicks:
    """One ranked list for each of these queries, [lists]: every document shown, with its target as the clicks' weight.

    A loss that is linear in clicks then learns the targets, at the cost of one list a query however long the log is.
    """
    kept = np.flatnonzero(~np.isnan(target) & queries[lists.list_of])
    lengths = np.bincount(lists.list_of[kept], minlength=len(lists))
    lengths = lengths[lengths > 0]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(len(kept)) - np.repeat(offsets[:-1], lengths) + 1
    return Clicks(
        lists,
        offsets,
        kept,
        places.astype(np.int32),
        np.ones(len(kept), dtype=np.int64),
        np.ones(len(lengths), dtype=np.int64),
        target[kept],
    )
