"""Compiled loops of click models: how users walk down ranked lists, simulated or summed exactly.

Simulation (`see` and the loops named `by_...`): random numbers are counter-based. The numbers of an entry are a hash
(SplitMix64, Steele et al. 2014) of seed, session number and position, so the result depends neither on threads nor on
how sessions are cut into chunks. One hash gives an entry two numbers of 24 bits: the upper one decides observation, the
lower one attraction. They are the same for every user, so two users with equal behaviour click alike with one seed.

The loops run in one thread and release the GIL; `see` gives each of several threads its share of the sessions. The
threads end with the call, so that a process may fork after it, which a pool of OpenMP threads does not survive.

Probabilities (`conditional_...`, `marginal_...`): P(observed) of each entry given the clicks above it, or before any
click is known, for the two families of models: by position and last click (PBM, UBM), and chains, whose users read from
the top down and stop somewhere (cascade, DCM, SDBN, DBN, CCM).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism._util.compiled import THREADS, compiled
from clickprism.click_models.users import Response, Shown
from clickprism.types import Bool, Float32, Float64, Int32, Int64

Sessions: TypeAlias = tuple[np.uint64, np.uint64, NDArray[np.uint64], Float32]  # key, start, offsets, attraction
Answer: TypeAlias = tuple[Bool, Bool, Bool]  # clicks, observed, attracted
Browsed: TypeAlias = tuple[Int64, Int32, Float64]  # offsets, positions, attraction of the entries
Read: TypeAlias = tuple[Int64, Float64, Float64]  # offsets, attraction, P(continue) after a click, of the entries

_unsigned: Any = np.uint64
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFF)
_UNIT = np.float32(2.0**-24)
_ENTRIES = 50_000  # per thread at least, so that starting it pays off


def see(loop: Callable[..., None], shown: Shown, seed: int, model: object) -> Response:
    """Simulate all sessions with one of the loops below; `model` is the argument of that loop after the sessions."""
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
def by_entry(sessions: Sessions, observation: Float32, answer: Answer) -> None:
    """Simulate users with a given observation probability of every entry."""
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
def by_last_click(sessions: Sessions, table: Float32, answer: Answer) -> None:
    """Simulate users whose observation depends on position and distance to the last click; see `Browsing`."""
    key, start, offsets, attraction = sessions
    clicks, observed, attracted = answer
    flat, size = table.ravel(), _unsigned(len(table))
    for session in range(len(offsets) - 1):
        state = _mix(key + _STEP * (start + np.uint64(session)))
        first, distance = offsets[session], _unsigned(0)
        for place in range(offsets[session + 1] - first):
            state += _STEP
            bits = _mix(state)
            row = min(place, size - _unsigned(1))
            seen = _upper(bits) < flat[row * size + min(distance, row)]
            drawn = _lower(bits) < attraction[first + place]
            observed[first + place] = seen
            attracted[first + place] = drawn
            clicks[first + place] = seen & drawn
            if seen & drawn:
                distance = _unsigned(1)
            elif distance > 0:
                distance += _unsigned(1)


@compiled
def by_chain(sessions: Sessions, chain: tuple[np.float32, np.float32, np.float32, Float32], answer: Answer) -> None:
    """Simulate users who read from the top down; `chain` has the fields of `Chain`."""
    key, start, offsets, attraction = sessions
    skip, low, high, at_position = chain
    clicks, observed, attracted = answer
    last = _unsigned(len(at_position) - 1)
    for session in range(len(offsets) - 1):
        begin = _mix(key + _STEP * (start + np.uint64(session)))
        state = begin
        for entry in range(offsets[session], offsets[session + 1]):
            state += _STEP
            attracted[entry] = _lower(_mix(state)) < attraction[entry]
        state = begin
        first = offsets[session]
        for place in range(offsets[session + 1] - first):
            entry = first + place
            state += _STEP
            observed[entry] = True
            click = attracted[entry]
            clicks[entry] = click
            go_on = (low + (high - low) * attraction[entry]) * at_position[min(place, last)] if click else skip
            if _upper(_mix(state)) >= go_on:
                break


@compiled
def _look(table: Float64, position: int, last: int) -> float:
    row = min(position, len(table)) - 1
    distance = min(position - last, row, table.shape[1] - 1) if last > 0 else 0
    return float(table[row, distance])


@compiled
def marginal_last_click(sessions: Browsed, table: Float64, observed: Float64) -> None:
    """Write P(observed) before any click is known.

    `latest[j]` is the probability that the last click so far was on entry j; its last value is for no click.
    """
    offsets, positions, attraction = sessions
    for session in range(len(offsets) - 1):
        first, length = offsets[session], offsets[session + 1] - offsets[session]
        latest = np.zeros(length + 1)
        latest[length] = 1.0
        for place in range(length):
            position, chance = positions[first + place], attraction[first + place]
            look = _look(table, position, 0)
            observed[first + place] = latest[length] * look
            latest[length] *= 1 - look * chance
            for above in range(place):
                look = _look(table, position, positions[first + above])
                observed[first + place] += latest[above] * look
                latest[above] *= 1 - look * chance
            latest[place] = observed[first + place] * chance


@compiled
def write_distances(offsets: Int64, positions: Int32, clicked: Bool, distances: Int64) -> None:
    """Write the distance of each entry to the last click above it, 0 if there is none."""
    for session in range(len(offsets) - 1):
        last = 0
        for entry in range(offsets[session], offsets[session + 1]):
            distances[entry] = positions[entry] - last if last > 0 else 0
            if clicked[entry]:
                last = positions[entry]


@compiled
def conditional_chain(sessions: Read, after_skip: float, clicked: Bool, observed: Float64) -> None:
    """Write P(observed | clicks above) for users who read from the top down, by Bayes' rule after each entry."""
    offsets, attraction, after_click = sessions
    for session in range(len(offsets) - 1):
        look = 1.0
        for entry in range(offsets[session], offsets[session + 1]):
            observed[entry] = look
            both = look * attraction[entry]
            look = after_click[entry] if clicked[entry] else (look - both) * after_skip / max(1 - both, 1e-300)


@compiled
def marginal_chain(sessions: Read, after_skip: float, observed: Float64) -> None:
    """Write P(observed) before any click is known, for users who read from the top down."""
    offsets, attraction, after_click = sessions
    for session in range(len(offsets) - 1):
        look = 1.0
        for entry in range(offsets[session], offsets[session + 1]):
            observed[entry] = look
            look *= attraction[entry] * after_click[entry] + (1 - attraction[entry]) * after_skip
