"""How fitted models walk down lists, compiled: what is seen, before or given the clicks above."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.types import Bool, Float64, Int32, Int64

Browsed: TypeAlias = tuple[Int64, Int32, Float64]  # offsets, positions, attraction of the entries
Read: TypeAlias = tuple[Int64, Float64, Float64]  # offsets, attraction, to go on after a click, of the entries


@compiled
def _look(table: Float64, position: int, last: int) -> float:
    row = min(position, len(table)) - 1
    distance = min(position - last, row, table.shape[1] - 1) if last > 0 else 0
    return float(table[row, distance])


@compiled
def browse(sessions: Browsed, table: Float64, chances: Float64, answer: tuple[Float64, Bool]) -> None:
    """P(seen | clicks above), with the clicks that are there, or with clicks drawn on the way if there are chances."""
    offsets, positions, attraction = sessions
    seen, clicked = answer
    for session in range(len(offsets) - 1):
        last = 0
        for entry in range(offsets[session], offsets[session + 1]):
            seen[entry] = _look(table, positions[entry], last)
            if len(chances):
                clicked[entry] = chances[entry] < seen[entry] * attraction[entry]
            if clicked[entry]:
                last = positions[entry]


@compiled
def expect_browsing(sessions: Browsed, table: Float64, seen: Float64) -> None:
    """P(seen): `latest` is the probability that the last click so far was on each entry, its last value: on none."""
    offsets, positions, attraction = sessions
    for session in range(len(offsets) - 1):
        first, length = offsets[session], offsets[session + 1] - offsets[session]
        latest = np.zeros(length + 1)
        latest[length] = 1.0
        for place in range(length):
            position, chance = positions[first + place], attraction[first + place]
            look = _look(table, position, 0)
            seen[first + place] = latest[length] * look
            latest[length] *= 1 - look * chance
            for above in range(place):
                look = _look(table, position, positions[first + above])
                seen[first + place] += latest[above] * look
                latest[above] *= 1 - look * chance
            latest[place] = seen[first + place] * chance


@compiled
def read(sessions: Read, after_skip: float, chances: Float64, answer: tuple[Float64, Bool]) -> None:
    """P(seen | clicks above) from the top down; clicks are drawn on the way if there are chances."""
    offsets, attraction, further = sessions
    seen, clicked = answer
    for session in range(len(offsets) - 1):
        look = 1.0
        for entry in range(offsets[session], offsets[session + 1]):
            seen[entry] = look
            both = look * attraction[entry]
            if len(chances):
                clicked[entry] = chances[entry] < both
            look = further[entry] if clicked[entry] else (look - both) * after_skip / max(1 - both, 1e-300)


@compiled
def expect_reading(sessions: Read, after_skip: float, seen: Float64) -> None:
    """P(seen) from the top down."""
    offsets, attraction, further = sessions
    for session in range(len(offsets) - 1):
        look = 1.0
        for entry in range(offsets[session], offsets[session + 1]):
            seen[entry] = look
            look *= attraction[entry] * further[entry] + (1 - attraction[entry]) * after_skip


@compiled
def distances(offsets: Int64, positions: Int32, clicked: Bool, result: Int64) -> None:
    """How far above the last click was, 0 where there is none."""
    for session in range(len(offsets) - 1):
        last = 0
        for entry in range(offsets[session], offsets[session + 1]):
            result[entry] = positions[entry] - last if last > 0 else 0
            if clicked[entry]:
                last = positions[entry]
