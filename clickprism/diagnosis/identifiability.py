"""Identifiability: can relevance be separated from position bias?

A click is relevance times observation. Two positions can be compared only through documents that were shown at both, or
through randomised positions. If nothing links a position to the others, any curve fits its clicks.
"""

from __future__ import annotations

import numpy as np

from clickprism._util.tables import Table
from clickprism.diagnosis.finding import Finding
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Linkage, Verdict
from clickprism.types import Int64


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
