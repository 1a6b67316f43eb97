"""Items across queries: by id, or clusters of like features."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.data.items import items_across, items_of, standardised
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Int64, Lists, Text


def lists_of(features: Float32, *, queries: int, ids: Text | None = None) -> Lists:
    offsets = np.linspace(0, len(features), queries + 1).astype(np.int64)
    return Lists(features, offsets, np.arange(queries).astype(str), ids)


def shapes(*, copies: int, noise: float) -> tuple[Float32, Int64]:
    """Rows that are one of six profiles, each scaled by a power of two, which Pearson's coefficient does not see."""
    rng = np.random.default_rng(0)
    profile = rng.normal(size=(6, 20)).astype(np.float32)
    truth = rng.permutation(np.repeat(np.arange(6), copies))
    rows = profile[truth] + noise * rng.normal(size=(len(truth), 20)).astype(np.float32)
    return rows * np.float32(2) ** rng.integers(-5, 6, (len(truth), 1)).astype(np.float32), truth


def same(one: Int64, other: Int64) -> bool:
    """Whether two numberings part the documents alike."""
    return len(np.unique(one)) == len(np.unique(other)) == len(set(zip(one.tolist(), other.tolist(), strict=True)))


def test_ids_name_items_across_queries_and_parts() -> None:
    first = lists_of(np.zeros((3, 1), np.float32), queries=2, ids=np.array(["b", "a", "b"]))
    second = lists_of(np.zeros((2, 1), np.float32), queries=1, ids=np.array(["long id", "a"]))
    one, other = items_across([first, second])
    assert one.tolist() == [0, 1, 0]
    assert other.tolist() == [2, 1]


def test_scaled_rows_are_one_item() -> None:
    rows, truth = shapes(copies=30, noise=0)
    lists = lists_of(rows, queries=40)
    found = items_of(lists)  # 40 clusters for 6 different documents: only 6 are used
    assert same(found, truth)
    assert found[0] == 0
    np.testing.assert_array_equal(found, items_of(lists))


def test_clusters_are_found_under_noise_and_numbered_alike_over_parts() -> None:
    rows, truth = shapes(copies=40, noise=0.0)
    rows = rows + np.random.default_rng(1).normal(size=rows.shape).astype(np.float32) * 0.02 * rows.std(
        1, keepdims=True
    )
    parts = [lists_of(rows[:100], queries=10), lists_of(rows[100:], queries=10)]
    whole = np.concatenate(items_across(parts, classes=6, seed=2))
    assert same(whole, truth)


def test_standardised_rows_multiply_to_pearson() -> None:
    rows = np.random.default_rng(0).normal(5, 3, (4, 9)).astype(np.float32)
    unit = standardised(rows)
    np.testing.assert_allclose(unit @ unit.T, np.corrcoef(rows), atol=1e-5)
    huge = standardised(np.array([[1e38, -1e38, 1e38], [0.1, 0.1, 0.1], [1e-38, 2e-38, 3e-38]], np.float32))
    np.testing.assert_allclose((huge**2).sum(1), [1, 0, 1], rtol=1e-6)
    with pytest.raises(DataError, match="document 1 are not all finite"):
        standardised(np.array([[1, 2], [np.nan, 1]], np.float32))


def test_constant_rows_are_one_item_and_few_documents_need_no_clusters() -> None:
    rows = np.array([[1, 2, 3], [0, 0, 0], [7, 7, 7], [2, 4, 6], [3, 2, 1]], np.float32)
    assert items_of(lists_of(rows, queries=5)).tolist() == [0, 1, 1, 0, 2]
    assert items_of(lists_of(np.zeros((3, 0), np.float32), queries=1)).tolist() == [0, 0, 0]
    assert items_of(lists_of(np.zeros((0, 2), np.float32), queries=1)).tolist() == []
    assert items_across([]) == ()


def test_errors_say_what_to_do() -> None:
    lists = lists_of(np.zeros((2, 1), np.float32), queries=1)
    with pytest.raises(DataError, match="by='features'"):
        items_of(lists, by="ids")
    with pytest.raises(SettingError, match="auto, ids, features"):
        items_of(lists, by="name")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="classes must be at least 1"):
        items_of(lists, classes=0)


def test_no_item_takes_all_that_fits_nowhere() -> None:
    rows = np.random.default_rng(0).normal(size=(2_000, 60)).astype(np.float32)
    sizes = np.bincount(items_of(lists_of(rows, queries=100)))
    assert len(sizes) == 100
    assert sizes.max() < 3 * sizes.mean()
