"""Coupling: does what a document looks like decide how much is seen of it further down?

Of the clicks on one document that stood at several positions, the shares that fell to each tell its own curve, whatever
its relevance. The test asks whether features foretell which documents lose more than others as they move down, on
queries that were not used to learn it, with trust and past clicks free to explain it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.beyond import Beyond, Estimate, beyond, interval
from clickprism.diagnosis.clusters import FEWEST, one_thread, p_words, shown
from clickprism.diagnosis.finding import Finding
from clickprism.diagnosis.linked import missing
from clickprism.diagnosis.position import PositionSettings, fall_of, falls_much
from clickprism.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "coupling"
UNIT: Final = "standard deviation of how steeply observation falls, over documents; 1 is the mean"
TOLD: Final = 8  # features in the table


@final
@dataclass(frozen=True)
class CouplingSettings:
    """When coupling counts.

    Attributes:
        level: of the test, one-sided; a p value below it is a sign. A tenth of it is asked for where the engine heeds
            clicks, as documents that moved had luck there.
        material: the least standard deviation of the steepness that matters.
        widest: an interval that reaches beyond this leaves it unknown where the test found nothing.
    """

    level: float = 0.01
    material: float = 0.09
    widest: float = 0.5

    def __post_init__(self) -> None:
        for name in ("level", "material", "widest"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be between 0 and 1")


def coupling(logged: Logged, *, settings: CouplingSettings | None = None) -> Finding:
    """Whether features of documents bend the observation beyond position.

    Unknown without features, where documents do not link positions, or where too few moved to tell.
    """
    chosen = settings or CouplingSettings()
    if not logged.has_features:
        return _unknown("The log has no features of documents.", "Log the features that the ranker sees.")
    seen = shown(logged)
    lacking = missing(seen)
    if lacking is not None:
        return _unknown(*lacking)
    found = beyond(logged)
    if found.coupling is None or found.coupling.queries < FEWEST:
        return _unknown(
            "Hardly any query has clicked documents that stood at several positions, or features are all constant.",
            "Collect more searches, or swap documents in some.",
        )
    with one_thread():
        falls = falls_much(fall_of(seen), PositionSettings())
    return _judged(found, found.coupling, logged.feature_names, chosen, falls=falls)


def _judged(
    found: Beyond, made: Estimate, names: tuple[str, ...], settings: CouplingSettings, *, falls: bool
) -> Finding:
    from scipy.stats import norm

    p_value, ends = float(norm.sf(made.z)), interval(made)
    level = 0.1 * settings.level if found.heeds else settings.level
    there = p_value < level and made.value >= settings.material and falls
    known = f"({ends[0]:.0%} to {ends[1]:.0%}, {p_words(p_value)})"
    if there and found.heeds and found.form == "chain":
        return _unknown(
            "Users stop reading at what they click, and the engine moves what is clicked: both bend the curve of good"
            f" documents, as features may do {known}.",
            "Swap documents by chance in some searches, and ask again of those.",
            found,
        )
    if there:
        sentence = (
            "What a document looks like decides how much is seen of it: observation falls down the page by"
            f" {made.value:.0%} more or less steeply from one document to another {known}."
        )
        advice = (
            "Take a method whose observation sees features and whose score does not change with where they go: lbd,"
            " anchored at the first position. Methods with one curve for all (ipw, dla, pal) will rank what catches the"
            " eye."
        )
    elif falls and ends[1] > settings.widest:
        return _unknown(
            f"Too few documents moved to be sure: the steepness may differ by {ends[0]:.0%} to {ends[1]:.0%}"
            f" ({p_words(p_value)}).",
            "Swap documents in more searches.",
            found,
        )
    else:
        sentence = f"One curve is enough for all documents: features bend it by {made.value:.0%} {known}."
        advice = "Nothing to do: an observation by position is enough as far as features go."
    return Finding(
        NAME,
        "present" if there else "absent",
        sentence,
        advice,
        number=made.value,
        unit=UNIT,
        interval=ends,
        p_value=p_value,
        details=_details(found),
        table=_table(found, names),
        figure=_picture(found),
    )


def _details(found: Beyond) -> dict[str, object]:
    return {
        "z": None if found.coupling is None else found.coupling.z,
        "queries": None if found.coupling is None else found.coupling.queries,
        "documents": found.documents,
        "clicks": found.clicks,
        "compared_by": found.form,
        "slopes": found.slopes,
    }


def _table(found: Beyond, names: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    order = np.argsort(-np.abs(found.slopes), kind="stable")[:TOLD]
    called = names if len(names) == len(found.slopes) else tuple(f"f{place + 1}" for place in range(len(found.slopes)))
    rows = [[called[place], f"{found.slopes[place]:+.3f}"] for place in order]
    return ["feature", "steepness by one standard deviation of it"], rows


def _picture(found: Beyond) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import histogram

        return histogram(found.steepness, label="steepness of observation, 1 is the mean", reference=1.0)

    return draw


def _unknown(why: str, remedy: str, found: Beyond | None = None) -> Finding:
    sentence = f"It cannot be told whether what documents look like bends the observation. {why}"
    return Finding(NAME, "unknown", sentence, remedy, details={} if found is None else _details(found))
