"""Compile a numeric loop to machine code, once for all runs: the one door to numba.

Importing this module imports numba (a third of a second), so only modules whose loops are about to run may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

prange: Any = numba.prange


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on the first call, for one thread; the machine code is cached on disk beside the module."""
    result: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    return result


def compiled_parallel(function: Callable[P, R]) -> Callable[P, R]:
    """Like `compiled`, but loops over `prange` run on several threads."""
    result: Callable[P, R] = numba.njit(cache=True, nogil=True, parallel=True)(function)
    return result
