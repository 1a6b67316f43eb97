"""When a log cannot say what a ranker would earn, and what to randomise so that the next one can."""

from __future__ import annotations

import math
from typing import Final

from clickprism.evaluation.counterfactual_estimators import Parts
from clickprism.evaluation.counterfactual_model import RewardModel
from clickprism.evaluation.counterfactual_settings import CounterfactualSettings, Name

SHOWN: Final = {
    "ips": "lists that were never shown",
    "snips": "lists that were never shown",
    "reward-interaction": "tops of lists that were never shown",
    "cascade-dr": "tops of lists that were never shown",
    "item-position": "documents that never stood where it puts them",
    "item-position-dr": "documents that never stood where it puts them",
    "position-based": "documents that were never shown",
}
SHUFFLE: Final = "Show the new ranking itself in a share of searches, or shuffle the top of some"
ADD: Final = "Show such documents in some searches, at any position"
LINK: Final = "Swap documents between positions in some searches, or log several rankers"


def refusal(
    name: Name,
    parts: Parts,
    *,
    value: float,
    model: RewardModel,
    settings: CounterfactualSettings,
    queries: float,
) -> str:
    """Why this value is not given; empty where it is.

    Args:
        name: of the estimator.
        parts: of its value.
        value: itself.
        model: the click model behind it.
        settings: the limits.
        queries: in effect.
    """
    if settings.unit == "query" and queries < settings.least_queries:
        return (
            f"the log has {queries:.1f} queries in effect, fewer than {settings.least_queries:g}. Log more queries, or "
            "ask about other searches of the same ones: unit search"
        )
    modelled = name in ("cascade-dr", "item-position-dr")
    if not modelled and parts.missing > settings.most_missing:
        remedy = ADD if name == "position-based" else SHUFFLE
        return (
            f"{parts.missing:.1%} of the clicks at stake are on {SHOWN[name]}, more than {settings.most_missing:.1%}. "
            f"{remedy}"
        )
    if name == "position-based" and model.unlinked:
        return f"the positions are not linked: {model.unlinked}"
    if name == "position-based" and _beyond(parts.misfit, settings.most_misfit):
        way = "less" if parts.misfit[0] < 0 else "more"
        return (
            f"documents that the log moved as the ranker does earned {abs(parts.misfit[0]):.1%} {way} than position and "
            f"relevance foretell, beyond {settings.most_misfit:.1%}: clicks are not the product of the two"
        )
    if modelled and model.unlinked and parts.missing > settings.most_missing:
        return (
            f"{parts.missing:.1%} of the clicks at stake are on {SHOWN[name]}, and no click model can fill them in, as "
            f"the positions are not linked by documents seen at several. {LINK}"
        )
    slack = (parts.below + parts.above) / 2
    if modelled and slack > settings.most_slack * value:
        return (
            f"the click model fills in {parts.missing:.1%} of the clicks at stake, and may be off by "
            f"{slack / max(value, 1e-9):.1%} of the value, more than {settings.most_slack:.1%}. {SHUFFLE}"
        )
    if not parts.effective >= settings.least_effective:
        return (
            f"the value rests on {parts.effective:,.0f} sessions in effect, fewer than {settings.least_effective:,.0f}. "
            f"{SHUFFLE}"
        )
    return "" if math.isfinite(value) else "the log has no session that matches"


def _beyond(misfit: tuple[float, float], most: float) -> bool:
    return abs(misfit[0]) - 2 * misfit[1] > most
