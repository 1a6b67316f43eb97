"""Interaction between results: does a click above change what happens below, or is the position enough?

The test needs no model. Among searches of one day that showed the same document at the same position, those with a
click above are set beside those without. Where users look at positions one by one, as the position-based model has it,
clicks above and below are independent there, whatever trust, coupling and popularity do: these are the same for all
searches that are compared. Users who read from the top down, or browse on from their last click, break it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import (
    FEWEST,
    Evidence,
    Ratio,
    by_query,
    evidence,
    numbered,
    of_entries,
    p_words,
    queries_of,
    ratio,
    shown,
    units,
)
from clickprism.diagnosis.families import Families, compare_families
from clickprism.diagnosis.finding import Finding
from clickprism.errors import SettingError
from clickprism.types import Clicks, Float64, Int64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DISTANCES: Final = ("1 place up", "2 places up", "3 places up", "4 or more places up")
ENOUGH: Final = 40.0  # queries in effect; else documents at their positions are independent, as they are if all is well
NAME: Final = "interaction"


@final
@dataclass(frozen=True)
class InteractionSettings:
    """When clicks above count.

    Attributes:
        level: of the test; a p value below it is a sign.
        material: the least change of the click rate by a click above that matters, .05 is 5%.
        families: which click models are compared by held-out likelihood; none to leave it.
        most_sessions: the models are fitted on so many sessions, drawn by chance, at most.
        seed: of the draws.
    """

    level: float = 0.01
    material: float = 0.05
    families: tuple[str, ...] = ("pbm", "ubm", "cascade", "dcm", "dbn", "ccm")
    most_sessions: int = 60_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("level", "material"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be between 0 and 1")
        if self.families and "pbm" not in self.families:
            raise SettingError("families", self.families, "have pbm, which the others are compared with")
        if self.most_sessions < 1:
            raise SettingError("most_sessions", self.most_sessions, "be at least 1")


@final
@dataclass(frozen=True, eq=False)
class Above:
    """Click rates below a click, over those below none, by the distance of the last click above.

    Attributes:
        test: whether all are 1, by queries.
        ratios: by distance, as `DISTANCES` names them.
        searches: below a click at each distance, that had any to compare with.
    """

    test: Evidence
    ratios: tuple[Ratio, ...]
    searches: Float64


def interaction(logged: Logged, *, settings: InteractionSettings | None = None) -> Finding:
    """Whether a click above changes the click rate of a document at its position.

    Unknown where the log does not say what was clicked together, or has too few clicks to compare.
    """
    chosen, logged = settings or InteractionSettings(), shown(logged)
    clicks = logged.clicks
    if not clicks.are_patterns:
        return _unknown(
            "The log does not say what was clicked together in one search.",
            'Keep the clicks of each search together, or merge by clicks.merge(by="pattern").',
        )
    if clicks.weights is not None or clicks.max_position < 2 or int(clicks.clicks.sum()) == 0:
        return _unknown(
            "The log has no clicks as they were made, or one position only.", "Give raw clicks on whole pages."
        )
    days = of_entries(clicks, logged.days) if logged.days is not None else None
    above = clicks_above(clicks, days=days)
    if above.test.freedom == 0 or above.test.queries < FEWEST:
        return _unknown(
            f"Only {above.test.queries} queries have searches with and without a click above the same document.",
            "Collect more searches of the same queries.",
            above,
        )
    families = compare_families(clicks, names=chosen.families, most_sessions=chosen.most_sessions, seed=chosen.seed)
    return _judged(above, families, chosen)


def clicks_above(clicks: Clicks, *, days: Int64 | None = None) -> Above:
    """Compare the searches that showed a document at a position (on a day, [entries]), by the last click above.

    Mantel and Haenszel (1959) over such groups; the spread is that over queries.
    """
    from clickprism.observation.click_models.kernels import distances

    distance = np.empty(len(clicks.rows), dtype=np.int64)
    clicked = clicks.clicks > 0
    distances(clicks.offsets, clicks.positions, clicked, distance)
    kinds = len(DISTANCES) + 1
    kind = np.minimum(distance, kinds - 1)
    keys = [clicks.rows * (clicks.max_position + 1) + clicks.positions, *([] if days is None else [days])]
    group = numbered(*keys)
    size = int(group.max()) + 1
    seen, taken = (
        np.bincount(group * kinds + kind, weights=weights, minlength=size * kinds).reshape(size, kinds)
        for weights in (clicks.list_impressions, clicks.list_impressions * clicked)
    )
    query = np.empty(size, dtype=np.int64)
    query[group] = queries_of(clicks)
    query = units(query, np.arange(size), seen.sum(axis=1), enough=ENOUGH)
    rate = taken.sum(axis=1) / seen.sum(axis=1)
    test = evidence(by_query(query, (taken - seen * rate[:, None])[:, 1:]))
    share = np.maximum(seen[:, :1] + seen, 1.0)
    below, without = by_query(query, taken * seen[:, :1] / share), by_query(query, taken[:, :1] * seen / share)
    compared = np.where(seen[:, :1] > 0, seen, 0.0).sum(axis=0)[1:]
    ratios = tuple(ratio(below[:, place], without[:, place]) for place in range(1, kinds))
    return Above(test, ratios, np.asarray(compared, dtype=np.float64))


def heeded(above: Above, settings: InteractionSettings | None = None) -> bool:
    """Whether clicks above count: by the test, and for as much as matters."""
    chosen = settings or InteractionSettings()
    return above.test.p_value < chosen.level and max(_sizes(above)[1]) >= chosen.material


def _sizes(above: Above) -> tuple[list[float], list[float]]:
    """How far each ratio is from 1, as a logarithm; then 0 where its interval holds 1."""
    sizes = [abs(float(np.log(each.value))) if each.value > 0 else 0.0 for each in above.ratios]
    told = [size if each.lower > 1 or each.upper < 1 else 0.0 for size, each in zip(sizes, above.ratios, strict=True)]
    return sizes, told


def _judged(above: Above, families: Families | None, settings: InteractionSettings) -> Finding:
    sizes, told = _sizes(above)
    largest = int(np.argmax(told if max(told) > 0 else sizes))
    here = above.ratios[largest]
    there = heeded(above, settings)
    change = (
        f"where the last click is {DISTANCES[largest]}, documents are clicked {abs(here.value - 1):.0%}"
        f" {'more' if here.value > 1 else 'less'} than with no click above ({p_words(above.test.p_value)})."
    )
    if there:
        sentence = f"A click above changes what is clicked below: {change}"
        best = "" if families is None else f" {families.sentence}"
        advice = (
            "Take a click model that heeds the clicks above (ubm, dbn, ccm) for observation, or estimate it from"
            f" randomised swaps, which need no model.{best}"
        )
    else:
        sentence = f"Clicks above change little of what is clicked below: {change}"
        advice = "A position-based model is enough as far as clicks above go."
    return Finding(
        NAME,
        "present" if there else "absent",
        sentence,
        advice,
        number=here.value,
        unit=f"times the click rate with none above, where the last click is {DISTANCES[largest]}",
        interval=(here.lower, here.upper),
        p_value=above.test.p_value,
        details=_details(above, families),
        table=_table(above),
        figure=_picture(above),
    )


def _details(above: Above, families: Families | None) -> dict[str, object]:
    return {
        "test": above.test._asdict(),
        "ratios": {name: each._asdict() for name, each in zip(DISTANCES, above.ratios, strict=True) if each.value > 0},
        "held_out": None if families is None else asdict(families),
    }


def _table(above: Above) -> tuple[list[str], list[list[str]]]:
    rows = [
        [name, f"{each.value:.3f}", f"{each.lower:.3f} to {each.upper:.3f}", f"{searches:,.0f}"]
        for name, each, searches in zip(DISTANCES, above.ratios, above.searches, strict=True)
    ]
    return ["last click", "click rate over that with none", "95%", "impressions"], rows


def _picture(above: Above) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import bars_with_intervals

        lines = {name: each for name, each in zip(DISTANCES, above.ratios, strict=True) if each.value > 0}
        return bars_with_intervals(
            {name: (each.value, each.lower, each.upper) for name, each in lines.items()},
            label="click rate over that without a click above",
            reference=1.0,
        )

    return draw


def _unknown(why: str, remedy: str, above: Above | None = None) -> Finding:
    sentence = f"It cannot be told whether clicks above change what is clicked below. {why}"
    return Finding(NAME, "unknown", sentence, remedy, details={} if above is None else _details(above, None))
