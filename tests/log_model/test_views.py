"""Logs that record which results users observed: the curve is read off, and clicks are compared with views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.validity import identifiability
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Clicks, Lists

SETTINGS = LogModelSettings(resamples=0)
OBSERVATION = np.array([0.9, 0.6, 0.4, 0.3, 0.2])


def log_with_views(queries: int = 300, searches: int = 40) -> tuple[Logged, np.ndarray]:
    """Return the log of one fixed ranking for each query, and the true P(click | observed) of its documents.

    Clicks alone cannot tell position from relevance here: no document is shown at two positions.
    """
    rng = np.random.default_rng(5)
    size = len(OBSERVATION)
    attraction = rng.uniform(0.05, 0.6, queries * size)
    lists = Lists(
        np.zeros((queries * size, 0), np.float32),
        np.arange(0, queries * size + 1, size),
        np.arange(queries).astype(str),
    )
    rows = np.arange(queries * size)
    seen = rng.binomial(searches, np.tile(OBSERVATION, queries))
    clicks = Clicks(
        lists,
        np.arange(0, len(rows) + 1, size),
        rows,
        np.tile(np.arange(1, size + 1, dtype=np.int32), queries),
        rng.binomial(seen, attraction),
        np.full(queries, searches),
        seen=seen,
    )
    return Logged(clicks), attraction


def test_the_curve_is_the_share_of_views() -> None:
    logged, _ = log_with_views()
    model = LogModel.fit(logged, settings=SETTINGS)
    assert logged.clicks.seen is not None
    seen = logged.clicks.seen.reshape(-1, len(OBSERVATION)).sum(axis=0)
    np.testing.assert_allclose(model.curve.values, seen / seen[0], rtol=1e-12)
    truth = OBSERVATION / OBSERVATION[0]
    assert (model.curve.lower <= truth).all()
    assert (truth <= model.curve.upper).all()
    assert model.curve.name == "views"


def test_positions_are_linked_by_views_and_only_by_them() -> None:
    logged, _ = log_with_views()
    model = LogModel.fit(logged, settings=SETTINGS)
    assert set(model.linkage.identified) == {"views"}
    finding = identifiability(model)
    assert finding.verdict == "present"
    assert "records which results users observed" in finding.sentence
    blind = replace(logged, clicks=replace(logged.clicks, seen=None))
    assert identifiability(LogModel.fit(blind, settings=SETTINGS)).verdict == "absent"


def test_relevance_compares_clicks_with_views() -> None:
    logged, attraction = log_with_views()
    model = LogModel.fit(logged, settings=SETTINGS)
    found, clicks = model.relevance, logged.clicks
    assert clicks.seen is not None
    first = clicks.seen.reshape(-1, len(OBSERVATION))[:, 0].sum() / (40 * 300)
    np.testing.assert_allclose(found.weight, clicks.seen[found.rows] / first, rtol=1e-6)
    truth = attraction[found.rows] * OBSERVATION[0]  # the click probability at the first position
    assert np.corrcoef(found.value, truth)[0, 1] > 0.75
    assert np.abs((found.value - truth).reshape(-1, len(OBSERVATION)).mean(axis=0)).max() < 0.03


def test_propensities_of_the_user_come_before_views() -> None:
    logged, _ = log_with_views(queries=50)
    given = np.array([1.0, 0.5, 0.4, 0.3, 0.2])
    model = LogModel.fit(logged, settings=SETTINGS, propensities=given)
    np.testing.assert_allclose(model.curve.values, given)
    assert model.curve.name == "given"


def test_a_saved_model_keeps_its_curve_of_views(tmp_path: Path) -> None:
    model = LogModel.fit(log_with_views(queries=50)[0], settings=SETTINGS)
    model.save(tmp_path / "model")
    again = LogModel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.curve.values, model.curve.values)
    assert again.linkage.identified == model.linkage.identified
