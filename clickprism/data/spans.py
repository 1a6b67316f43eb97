"""Compiled loops over spans of a text: `spans` [rows, 2] hold where each row's id starts and stops."""

from __future__ import annotations

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.data.files import Bytes
from clickprism.types import Int64


@compiled
def run_starts(text: Bytes, spans: Int64) -> Int64:
    """The rows whose span of text differs from that of the row before, the first row included."""
    starts = np.empty(len(spans), np.int64)
    count = 0
    for row in range(len(spans)):
        start, length = spans[row, 0], spans[row, 1] - spans[row, 0]
        same = row > 0 and length == spans[row - 1, 1] - spans[row - 1, 0]
        if same:
            before = spans[row - 1, 0]
            for place in range(length):
                same = same and text[start + place] == text[before + place]
        if not same:
            starts[count] = row
            count += 1
    return starts[:count].copy()


@compiled
def gather(text: Bytes, spans: Int64, out: Bytes) -> None:
    """Copy each span of text to the start of its row of `out`."""
    for row in range(len(spans)):
        start = spans[row, 0]
        for place in range(spans[row, 1] - start):
            out[row, place] = text[start + place]
