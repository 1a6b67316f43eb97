"""Theorems 1 and 2 of LBD, which bound the Lipschitz constant beta of the observation model: as printed, and ours."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import linprog

from clickprism.errors import DataError
from clickprism.types import Float64

Form: TypeAlias = Literal["printed", "ours"]


def orders_the_pair(
    relevance: tuple[float, float],
    observed: Float64,
    fitted: Float64,
    *,
    distance: float,
    alpha: float,
    beta: float,
    form: Form = "ours",
) -> bool:
    """Return whether Theorem 1 guarantees that a beta-Lipschitz observation model orders two documents correctly.

    r(x_1) / r(x_2) - 1 >= o(x) / o'(x) times the integral from x_1 to x_2 of (beta o + alpha o') / o^2

    The factor is at x = x_1 as printed. The proof in appendix B.1 needs it at x_2, which is our form. The infimum
    over curves is replaced by the straight line here, which only makes the condition harder to meet.

    Args:
        relevance: r(x_1) and r(x_2), the first not smaller.
        observed: o at equally spaced points of the line from x_1 to x_2, [points].
        fitted: o', the estimate, at the same points, [points].
        distance: of x_1 and x_2.
        alpha: Lipschitz constant of o.
        beta: Lipschitz constant of o'.
        form: "printed" or "ours".

    >>> orders_the_pair((0.1, 0.05), np.ones(101), np.linspace(0.8, 0.2, 101), distance=1, alpha=0, beta=0.6)
    False
    """
    path = (beta * observed + alpha * fitted) / observed**2
    integral = distance * float(np.mean((path[1:] + path[:-1]) / 2))
    at = 0 if form == "printed" else -1
    return relevance[0] / relevance[1] - 1 >= float(observed[at] / fitted[at]) * integral


def smallest_beta(first: Float64, second: Float64, *, distance: float, form: Form = "ours") -> float:
    """Return the bound of Theorem 2: a smaller beta cannot explain the clicks on two documents.

    beta >= inf over m and n of max_p |m c_p(x_1) - n c_p(x_2)| / distance

    m and n are 1 / r'(x_1) and 1 / r'(x_2): at least 1 as printed. In our form they are also at most 1 / max_p c_p,
    since o' = c / r' is a probability.

    Args:
        first: c_p(x_1) at each position, [positions].
        second: c_p(x_2), [positions].
        distance: of x_1 and x_2.
        form: "printed" or "ours".

    >>> round(smallest_beta(np.array([0.9, 0.9]), np.array([0.1, 0.2]), distance=1), 3)
    0.4
    """
    most = (None, None) if form == "printed" else (1 / first.max(), 1 / second.max())
    rows = np.stack([first, -second, -np.ones_like(first)], axis=1)
    both = np.concatenate([rows, rows * [-1, -1, 1]])  # |m c_1 - n c_2| <= z, both signs
    bounds = [(1, most[0]), (1, most[1]), (0, None)]
    solved = linprog([0, 0, 1], A_ub=both, b_ub=np.zeros(len(both)), bounds=bounds)
    if solved.x is None:
        raise DataError("click probabilities must be above 0 and at most 1")
    return float(solved.x[-1]) / distance
