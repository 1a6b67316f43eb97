"""What a method learns from: the log, or the log corrected by what is known of its positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
