"""Compile numeric loops to machine code with numba; the only module that imports numba.

Importing it takes a third of a second, so import it only in modules whose loops are about to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
_WORD = ir.IntType(64)

THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]  # number of cores, or $NUMBA_NUM_THREADS


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; the machine code is cached on disk next to its module.

    The function runs in one thread, because numba's threads do not survive a fork. It releases the GIL, so that callers
    can run it in several Python threads.
    """
    result: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    return result


def reordered(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as `compiled` does, but allow sums in any order, which is several times as fast; NaN is kept."""
    loose = {"reassoc", "contract", "nsz"}
    result: Callable[P, R] = numba.njit(cache=True, nogil=True, fastmath=loose)(function)
    return result


@compiled
def address(data: NDArray[np.uint8]) -> int:
    """Return the address of an array, for `byte`, `word` and `put_word`; the array must exist while it is used."""
    return np.int64(data.ctypes.data)  # type: ignore[return-value]


def _byte(_: Any, _address: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.zext(_load(builder, values[0], bits=8), _WORD)

    return numba.types.int64(numba.types.int64), build


def _word(_: Any, _address: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return _load(builder, values[0], bits=64)

    return numba.types.uint64(numba.types.int64), build


def _put_word(_: Any, _address: Any, _number: Any) -> Any:
    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        builder.store(values[1], builder.inttoptr(values[0], _WORD.as_pointer())).align = 1
        return context.get_dummy_value()

    return numba.types.void(numba.types.int64, numba.types.uint64), build


def _lowest(_: Any, _bits: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, values: Any) -> Any:
        zeros = builder.cttz(values[0], ir.Constant(ir.IntType(1), 0))
        return builder.lshr(zeros, ir.Constant(_WORD, 3))

    return numba.types.int64(numba.types.uint64), build


def _load(builder: Any, address: Any, *, bits: int) -> Any:
    found = builder.load(builder.inttoptr(address, ir.IntType(bits).as_pointer()))
    found.align = 1
    return found


def _inserted(typed: Any) -> Any:
    """Return a function that only compiled code can call."""
    return intrinsic(typed)


byte: Callable[[int], int] = _inserted(_byte)
"""Return the byte at an address. The address is not checked."""
word: Callable[[int], np.uint64] = _inserted(_word)
"""Return the eight bytes at an address as a little-endian number. The address is not checked."""
put_word: Callable[[int, np.uint64], None] = _inserted(_put_word)
"""Write a number as eight little-endian bytes at an address. The address is not checked."""
lowest: Callable[[np.uint64], int] = _inserted(_lowest)
"""Return the index, from 0, of the lowest of the eight bytes of a number that is not 0; 8 if all are 0."""
