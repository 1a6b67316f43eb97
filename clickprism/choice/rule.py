"""The rule of a choice: which observation model and which ranker, by what the trials came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from clickprism.choice import words
from clickprism.choice.candidates import ALIKE
from clickprism.choice.criterion import Gain
from clickprism.choice.trials import Tried
from clickprism.types import Float64

CURVE, BENT = ALIKE
BY_MOVED: Final = "position"
BENT_SURE: Final = 3.0  # standard errors: too much of a bend costs more than too little
HEEDED_SURE: Final = 9.0  # where the engine heeds past clicks, and documents that moved are no witness
UPSIDE_DOWN: Final = 1.05
LESS_STEADY: Final = 3.0  # standard errors that a ranker must be ahead of a steadier one
STEADY: Final = ("blend", "mlp", "lambdamart", "linear")  # of rankers within chance of the best, the first is taken


@final
@dataclass(frozen=True)
class Verdict:
    """The observation model to take.

    Attributes:
        method: by name.
        why: sentences.
        alike: gains against no bias on queries held out, by documents that look alike.
        moved: gains against no bias by documents that moved.
    """

    method: str
    why: tuple[str, ...]
    alike: Mapping[str, Gain] = field(default_factory=dict)
    moved: Mapping[str, Gain] = field(default_factory=dict)


def chosen_method(told: Mapping[str, Tried], *, linked: bool, heeded: bool) -> Verdict:
    """The observation model that the log believes.

    1. Clicks stay as they are without a position curve that predicts held-out clicks on documents that look alike, or
       those on documents that moved; and where the corrected clicks would say that the engine ranks upside down.
    2. Features bend it if they predict more, and documents that moved, if there are any, agree.
    3. Documents that moved overrule it if they tell another curve, surely.
       Where the engine heeds past clicks they are no witness, as what moved up was lucky before: they overrule nothing,
       and features must predict far more.
    4. Where too few queries were clicked to look at documents that look alike, those that moved decide.

    Args:
        told: the trials by name, `click` among them.
        linked: whether documents that moved link all positions.
        heeded: whether the engine heeds past clicks.
    """
    base = told["click"].moved
    alike = {name: Gain.total(told[name].gains) for name in ALIKE if name in told and len(told[name].gains)}
    moved = {
        name: Gain.total(each.moved - base)
        for name, each in told.items()
        if name != "click" and len(each.moved) and base.any()
    }
    if CURVE not in alike:
        surely = linked and not heeded and BY_MOVED in moved and moved[BY_MOVED].sure
        method = BY_MOVED if surely else "click"
        return Verdict(method, words.by_moved(method, moved.get(BY_MOVED), linked=linked), alike, moved)
    witness = linked and not heeded and CURVE in moved and moved[CURVE].sure
    if not (alike[CURVE].sure or witness):
        return Verdict("click", words.unbiased(alike[CURVE], linked=linked), alike, moved)
    if not _plausible(told[CURVE]):
        return Verdict("click", words.upside_down(linked=linked), alike, moved)
    method, why = CURVE, [*words.biased(alike[CURVE], linked=linked, heeded=heeded)]
    if BENT in alike:
        more = Gain.total(told[BENT].gains - told[CURVE].gains)
        agreed = None if heeded else _lead(told, BENT, CURVE)
        enough = (HEEDED_SURE if heeded else BENT_SURE) * more.error
        if more.value > enough and (agreed is None or agreed.sure) and _plausible(told[BENT]):
            method = BENT
        why.append(words.bends(more, agreed, taken=method == BENT))
    against = _lead(told, BY_MOVED, method) if linked and not heeded else None
    if against is not None:
        method = BY_MOVED if against.sure and _plausible(told[BY_MOVED]) else method
        why.append(words.checked(against))
    return Verdict(method, tuple(why), alike, moved)


def diagnosed_method(told: Mapping[str, Tried], verdicts: Mapping[str, str]) -> Verdict | None:
    """The observation model by what a diagnosis found where documents that moved link all positions.

    Its tests let each bias explain what another might, and were right in 92% of worlds and more; likelihoods of single
    models were not. None where it names a model that was not tried.

    Args:
        told: the trials by name.
        verdicts: of the findings `trust` and `coupling`.
    """
    if verdicts.get("coupling") == "present":
        method = "bend"
    else:
        method = "trust" if verdicts.get("trust") == "present" else BY_MOVED
    if method not in told or told[method].about["refused"] or "unknown" in verdicts.values():
        return None
    base = told["click"].moved
    moved = {
        name: Gain.total(each.moved - base)
        for name, each in told.items()
        if name != "click" and len(each.moved) and base.any()
    }
    return Verdict(method, words.diagnosed(method), {}, moved)


def chosen_ranker(values: Mapping[str, Float64]) -> tuple[str, str]:
    """The ranker to take, and the best, by estimated nDCG of each query: a steady one within chance of the best."""
    best = max(values, key=lambda name: float(values[name].mean()))
    for name in STEADY:
        if name in values:
            lead = Gain.mean(values[best] - values[name])
            if lead.value <= LESS_STEADY * lead.error:
                return name, best
    return best, best


def _plausible(tried: Tried) -> bool:
    """Whether what stands lower does not earn more while seen: then more is corrected than there is."""
    return bool(tried.about.get("depth_ratio", 0.0) <= UPSIDE_DOWN)


def _lead(told: Mapping[str, Tried], one: str, other: str) -> Gain | None:
    """By how much one model explains better than another where documents that moved were clicked; None if none did."""
    if one not in told or not len(told[one].moved) or not told[one].moved.any():
        return None
    return Gain.total(told[one].moved - told[other].moved)
