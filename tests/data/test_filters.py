"""Filters by name: which lists stay, how many go and why, and nothing left is an error."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.data.filters import choose_lists, filter_dataset, filtered
from clickprism.errors import DataError, SettingError
from clickprism.types import Dataset, JudgedLists, Lists


def judged(*lists: list[int]) -> JudgedLists:
    offsets = np.concatenate([[0], np.cumsum([len(grades) for grades in lists])]).astype(np.int64)
    grades = np.array([grade for each in lists for grade in each], np.int32)
    names = np.array([str(place) for place in range(len(lists))])
    return JudgedLists(Lists(np.zeros((len(grades), 1), np.float32), offsets, names), grades)


def test_inforank_keeps_lists_of_up_to_fifty_with_a_relevant_document() -> None:
    data = judged([1] * 50, [1] * 51, [0] * 50, [0] * 60, [0, 2], [])
    chosen = choose_lists(data, "inforank")
    assert chosen.keep.tolist() == [True, False, False, False, True, False]
    assert (chosen.too_long, chosen.without_relevant) == (2, 2)
    assert filtered(data, "inforank").lists.query_ids.tolist() == ["0", "4"]
    assert filtered(data, "none") is data


def test_nothing_left_is_an_error_that_says_of_what() -> None:
    data = Dataset("d", judged([1]), judged([0], [0]), judged([1]))
    with pytest.raises(
        DataError, match=r"leaves nothing of the validation part of d: 0 of 2 lists kept; 0 too long, 2"
    ):
        filter_dataset(data, "inforank")
    with pytest.raises(DataError, match="leaves nothing: 0 of 1 lists kept"):
        filtered(judged([0]), "inforank")
    with pytest.raises(SettingError, match="did you mean 'inforank'"):
        choose_lists(judged([0]), "infrank")
