"""Examination by position and below a click: the two plots of Figure 4 of the doubly robust paper, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clickprism.log.schema import EXAMINATION_UNIT
from clickprism.observation.examination.cells import column
from clickprism.types import Bool, Int64


@dataclass(frozen=True)
class Point:
    """The mean of something over the rows at a position, which is on a page of the results."""

    position: int
    page: int
    rows: int
    value: float


def estimates(cells: pa.Table, units: Int64, *, deepest: int) -> tuple[Point, ...]:
    """The mean estimate at each position, Figure 4 (a).

    Args:
        cells: with `BEHAVIOUR` and `rows`.
        units: the estimate of each cell, in units of 2^-20.
        deepest: the last position.
    """
    return _means(cells, units, np.ones(len(units), dtype=np.bool_), deepest=deepest)


def shares(cells: pa.Table, positive: Bool, of: Bool, *, deepest: int) -> tuple[Point, ...]:
    """The share of positive rows at each position, of some of the cells."""
    return _means(cells, positive * EXAMINATION_UNIT, of, deepest=deepest)


def below_anchor(cells: pa.Table, units: Int64, *, anchors: int, deepest: int) -> dict[int, tuple[Point, ...]]:
    """The mean estimate at the positions below a click, Figure 4 (b), for clicks at positions 1 to `anchors`.

    The anchor of a row is the nearest click above it: the row is at position anchor + click_distance. The first point
    of each curve is the click itself.

    Args:
        cells: with `BEHAVIOUR` and `rows`.
        units: the estimate of each cell, in units of 2^-20.
        anchors: the last position of an anchor.
        deepest: the last position of a row.
    """
    position, distance = column(cells, "position"), column(cells, "click_distance")
    clicked = column(cells, "clicked") == 1
    curves = {}
    for anchor in range(1, anchors + 1):
        below = (distance > 0) & (position - distance == anchor)
        own = _means(cells, units, clicked & (position == anchor), deepest=anchor)
        under = _means(cells, units, below, deepest=deepest)
        if own and under:
            curves[anchor] = own + under
    return curves


def _means(cells: pa.Table, units: Int64, of: Bool, *, deepest: int) -> tuple[Point, ...]:
    position, rows = column(cells, "position"), column(cells, "rows")
    sums, totals, pages = (np.zeros(deepest + 1, dtype=np.int64) for _ in range(3))
    here = of & (position >= 1) & (position <= deepest)
    np.add.at(sums, position[here], units[here] * rows[here])
    np.add.at(totals, position[here], rows[here])
    np.maximum.at(pages, position[here], column(cells, "page")[here])
    return tuple(
        Point(place, int(pages[place]), int(totals[place]), int(sums[place]) / (EXAMINATION_UNIT * int(totals[place])))
        for place in np.flatnonzero(totals).tolist()
    )
