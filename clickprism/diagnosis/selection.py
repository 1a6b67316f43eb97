"""Selection: what was never shown cannot be clicked, and nothing can be learned of it but by its features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import shown
from clickprism.diagnosis.finding import Finding
from clickprism.errors import SettingError
from clickprism.evaluation.concentration import gini
from clickprism.observation.click_models.base import by_document
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "selection"
TOP: Final = 0.2


@final
@dataclass(frozen=True)
class SelectionSettings:
    """When too much was never shown.

    Attributes:
        material: the least share of the known documents of the queries asked that matters.
    """

    material: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.material < 1:
            raise SettingError("material", self.material, "be between 0 and 1")


def selection(logged: Logged, *, settings: SelectionSettings | None = None) -> Finding:
    """What share of the known documents of the queries asked was never shown.

    Unknown where the log names only what was shown: then nobody can say what else there was.
    """
    chosen, logged = settings or SelectionSettings(), shown(logged)
    clicks, lists = logged.clicks, logged.clicks.lists
    if len(logged) == 0:
        return _unknown("The log has no searches.", "Give a log with searches.", {})
    impressions = by_document(clicks, clicks.list_impressions)
    asked = np.bincount(lists.list_of[clicks.rows], minlength=len(lists)) > 0
    known = asked[lists.list_of]
    never = known & (impressions == 0)
    whole = np.bincount(lists.list_of[never], minlength=len(lists))[asked] == 0
    share = float(never.sum() / known.sum())
    details = _details(impressions[known], share, float(whole.mean()), int(never.sum()), int(known.sum()))
    details["page"] = clicks.max_position
    if not never.any():
        return _unknown(
            "Every document that the log names was shown, so what else there was to show is not told.",
            "Log the candidates of each search too, or how many there were.",
            details,
            impressions[known],
        )
    there = share >= chosen.material
    sentence = (
        f"{share:.0%} of the {int(known.sum()):,} documents known for the queries asked were never shown;"
        f" {float(whole.mean()):.0%} of the queries had all of theirs shown."
    )
    advice = (
        "Clicks tell nothing of what was never shown: learn from features, show such documents in some searches by"
        " chance, and do not take no clicks for irrelevance."
        if there
        else "Nearly all that is known was shown at some time: nothing to do."
    )
    return Finding(
        NAME,
        "present" if there else "absent",
        sentence,
        advice,
        number=share,
        unit="of the known documents never shown",
        details=details,
        table=_table(details),
        figure=_picture(impressions[known]),
    )


def _details(impressions: Float64, share: float, whole: float, never: int, known: int) -> dict[str, Any]:
    ordered = np.sort(impressions)[::-1]
    count = max(1, round(TOP * len(ordered)))
    return {
        "documents": known,
        "never_shown": never,
        "never_shown_share": share,
        "queries_shown_whole": whole,
        "gini": gini(impressions),
        "top_share": float(ordered[:count].sum() / ordered.sum()),
    }


def _table(details: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    return ["what", "value"], [
        ["documents known for the queries asked", f"{details['documents']:,}"],
        ["never shown", f"{details['never_shown']:,} ({details['never_shown_share']:.1%})"],
        ["queries whose documents were all shown", f"{details['queries_shown_whole']:.1%}"],
        ["impressions of the 20% most shown documents", f"{details['top_share']:.1%}"],
        ["Gini coefficient of impressions", f"{details['gini']:.3f}"],
    ]


def _picture(impressions: Float64) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import lines_by

        ordered = np.sort(impressions)[::-1]
        share = np.linspace(0, 1, 101)
        places = np.minimum((share * len(ordered)).round().astype(np.int64), len(ordered))
        total = np.concatenate([[0.0], np.cumsum(ordered)]) / ordered.sum()
        return lines_by(
            share, {"": total[places]}, xlabel="share of documents, most shown first", ylabel="share of impressions"
        )

    return draw


def _unknown(why: str, remedy: str, details: dict[str, Any], impressions: Float64 | None = None) -> Finding:
    return Finding(
        NAME,
        "unknown",
        f"It cannot be told what was never shown. {why}",
        remedy,
        details=details,
        table=_table(details) if details else None,
        figure=None if impressions is None else _picture(impressions),
    )
