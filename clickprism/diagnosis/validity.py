"""Findings on the model itself: is relevance identifiable, does the engine react to clicks, does the model fit?

A click is relevance times observation. Two positions can be compared only through documents that were shown at both, or
through randomised positions. If nothing links a position to the others, any curve fits its clicks.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from clickprism._util.tables import Table, to_plain
from clickprism.diagnosis.finding import Finding, inconclusive, spans
from clickprism.diagnosis.position import NAMES
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Feedback, GoodnessOfFit, Verdict, p_text

RISE: Final = 0.1  # rise of the click rate for which the report says how far a document moves


def identifiability(model: LogModel) -> Finding:
    """Return whether documents or randomisation link all positions ("present": relevance is identifiable).

    "inconclusive" if all positions are linked, but some by too few clicks.
    """
    linkage = model.linkage
    groups = [spans((linkage.groups == group).tolist()) for group in np.unique(linkage.groups)]
    moved = f"{linkage.moved:,} of {linkage.pairs:,} (query, document) pairs were shown at several positions."
    verdict: Verdict
    if linkage.linked:
        verdict, advice = "present", "Nothing to do."
        by = "randomised positions" if set(linkage.identified) == {"randomised"} else NAMES["allpairs"]
        how = f"All {len(linkage.groups)} positions are linked by {by}; {moved}"
        if linkage.weakest is not None:
            one, other, clicks = linkage.weakest
            how += f" The weakest link, between positions {one} and {other}, is based on {clicks:,.0f} clicks."
        if "views" in linkage.identified:
            how = "The log records which results users observed."
        sentence = f"Relevance is identifiable: it can be separated from position bias. {how}"
    else:
        advice = f"{linkage.repair.rstrip('.')}." if linkage.repair else "Collect more searches."
        if bool((linkage.evidence > 0).all()):
            verdict, weak = "inconclusive", int(np.argmin(linkage.evidence))
            link = f"position {weak + 1} is linked to position 1 by {linkage.evidence[weak]:.0f} clicks only"
            sentence = f"Relevance is hardly identifiable: {link}. {moved}"
        else:
            verdict, apart = "absent", "no two positions are linked"
            if len(groups) < len(linkage.groups):
                apart = f"positions {' | '.join(groups)} are not linked to each other"
            sentence = f"Relevance is not identifiable from clicks alone: {apart}. {moved}"
        if "features" in linkage.identified:
            sentence += (
                " The position curve is identified by features only: it assumes that documents with similar features"
                " are equally relevant."
            )
    rows = zip(linkage.identified, linkage.evidence.tolist(), linkage.groups.tolist(), strict=True)
    return Finding(
        "identifiability",
        verdict,
        sentence,
        advice,
        estimate=float(len(groups)),
        unit="groups of linked positions" if len(groups) > 1 else "group: all positions are linked",
        details=to_plain(linkage) | {"groups": groups},
        table=Table(
            "",
            ["position", "identified by", "clicks that link it to position 1", "group"],
            [
                [str(at), by, f"{clicks:,.0f}" if math.isfinite(clicks) else "", str(group + 1)]
                for at, (by, clicks, group) in enumerate(rows, start=1)
            ],
        ),
    )


def feedback(model: LogModel) -> Finding:
    """Return whether documents move up after they were clicked more than expected."""
    found = model.feedback
    details = {name: getattr(found, name) for name in ("z", "reaction", "lower", "upper")}
    evidence = f"z = {found.z:.1f}, {p_text(found.p_value)}"
    if found.verdict == "inconclusive":
        why = "it has one day only, too few clicks, or documents that hardly change positions"
        advice = "Log the time of each search, for several days."
        if math.isfinite(found.z):
            why, advice = f"the evidence is weak ({evidence})", "Collect more days, and run the diagnosis again."
        sentence = f"The log does not show whether the engine reacts to clicks: {why}."
        return inconclusive("feedback", sentence, advice, details=details)
    if found.verdict == "absent":
        moves = "documents do not move up after they were clicked more than expected"
        sentence, advice = f"The engine does not react to clicks: {moves} ({evidence}).", "Nothing to do."
    else:
        moves = "documents move up after they were clicked more than expected"
        sentence = f"The engine reacts to clicks: {moves} ({evidence}).{_size(found)}"
        advice = (
            "Estimates that compare a document with itself at several positions (AllPairs, swaps) are biased here,"
            " since documents moved up because they had more clicks. Use the curve of this report, and randomise"
            " positions in a small share of searches to check it."
        )
    return Finding("feedback", found.verdict, sentence, advice, p_value=found.p_value, details=details)


def _size(found: Feedback) -> str:
    """Return the size of a reaction as a sentence; empty if it is unknown."""
    if not math.isfinite(found.reaction):
        return ""
    rise, least, most = (-math.expm1(RISE * each) for each in (found.reaction, found.upper, found.lower))
    return (
        f" If the click rate of a document rises by {100 * RISE:.0f} percentage points, the number of its position"
        f" falls by {rise:.1%} (95% interval {least:.1%} to {most:.1%})."
    )


def fit(model: LogModel) -> Finding:
    """Return whether observed clicks match expected ones, by position and first-shown position ("present": they do)."""
    quality = model.fit_quality
    if not math.isfinite(quality.p_value):
        return inconclusive("fit", "The log has too few clicks to check how well the model fits.", "Collect more data.")
    evidence = p_text(quality.p_value)
    sentence = f"The model fits: the clicks that it expects match the observed ones at every position ({evidence})."
    if quality.largest:
        most = f"a factor of at most {math.exp(quality.largest):.2f}"
        sentence = f"The model fits: where observed clicks differ significantly from expected ones, it is by {most}."
    advice = "Nothing to do."
    if not quality.fits:
        sentence = f"The model does not fit well: {_largest(quality)} ({evidence}). Its intervals may be too narrow."
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
