"""The list filter of the InfoRank reproduction."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.types import Dataset, JudgedLists, Lists
from reproduce.inforank.worlds import filter_lists, kept_lists


def judged(*lists: list[int]) -> JudgedLists:
    offsets = np.concatenate([[0], np.cumsum([len(grades) for grades in lists])]).astype(np.int64)
    grades = np.array([grade for each in lists for grade in each], np.int32)
    names = np.array([str(place) for place in range(len(lists))])
    return JudgedLists(Lists(np.zeros((len(grades), 1), np.float32), offsets, names), grades)


def test_lists_of_up_to_fifty_documents_with_a_relevant_one_are_kept() -> None:
    data = judged([1] * 50, [1] * 51, [0] * 50, [0] * 60, [0, 2], [])
    assert kept_lists(data).tolist() == [True, False, False, False, True, False]
    assert filter_lists(Dataset("d", data, data, judged())).train.lists.query_ids.tolist() == ["0", "4"]


def test_an_empty_part_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match="no list of the validation part of d has at most 50 documents"):
        filter_lists(Dataset("d", judged([1]), judged([0], [0]), judged([1])))
