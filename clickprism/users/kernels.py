"""How users look at lists, entry by entry, compiled: the loops behind every simulated user.

Randomness is counter-based: the numbers of an entry are a hash (SplitMix64, Steele et al. 2014) of seed, session number
and position, so the result depends neither on threads nor on how sessions are cut into chunks. One hash gives an entry
two numbers of 24 bits: the upper one decides observation, the lower one attraction.

The loops are for one thread and release the GIL; `see` gives each of several threads its share of the sessions. The
threads end with the call, so that a process may fork after it, which a pool of OpenMP does not survive.

The random numbers are the same for every user, so two users that behave alike click alike under the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism._util.compiled import THREADS, compiled
from clickprism.types import Bool, Float32, Float64, Int64
from clickprism.users.base import Response, Shown

Sessions: TypeAlias = tuple[np.uint64, np.uint64, NDArray[np.uint64], Float32]  # key, start, offsets, attraction
Answer: TypeAlias = tuple[Bool, Bool, Bool]  # clicks, observed, attracted

_unsigned: Any = np.uint64
_signed: Any = np.int64
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFF)
_UNIT = np.float32(2.0**-24)
_ENTRIES = 50_000  # that make a thread worth its start


def see(loop: Callable[..., None], shown: Shown, seed: int, model: object) -> Response:
    """Run one of the loops below over all sessions; `model` is what that loop takes between sessions and answer."""
    entries = len(shown.rows)
    answer = (np.zeros(entries, np.bool_), np.zeros(entries, np.bool_), np.zeros(entries, np.bool_))
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    offsets = np.ascontiguousarray(shown.offsets, dtype=np.int64).view(np.uint64)
    attraction = np.ascontiguousarray(shown.attraction, dtype=np.float32)
    shares = max(1, min(THREADS, entries // _ENTRIES))
    cuts = [len(shown) * share // shares for share in range(shares + 1)]

    def run(first: int, last: int) -> None:
        loop((key, np.uint64(shown.start + first), offsets[first : last + 1], attraction), model, answer)

    if shares == 1:
        run(0, len(shown))
    else:
        with ThreadPoolExecutor(shares) as threads:
            list(threads.map(run, cuts[:-1], cuts[1:]))
    clicks, observed, attracted = answer
    return Response(clicks=clicks, observed=observed, attracted=attracted)


@compiled
def _mix(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@compiled
def _upper(bits: np.uint64) -> np.float32:
    return np.float32(np.int32(bits >> np.uint64(40))) * _UNIT


@compiled
def _lower(bits: np.uint64) -> np.float32:
    return np.float32(np.int32((bits >> np.uint64(8)) & _LOW)) * _UNIT


@compiled
def by_position(sessions: Sessions, curve: Float32, answer: Answer) -> None:
    """Observation depends on the position alone; the last value of the curve holds below its end."""
    key, start, offsets, attraction = sessions
    clicks, observed, attracted = answer
    last = _unsigned(len(curve) - 1)
    for session in range(len(offsets) - 1):
        state = _mix(key + _STEP * (start + np.uint64(session)))
        first = offsets[session]
        for place in range(offsets[session + 1] - first):
            state += _STEP
            bits = _mix(state)
            seen = _upper(bits) < curve[min(place, last)]
            drawn = _lower(bits) < attraction[first + place]
            observed[first + place] = seen
            attracted[first + place] = drawn
            clicks[first + place] = seen & drawn


@compiled
def by_entry(sessions: Sessions, observation: Float32, answer: Answer) -> None:
    """Observation is given for every entry."""
    key, start, offsets, attraction = sessions
    clicks, observed, attracted = answer
    for session in range(len(offsets) - 1):
        state = _mix(key + _STEP * (start + np.uint64(session)))
        for entry in range(offsets[session], offsets[session + 1]):
            state += _STEP
            bits = _mix(state)
            seen = _upper(bits) < observation[entry]
            drawn = _lower(bits) < attraction[entry]
            observed[entry] = seen
            attracted[entry] = drawn
            clicks[entry] = seen & drawn


@compiled
def by_last_click(sessions: Sessions, tables: tuple[Float32, Float32], answer: Answer) -> None:
    """Observation depends on the position and on the last click above.

    The first table has a row for the position of the last click, 0 for none, and a column for the position, 1 first.
    The second is for positions below those: a value for each distance to the last click, and at its end that for none.
    """
    key, start, offsets, attraction = sessions
    table, below = tables
    clicks, observed, attracted = answer
    size = _unsigned(len(below))
    flat = table.ravel()
    chance = np.empty(_longest(offsets), dtype=np.float32)
    for session in range(len(offsets) - 1):
        state = _mix(key + _STEP * (start + np.uint64(session)))
        first = offsets[session]
        length = offsets[session + 1] - first
        for place in range(length):
            state += _STEP
            bits = _mix(state)
            chance[place] = _upper(bits)
            attracted[first + place] = _lower(bits) < attraction[first + place]
        row = _unsigned(0)
        for place in range(min(length, size)):
            seen = chance[place] < flat[row + place]
            click = seen & attracted[first + place]
            observed[first + place] = seen
            clicks[first + place] = click
            row = (place + _unsigned(1)) * size if click else row
        last = row // size
        for place in range(size, length):
            distance = min(place + _unsigned(1) - last, size - _unsigned(1)) if last > 0 else size
            seen = chance[place] < below[distance - _unsigned(1)]
            click = seen & attracted[first + place]
            observed[first + place] = seen
            clicks[first + place] = click
            last = place + _unsigned(1) if click else last


@compiled
def _longest(offsets: NDArray[np.uint64]) -> int:
    longest = _unsigned(0)
    for session in range(len(offsets) - 1):
        longest = max(longest, offsets[session + 1] - offsets[session])
    return int(longest)


@compiled
def by_chain(sessions: Sessions, further: tuple[np.float32, np.float32, np.float32], answer: Answer) -> None:
    """From the top down: go on with `skip` after no click, with low (1 - a) + high a after a click; then stop."""
    key, start, offsets, attraction = sessions
    skip, low, high = further
    clicks, observed, attracted = answer
    for session in range(len(offsets) - 1):
        begin = _mix(key + _STEP * (start + np.uint64(session)))
        state = begin
        for entry in range(offsets[session], offsets[session + 1]):
            state += _STEP
            attracted[entry] = _lower(_mix(state)) < attraction[entry]
        state = begin
        for entry in range(offsets[session], offsets[session + 1]):
            state += _STEP
            observed[entry] = True
            click = attracted[entry]
            clicks[entry] = click
            go_on = low + (high - low) * attraction[entry] if click else skip
            if _upper(_mix(state)) >= go_on:
                break


@compiled
def _log_add(one: float, other: float) -> float:
    higher, lower = max(one, other), min(one, other)
    return higher if lower == -np.inf else higher + np.log1p(np.exp(lower - higher))


@compiled
def chain_log_likelihood(
    offsets: Int64, attraction: Float32, clicks: Bool, further: tuple[float, float, float], result: Float64
) -> None:
    """Exact log P(clicks), summed over where the user stopped: forward recursion in log space.

    `going` is log P(clicks so far, still looking) and `gone` log P(clicks so far, stopped before): a click rules the
    second out.
    """
    skip, low, high = further
    log_skip, log_stop = np.log(skip), np.log(1 - skip)
    for session in range(len(offsets) - 1):
        going, gone = 0.0, -np.inf
        for entry in range(offsets[session], offsets[session + 1]):
            chance = np.float64(attraction[entry])
            if clicks[entry]:
                go_on = low + (high - low) * chance
                gone = going + np.log(chance) + np.log(1 - go_on)
                going += np.log(chance) + np.log(go_on)
            else:
                going += np.log(1 - chance)
                gone = _log_add(gone, going + log_stop)
                going += log_skip
        result[session] = _log_add(going, gone)
