"""A choice in words: what was taken, why, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from clickprism.choice.candidates import METHODS, Candidate
from clickprism.choice.criterion import Gain

HEADER: Final = ("what was tried", "criterion", "value", "standard error")
APART: Final = (
    "Documents that stood at several positions do not link all positions, so nothing that rests on them was tried."
)
NOTHING: Final = "Nothing sound is left but clicks as they are."


def of_alike(chosen: str, curve: Gain, more: Gain | None, *, linked: bool) -> list[str]:
    """Why this observation model, by documents that look alike."""
    said = [] if linked else [APART]
    if chosen == "click":
        return [
            *said,
            "Documents that the ranking could hardly tell apart are clicked alike wherever they stand (a position curve "
            f"gains {_signed(curve)} of log-likelihood on held-out queries): there is no position bias to correct.",
        ]
    said.append(
        "Documents that the ranking could hardly tell apart are clicked less the lower they stand: a position curve "
        f"gains {_signed(curve)} of log-likelihood on held-out queries."
    )
    if more is not None:
        verb = "bend" if more.sure else "do not bend"
        said.append(f"Features {verb} it: {_signed(more)}.")
    return said


def of_moved(chosen: str, best: str, gains: Mapping[str, Gain]) -> list[str]:
    """Why this observation model, by documents that moved."""
    if chosen == "click":
        lead = f" (best: {best}, log-likelihood {_signed(gains[best])})"
        return [f"No correction predicts held-out clicks on documents that moved better than none{lead}."]
    return [
        f"Of {len(gains)} observation models, {chosen} is the simplest that no other beats by more than a standard error "
        f"on documents that moved, in queries held out: log-likelihood {_signed(gains[chosen])} against no bias."
    ]


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
    methods: Mapping[str, Mapping[str, Any]], gains: Mapping[str, Gain], rankers: Mapping[str, Gain]
) -> list[list[str]]:
    """The table of what was tried."""
    made = []
    for name, told in methods.items():
        gain, what = gains.get(name), f"{name}: {METHODS[name]}"
        if told["refused"]:
            made.append([what, "refused", told["refused"], ""])
        elif gain is not None:
            made.append([what, "held-out log-likelihood", *_pair(gain, 1)])
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
