"""Compile numeric loops to machine code with numba; the only module that imports numba.

Importing it takes a third of a second, so import it only in modules whose loops are about to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]  # number of cores, or $NUMBA_NUM_THREADS


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; the machine code is cached on disk next to its module.

    The function runs in one thread, because numba's threads do not survive a fork. It releases the GIL, so that callers
    can run it in several Python threads.
    """
    result: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    return result
