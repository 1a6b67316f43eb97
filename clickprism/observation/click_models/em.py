"""Steps of EM, made longer where they all go one way: SQUAREM (Varadhan and Roland 2008)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from clickprism.types import Float64

Step: TypeAlias = Callable[[Float64], tuple[Float64, float]]  # parameters in; better ones and the likelihood of the old

_INSIDE = 1e-12


@final
@dataclass(frozen=True, eq=False)
class Climbed:
    """Where EM came to: the parameters, steps taken, and whether it had stopped."""

    parameters: Float64
    iterations: int
    converged: bool


def climb(step: Step, start: Float64, *, weights: Float64, tolerance: float, max_iterations: int) -> Climbed:
    """Repeat a step of EM on probabilities until they have stopped.

    Two steps, by r and by r + v, give an extrapolation, x - 2 s r + s^2 v with s = -|r| / |v|, and a step from there is
    taken if the likelihood has not fallen; so it never falls. The way that is left is what a geometric series of steps
    would still go, change x rate / (1 - rate); it must be below the tolerance twice in a row.

    Args:
        step: one step of EM.
        start: probabilities to start from, [parameters]; those shared by all documents first.
        weights: the evidence of each of the others, the last of the parameters.
        tolerance: the way that may be left, of each shared parameter, and of the others as a weighted root mean square.
        max_iterations: steps of EM, at most.
    """
    shared = len(start) - len(weights)
    share = weights / max(float(weights.sum()), 1e-300)

    def length(way: Float64) -> float:
        return max(float(np.abs(way[:shared]).max(initial=0.0)), float(np.sqrt(share @ way[shared:] ** 2)))

    here, close, taken = start, 0, 0
    while taken + 3 <= max_iterations:
        one, _ = step(here)
        two, value = step(one)
        before, after = length(one - here), length(two - one)
        rate = min(after / before, 1 - 1e-9) if before > 0 else 0.0
        close = close + 1 if after * max(rate, 0.5) / (1 - rate) < tolerance else 0
        if close == 2 or after == 0:
            return Climbed(two, taken + 2, True)
        bend = length(two - 2 * one + here)
        stretch = max(before / bend, 1.0) if bend > 0 else 1.0
        far = here + 2 * stretch * (one - here) + stretch**2 * (two - 2 * one + here)
        three, reached = step(np.clip(far, _INSIDE, 1 - _INSIDE))
        here = three if reached >= value else two
        taken += 3
    for _ in range(max_iterations - taken):
        here, _ = step(here)
    return Climbed(here, max_iterations, False)
