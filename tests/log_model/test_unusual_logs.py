"""Logs at the edge of what can be fitted: the model gives an answer without nan, or an error that says what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.errors import DataError, UnsupportedError
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Clicks, Float64, Int64
from tests.log_model.simulated_logs import world

SETTINGS = LogModelSettings(resamples=20)


def fitted(log: Logged | Clicks) -> LogModel:
    """Return the model of a log after checking that all its numbers are finite and its values within intervals."""
    model = LogModel.fit(log, settings=SETTINGS)
    found = model.relevance
    for values in (found.value, found.lower, found.upper, found.prior, found.weight, found.share):
        assert np.isfinite(values).all()
    for values in (model.curve.values, model.curve.lower, model.covariance, model.cold(), model.draws(3)):
        assert np.isfinite(values).all()
    assert (found.lower <= found.value).all()
    assert (found.value <= found.upper).all()
    assert np.isfinite(model.query_curves).all()
    assert model.curve.values[0] == 1
    assert model.tables()
    return model


def with_clicks(clicks: Int64 | int, queries: int = 20) -> Logged:
    """Return a log with these clicks on its entries."""
    log = world(1, queries=queries).log
    return replace(log, clicks=replace(log.clicks, clicks=np.broadcast_to(clicks, len(log.clicks.rows)).copy()))


def with_features(features: Float64) -> Logged:
    """Return a log of 40 queries of 6 documents with these features, [240, features]."""
    log = world(1, queries=40).log
    lists = replace(log.clicks.lists, features=np.ascontiguousarray(features.astype(np.float32)))
    return replace(log, clicks=replace(log.clicks, lists=lists))


@pytest.mark.parametrize("days", [1, 3])
def test_one_query(days: int) -> None:
    model = fitted(world(1, queries=1, days=days).log)
    assert model.tests["position"].verdict == "inconclusive"


def test_one_position() -> None:
    model = fitted(world(1, queries=30, documents=1).log)
    assert model.curve.values.tolist() == [1]
    assert model.tests["position"].note == "the log has one position only"


def test_ten_clicks() -> None:
    size = len(world(1, queries=20).log.clicks.rows)
    drawn = np.random.default_rng(0).choice(size, 10, replace=False)
    model = fitted(with_clicks(np.bincount(drawn, minlength=size).astype(np.int64)))
    assert model.tests["position"].verdict == "inconclusive"


def test_no_clicks_are_refused() -> None:
    with pytest.raises(DataError, match=r"the log has 0 clicks, too few to fit a model. Collect at least 10 clicks"):
        LogModel.fit(with_clicks(0))


def test_every_document_is_always_clicked() -> None:
    model = fitted(with_clicks(20))
    assert model.curve.values == pytest.approx(np.ones(6), abs=0.05)
    assert model.relevance.value.min() > 0.9


def test_without_documents_at_several_positions_feedback_is_inconclusive() -> None:
    model = fitted(world(1, queries=50, noise=0.0).log)
    assert not model.linkage.linked
    assert model.feedback.verdict == "inconclusive"


def test_one_session_for_each_query() -> None:
    fitted(world(1, queries=200, days=1, searches=1).log)


def test_positions_with_gaps() -> None:
    log = world(2, queries=30).log
    positions = np.array([1, 2, 5, 6, 9, 20], dtype=np.int32)[log.clicks.positions - 1]
    model = fitted(replace(log, clicks=replace(log.clicks, positions=positions)))
    assert len(model.curve) == 20


def test_nothing_at_the_first_position() -> None:
    log = world(1, queries=20).log
    fitted(replace(log, clicks=replace(log.clicks, positions=log.clicks.positions + 1)))


def test_two_hundred_positions_and_more() -> None:
    fitted(world(1, queries=6, documents=200, days=2, searches=5).log)
    with pytest.raises(UnsupportedError, match=r"positions down to 201.*--depth 200 or less"):
        LogModel.fit(world(1, queries=4, documents=201, days=1, searches=5).log)


def test_constant_features() -> None:
    assert not fitted(with_features(np.ones((240, 3)))).form.features


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_features_that_are_missing_infinite_or_huge(value: float) -> None:
    rng = np.random.default_rng(0)
    features = np.where(rng.random((240, 3)) < 0.3, value, rng.normal(size=(240, 3)))
    fitted(with_features(features))
    features[:, 1] = value
    fitted(with_features(features))


def test_a_document_twice_in_one_list() -> None:
    clicks = world(1, queries=20).log.clicks
    rows = clicks.rows.copy()
    rows[1] = rows[0]
    fitted(replace(clicks, rows=rows))


def test_contexts_with_one_list_each() -> None:
    log = world(3, queries=20).log
    context = np.array(["desktop"] * (len(log) - 2) + ["phone", "tablet"])
    model = LogModel.fit(log, settings=SETTINGS, context=context)
    assert model.size.contexts == ("desktop", "phone", "tablet")
    assert all(np.isfinite(curve.values).all() for curve in model.contexts.values())
