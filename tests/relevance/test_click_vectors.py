"""Click vectors: from counts and snapshots, what a network gets of them, and that they end before what they predict."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.log.schema import click_fields
from clickprism.relevance.click_vectors import LARGEST, ClickVectors, VectorScale, most_shown
from clickprism.relevance.pairs import FirstSlot, PairCounts
from tests.relevance.search_world import vectors_of_counts

IDS = np.array(["q", "q", "r"]), np.array(["a", "b", "a"])


def some(as_of: datetime | None = None) -> ClickVectors:
    week = PairCounts(np.array([[4, 0], [0, 2], [0, 0]]), np.array([[2, 0], [0, 1], [0, 0]]))
    return vectors_of_counts(*IDS, {"week": week}, as_of=as_of)


def test_counts_become_fields() -> None:
    vectors = some()
    names = ("impressions", "impressions@1", "impressions@2", "clicked", "clicked@1", "clicked@2")
    assert vectors.fields == tuple(f"week.{name}" for name in names)
    assert vectors.x.tolist() == [[4, 4, 0, 2, 2, 0], [2, 0, 2, 1, 0, 1], [0] * 6]
    assert (most_shown(vectors.x, vectors.fields) > 0).tolist() == [True, True, False]


def test_a_pair_that_is_not_there_has_the_empty_vector() -> None:
    found = some().of(np.array(["r", "q"]), np.array(["b", "b"]))
    assert found.tolist() == [[0] * 6, [2, 0, 2, 1, 0, 1]]


def test_a_snapshot_says_how_long_no_click_was() -> None:
    pa = pytest.importorskip("pyarrow")
    fields = click_fields(examination=True)
    rows = np.arange(len(fields), dtype=np.float64)
    table = pa.table({"query_id": ["q"], "document_id": ["d"], "x": [rows.tolist()]})
    snapshot: Any = SimpleNamespace(read=table.select, fields=fields, as_of=datetime(2026, 3, 4, 15))
    vectors = ClickVectors.from_snapshot(snapshot)
    assert vectors.x.shape == (1, 180)
    assert vectors.as_of == datetime(2026, 3, 4, 15)
    ages = [vectors.empty[fields.index(f"{window}.last_click_age")] for window in ("day", "week", "month")]
    assert ages == [24, 168, 672]
    assert vectors.empty.sum() == 24 + 168 + 672


def test_what_a_network_gets_is_arithmetic() -> None:
    vectors = some()
    scale = VectorScale.fit(vectors.x, vectors.fields, vectors.empty)
    assert scale.rates[1] == pytest.approx((2 + 0.5) / (4 + 1))
    assert scale.rates[2] == pytest.approx((1 + 0.5) / (2 + 1))
    raw = scale(vectors.x) / np.where(scale.factor > 0, scale.factor, 1) + scale.mean
    assert raw[0, 0] == pytest.approx(np.log(5), abs=1e-6)
    assert raw[0, 6] == pytest.approx(2 / 5, abs=1e-6)
    expected = 4 * scale.rates[1]
    over = [np.log((2 + more) / (expected + more)) for more in (1, 4, 16, 64)]
    beyond = (2 - expected) / np.sqrt(expected + 1)
    assert raw[0, -6:] == pytest.approx([*over, beyond, np.log1p(expected)], abs=1e-6)
    assert scale(vectors.x).std(axis=0)[scale.factor > 0] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.4e38, -5.0])
def test_inputs_are_finite_always(value: float) -> None:
    vectors = some()
    scale = VectorScale.fit(vectors.x, vectors.fields, vectors.empty)
    got = scale(np.full((1, 6), value, np.float32))
    assert np.isfinite(got).all()
    assert np.abs(got).max() <= LARGEST
    if not np.isfinite(value):
        assert (got == scale(vectors.empty[None])).all()


def test_vectors_end_before_the_clicks_that_they_predict() -> None:
    noon, later = datetime(2026, 3, 4, 12), datetime(2026, 3, 4, 12, 1)
    slot = FirstSlot.of(*IDS, np.array([1, 0, 0]), since=noon)
    assert some(noon).before(slot).shape == (3, 6)
    with pytest.raises(DataError, match="may be in the vectors"):
        some(later).before(slot)
    with pytest.raises(DataError, match="the time of the first-slot clicks is known"):
        some().before(slot)
    with pytest.raises(DataError, match="the time of the click vectors is known"):
        some(noon).before(FirstSlot.of(*IDS, np.array([1, 0, 0])))
