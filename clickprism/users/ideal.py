"""The user without any bias: how labels become a training signal for the ceiling. It uses the grades."""

from __future__ import annotations

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Clicks, JudgedLists


def ideal_clicks(judged: JudgedLists, *, max_grade: int | None = None) -> Clicks:
    """The clicks of users who see everything and click by grade alone, in exact counts. This uses the labels.

    Every list is shown whole, in file order, in 2^ymax - 1 sessions, and a document of grade y is clicked in 2^y - 1 of
    them: clicks per impression are the gain of nDCG.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> clicks = ideal_clicks(JudgedLists(lists, np.array([0, 2, 1], np.int32)))
    >>> clicks.clicks.tolist(), clicks.impressions.tolist()
    ([0, 3, 1], [3])
    """
    top = judged.max_grade if max_grade is None else max_grade
    if top < judged.max_grade:
        must = f"be at least {judged.max_grade}, the highest grade in the data (set it to the top of the grading scale)"
        raise SettingError("max_grade", max_grade, must)
    if top > 30:
        raise DataError(f"a grade of {top} has too high a gain to count", remedy="Use grades of at most 30.")
    lists = judged.lists
    rows = np.arange(lists.documents, dtype=np.int64)
    return Clicks(
        lists,
        lists.offsets,
        rows,
        (rows - lists.offsets[lists.list_of] + 1).astype(np.int32),
        np.left_shift(np.int64(1), judged.grades.astype(np.int64)) - 1,
        np.full(len(lists), max(2**top - 1, 1), dtype=np.int64),
    )
