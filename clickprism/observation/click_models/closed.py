"""Counts down to a click: all that the models need whose estimates are shares of counts (cascade, DCM, SDBN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from clickprism.observation.click_models.base import check_patterns, check_sessions
from clickprism.types import Bool, Clicks, Float64


@final
@dataclass(frozen=True, eq=False)
class Down:
    """The entries of a log that count as seen: those down to a click, or the whole list where there is none.

    Attributes:
        seen: the impressions of entries that count as seen, 0 of others, [entries].
        clicked: of these, those that were clicked, [entries].
        followed: whether the list goes on below the entry, [entries].
        last: whether the entry was clicked and none below it, [entries].
    """

    seen: Float64
    clicked: Float64
    followed: Bool
    last: Bool


def down_to(click: Literal["first", "last"], clicks: Clicks) -> Down:
    """Count as seen what stands above or at the first or last click of each session."""
    check_sessions(clicks)
    check_patterns(clicks)
    lengths = np.diff(clicks.offsets)
    owner = np.repeat(np.arange(len(clicks)), lengths)
    entries = np.arange(len(clicks.rows))
    clicked = clicks.clicks > 0
    first, last = np.full(len(clicks), len(entries)), np.full(len(clicks), -1)
    np.minimum.at(first, owner[clicked], entries[clicked])
    np.maximum.at(last, owner[clicked], entries[clicked])
    end = first if click == "first" else np.where(last < 0, len(entries), last)
    shown = clicks.list_impressions * (entries <= end[owner])
    return Down(
        seen=shown.astype(np.float64),
        clicked=(shown * clicked).astype(np.float64),
        followed=entries + 1 < clicks.offsets[1:][owner],
        last=entries == last[owner],
    )
