"""Compile a numeric loop to machine code, once for all runs: the one door to numba.

Importing this module imports numba (a third of a second), so only modules whose loops are about to run may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]  # the cores at hand, or what $NUMBA_NUM_THREADS says


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on the first call, for one thread; the machine code is cached on disk beside the module.

    Not for several threads: what numba runs them with does not survive a fork. The GIL is released instead, so that
    callers can use threads of their own.
    """
    result: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    return result
