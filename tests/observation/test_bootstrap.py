"""Intervals: what is drawn, that draws repeat, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism._util.tables import to_plain
from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Bootstrap, Sample
from clickprism.observation.estimate import estimate_curve, estimate_curves
from clickprism.observation.harvest import AllPairs
from clickprism.observation.model_curves import BrowsingModelCurve, PositionModelCurve
from clickprism.observation.randomised import ClickThrough
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Clicks, JudgedLists, Lists
from clickprism.users.pbm import PositionUser

TRUE = np.array([0.8, 0.6, 0.4])


def log_of(*, queries: int, sessions: int, seed: int, merge: str = "pattern") -> Clicks:
    rng = np.random.default_rng(5)
    lists = Lists(
        np.zeros((5 * queries, 0), np.float32), np.arange(0, 5 * queries + 1, 5), np.arange(queries).astype(np.str_)
    )
    judged = JudgedLists(lists, rng.integers(0, 5, 5 * queries).astype(np.int32))
    scores = judged.grades + 2 * rng.normal(size=(3, len(judged.grades)))
    settings = SimulationSettings(length=3, merge=merge, max_grade=4)  # type: ignore[arg-type]
    user = PositionUser(curve=tuple(TRUE))
    return simulate(judged, user, sessions=sessions, seed=seed, settings=settings, scores=scores).clicks


@pytest.mark.parametrize("unit", ["query", "session"])
def test_intervals_hold_the_truth(unit: str) -> None:
    """50 logs, 2 positions each, at 90%: 100 events, whose share has a standard error of at least .03."""
    held = 0
    for seed in range(50):
        bootstrap = Bootstrap(resamples=60, confidence=0.9, unit=unit, seed=seed)  # type: ignore[arg-type]
        curve = estimate_curve(log_of(queries=40, sessions=2000, seed=seed), AllPairs(), bootstrap=bootstrap)
        truth = TRUE / TRUE[0]
        held += int(((curve.lower <= truth) & (truth <= curve.upper))[1:].sum())
    assert 79 <= held <= 98


def test_draws_repeat_and_differ_by_seed() -> None:
    log = log_of(queries=20, sessions=2000, seed=0)
    curves = [estimate_curve(log, AllPairs(), bootstrap=Bootstrap(resamples=20, seed=seed)) for seed in (1, 1, 2)]
    assert np.array_equal(curves[0].lower, curves[1].lower)
    assert not np.array_equal(curves[0].lower, curves[2].lower)
    assert np.array_equal(curves[0].values, curves[2].values)


def test_no_resamples_no_intervals() -> None:
    curve = estimate_curve(log_of(queries=20, sessions=500, seed=0), ClickThrough(), bootstrap=Bootstrap(resamples=0))
    assert np.isnan(curve.lower).all()
    assert curve.unit == ""
    assert to_plain(curve)["lower"] == [None] * 3


def test_weights_of_counts_are_those_of_the_lists() -> None:
    """Counts weighted by query are what a weighted log would be counted as; totals are those of the counts."""
    log = log_of(queries=15, sessions=2000, seed=0)
    sample = Sample(log, Bootstrap(resamples=2, unit="query"))
    drawn = list(sample.weighted())
    entries = np.repeat(sample.list_weights(2), np.diff(sample.clicks.offsets))
    expected = np.zeros((75, 4))
    np.add.at(expected, (sample.clicks.rows, sample.clicks.positions), sample.clicks.clicks * entries)
    np.testing.assert_allclose(drawn[2].clicks, expected[drawn[2].rows, drawn[2].positions])
    (totals,) = sample.totals(sample.counts.positions - 1, 3, sample.counts.rows, sample.counts.clicks)
    np.testing.assert_allclose(totals[2], [drawn[2].clicks[drawn[2].positions == k].sum() for k in (1, 2, 3)])
    np.testing.assert_allclose(totals[0], np.bincount(log.positions, weights=log.clicks)[1:])


def test_lists_and_sessions_are_drawn_as_wholes() -> None:
    log = log_of(queries=4, sessions=3000, seed=0)
    by_list = Sample(log, Bootstrap(resamples=2, unit="list"))
    weights = by_list.list_weights(1)
    assert len(np.unique(weights)) == len(log.merge())
    by_session = Sample(log, Bootstrap(resamples=300, unit="session"))
    largest = int(log.impressions.argmax())
    shown = int(log.impressions[largest])
    drawn = np.array([by_session.list_weights(draw)[largest] for draw in range(1, 301)])
    assert abs(drawn.mean() - 1) < 5 / np.sqrt(300 * shown)
    assert drawn.var() * shown == pytest.approx(1, abs=0.35)


def test_units_by_the_log() -> None:
    assert Sample(log_of(queries=30, sessions=500, seed=0), Bootstrap()).unit == "query"
    assert Sample(log_of(queries=4, sessions=500, seed=0), Bootstrap()).unit == "session"
    assert Sample(log_of(queries=4, sessions=500, seed=0, merge="list"), Bootstrap()).unit == "list"
    merged = log_of(queries=30, sessions=500, seed=0, merge="list")
    with pytest.raises(DataError, match="merged by list"):
        Sample(merged, Bootstrap(unit="session"))
    with pytest.raises(DataError, match="no sessions"):
        Sample(merged.take(np.zeros(0, np.int64)), Bootstrap())


def test_many_queries_are_drawn_in_blocks() -> None:
    log = log_of(queries=1500, sessions=3000, seed=0)
    weights = Sample(log, Bootstrap(resamples=2)).list_weights(1)
    assert 900 < len(np.unique(weights)) <= 1000


@pytest.mark.parametrize("estimator", [PositionModelCurve(), BrowsingModelCurve()])
def test_the_number_of_threads_changes_nothing_and_progress_counts_the_resamples(
    estimator: PositionModelCurve | BrowsingModelCurve, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(queries=20, sessions=2000, seed=0)
    progress: list[tuple[int, int | None, str]] = []
    found = []
    for threads in (1, 3):
        monkeypatch.setattr("clickprism._util.compiled.THREADS", threads)
        curves = estimate_curves(
            log, [estimator], bootstrap=Bootstrap(resamples=4), progress=lambda *step: progress.append(step)
        )
        found.append(curves.curves[estimator.name])
    assert np.array_equal(found[0].lower, found[1].lower)
    assert np.array_equal(found[0].upper, found[1].upper)
    assert progress == 2 * [(done, 4, f"resamples of {estimator.name}") for done in (1, 2, 3, 4)]


def test_one_resample_is_no_interval() -> None:
    with pytest.raises(SettingError, match="resamples must be 0, or at least 2, got 1"):
        Bootstrap(resamples=1)


def test_intervals_are_mirrored_draws() -> None:
    """Draws at twice to four times the curve say that the curve is too high: the truth is at a half to a quarter."""
    draws = np.linspace([1.0, 0.4, 0.0], [1.0, 0.8, 0.0], 101)
    lower, upper = Bootstrap(resamples=101, confidence=0.9).interval(np.array([1.0, 0.2, 0.0]), draws)
    np.testing.assert_allclose(lower, [1, 0.04 / 0.78, 0])
    np.testing.assert_allclose(upper, [1, 0.04 / 0.42, 0])
