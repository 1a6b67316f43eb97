"""Judged lists put together and taken apart, whole lists at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Int64, JudgedLists, Lists, Text


def join(parts: Sequence[JudgedLists]) -> JudgedLists:
    """The lists of several parts as one, those with the same query id joined, in the order of first appearance."""
    if not parts:
        raise DataError("nothing to join")
    widths = {part.lists.features.shape[1] for part in parts}
    if len(widths) > 1:
        raise DataError(f"parts have different numbers of features: {sorted(widths)}")
    known: dict[str, int] = {}
    owner = np.concatenate([_owner(part.lists, known) for part in parts])
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(known)))]).astype(np.int64)
    features = np.concatenate([part.lists.features for part in parts])
    grades = np.concatenate([part.grades for part in parts])
    ids = _document_ids(parts)
    if bool((np.diff(owner) < 0).any()):
        features, grades, ids = features[order], grades[order], None if ids is None else ids[order]
    return JudgedLists(Lists(features, offsets, np.array(list(known)), ids), grades)


def split(judged: JudgedLists, shares: Sequence[float], *, seed: int) -> list[JudgedLists]:
    """Split whole lists at random into parts of these shares; lists keep their order within a part.

    >>> lists = Lists(np.zeros((5, 1), np.float32), np.arange(6), np.array(list("abcde")))
    >>> parts = split(JudgedLists(lists, np.zeros(5, np.int32)), [0.6, 0.4], seed=0)
    >>> [len(part) for part in parts]
    [3, 2]
    """
    if not shares or min(shares) < 0 or not np.isclose(sum(shares), 1):
        raise SettingError("shares", list(shares), "not be negative, and add up to 1")
    ends = np.rint(np.cumsum(shares) * len(judged)).astype(np.int64)
    shuffled = np.random.default_rng(seed).permutation(len(judged))
    return [judged.take(np.sort(chosen)) for chosen in np.split(shuffled, ends[:-1])]


def _owner(lists: Lists, known: dict[str, int]) -> Int64:
    """The joined list of each row."""
    group = np.array([known.setdefault(str(name), len(known)) for name in lists.query_ids], dtype=np.int64)
    return group[lists.list_of]


def _document_ids(parts: Sequence[JudgedLists]) -> Text | None:
    if all(part.lists.document_ids is None for part in parts):
        return None
    return np.concatenate(
        [
            np.full(part.lists.documents, "") if part.lists.document_ids is None else part.lists.document_ids
            for part in parts
        ]
    )
