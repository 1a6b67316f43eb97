"""Compile a numeric loop to machine code, once for all runs: the one door to numba.

Importing this module imports numba (a third of a second), so only modules whose loops are about to run may import it.
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

THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]  # the cores at hand, or what $NUMBA_NUM_THREADS says


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on the first call, for one thread; the machine code is cached on disk beside the module.

    Not for several threads: what numba runs them with does not survive a fork. The GIL is released instead, so that
    callers can use threads of their own.
    """
    result: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    return result


def reordered(function: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, but a sum may be taken in any order, which is several times as fast; NaN and infinity stay."""
    loose = {"reassoc", "contract", "nsz"}
    result: Callable[P, R] = numba.njit(cache=True, nogil=True, fastmath=loose)(function)
    return result


@compiled
def address(data: NDArray[np.uint8]) -> int:
    """Where in memory the bytes are, for `byte` and the like; they must outlive its use."""
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
    """What compiled code calls, and nothing else can."""
    return intrinsic(typed)


byte: Callable[[int], int] = _inserted(_byte)
"""The byte at an address. Nothing is checked: the caller knows that it is there."""
word: Callable[[int], np.uint64] = _inserted(_word)
"""The eight bytes from an address on as a number, little endian; unchecked."""
put_word: Callable[[int, np.uint64], None] = _inserted(_put_word)
"""Write a number as the eight bytes from an address on, little endian; unchecked."""
lowest: Callable[[np.uint64], int] = _inserted(_lowest)
"""Which of the eight bytes of a number, from 0, has the lowest bit that is set; 8 if none is."""
