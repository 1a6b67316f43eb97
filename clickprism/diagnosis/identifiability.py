"""Identifiability: can relevance be told from observation at all?

Clicks are relevance times observation. Two positions can be compared only through documents that were shown at both; a
position that no such document links to the others can be as little seen as one likes, and its documents as relevant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import of_entries, shown
from clickprism.diagnosis.finding import Finding, Verdict
from clickprism.diagnosis.graph import Graph, Link, Swap, cheapest_swaps, graph_of
from clickprism.errors import SettingError
from clickprism.observation.bootstrap import DEEPEST
from clickprism.observation.counts import Counts, count
from clickprism.observation.pairs import LEAST_CLICKS
from clickprism.types import Clicks, Float64, Int64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "identifiability"
SHARE: Final = 0.05  # of searches, in which swaps are made
YEAR: Final = 365  # days


@final
@dataclass(frozen=True)
class IdentifiabilitySettings:
    """When positions count as linked.

    Attributes:
        least_clicks: in effect, that a link needs; below, it is a thread.
        precision: half of the 95% interval that is wanted for the observation relative to position 1.
    """

    least_clicks: float = LEAST_CLICKS
    precision: float = 0.05

    def __post_init__(self) -> None:
        for name in ("least_clicks", "precision"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "be above 0")


@final
@dataclass(frozen=True, eq=False)
class Linked:
    """What the graph of a log tells.

    Attributes:
        graph: the links.
        group: of each position, by links that are strong enough; -1 where nothing was shown, [positions].
        joined: the same by links of any strength, [positions].
        tree: the strongest links that hold positions together, the weakest first.
        swaps: what would link the rest.
        curve: observation relative to position 1 along the tree, [positions].
        half: half of its 95% interval, [positions].
        searches: of the log.
        searches_a_day: of the log; None where it does not tell days.
        needed: searches like these for the wanted precision at every position; None where not linked.
    """

    graph: Graph
    group: Int64
    joined: Int64
    tree: list[Link]
    swaps: list[Swap]
    curve: Float64
    half: Float64
    searches: int
    searches_a_day: float | None
    needed: int | None


def identifiability(logged: Logged, *, settings: IdentifiabilitySettings | None = None) -> Finding:
    """Whether all positions are linked by documents seen at several: "present" if relevance can be identified.

    "absent" where some are not linked at all; "unknown" where a link is a thread of fewer clicks than estimators need.
    """
    chosen, logged = settings or IdentifiabilitySettings(), shown(logged)
    clicks = logged.clicks
    if len(logged) == 0 or int(clicks.clicks.sum()) == 0 or clicks.weights is not None:
        return _unknown("The log has no clicks as they were made.", "Give raw clicks on what was shown.")
    if clicks.max_position < 2:
        return _unknown("The log has one position only, so there is nothing to compare it with.", "Log whole pages.")
    if clicks.max_position > DEEPEST:
        return _unknown(f"The log goes deeper than {DEEPEST} positions.", f"Cut it, such as to {DEEPEST} positions.")
    linked = links_of(logged, settings=chosen)
    verdict: Verdict = "present" if linked.group.max() == 0 else "absent" if linked.joined.max() > 0 else "unknown"
    return Finding(
        NAME,
        verdict,
        _sentence(linked, verdict),
        _advice(linked, verdict, chosen),
        number=float(linked.group.max() + 1),
        unit="groups of positions that nothing links" if linked.group.max() > 0 else "group of positions, all linked",
        details=_details(linked, logged, chosen),
        table=_table(linked),
        figure=_picture(linked, chosen),
    )


def links_of(logged: Logged, *, settings: IdentifiabilitySettings) -> Linked:
    """The graph of a log with clicks at two positions or more, and what follows from it."""
    clicks = logged.clicks
    graph = graph_of(count(clicks))
    group, joined = graph.groups(settings.least_clicks), graph.groups(0.0)
    size = clicks.max_position
    clicked = np.bincount(clicks.positions - 1, weights=clicks.clicks, minlength=size)
    seen = np.bincount(clicks.positions - 1, weights=clicks.list_impressions, minlength=size)
    rate = (clicked + 0.5) / (seen + 1)
    curve, half = graph.errors()
    days = None if logged.days is None else len(np.unique(logged.days))
    worst = float(np.nanmax(half))
    return Linked(
        graph,
        group,
        joined,
        graph.tree(),
        cheapest_swaps(graph, rate, least=settings.least_clicks, precision=settings.precision),
        curve,
        half,
        clicks.sessions,
        None if days is None else clicks.sessions / days,
        round(clicks.sessions * (worst / settings.precision) ** 2) if group.max() == 0 else None,
    )


def spans(group: Int64, number: int) -> str:
    """The positions of a group in words.

    >>> spans(np.array([0, 0, 1, 0]), 0), spans(np.array([0, 0, 1, 0]), 1)
    ('1-2, 4', '3')
    """
    places = np.flatnonzero(group == number) + 1
    pieces = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return ", ".join(str(piece[0]) if len(piece) == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces)


def _groups(group: Int64) -> list[str]:
    return [spans(group, number) for number in range(int(group.max()) + 1)]


def _sentence(linked: Linked, verdict: Verdict) -> str:
    shown_places = int((linked.group >= 0).sum())
    if verdict == "present":
        weakest = linked.tree[0]
        return (
            f"Relevance can be told from observation: all {shown_places} positions are linked by documents seen at"
            f" several; the weakest link, {weakest.one}-{weakest.other}, rests on {weakest.strength:,.0f} clicks."
        )
    groups = _groups(linked.joined if verdict == "absent" else linked.group)
    named = (
        "no two positions are linked" if len(groups) == shown_places else f"positions {' | '.join(groups)} are apart"
    )
    if verdict == "absent":
        return f"Relevance cannot be told from observation: {named}, as no document was seen on both sides."
    return f"Relevance can hardly be told from observation: {named} but for threads of very few clicks."


def _advice(linked: Linked, verdict: Verdict, settings: IdentifiabilitySettings) -> str:
    if verdict == "present":
        needed = linked.needed or 0
        half = float(np.nanmax(linked.half))
        enough = needed <= linked.searches
        return (
            f"Estimate observation from these links. Its interval is ±{half:.3f} of position 1 at the widest;"
            f" ±{settings.precision:g} {'needs' if not enough else 'would need only'} about {needed:,} searches like"
            f" these ({linked.searches:,} are here)."
        )
    total, lost = sum(swap.searches for swap in linked.swaps), sum(swap.cost for swap in linked.swaps)
    pairs = ", ".join(f"{swap.one}-{swap.other}" for swap in linked.swaps)
    days = None if linked.searches_a_day is None else max(1, math.ceil(total / (SHARE * linked.searches_a_day)))
    share = ""
    if days is not None:
        share = f" ({SHARE:.0%} of the searches for {days} day{'s' * (days > 1)})"
        if days > YEAR:
            share = f" (more than a year of {SHARE:.0%} of the searches: take a larger share)"
    cost = "next to no clicks" if lost < 1 else f"at most about {lost:,.0f} click{'s' * (round(lost) != 1)}"
    return (
        f"Let the documents at {pairs} trade places in about {total:,.0f} searches in all{share}; that costs"
        f" {cost} and links all positions to about ±{settings.precision:g}. Until then compare"
        " clicks only within a group of positions."
    )


def _details(linked: Linked, logged: Logged, settings: IdentifiabilitySettings) -> dict[str, Any]:
    return {
        "connected": bool(linked.group.max() == 0),
        "components": _groups(linked.group),
        "components_of_any_strength": _groups(linked.joined),
        "tree": [each._asdict() for each in linked.tree],
        "weakest": linked.tree[0]._asdict() if linked.tree else None,
        "least_clicks": settings.least_clicks,
        "swaps": [{**swap._asdict(), "cost": swap.cost} for swap in linked.swaps],
        "swap_searches": sum(swap.searches for swap in linked.swaps),
        "swap_clicks_lost": sum(swap.cost for swap in linked.swaps),
        "precision": settings.precision,
        "searches": linked.searches,
        "searches_a_day": linked.searches_a_day,
        "searches_needed": linked.needed,
        "half_interval": linked.half,
        "strength": linked.graph.strength,
        "rankers": _rankers(logged, settings.least_clicks),
    }


def _rankers(logged: Logged, least: float) -> dict[str, Any] | None:
    """The graph of positions under each ranker: whether each has a curve of its own, and whether they compare."""
    if logged.policy is None:
        return None
    used, ranker = np.unique(logged.policy, return_inverse=True)
    depth = logged.clicks.max_position
    if not 1 < len(used) * depth <= DEEPEST or len(used) < 2:
        return None
    names = [logged.policies[place] for place in used]
    alone = {}
    for place, name in enumerate(names):
        part = logged.clicks.take(ranker == place)
        alone[name] = _groups(graph_of(count(part)).groups(least))
    both = graph_of(_by_ranker(logged.clicks, ranker.astype(np.int64), depth)).groups(least)
    return {"alone": alone, "together_components": int(both.max()) + 1}


def _by_ranker(clicks: Clicks, ranker: Int64, depth: int) -> Counts:
    """Counts in which the same position under another ranker is another position."""
    place = of_entries(clicks, ranker) * depth + clicks.positions
    keys, cell = np.unique(clicks.rows * (int(place.max()) + 1) + place, return_inverse=True)
    clicked, seen = (
        np.bincount(cell, weights=weights).astype(np.float64) for weights in (clicks.clicks, clicks.list_impressions)
    )
    return Counts(keys // (int(place.max()) + 1), keys % (int(place.max()) + 1), clicked, seen)


def _table(linked: Linked) -> tuple[list[str], list[list[str]]]:
    rows = [[f"{one}-{other}", "link", f"{strength:,.0f}", "", ""] for one, other, strength in linked.tree]
    rows += [
        [f"{swap.one}-{swap.other}", "swap", "", f"{swap.searches:,.0f}", f"{swap.cost:,.0f}"] for swap in linked.swaps
    ]
    return ["positions", "what", "clicks in effect", "searches to swap", "clicks lost at most"], rows


def _picture(linked: Linked, settings: IdentifiabilitySettings) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import link_matrix

        return link_matrix(linked.graph.strength, least=settings.least_clicks)

    return draw


def _unknown(why: str, remedy: str) -> Finding:
    return Finding(NAME, "unknown", f"It cannot be told whether relevance can be identified. {why}", remedy)
