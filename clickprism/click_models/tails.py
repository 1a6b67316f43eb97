"""What users who read from the top down have observed, counted: all that fitting the chain models needs of a log.

Cascade, DCM and SDBN are estimated by shares of counts down to a click (`down_to`). DBN and CCM are fitted by EM
(`climb`), whose steps (`expect`) need a log as tails. These users have observed everything above their last click and
continued from it; unknown is only how far they read below it. So sessions are counted by their tail, the rest of the
list from the last click on. Equal tails are computed once, so that the cost of an EM step does not grow with sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

from clickprism._util.compiled import compiled
from clickprism._util.grouping import same_lists
from clickprism.click_models.fitted import Prior, by_document, check_patterns, check_sessions
from clickprism.types import Bool, Clicks, Float64, Int64, slices

Columns: TypeAlias = tuple[Int64, Int64, Int64, Float64]  # offsets, rows, clicked, weights
Step: TypeAlias = Callable[[Float64], tuple[Float64, float]]  # old parameters -> new ones, log-likelihood of the old

_INSIDE = 1e-12


@final
@dataclass(frozen=True, eq=False)
class Down:
    """The entries of a log that count as observed: those down to a click, or the whole list if there is no click.

    Attributes:
        clicks: the log.
        observed: impressions of entries that count as observed, 0 for others, [entries].
        clicked: of these, those that were clicked, [entries].
        followed: whether the list continues below the entry, [entries].
        last: whether the entry is the last click of its session, [entries].
    """

    clicks: Clicks
    observed: Float64
    clicked: Float64
    followed: Bool
    last: Bool

    def attraction(self, prior: Prior) -> Float64:
        """Return clicks / observations of each document, [documents]."""
        return prior.share(by_document(self.clicks, self.clicked), by_document(self.clicks, self.observed))


def down_to(click: Literal["first", "last"], clicks: Clicks) -> Down:
    """Count entries above or at the first or last click of each session as observed."""
    check_sessions(clicks)
    check_patterns(clicks)
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    entries = np.arange(len(clicks.rows))
    clicked = clicks.clicks > 0
    first, last = np.full(len(clicks), len(entries)), np.full(len(clicks), -1)
    np.minimum.at(first, owner[clicked], entries[clicked])
    np.maximum.at(last, owner[clicked], entries[clicked])
    end = first if click == "first" else np.where(last < 0, len(entries), last)
    shown = clicks.list_impressions * (entries <= end[owner])
    return Down(
        clicks=clicks,
        observed=shown.astype(np.float64),
        clicked=(shown * clicked).astype(np.float64),
        followed=entries + 1 < clicks.offsets[1:][owner],
        last=entries == last[owner],
    )


@final
@dataclass(frozen=True, eq=False)
class Tails:
    """The tails of a log, and the counts of what is certain.

    Attributes:
        columns: of the tails: offsets [tails + 1], document rows, whether the first entry was clicked [tails], and the
            number of sessions with this tail [tails].
        clicks: clicks on each document, [documents].
        skips: impressions of each document without a click above the last click, so certainly observed, [documents].
        went: clicks on each document with another click below: users continued, [documents].
        unsure: last clicks on each document that the list continues below, [documents].
        skipped: sum of `skips`; after each of them users continued.
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
    """Expected counts over all sessions, given the parameters: the result of an E-step.

    Attributes:
        looks: observations of each document without a click, [documents].
        went: how often users continued after a click on each document that the list continues below, [documents].
        paused: observations without a click that the list continues below.
        continued: how often users continued after these.
        log_likelihood: log-likelihood of the log.
    """

    looks: Float64
    went: Float64
    paused: float
    continued: float
    log_likelihood: float


