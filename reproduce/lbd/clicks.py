"""What a method learns from: the log, or the log corrected by the known effect of positions; and how coupled it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.click_models.coupled import CoupledUser
from clickprism.experiments.data import Log
from reproduce.lbd.config import Source
from reproduce.lbd.effect import Effect, TrueEffect, corrected


def clicks_of(
    source: Source,
    method: Any,
    *,
    dataset: cp.Dataset,
    log: Log,
    user: CoupledUser,
    effect: Callable[[], Effect],
) -> cp.Clicks:
    """The clicks for a method, merged as far as it allows; `effect` estimates that of positions, on swaps."""
    if method.name == "labels":
        return cp.ideal_clicks(dataset.train)
    clicks = log.simulation.clicks if method.needs_patterns else log.simulation.clicks.merge()
    if source == "log":
        return clicks
    known = effect() if source == "effect" else TrueEffect(user, relative=source == "true effect")
    return corrected(clicks, known)


@dataclass(frozen=True)
class Coupling:
    """Measured strength of a coupling; report it with eta.

    Attributes:
        deviation: standard deviation of w.x over documents.
        correlation: correlation of the exponent with the grade; 0 if either does not vary.
        floored: share of documents whose exponent would be below 0; they are always observed.
    """

    deviation: float
    correlation: float
    floored: float


def coupling(user: CoupledUser, judged: cp.JudgedLists) -> Coupling:
    """Measure the coupling of an adapted user on these documents."""
    exponent = user.exponent(judged.lists)
    weighted = np.zeros(judged.lists.documents)
    for column, weight in zip(user.columns, user.weights, strict=True):
        weighted += weight * judged.lists.features[:, column].astype(np.float64)
    varies = len(exponent) > 1 and exponent.std() > 0 and judged.grades.std() > 0
    return Coupling(
        deviation=float(weighted.std()) if len(weighted) else 0.0,
        correlation=float(np.corrcoef(exponent, judged.grades)[0, 1]) if varies else 0.0,
        floored=float((weighted < -1).mean()) if len(weighted) else 0.0,
    )
