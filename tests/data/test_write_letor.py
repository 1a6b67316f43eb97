"""What is written as LETOR text is read back value for value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clickprism.data.letor import FileFacts, read_letor, write_letor
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import DataError
from clickprism.types import Float32, JudgedLists, Lists

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def judged_lists(features: Float32, ids: list[str] | None = None) -> JudgedLists:
    documents = len(features)
    offsets = np.array([0, documents // 2, documents], dtype=np.int64)
    lists = Lists(features, offsets, np.array(["a", "b-2"]), None if ids is None else np.array(ids))
    return JudgedLists(lists, np.arange(documents, dtype=np.int32) % 5)


def same(one: JudgedLists, other: JudgedLists) -> None:
    assert np.array_equal(one.lists.features, other.lists.features)
    assert one.grades.tolist() == other.grades.tolist()
    assert one.lists.offsets.tolist() == other.lists.offsets.tolist()
    assert one.lists.query_ids.tolist() == other.lists.query_ids.tolist()


@settings(max_examples=40, deadline=None)
@given(features=arrays(np.float32, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=finite))
def test_any_float_comes_back(features: Float32, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("letor") / "data.txt"
    judged = judged_lists(features)
    write_letor(judged, file)
    same(judged, read_letor(file, features=features.shape[1], base=1, cache=None))


def test_the_file_has_one_line_for_each_document(tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    write_letor(judged_lists(np.array([[0.5, -1], [0, 3]], np.float32), ["d1", ""]), file)
    assert file.read_text() == "0 qid:a 1:0.5 2:-1 # docid = d1\n1 qid:b-2 1:0 2:3\n"
    assert [each.name for each in tmp_path.iterdir()] == ["data.txt"]


def test_files_of_many_blocks_keep_document_ids(tmp_path: Path) -> None:
    part = synthetic(SyntheticSettings(train_queries=500, validation_queries=1, test_queries=1, features=3)).train
    ids = np.array([f"doc{row}" for row in range(part.lists.documents)])
    judged = JudgedLists(Lists(part.lists.features, part.lists.offsets, part.lists.query_ids, ids), part.grades)
    write_letor(judged, tmp_path / "data.txt")
    again = read_letor(tmp_path / "data.txt", cache=None)
    same(judged, again)
    assert again.lists.document_ids is not None
    assert again.lists.document_ids.tolist() == ids.tolist()


def test_missing_values_come_back(tmp_path: Path) -> None:
    judged = judged_lists(np.array([[np.nan], [1]], np.float32))
    write_letor(judged, tmp_path / "data.txt")
    again = read_letor(tmp_path / "data.txt", missing="nan", cache=None)
    assert np.isnan(again.lists.features[0, 0])
    assert FileFacts.of("data.txt", again).missing == 1


def test_ids_that_cannot_stand_in_a_line_are_refused(tmp_path: Path) -> None:
    features = np.zeros((2, 1), np.float32)
    with pytest.raises(DataError, match="document id 'a b'"):
        write_letor(judged_lists(features, ["a b", "c"]), tmp_path / "data.txt")
    lists = Lists(features, np.array([0, 2]), np.array(["q#1"]))
    with pytest.raises(DataError, match="query id 'q#1'"):
        write_letor(JudgedLists(lists, np.zeros(2, np.int32)), tmp_path / "data.txt")
    assert not list(tmp_path.iterdir())


def test_no_folder_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_letor(judged_lists(np.zeros((2, 1), np.float32)), tmp_path / "no" / "data.txt")


def test_facts_count_lists_documents_and_grades() -> None:
    found = FileFacts.of("data.txt", judged_lists(np.zeros((4, 2), np.float32)))
    assert (found.lists, found.documents, found.features, found.shortest, found.longest) == (2, 4, 2, 2, 2)
    assert found.grades == (0.25, 0.25, 0.25, 0.25)
    assert found.without_relevant == 0
