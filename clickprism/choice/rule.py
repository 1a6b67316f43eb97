"""The rule of a choice: which observation model and which ranker, by what the trials came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from clickprism.choice import words
from clickprism.choice.candidates import POOLED
from clickprism.choice.criterion import Gain
from clickprism.choice.trials import Tried
from clickprism.types import Float64

CURVE, BENT = POOLED
BENT_SURE: Final = 3.0  # standard errors
BROWSED_SURE: Final = 6.0  # where users heed the clicks above, which places tell in part only
LESS_STEADY: Final = 3.0  # standard errors that a ranker must be ahead of a steadier one
STEADY: Final = ("blend", "mlp", "lambdamart", "linear")  # of rankers within chance of the best, the first is taken


@final
@dataclass(frozen=True)
class Verdict:
    """The observation model to take.

    Attributes:
        method: by name.
        why: sentences.
        pooled: gains against no bias on queries held out, by one likelihood for all documents.
        moved: gains against no bias by documents that moved.
    """

    method: str
    why: tuple[str, ...]
    pooled: Mapping[str, Gain] = field(default_factory=dict)
    moved: Mapping[str, Gain] = field(default_factory=dict)


def chosen_method(told: Mapping[str, Tried], *, linked: bool) -> Verdict:
    """The observation model that the log believes.

    1. Clicks stay as they are without a position curve that predicts the clicks of held-out queries better.
    2. Features bend it if they predict more.
    3. Where no pooled model was tried, or clicks are too few for one, that by which clicks on documents that moved are
       the most likely, if they surely are.

    Args:
        told: the trials by name, `click` among them.
        linked: whether documents that moved link all positions.
    """
    base = told["click"].moved
    pooled = {name: Gain.total(told[name].gains) for name in POOLED if name in told and len(told[name].gains)}
    moved = {
        name: Gain.total(each.moved - base)
        for name, each in told.items()
        if name != "click" and len(each.moved) and base.any()
    }
    if not pooled:
        best = max(moved, key=lambda name: moved[name].value, default="click")
        method = best if best != "click" and moved[best].sure else "click"
        return Verdict(method, words.by_moved(method, moved.get(best), linked=linked), pooled, moved)
    method, why = CURVE if CURVE in pooled else BENT, []
    if not pooled[method].sure:
        return Verdict("click", words.unbiased(pooled[method]), pooled, moved)
    why.append(words.biased(pooled[method], linked=linked))
    if BENT in pooled:
        more = Gain.total(told[BENT].more)
        if more.value > (BROWSED_SURE if told[BENT].about.get("browsing") else BENT_SURE) * more.error:
            method = BENT
        why.append(words.bends(more, taken=method == BENT))
    about = told[method].about
    why += words.besides(bool(about.get("browsing")), float(about.get("popular", 0.0)))
    return Verdict(method, tuple(why), pooled, moved)


def chosen_ranker(values: Mapping[str, Float64]) -> tuple[str, str]:
    """The ranker to take, and the best, by estimated nDCG of each query: a steady one within chance of the best."""
    best = max(values, key=lambda name: float(values[name].mean()))
    for name in STEADY:
        if name in values:
            lead = Gain.mean(values[best] - values[name])
            if lead.value <= LESS_STEADY * lead.error:
                return name, best
    return best, best
