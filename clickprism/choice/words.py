"""A choice in words: what was taken, why, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from clickprism.choice.candidates import METHODS, Candidate
from clickprism.choice.criterion import Gain

HEADER: Final = ("what was tried", "criterion", "value", "standard error")
APART: Final = (
    "Documents that stood at several positions do not link all positions, so nothing that rests on them was tried."
)
BY_ALIKE: Final = "log-likelihood, held out, documents alike"
BY_MOVED: Final = "log-likelihood, documents that moved"
NOTHING: Final = "Nothing sound is left but clicks as they are."


def unbiased(curve: Gain, *, linked: bool) -> tuple[str, ...]:
    """Why clicks stay as they are."""
    said = (
        "Documents that the ranking could hardly tell apart are clicked alike wherever they stand: a position curve "
        f"gains {_signed(curve)} of log-likelihood on held-out queries, so there is no position bias to correct."
    )
    return (said,) if linked else (APART, said)


def upside_down(*, linked: bool) -> tuple[str, ...]:
    """Why a curve is not believed."""
    said = (
        "By the position curve that clicks tell, what stands lower would be better than what stands higher: it is not "
        "believed, and clicks stay as they are."
    )
    return (said,) if linked else (APART, said)


def biased(curve: Gain, *, linked: bool, heeded: bool) -> tuple[str, ...]:
    """Why clicks are corrected."""
    said = [] if linked else [APART]
    said.append(
        "Documents that the ranking could hardly tell apart are clicked less the lower they stand: a position curve "
        f"gains {_signed(curve)} of log-likelihood on held-out queries."
    )
    if heeded:
        said.append("The engine heeds past clicks, so documents are compared that had as many of them, too.")
    elif not linked:
        said.append("That is sound if the ranking knew of relevance what the features tell, and no more.")
    return tuple(said)


def bends(more: Gain, agreed: Gain | None, *, taken: bool) -> str:
    """Why features bend the curve, or do not."""
    also = "" if agreed is None else f", {_signed(agreed)} on documents that moved"
    verb = "Features bend it" if taken else "Features do not surely bend it"
    return f"{verb}: {_signed(more)} on held-out queries{also}."


def checked(against: Gain) -> str:
    """What documents that moved say to it."""
    if against.sure:
        return (
            "Documents that stood at several positions tell another curve, and are believed, since relevance cancels "
            f"in them ({_signed(against)})."
        )
    return f"Documents that stood at several positions do not contradict it ({_signed(against)} for their own curve)."


def diagnosed(method: str) -> tuple[str, ...]:
    """Why a diagnosis decides."""
    found = {
        "bend": "what documents look like decides how much is seen of them",
        "trust": "poor documents are clicked at the top for their place alone",
        "position": "neither trust nor the looks of documents play a part",
    }[method]
    return (f"Documents that stood at several positions link all of them, and their diagnosis decides: {found}.",)


def by_moved(method: str, gain: Gain | None, *, linked: bool) -> tuple[str, ...]:
    """Why documents that moved decide."""
    if method != "click" and gain is not None:
        return (f"Documents that stood at several positions are clicked less the lower they stand: {_signed(gain)}.",)
    return ("Too few clicks tell whether positions matter.",) if linked else (APART, NOTHING)


def of_ranker(chosen: str, best: str, values: Mapping[str, float], leads: Mapping[str, Gain]) -> str:
    """Why this ranker."""
    if len(values) < 2:
        return f"The ranker is {chosen}; no other was compared."
    said = f"On queries it did not learn from, {chosen} reaches an estimated nDCG@10 of {values[chosen]:.4f}"
    if best != chosen:
        lead = leads[chosen]
        return f"{said}; {best} is {lead.value:+.4f} ± {lead.error:.4f} from it, within chance, and less steady."
    return f"{said}, the best of {len(values)} rankers."


def rows(
    refused: Mapping[str, str], alike: Mapping[str, Gain], moved: Mapping[str, Gain], rankers: Mapping[str, Gain]
) -> list[list[str]]:
    """The table of what was tried; `refused` has every observation model."""
    made = []
    for name, why in refused.items():
        what = f"{name}: {METHODS[name]}"
        if why:
            made.append([what, "refused", why, ""])
        for criterion, gains in ((BY_ALIKE, alike), (BY_MOVED, moved)):
            if name in gains:
                made.append([what, criterion, *_pair(gains[name], 1)])
    return [*made, *([name, "estimated nDCG@10", *_pair(gain, 4)] for name, gain in rankers.items())]


def text(chosen: str, why: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """The end of `clickprism tune`."""
    lines = [f"Chosen: {chosen}, {Candidate.parse(chosen).words}.", *why, ""]
    widths = [max(len(row[place]) for row in (HEADER, *table)) for place in range(len(HEADER))]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (HEADER, *table)
    ]
    return "\n".join(lines)


def _signed(gain: Gain) -> str:
    return f"{gain.value:+,.1f} ± {gain.error:,.1f}"


def _pair(gain: Gain, digits: int) -> tuple[str, str]:
    return f"{gain.value:,.{digits}f}", f"{gain.error:,.{digits}f}"
