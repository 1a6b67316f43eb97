"""The lists that the InfoRank paper uses: at most 50 documents, at least one of them relevant (appendix B.1)."""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Bool, Dataset, JudgedLists

LONGEST: Final = 50


def kept_lists(judged: JudgedLists) -> Bool:
    """Return which lists have at most 50 documents and at least one relevant document, [lists].

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((54, 1), np.float32), np.array([0, 51, 53, 54]), np.array(["a", "b", "c"]))
    >>> kept_lists(JudgedLists(lists, np.array([1] * 51 + [0, 2, 0], np.int32))).tolist()
    [False, True, False]
    """
    relevant = np.bincount(judged.lists.list_of, weights=judged.grades > 0, minlength=len(judged)) > 0
    return np.asarray((judged.lists.lengths <= LONGEST) & relevant)


def filter_lists(dataset: Dataset) -> Dataset:
    """Return the data set with the lists that the paper uses; raise DataError for a part in which none is left."""
    for name in ("train", "validation", "test"):
        judged: JudgedLists = getattr(dataset, name)
        if len(judged) and not kept_lists(judged).any():
            problem = f"no list of the {name} part of {dataset.name} has at most {LONGEST} documents and a relevant one"
            raise DataError(problem, remedy="Use other data")
    return dataset.map(lambda part: part.take(kept_lists(part)))
