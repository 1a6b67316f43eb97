"""MurmurHash3 (x64, 128 bits; Appleby 2011, public domain) of many rows at once, a column at a time.

The bytes of a row are its values in the order of the columns, in whole blocks of 16: null is 0xFF eight times and
zeros; a number is 8 and its 8 bytes; a text is its length (8 bytes), its bytes, and zeros up to a whole block; a list
of texts is its length as a number, then its texts. Numbers are little endian. A length comes before what it counts, so
different rows have different bytes. Importing it imports numba.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism._util.compiled import address, byte, compiled, word
from clickprism.types import Int32, Int64

Bytes: TypeAlias = NDArray[np.uint8]
Word: TypeAlias = np.uint64
State: TypeAlias = NDArray[np.uint64]
"""Of each row: both halves of the hash, and the blocks so far; shape (rows, 3)."""

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_A1, _A2, _FIVE = np.uint64(0x52DCE729), np.uint64(0x38495AB5), np.uint64(5)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_27, _31, _33, _37, _64 = np.uint64(27), np.uint64(31), np.uint64(33), np.uint64(37), np.uint64(64)
_0, _1, _8, _16 = np.uint64(0), np.uint64(1), np.uint64(8), np.uint64(16)
_NULL = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled
def _block(one: Word, two: Word, k1: Word, k2: Word) -> tuple[Word, Word]:
    k1 = k1 * _C1
    k1 = ((k1 << _31) | (k1 >> _33)) * _C2
    one = one ^ k1
    one = ((one << _27) | (one >> _37)) + two
    one = one * _FIVE + _A1
    k2 = k2 * _C2
    k2 = ((k2 << _33) | (k2 >> _31)) * _C1
    two = two ^ k2
    two = ((two << _31) | (two >> _33)) + one
    two = two * _FIVE + _A2
    return one, two


@compiled
def _word(at: int, end: int, last: int) -> Word:
    """Eight bytes as a number, zeros from `end` on; from addresses beyond `last` there are no eight to be read."""
    if end - at >= 8:
        return word(at)
    if at <= last:
        return word(at) & ~(_NULL << np.uint64(8 * (end - at)))
    found = _0
    for i in range(end - at):
        found |= np.uint64(byte(at + i)) << np.uint64(8 * i)
    return found


@compiled
def _text(one: Word, two: Word, at: int, end: int, last: int) -> tuple[Word, Word, Word]:
    one, two = _block(one, two, np.uint64(end - at), _word(at, end, last) if end > at else _0)
    blocks, at = _1, at + 8
    while at < end:
        one, two = _block(one, two, _word(at, end, last), _word(at + 8, end, last) if end > at + 8 else _0)
        blocks += _1
        at += 16
    return one, two, blocks


@compiled
def _valid(bits: Bytes, i: int) -> bool:
    return len(bits) == 0 or (bits[i >> 3] >> (i & 7)) & 1 == 1


@compiled
def mix_nulls(state: State) -> None:
    """A column of nulls only."""
    for i in range(len(state)):
        state[i, 0], state[i, 1] = _block(state[i, 0], state[i, 1], _NULL, _0)
        state[i, 2] += _1


@compiled
def mix_numbers(state: State, values: Int64, bits: Bytes, first: int) -> None:
    """A column of numbers; `bits` say which there are, from bit `first` on, empty: all."""
    for i in range(len(state)):
        if _valid(bits, first + i):
            state[i, 0], state[i, 1] = _block(state[i, 0], state[i, 1], _8, np.uint64(values[i]))
        else:
            state[i, 0], state[i, 1] = _block(state[i, 0], state[i, 1], _NULL, _0)
        state[i, 2] += _1


@compiled
def mix_texts(state: State, offsets: Int32, data: Bytes, bits: Bytes, first: int) -> None:
    """A column of texts: where each starts in `data`, and where the last ends."""
    base = address(data)
    last = base + len(data) - 8
    for i in range(len(state)):
        if _valid(bits, first + i):
            one, two, blocks = _text(state[i, 0], state[i, 1], base + offsets[i], base + offsets[i + 1], last)
            state[i, 0], state[i, 1] = one, two
            state[i, 2] += blocks
        else:
            state[i, 0], state[i, 1] = _block(state[i, 0], state[i, 1], _NULL, _0)
            state[i, 2] += _1


@compiled
def mix_lists(  # noqa: PLR0917 (arrays in a tuple are slow when compiled)
    state: State,
    lists: Int32,
    bits: Bytes,
    first: int,
    offsets: Int32,
    data: Bytes,
    inner: Bytes,
    inner_first: int,
) -> None:
    """A column of lists of texts: the length of the list as a number, then its texts."""
    base = address(data)
    last = base + len(data) - 8
    for i in range(len(state)):
        one, two, blocks = state[i, 0], state[i, 1], state[i, 2]
        if _valid(bits, first + i):
            one, two = _block(one, two, _8, np.uint64(lists[i + 1] - lists[i]))
            blocks += _1
            for j in range(lists[i], lists[i + 1]):
                if _valid(inner, inner_first + j):
                    one, two, more = _text(one, two, base + offsets[j], base + offsets[j + 1], last)
                    blocks += more
                else:
                    one, two = _block(one, two, _NULL, _0)
                    blocks += _1
        else:
            one, two = _block(one, two, _NULL, _0)
            blocks += _1
        state[i, 0], state[i, 1], state[i, 2] = one, two, blocks


@compiled
def _final(half: Word) -> Word:
    half = (half ^ (half >> _33)) * _F1
    half = (half ^ (half >> _33)) * _F2
    return half ^ (half >> _33)


@compiled
def finish(state: State) -> State:
    """The hashes, shape (rows, 2)."""
    hashes = np.empty((len(state), 2), np.uint64)
    for i in range(len(state)):
        size = state[i, 2] * _16
        one, two = state[i, 0] ^ size, state[i, 1] ^ size
        one += two
        two += one
        one, two = _final(one), _final(two)
        one += two
        two += one
        hashes[i, 0], hashes[i, 1] = one, two
    return hashes
