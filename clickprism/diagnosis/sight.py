"""What an entry of a page must be compared with: its position, and, where users heed their clicks, what was clicked.

- "position": users look at positions one by one, so a place is a position.
- "last click": users browse on from their last click (UBM), so a place is a position and that of the last click above.
- "chain": users read from the top down and stop for good at some place (cascade, DBN, CCM). Below no click, the chance
  that a user has come this far is that of a chain; what stands below a click is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from clickprism._util.compiled import compiled
from clickprism.data.logged import Logged
from clickprism.diagnosis.attraction import expected
from clickprism.diagnosis.clusters import of_entries
from clickprism.diagnosis.interaction import clicks_above, heeded
from clickprism.observation.curve import sums
from clickprism.observation.places import last_click
from clickprism.types import Bool, Clicks, Float32, Float64, Int64

Form: TypeAlias = Literal["position", "last click", "chain"]
DEEPEST: Final = 20  # positions; below them little is seen, and places would be too many
ROUNDS: Final = 4
CLEARLY: Final = 0.01  # nats a search: a chain has four numbers where the last click has one for every place
START: Final = (0.85, 0.3, 0.2, 0.1)  # to go on after no click, after one on a poor and on a good document; trust


@final
@dataclass(frozen=True, eq=False)
class Sight:
    """How each entry of a log is compared.

    Attributes:
        form: as above.
        entries: those that are compared, [kept].
        places: of each, [kept].
        chance: that a user came so far, [kept]; 1 where positions say it all.
        position_of: the position of each place, from 0, [places].
    """

    form: Form
    entries: Int64
    places: Int64
    chance: Float64
    position_of: Int64


def by_position(clicks: Clicks) -> Sight:
    """Entries by position alone."""
    kept = np.flatnonzero(clicks.positions <= DEEPEST)
    depth = min(clicks.max_position, DEEPEST)
    return Sight("position", kept, clicks.positions[kept].astype(np.int64) - 1, np.ones(len(kept)), np.arange(depth))


def by_last_click(clicks: Clicks) -> Sight:
    """Entries by position and that of the last click above."""
    kept = np.flatnonzero(clicks.positions <= DEEPEST)
    depth, position = min(clicks.max_position, DEEPEST), clicks.positions[kept].astype(np.int64)
    places = position * (position - 1) // 2 + last_click(clicks)[kept]
    return Sight("last click", kept, places, np.ones(len(kept)), np.repeat(np.arange(depth), np.arange(1, depth + 1)))


def by_chain(clicks: Clicks, chance: Float64) -> Sight:
    """Entries with no click above, by position, each with its chance to be reached, [entries]."""
    kept = np.flatnonzero((clicks.positions <= DEEPEST) & (last_click(clicks) == 0))
    depth = min(clicks.max_position, DEEPEST)
    return Sight("chain", kept, clicks.positions[kept].astype(np.int64) - 1, chance[kept], np.arange(depth))


def sight_of(logged: Logged) -> Sight:
    """By position where clicks above change nothing; else by a chain, or the last click if that is clearly likelier."""
    clicks = logged.clicks
    if not clicks.are_patterns or clicks.max_position < 2:
        return by_position(clicks)
    days = None if logged.days is None else of_entries(clicks, logged.days)
    if not heeded(clicks_above(clicks, days=days)):
        return by_position(clicks)
    chance, of_chain = fit_chain(clicks)
    browsing = by_last_click(clicks)
    better = (_likelihood(clicks, browsing) - of_chain) / clicks.sessions
    return browsing if better > CLEARLY else by_chain(clicks, chance)


def document_columns(clicks: Clicks) -> Float64:
    """What may tell of the rate of a document: where it stood in the mean, and its features, [documents, columns]."""
    documents, shown = clicks.lists.documents, clicks.list_impressions.astype(np.float64)
    total = sums(clicks.rows, shown, documents)
    height = sums(clicks.rows, shown * np.log(clicks.positions), documents) / np.maximum(total, 1.0)
    height = np.where(total > 0, height - height[total > 0].mean(), 0.0)
    return np.column_stack([height, height**2, standardised(clicks.lists.features)])


def standardised(features: Float32 | Float64) -> Float64:
    """Columns with mean 0 and deviation 1; those that are constant are 0, [documents, columns]."""
    columns = np.asarray(features, dtype=np.float64)
    centred, spread = columns - columns.mean(axis=0), columns.std(axis=0)
    kept = spread > 1e-9 * np.maximum(np.abs(columns).max(axis=0, initial=0.0), 1.0)
    return np.where(kept, centred / np.where(kept, spread, 1.0), 0.0)


def fit_chain(clicks: Clicks) -> tuple[Float64, float]:
    """The chance of each entry to be reached, given the clicks above it, [entries], and the log-likelihood.

    A user goes on with probability g after no click, and low (1 - q) + high q after one on a document clicked with
    probability q once seen, q = a + (t / k) (1 - a) with trust t. Rates a are as `expected` has them.
    """
    documents, shown = clicks.lists.documents, clicks.list_impressions.astype(np.float64)
    clicked, columns, inverse = clicks.clicks > 0, document_columns(clicks), 1 / clicks.positions
    taken = sums(clicks.rows, shown * clicked, documents)
    found = np.array(START)
    searches = clicks.impressions.astype(np.float64)
    chance: Float64 = found[0] ** (clicks.positions - 1.0)
    value = 0.0
    for _ in range(ROUNDS):
        trust = found[3] * inverse
        seen = sums(clicks.rows, shown * chance * (1 - trust), documents)
        own = np.maximum(taken - sums(clicks.rows, shown * chance * trust, documents), 0.0)
        made = expected(own, seen, clicks.lists.list_of, columns).rate(own, seen)
        rate = np.clip(made, 0.005, 0.995)[clicks.rows]

        def loss(logits: Float64, *, rate: Float64 = rate) -> float:
            point = expit(logits)
            likely = rate + point[3] * inverse * (1 - rate)
            total = walk((clicks.offsets, clicked, searches), likely, (point[0], point[1], point[2]), chance)
            return -total / float(searches.sum())

        start = np.asarray(logit(np.clip(found, 1e-3, 0.999)), dtype=np.float64)
        best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 80, "xatol": 1e-2, "fatol": 1e-6}).x
        value, found = -loss(best) * float(searches.sum()), expit(best)
    return chance, value


@compiled
def walk(
    pages: tuple[Int64, Bool, Float64], likely: Float64, onward: tuple[float, float, float], chance: Float64
) -> float:
    """The log-likelihood of all searches; the chance of each entry to be reached is written into `chance`."""
    offsets, clicked, searches = pages
    total = 0.0
    for each in range(len(offsets) - 1):
        reached = 1.0
        for entry in range(offsets[each], offsets[each + 1]):
            chance[entry] = reached
            click = reached * likely[entry]
            if clicked[entry]:
                total += searches[each] * np.log(max(click, 1e-12))
                reached = onward[1] * (1 - likely[entry]) + onward[2] * likely[entry]
            else:
                total += searches[each] * np.log(max(1 - click, 1e-12))
                reached = onward[0] * reached * (1 - likely[entry]) / max(1 - click, 1e-12)
    return total


def _likelihood(clicks: Clicks, sight: Sight) -> float:
    """The log-likelihood of all clicks where places are seen as often as the documents moved between them tell."""
    from clickprism.diagnosis.shape import curve_of

    curve = curve_of(clicks, sight)
    rows, shown = clicks.rows[sight.entries], clicks.list_impressions[sight.entries].astype(np.float64)
    clicked, documents = clicks.clicks[sight.entries] > 0, clicks.lists.documents
    weight = np.exp(curve[sight.places])
    taken, seen = sums(rows, shown * clicked, documents), sums(rows, shown * weight, documents)
    rate = expected(taken, seen, clicks.lists.list_of, document_columns(clicks)).rate(taken, seen)
    likely = np.clip(rate[rows] * weight, 1e-6, 0.999)
    return float(shown @ np.where(clicked, np.log(likely), np.log1p(-likely)))
