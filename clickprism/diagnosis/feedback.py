"""Feedback: does the engine react to clicks, so that documents move up because they were clicked?"""

from __future__ import annotations

import math
from typing import Final

from clickprism.diagnosis.finding import Finding, inconclusive
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Feedback, p_text

RISE: Final = 0.1  # of a click rate, for which the report says how far a document moves


def feedback(model: LogModel) -> Finding:
    """Return whether documents move up after they were clicked more than expected."""
    found = model.feedback
    if found.verdict == "inconclusive":
        why = "it has one day only, too few clicks, or documents that hardly change positions"
        advice = "Log the time of each search, for several days."
        if math.isfinite(found.z):
            why = f"the evidence is weak (z = {found.z:.1f}, {p_text(found.p_value)})"
            advice = "Collect more days, and run the diagnosis again."
        return inconclusive(
            "feedback",
            f"The log does not show whether the engine reacts to clicks: {why}.",
            advice,
            details=_details(found),
        )
    present = found.verdict == "present"
    sentence = (
        "The engine reacts to clicks: documents move up after they were clicked more than expected"
        if present
        else "The engine does not react to clicks: documents do not move up after they were clicked more than expected"
    )
    advice = (
        "Estimates that compare a document with itself at several positions (AllPairs, swaps) are biased here, since"
        " documents moved up because they had more clicks. Use the curve of this report, and randomise positions in a"
        " small share of searches to check it."
        if present
        else "Nothing to do."
    )
    return Finding(
        "feedback",
        found.verdict,
        f"{sentence} (z = {found.z:.1f}, {p_text(found.p_value)}).{_number(found) if present else ''}",
        advice,
        p_value=found.p_value,
        details=_details(found),
    )


def _number(found: Feedback) -> str:
    """Return the size of a reaction as a sentence; empty if it is unknown."""
    if not math.isfinite(found.reaction):
        return ""
    rise, least, most = (-math.expm1(RISE * each) for each in (found.reaction, found.upper, found.lower))
    return (
        f" If the click rate of a document rises by {100 * RISE:.0f} percentage points, the number of its position"
        f" falls by {rise:.1%} (95% interval {least:.1%} to {most:.1%})."
    )


def _details(found: Feedback) -> dict[str, float]:
    return {"z": found.z, "reaction": found.reaction, "lower": found.lower, "upper": found.upper}
