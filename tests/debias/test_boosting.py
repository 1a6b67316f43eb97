"""Boosting on sessions: the very trees that LightGBM grows on a row for every document of every session."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from clickprism.debias.position import PositionBias
from clickprism.errors import DataError, SettingError
from clickprism.rankers.lambdamart import Boosting, LambdaMART, shown
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Lists
from reproduce.common.pair_debias import PairDebias, SessionLambdas, by_lambdas, ratio_debiased

SESSIONS = 8
RANKER = LambdaMART(trees=8, leaves=4, min_data_in_leaf=10)
PLAIN: dict[str, Any] = {
    "objective": "lambdarank",
    "label_gain": [0, 1],
    "learning_rate": RANKER.learning_rate,
    "num_leaves": RANKER.leaves,
    "min_data_in_leaf": RANKER.min_data_in_leaf * SESSIONS,
    "min_sum_hessian_in_leaf": 1e-3 * SESSIONS,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 0,
    "verbosity": -1,
}


@pytest.fixture(scope="module")
def sessions() -> Clicks:
    """Eight sessions, one by one, of each of 80 lists of 6; features of a few values, so that no bin is too small."""
    rng = np.random.default_rng(4)
    features = rng.integers(-1, 2, size=(480, 5)).astype(np.float32)
    lists = Lists(features, np.arange(0, 481, 6), np.array([f"q{i}" for i in range(80)]))
    rows = np.tile(np.arange(480), SESSIONS)
    positions = rows % 6 + 1
    relevance = 1 / (1 + np.exp(1.5 - features[rows, 0] - 0.5 * features[rows, 1]))
    clicks = (rng.random(len(rows)) < relevance / np.sqrt(positions)).astype(np.int64)
    offsets = np.arange(0, len(rows) + 1, 6)
    return Clicks(lists, offsets, rows, positions.astype(np.int32), clicks, np.ones(len(offsets) - 1, np.int64))


def plain_lightgbm(rows: Clicks, *, weight: Float64 | None = None, position: bool = False, **other: Any) -> Float64:
    """LightGBM's lambdarank on a row for every document of every session, as one would call it."""
    import lightgbm

    data = lightgbm.Dataset(
        rows.lists.features[rows.rows],
        label=(rows.clicks > 0).astype(int),
        group=np.diff(rows.offsets),
        weight=weight,
        position=rows.positions if position else None,
        params={"verbosity": -1},
    )
    trees = lightgbm.train({**PLAIN, **other}, data, num_boost_round=RANKER.trees)
    return np.asarray(trees.predict(rows.lists.features))


def grown(boosting: Boosting, ranker: LambdaMART = RANKER) -> Float64:
    return ranker.train(boosting, seed=0, threads=1)(boosting.features)


@pytest.mark.parametrize("truncation", [30, 3])
def test_lambdas_summed_by_document_grow_the_trees_of_repeated_rows(sessions: Clicks, truncation: int) -> None:
    theirs = plain_lightgbm(sessions, lambdarank_truncation_level=truncation)
    merged = sessions.merge(by="pattern")
    assert len(merged) < 0.9 * len(sessions)
    for log in (sessions, merged):
        ours = grown(by_lambdas(sessions, SessionLambdas(log, truncation=truncation)))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.ptp(theirs) > 0.3


def test_lambdas_by_brute_force() -> None:
    """One session of three, clicked in two ways, against the definition."""
    lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    positions = np.arange(1, 4, dtype=np.int32)
    log = Clicks(lists, np.array([0, 3]), np.arange(3), positions, np.array([2, 0, 2]), np.array([2]))
    objective = SessionLambdas(log, truncation=30)
    objective.biases = np.array([[1.0, 0.7, 0.5], [1.0, 0.9, 0.8]])
    scores = np.array([0.3, 1.0, -0.2])
    discount = {1: 1.0, 0: 1 / np.log2(3), 2: 0.5}
    best = 1 + 1 / np.log2(3)
    first, second, total = np.zeros(3), np.zeros(3), 0.0
    for i, j in product((0, 2), (1,)):
        gap = scores[i] - scores[j]
        gain = abs(discount[i] - discount[j]) / best / (0.01 + abs(gap))
        chance = 1 / (1 + np.exp(gap))
        total += 2 * gain * chance
        weight = gain * chance / (objective.biases[0, i] * objective.biases[1, j])
        first += weight * (np.eye(3)[j] - np.eye(3)[i])
        second += weight * (1 - chance) * (np.eye(3)[i] + np.eye(3)[j])
    scale = np.log2(1 + total) / total
    found = objective(scores)
    np.testing.assert_allclose(found[0], scale * first)
    np.testing.assert_allclose(found[1], scale * second)
    assert objective.observation() is None


