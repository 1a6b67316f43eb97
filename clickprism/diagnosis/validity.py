"""Findings on the model itself: is relevance identifiable, does the engine react to clicks, does the model fit?

A click is relevance times observation. Two positions can be compared only through documents that were shown at both, or
through randomised positions. If nothing links a position to the others, any curve fits its clicks.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from clickprism._util.tables import Table
from clickprism.diagnosis.finding import Finding, inconclusive
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Feedback, GoodnessOfFit, Linkage, Verdict, p_text
from clickprism.types import Int64

RISE: Final = 0.1  # of a click rate, for which the report says how far a document moves


def identifiability(model: LogModel) -> Finding:
    """Return whether documents or randomisation link all positions ("present": relevance is identifiable).

    "inconclusive" if all positions are linked, but some by too few clicks.
    """
    linkage = model.linkage
    count = len(linkage.groups)
    groups = [position_ranges(linkage.groups, group) for group in np.unique(linkage.groups)]
    repair = f"{linkage.repair.rstrip('.')}." if linkage.repair else "Collect more searches."
    verdict: Verdict = "present" if linkage.linked else "absent"
    if not linkage.linked and bool((linkage.evidence > 0).all()):
        verdict = "inconclusive"
    moved = f"{linkage.moved:,} of {linkage.pairs:,} (query, document) pairs were shown at several positions"
    if verdict == "present":
        randomised = all(each == "randomised" for each in linkage.identified)
        by = "randomised positions" if randomised else "documents shown at several positions"
        how = f"All {count} positions are linked by {by}; {moved}.{_weakest(linkage)}"
        if "views" in linkage.identified:
            how = "The log records which results users observed."
        sentence = f"Relevance is identifiable: it can be separated from position bias. {how}"
        advice = "Nothing to do."
    elif verdict == "inconclusive":
        weak = int(np.argmin(linkage.evidence))
        sentence = (
            f"Relevance is hardly identifiable: position {weak + 1} is linked to position 1 by"
            f" {linkage.evidence[weak]:.0f} clicks only. {moved}.{_by_features(linkage)}"
        )
        advice = repair
    else:
        apart = "no two positions are linked"
        if len(groups) < count:
            apart = f"positions {' | '.join(groups)} are not linked to each other"
        sentence = f"Relevance is not identifiable from clicks alone: {apart}. {moved}.{_by_features(linkage)}"
        advice = repair
    return Finding(
        "identifiability",
        verdict,
        sentence,
        advice,
        estimate=float(len(groups)),
        unit="groups of linked positions" if len(groups) > 1 else "group: all positions are linked",
        details={
            "identified": list(linkage.identified),
            "evidence": linkage.evidence.tolist(),
            "groups": groups,
            "moved": linkage.moved,
            "pairs": linkage.pairs,
            "weakest": linkage.weakest,
            "repair": linkage.repair,
        },
        table=Table(
            "",
            ["position", "identified by", "clicks that link it to position 1", "group"],
            [
                [str(at + 1), linkage.identified[at], _count(linkage.evidence[at]), str(linkage.groups[at] + 1)]
                for at in range(count)
            ],
        ),
    )


def position_ranges(groups: Int64, group: int) -> str:
    """Return the positions of a group as text.

    >>> position_ranges(np.array([0, 0, 1, 0]), 0), position_ranges(np.array([0, 0, 1, 0]), 1)
    ('1-2, 4', '3')
    """
    positions = np.flatnonzero(groups == group) + 1
    pieces = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return ", ".join(str(piece[0]) if len(piece) == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces)


def _weakest(linkage: Linkage) -> str:
    if linkage.weakest is None:
        return ""
    one, other, clicks = linkage.weakest
    return f" The weakest link, between positions {one} and {other}, is based on {clicks:,.0f} clicks."


def _by_features(linkage: Linkage) -> str:
    if "features" not in linkage.identified:
        return ""
    return (
        " The position curve is identified by features only: it assumes that documents with similar features are"
        " equally relevant."
    )


def _count(clicks: float) -> str:
    return f"{clicks:,.0f}" if np.isfinite(clicks) else ""


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


def fit(model: LogModel) -> Finding:
    """Return whether observed clicks match expected ones, by position and first-shown position ("present": they do)."""
    quality = model.fit_quality
    if not math.isfinite(quality.p_value):
        return inconclusive("fit", "The log has too few clicks to check how well the model fits.", "Collect more data.")
    if quality.fits:
        sentence = (
            "The model fits: the clicks that it expects match the observed ones at every position"
            f" ({p_text(quality.p_value)})."
        )
        advice = "Nothing to do."
    else:
        sentence = (
            f"The model does not fit well: {_largest(quality)} ({p_text(quality.p_value)}). Its intervals may be too"
            " narrow."
        )
        advice = (
            "Use the estimates as approximate. Check the findings on interaction, coupling and drift first: users who"
            " react to clicks above, or days that differ, are common causes."
        )
    return Finding(
        "fit",
        "present" if quality.fits else "absent",
        sentence,
        advice,
        estimate=quality.largest if math.isfinite(quality.largest) else None,
        unit="largest significant |log(observed / expected clicks)|",
        p_value=quality.p_value,
        details={"ratio": quality.ratio, "z": quality.z, "bins": list(quality.bins)},
        table=Table(
            "Observed over expected clicks by position (rows) and by where the engine ranked the document (columns)",
            ["position", *quality.bins],
            [
                [str(at + 1), *(f"{value:.2f}" if math.isfinite(value) else "" for value in row)]
                for at, row in enumerate(quality.ratio)
            ],
        ),
    )


def _largest(quality: GoodnessOfFit) -> str:
    """Return the most significant deviation as words."""
    known = np.where(np.isfinite(quality.z) & np.isfinite(quality.ratio), np.abs(quality.z), 0.0)
    at, bin_of = np.unravel_index(int(np.argmax(known)), known.shape)
    ratio = float(quality.ratio[at, bin_of])
    more = f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'fewer'} clicks than expected"
    return f"position {at + 1} has {more} on documents that the engine ranked at position {quality.bins[bin_of]}"