def count_tails(clicks: Clicks) -> Tails:
    """Return the tails of a log of single sessions, or of sessions merged by pattern."""
    down = down_to("last", clicks)
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    ended = np.bincount(owner, weights=down.last, minlength=len(clicks)) > 0
    start = clicks.offsets[:-1].copy()
    start[owner[down.last]] = np.flatnonzero(down.last)
    keep = clicks.offsets[1:] > start + ended  # after a click at the end of the list nothing is unknown
    clicked = ended[keep].astype(np.int64)
    bounds = np.stack([start[keep], clicks.offsets[1:][keep]], axis=1).ravel()
    entries, offsets = slices(bounds, np.arange(0, len(bounds), 2))
    rows = clicks.rows[entries]
    pattern = np.repeat(clicked, np.diff(offsets))
    group, first = same_lists(offsets, rows, np.zeros(len(rows), dtype=np.int32), pattern)
    weights = np.bincount(group, weights=clicks.impressions[keep], minlength=len(first)).astype(np.float64)
    chosen, ends = slices(offsets, first)
    above = (down.observed - down.clicked) * ended[owner]
    return Tails(
        columns=(ends, rows[chosen], clicked[first], weights),
        clicks=by_document(clicks, down.clicked),
        skips=by_document(clicks, above),
        went=by_document(clicks, down.clicked * ~down.last),
        unsure=by_document(clicks, down.clicked * down.last * down.followed),
        skipped=float(above.sum()),
    )


def expect(tails: Tails, *, attraction: Float64, after_skip: float, after_click: Float64) -> Expected:
    """Return the expected counts, given the parameters: how far users read below their last click (E-step)."""
    looks, went = tails.skips.copy(), tails.went.copy()
    totals = np.array([tails.skipped, tails.skipped, 0.0])
    _expect(tails.columns, (attraction, after_click), after_skip, (looks, went, totals))
    certain = (
        _times_log(tails.clicks, attraction)
        + _times_log(tails.skips, 1 - attraction)
        + _times_log(tails.went, after_click)
        + _times_log(np.array([tails.skipped]), np.array([after_skip]))
    )
    return Expected(looks, went, float(totals[0]), float(totals[1]), float(totals[2]) + certain)


def _times_log(counts: Float64, values: Float64) -> float:
    there = counts > 0
    with np.errstate(divide="ignore"):
        return float(counts[there] @ np.log(values[there]))


@compiled
def _expect(
    columns: Columns, chances: tuple[Float64, Float64], after_skip: float, sums: tuple[Float64, Float64, Float64]
) -> None:
    """Backward: P(no click from an observed entry on); forward: P(entry was observed | no click)."""
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


@final
@dataclass(frozen=True, eq=False)
class Climbed:
    """The result of EM: parameters, number of steps, and whether it converged."""

    parameters: Float64
    iterations: int
    converged: bool


def climb(step: Step, start: Float64, *, weights: Float64, tolerance: float, max_iterations: int) -> Climbed:
    """Return the probabilities to which EM converges, with steps lengthened by SQUAREM (Varadhan and Roland 2008).

    Two steps, by r and by r + v, give an extrapolation, x - 2 s r + s^2 v with s = -|r| / |v|. A step from there is
    accepted unless the likelihood has decreased, so it never decreases. The remaining distance is estimated by a
    geometric series, change x rate / (1 - rate); it must be below the tolerance twice in a row.

    Args:
        step: one step of EM.
        start: probabilities to start from, [parameters]; those shared by all documents first.
        weights: weights of the parameters that are not shared: their evidence.
        tolerance: allowed remaining distance, of each shared parameter, and of the others as weighted root mean square.
        max_iterations: maximum number of EM steps.
    """
    shared = len(start) - len(weights)
    share = weights / max(float(weights.sum()), 1e-300)

    def length(change: Float64) -> float:
        return max(float(np.abs(change[:shared]).max(initial=0.0)), float(np.sqrt(share @ change[shared:] ** 2)))

    here, close, taken = start, 0, 0
    while taken + 3 <= max_iterations:
        one, _ = step(here)
        two, value = step(one)
        before, after = length(one - here), length(two - one)
        rate = min(after / before, 1 - 1e-9) if before > 0 else 0.0
        close = close + 1 if after * max(rate, 0.5) / (1 - rate) < tolerance else 0
        if close == 2 or after == 0:
            return Climbed(two, taken + 2, True)
        curvature = length(two - 2 * one + here)
        stretch = max(before / curvature, 1.0) if curvature > 0 else 1.0
        far = here + 2 * stretch * (one - here) + stretch**2 * (two - 2 * one + here)
        three, reached = step(np.clip(far, _INSIDE, 1 - _INSIDE))
        here = three if reached >= value else two
        taken += 3
    for _ in range(max_iterations - taken):
        here, _ = step(here)
    return Climbed(here, max_iterations, False)
