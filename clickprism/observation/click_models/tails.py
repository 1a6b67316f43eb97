"""A log as users read it, counted: all that EM for DBN and CCM needs of it.

Users who read from the top down have surely seen all above their last click and gone on from it. Unknown is only how
far they read below the last click. So sessions are counted by the rest of the list from the last click on, its tail:
the same tails are worked out once, and the cost of a step of EM does not grow with the sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from clickprism._util.compiled import compiled
from clickprism._util.grouping import same_lists
from clickprism.observation.click_models.base import by_document
from clickprism.observation.click_models.closed import down_to
from clickprism.types import Clicks, Float64, Int64, slices

Columns: TypeAlias = tuple[Int64, Int64, Int64, Float64]  # offsets, rows, clicked, weights


@final
@dataclass(frozen=True, eq=False)
class Tails:
    """What is settled, by document or in all, and the tails.

    Attributes:
        columns: of the tails: offsets [tails + 1], document rows, whether the first entry was clicked [tails], and how
            many sessions ended so [tails].
        clicks: on each document, [documents].
        skips: of each document above the last click, so seen for sure, [documents].
        went: clicks on each document with another below: users went on, [documents].
        unsure: last clicks on each document that the list goes on below, [documents].
        skipped: all skips above the last click; after each, users went on.
    """

    columns: Columns
    clicks: Float64
    skips: Float64
    went: Float64
    unsure: Float64
    skipped: float


@final
@dataclass(frozen=True, eq=False)
class Expected:
    """What a step of EM expects to have happened, in all sessions.

    Attributes:
        looks: at each document without a click on it, [documents].
        went: how often users went on after clicks on each document, of `clicks` with a list below, [documents].
        paused: looks without a click that the list goes on below.
        continued: how often users went on after these.
        log_likelihood: of the log, with the parameters that were given.
    """

    looks: Float64
    went: Float64
    paused: float
    continued: float
    log_likelihood: float


def count_tails(clicks: Clicks) -> Tails:
    """Count a log whose sessions are their own or merged by pattern."""
    down = down_to("last", clicks)
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    ended = np.bincount(owner, weights=down.last, minlength=len(clicks)) > 0
    start = clicks.offsets[:-1].copy()
    start[owner[down.last]] = np.flatnonzero(down.last)
    keep = clicks.offsets[1:] > start + ended  # a click at the end of the list leaves nothing unknown
    clicked = ended[keep].astype(np.int64)
    bounds = np.stack([start[keep], clicks.offsets[1:][keep]], axis=1).ravel()
    entries, offsets = slices(bounds, np.arange(0, len(bounds), 2))
    rows = clicks.rows[entries]
    pattern = np.repeat(clicked, np.diff(offsets))
    group, first = same_lists(offsets, rows, np.zeros(len(rows), dtype=np.int32), pattern)
    weights = np.bincount(group, weights=clicks.impressions[keep], minlength=len(first)).astype(np.float64)
    chosen, ends = slices(offsets, first)
    above = (down.seen - down.clicked) * ended[owner]
    return Tails(
        columns=(ends, rows[chosen], clicked[first], weights),
        clicks=by_document(clicks, down.clicked),
        skips=by_document(clicks, above),
        went=by_document(clicks, down.clicked * ~down.last),
        unsure=by_document(clicks, down.clicked * down.last * down.followed),
        skipped=float(above.sum()),
    )


def expect(tails: Tails, *, attraction: Float64, after_skip: float, after_click: Float64) -> Expected:
    """One E-step: how far users read below their last click, given the parameters, and how probable the log is."""
    looks, went = tails.skips.copy(), tails.went.copy()
    totals = np.array([tails.skipped, tails.skipped, 0.0])
    _expect(tails.columns, (attraction, after_click), after_skip, (looks, went, totals))
    settled = (
        _times_log(tails.clicks, attraction)
        + _times_log(tails.skips, 1 - attraction)
        + _times_log(tails.went, after_click)
        + _times_log(np.array([tails.skipped]), np.array([after_skip]))
    )
    return Expected(looks, went, float(totals[0]), float(totals[1]), float(totals[2]) + settled)


def _times_log(counts: Float64, values: Float64) -> float:
    there = counts > 0
    with np.errstate(divide="ignore"):
        return float(counts[there] @ np.log(values[there]))


@compiled
def _expect(
    columns: Columns, chances: tuple[Float64, Float64], after_skip: float, sums: tuple[Float64, Float64, Float64]
) -> None:
    """Backward, how probable no click is below each entry that is seen; forward, how probably it was seen."""
    offsets, rows, clicked, weights = columns
    attraction, after_click = chances
    looks, went, totals = sums
    longest = 0
    for tail in range(len(weights)):
        longest = max(longest, offsets[tail + 1] - offsets[tail])
    quiet = np.ones(longest + 1)
    for tail in range(len(weights)):
        first, last, weight = offsets[tail] + clicked[tail], offsets[tail + 1], weights[tail]
        quiet[last - first] = 1.0
        for place in range(last - first - 1, -1, -1):
            below = 1.0 if place == last - first - 1 else 1 - after_skip + after_skip * quiet[place + 1]
            quiet[place] = (1 - attraction[rows[first + place]]) * below
        seen = 1.0
        whole = quiet[0]
        if clicked[tail]:
            further = after_click[rows[first - 1]]
            whole = 1 - further + further * quiet[0]
            seen = further * quiet[0] / whole if whole > 0 else 0.0
            went[rows[first - 1]] += weight * seen
        totals[2] += weight * np.log(whole) if whole > 0 else -np.inf
        for place in range(last - first):
            looks[rows[first + place]] += weight * seen
            if place + 1 < last - first:
                totals[0] += weight * seen
                below = 1 - after_skip + after_skip * quiet[place + 1]
                seen *= after_skip * quiet[place + 1] / below if below > 0 else 0.0
                totals[1] += weight * seen
