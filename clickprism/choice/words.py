"""A choice in words: what was taken, why, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from clickprism.choice.candidates import METHODS
from clickprism.choice.criterion import Gain

HEADER: Final = ("what was tried", "criterion", "value", "standard error")
BY_POOLED: Final = "log-likelihood gained, queries held out"
BY_MOVED: Final = "log-likelihood gained, documents that moved"
UNTRIED: Final = "No observation model was ready in time: clicks stay as they are, biased as they may be."
REFUSED: Final = "refused"


def unbiased(curve: Gain) -> tuple[str, ...]:
    """Why clicks stay as they are."""
    return (
        f"A position curve gains {_signed(curve)} of log-likelihood on held-out queries, so there is no position bias "
        "to correct.",
    )


def biased(curve: Gain, *, linked: bool) -> str:
    """Why clicks are corrected."""
    said = f"Documents are clicked less the lower they stand: {_signed(curve)} of log-likelihood on held-out queries"
    if linked:
        return f"{said}, by what stood at several positions and by what looks alike."
    return (
        f"{said}. Documents that stood at several positions do not link all positions, so this rests on those that "
        "look alike: it is sound if the ranking knew of relevance what the features tell, and no more."
    )


def besides(browsing: bool, popular: float) -> list[str]:
    """What else decides how much is seen.

    >>> besides(False, 0.5)
    ['Past clicks draw the eye: what was clicked the most loses 50% less by its place, which is taken off.']
    """
    said = ["Users heed what they clicked above, so places know the last click."] if browsing else []
    if popular:
        less = f"{abs(popular):.0%} {'less' if popular > 0 else 'more'}"
        said.append(
            f"Past clicks draw the eye: what was clicked the most loses {less} by its place, which is taken off."
        )
    return said


def bends(more: Gain, *, taken: bool) -> str:
    """Why features bend the curve, or do not."""
    verb = "Features bend it" if taken else "Features do not surely bend it"
    return f"{verb}: {_signed(more)} on held-out queries."


def by_moved(method: str, gain: Gain | None, *, linked: bool) -> tuple[str, ...]:
    """Why documents that moved decide."""
    if method != "click" and gain is not None:
        return (f"It makes the clicks on documents that stood at several positions the most likely: {_signed(gain)}.",)
    if gain is not None:
        said = f"the best of them by {_signed(gain)}"
        return (
            "None makes the clicks on documents that stood at several positions surely more likely than clicks as they "
            f"are ({said}), which therefore stay as they are.",
        )
    if linked:
        return ("Too few clicks tell whether positions matter: clicks stay as they are.",)
    return ("No documents link all positions, and too few clicks tell whether they matter: clicks stay as they are.",)


def unsupported(asked: Sequence[str], tried: Sequence[str], *, linked: bool) -> tuple[str, ...]:
    """Why some of the models that were asked for were not tried."""
    names = [name for name in asked if name not in tried]
    lacking = "what was clicked together" if linked else "documents that stood at several positions to link all of them"
    return (f"Not tried: {', '.join(names)}. It would take {lacking}, which the log does not tell.",) if names else ()


def of_ranker(chosen: str, best: str, values: Mapping[str, float], leads: Mapping[str, Gain]) -> str:
    """Why this ranker."""
    if len(values) < 2:
        return f"The ranker is {chosen}; no other was compared."
    said = f"On queries it did not learn from, {chosen} reaches an estimated nDCG@10 of {values[chosen]:.4f}"
    if best != chosen:
        lead = leads[chosen]
        ahead = "less than 0.0001" if lead.value < 1e-4 else f"{lead.value:.4f} ± {lead.error:.4f}"
        return f"{said}; {best} is ahead by {ahead}, too little for a ranker that is less steady."
    return f"{said}, the best of {len(values)} rankers."


def rows(
    refused: Mapping[str, str], pooled: Mapping[str, Gain], moved: Mapping[str, Gain], rankers: Mapping[str, Gain]
) -> list[list[str]]:
    """The table of what was tried; `refused` has every observation model."""
    made = []
    for name, why in refused.items():
        if why:
            made.append([name, REFUSED, why, ""])
        for criterion, gains in ((BY_POOLED, pooled), (BY_MOVED, moved)):
            if name in gains:
                made.append([name, criterion, *_pair(gains[name], 1)])
    return [*made, *([name, "estimated nDCG@10", *_pair(gain, 4)] for name, gain in rankers.items())]


def legend(table: Sequence[Sequence[str]]) -> list[str]:
    """What the names of observation models in the table stand for."""
    return [f"{name}: {METHODS[name]}." for name in dict.fromkeys(row[0] for row in table) if name in METHODS]


def _signed(gain: Gain) -> str:
    digits = 0 if abs(gain.value) >= 100 else 1
    return f"{gain.value:+,.{digits}f} ± {gain.error:,.{digits}f}"


def _pair(gain: Gain, digits: int) -> tuple[str, str]:
    return f"{gain.value:,.{digits}f}", f"{gain.error:,.{digits}f}"
