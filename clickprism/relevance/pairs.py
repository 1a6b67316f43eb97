"""Pairs of a query and a document, by their ids: the distinct ones, and where some stand among others."""

from __future__ import annotations

import numpy as np

from clickprism.types import Int64, Text, check


def distinct_pairs(query_ids: Text, document_ids: Text) -> tuple[Int64, Int64]:
    """The first row of each distinct pair, in the order of the ids, and the distinct pair of each row.

    >>> first, pair = distinct_pairs(np.array(["b", "a", "b"]), np.array(["x", "x", "x"]))
    >>> first.tolist(), pair.tolist()
    ([1, 0], [1, 0, 1])
    """
    check(len(query_ids) == len(document_ids), f"{len(query_ids)} query ids but {len(document_ids)} document ids")
    if len(query_ids) == 0:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    query, document = _codes(query_ids), _codes(document_ids)
    _, first, pair = np.unique(query * (document.max() + 1) + document, return_index=True, return_inverse=True)
    return first.astype(np.int64), pair.astype(np.int64)


def find_pairs(known: tuple[Text, Text], wanted: tuple[Text, Text]) -> Int64:
    """The row of each wanted pair among the known ones, which are distinct; -1 where it is not there, [wanted].

    >>> known = np.array(["q", "q"]), np.array(["a", "b"])
    >>> find_pairs(known, (np.array(["q", "r", "q"]), np.array(["b", "a", "a"]))).tolist()
    [1, -1, 0]
    """
    both = [np.concatenate([old, new]) for old, new in zip(known, wanted, strict=True)]
    first, pair = distinct_pairs(both[0], both[1])
    rows = first[pair[len(known[0]) :]]
    return np.where(rows < len(known[0]), rows, -1)


def _codes(ids: Text) -> Int64:
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)
