"""A compiled loop over the bytes of CSV records: are they as they should be?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clickprism._util.compiled import compiled
from clickprism.types import Int64

RETURN = 13
OK, COUNT, STRAY, RETURNED = range(4)


@compiled
def judge(text: NDArray[np.uint8], starts: Int64, ends: Int64, signs: tuple[int, int], fields: int) -> Int64:
    """What is wrong with each record: OK, the wrong COUNT of fields, a STRAY quote, a carriage RETURNED in the middle.

    A quote opens a field at its start, and closes it at its end; a doubled one is part of the field. `signs` are the
    delimiter and the quote, -1 if there is none.
    """
    delimiter, quote = signs
    codes = np.zeros(len(starts), np.int64)
    for record in range(len(starts)):
        start, end = starts[record], ends[record]
        found, inside, stray, returned = 1, False, False, False
        for at in range(start, end):
            byte = text[at]
            if byte == quote:
                edge = at + 1 == end if inside else at == start
                beside = delimiter if edge else text[at + 1] if inside else text[at - 1]
                stray |= beside not in (delimiter, quote)
                inside = not inside
            elif not inside:
                found += byte == delimiter
                returned |= byte == RETURN
        if stray or inside:
            codes[record] = STRAY
        elif returned:
            codes[record] = RETURNED
        elif found != fields:
            codes[record] = COUNT
    return codes