def test_ratios_are_those_of_the_costs() -> None:
    """Two sessions of two documents with equal scores: every pair costs log 2."""
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    log = Clicks(
        lists, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1, 2, 1, 2], np.int32),
        np.array([3, 0, 0, 1]), np.array([3, 1]),
    )  # fmt: skip
    for p, ratio in ((0.0, 1 / 3), (1.0, np.sqrt(1 / 3))):
        objective = ratio_debiased(log, RANKER, p=p, floor=0.01).objective
        assert isinstance(objective, SessionLambdas)
        objective(np.zeros(2))
        np.testing.assert_allclose(objective.biases, np.array([[1, ratio], [1, 1 / ratio]]))
        assert objective.observation() == pytest.approx(np.array([1, ratio]))
    floored = ratio_debiased(log, RANKER, p=0.0, floor=0.5).objective
    assert isinstance(floored, SessionLambdas)
    floored(np.zeros(2))
    np.testing.assert_allclose(floored.biases, np.array([[1, 0.5], [1, 3]]))


def test_a_method_of_both_kinds_grows_trees_by_its_own_lambdas(sessions: Clicks) -> None:
    settings = FitSettings(threads=1)
    fitted = fit(sessions.merge(by="pattern"), method=PairDebias(p=0.0), ranker=RANKER, settings=settings)
    again = fit(sessions, method=PairDebias(p=0.0), ranker=RANKER, settings=settings)
    np.testing.assert_allclose(fitted.model.score(sessions.lists), again.model.score(sessions.lists), atol=1e-6)
    curve = fitted.observation
    assert curve is not None
    assert curve[0] == 1
    assert 0.05 < curve[-1] < 0.8
    with pytest.raises(DataError, match="pair_debias must know what was clicked together"):
        fit(sessions.merge(), method=PairDebias(), ranker=RANKER, settings=settings)


@pytest.mark.parametrize("regularisation", [0.0, 0.3])
def test_sessions_clicked_alike_weigh_as_many_for_the_position_bias(sessions: Clicks, regularisation: float) -> None:
    """A limit on leaves that never binds, since merged sessions are fewer rows."""
    free = replace(RANKER, min_data_in_leaf=1)
    boosting = PositionBias(regularisation=regularisation).boosting(sessions, free)
    assert boosting.repetition < 0.9 * SESSIONS
    theirs = plain_lightgbm(
        sessions, position=True, lambdarank_position_bias_regularization=regularisation, min_data_in_leaf=1
    )
    np.testing.assert_allclose(grown(boosting, free), theirs, atol=1e-4)
    assert np.abs(theirs - plain_lightgbm(sessions, min_data_in_leaf=1)).max() > 0.01


def test_leaves_are_counted_in_documents_however_often_they_were_shown(sessions: Clicks) -> None:
    """A limit that half the documents cannot meet leaves no split, in a log of one session a list or of eight."""
    documents = len(shown(sessions)[0])
    hard = replace(RANKER, min_data_in_leaf=documents // 2 + 1)
    for boosting in (
        PositionBias().boosting(sessions, hard),
        by_lambdas(sessions, SessionLambdas(sessions, truncation=30)),
    ):
        assert np.ptp(grown(boosting, hard)) == 0
        assert np.ptp(grown(boosting)) > 0.1


def test_positions_come_in_the_order_of_display(sessions: Clicks) -> None:
    boosting = PositionBias().boosting(sessions, RANKER)
    assert boosting.positions is not None
    starts = np.cumsum(boosting.lengths) - boosting.lengths
    assert (boosting.positions[starts] == 1).all()
    assert boosting.observation() is None
    with pytest.raises(SettingError, match="regularisation must be at least 0"):
        PositionBias(regularisation=-1.0)
