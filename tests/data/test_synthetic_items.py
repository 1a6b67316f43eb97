from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.synthetic import SyntheticSettings, feature_roles, synthetic
from clickprism.errors import SettingError
from clickprism.types import Dataset, JudgedLists, Text

SHARED = SyntheticSettings(train_queries=300, validation_queries=20, test_queries=100, features=24, items=60, seed=2)


@pytest.fixture(scope="module")
def shared() -> Dataset:
    return synthetic(SHARED)


def ids(judged: JudgedLists) -> Text:
    assert judged.lists.document_ids is not None
    return judged.lists.document_ids


def test_an_item_stands_once_in_a_list_and_in_many_lists_of_all_parts(shared: Dataset) -> None:
    lists = shared.train.lists
    pairs = np.stack([lists.list_of, np.unique(ids(shared.train), return_inverse=True)[1]], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert set(ids(shared.test)) <= {f"item-{number}" for number in range(1, 61)}
    assert np.unique(ids(shared.train), return_counts=True)[1].min() > 10


def test_features_of_the_document_belong_to_the_item_and_matches_to_the_pair(shared: Dataset) -> None:
    roles = feature_roles(SHARED)
    everything = np.concatenate([shared.train.lists.features, shared.test.lists.features])
    owner = np.unique(np.concatenate([ids(shared.train), ids(shared.test)]), return_inverse=True)[1]
    first = np.array([everything[owner == item][0] for item in range(60)])
    same = (np.abs(everything - first[owner]) < 1e-5).all(axis=0)
    assert all(same[column] for column, role in enumerate(roles) if role == "document")
    assert not any(same[column] for column, role in enumerate(roles) if role in ("match", "count"))


def test_relevance_has_a_part_of_the_item(shared: Dataset) -> None:
    """Means of grades by item differ by more than chance: 60 groups of about 100 have .1 of the deviation by chance."""
    owner = np.unique(ids(shared.train), return_inverse=True)[1]
    means = np.bincount(owner, weights=shared.train.grades) / np.bincount(owner)
    assert means.std() > 0.25 * shared.train.grades.std()


def test_frequencies_follow_the_exponent() -> None:
    def most(exponent: float) -> float:
        made = replace(SHARED, train_queries=500, items=500, item_exponent=exponent, features=2)
        counts = np.sort(np.unique(ids(synthetic(made).train), return_counts=True)[1])[::-1]
        return float(counts[:50].sum() / counts.sum())

    assert most(0.0) == pytest.approx(0.12, abs=0.03)
    assert most(0.5) == pytest.approx(0.30, abs=0.03)  # sqrt(50 / 500) = .32 with replacement
    assert most(1.0) > 0.5


def test_as_many_items_as_the_longest_list_are_enough() -> None:
    made = replace(SHARED, train_queries=5, min_documents=28, items=28, item_exponent=10)
    part = synthetic(made).train
    assert all(len(set(part_ids)) == 28 for part_ids in ids(part).reshape(5, 28).tolist())


def test_more_queries_leave_the_first_ones_as_they_were(shared: Dataset) -> None:
    more = synthetic(replace(SHARED, train_queries=700)).train.take(range(300))
    assert np.array_equal(more.lists.features, shared.train.lists.features)
    assert np.array_equal(ids(more), ids(shared.train))


def test_by_default_documents_have_no_ids() -> None:
    assert synthetic(SyntheticSettings(train_queries=10, features=6)).train.lists.document_ids is None


@pytest.mark.parametrize(("items", "exponent"), [(27, 0.5), (-1, 0.5), (100, 11.0), (100, -1.0)])
def test_too_few_items_are_refused(items: int, exponent: float) -> None:
    with pytest.raises(SettingError, match="must be"):
        SyntheticSettings(items=items, item_exponent=exponent)
