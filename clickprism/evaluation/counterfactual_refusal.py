"""When a log cannot say what a ranker would earn, and what to randomise so that the next one can."""

from __future__ import annotations

from typing import Final

from clickprism.evaluation.counterfactual_estimators import Parts
from clickprism.evaluation.counterfactual_model import LEAST, RewardModel
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
    if name in ("cascade-dr", "item-position-dr"):
        reason = _modelled(name, parts, value=value, model=model, settings=settings)
    elif parts.missing > settings.most_missing:
        most, remedy = settings.most_missing, ADD if name == "position-based" else SHUFFLE
        reason = f"{parts.missing:.1%} of the clicks at stake are on {SHOWN[name]}, more than {most:.1%}. {remedy}"
    else:
        reason = _by_position(parts, value=value, model=model, settings=settings) if name == "position-based" else ""
    if not reason and not parts.effective >= settings.least_effective:
        least = settings.least_effective
        reason = f"the value rests on {parts.effective:,.0f} sessions in effect, fewer than {least:,.0f}. {SHUFFLE}"
    return reason


def _modelled(name: Name, parts: Parts, *, value: float, model: RewardModel, settings: CounterfactualSettings) -> str:
    """Why a click model cannot fill in what was not shown."""
    if model.unlinked and parts.missing > settings.most_missing:
        return (
            f"{parts.missing:.1%} of the clicks at stake are on {SHOWN[name]}, and no click model can fill them in, as "
            f"the positions are not linked by documents seen at several. {LINK}"
        )
    if parts.modelled > settings.most_modelled:
        most = settings.most_modelled
        return f"{parts.missing:.1%} of the clicks at stake are on {SHOWN[name]}, more than {most:.1%}. {SHUFFLE}"
    return _slack(f"the click model fills in {parts.missing:.1%} of the clicks at stake", parts, value, settings)


def _slack(what: str, parts: Parts, value: float, settings: CounterfactualSettings) -> str:
    slack = (parts.below + parts.above) / 2
    if slack <= settings.most_slack * value:
        return ""
    share = slack / max(value, LEAST)
    return f"{what}, and may be off by {share:.1%} of the value, more than {settings.most_slack:.1%}. {SHUFFLE}"


def _by_position(parts: Parts, *, value: float, model: RewardModel, settings: CounterfactualSettings) -> str:
    """Why position and relevance do not explain the log."""
    if model.unlinked:
        return f"the positions are not linked: {model.unlinked}"
    if parts.modelled > settings.most_modelled:
        return (
            f"{parts.modelled:.1%} of the clicks at stake are on {SHOWN['item-position']}, more than "
            f"{settings.most_modelled:.1%}, too many for the log to check the model. {SHUFFLE}"
        )
    off, error = parts.misfit
    if abs(off) - 2 * error <= settings.most_misfit:
        return _slack("the click model stands for all clicks", parts, value, settings)
    return (
        f"documents that the log moved as the ranker does earned other than position and relevance foretell: the value "
        f"would be {abs(off):.1%} too {'high' if off < 0 else 'low'}, more than {settings.most_misfit:.1%}"
    )
