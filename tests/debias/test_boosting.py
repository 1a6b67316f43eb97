"""Boosting on sessions: the very trees that LightGBM grows on a row for every document of every session."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from clickprism.debias.click_groups import ClickGroups
from clickprism.debias.lambdas import SessionLambdas, by_lambdas, ratio_debiased
from clickprism.debias.pair_debias import PairDebias
from clickprism.debias.position import PositionBias
from clickprism.errors import DataError, SettingError
from clickprism.rankers.boosting import Boosting, shown
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Lists

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


def lambdas(log: Clicks, *, truncation: int = 30) -> SessionLambdas:
    rows, _ = shown(log)
    return SessionLambdas(
        np.searchsorted(rows, log.rows),
        log.offsets,
        log.clicks > 0,
        log.positions.astype(np.int64),
        log.impressions.astype(np.float64),
        documents=len(rows),
        truncation=truncation,
    )


@pytest.mark.parametrize("truncation", [30, 3])
def test_lambdas_summed_by_document_grow_the_trees_of_repeated_rows(sessions: Clicks, truncation: int) -> None:
    theirs = plain_lightgbm(sessions, lambdarank_truncation_level=truncation)
    merged = sessions.merge(by="pattern")
    assert len(merged) < 0.9 * len(sessions)
    for log in (sessions, merged):
        ours = grown(by_lambdas(sessions, lambdas(log, truncation=truncation)))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.ptp(theirs) > 0.3


def test_lambdas_by_brute_force() -> None:
    """One session of three, ties in the scores and none, against the definition."""
    objective = SessionLambdas(
        np.array([0, 1, 2]), np.array([0, 3]), np.array([True, False, True]), np.array([1, 2, 3]), np.array([2.0]),
        documents=3, truncation=30,
    )  # fmt: skip
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
        objective = ratio_debiased(log, RANKER, p=p, floor=0.01, skips=True).objective
        assert isinstance(objective, SessionLambdas)
        objective(np.zeros(2))
        np.testing.assert_allclose(objective.biases, np.array([[1, ratio], [1, 1 / ratio]]))
        assert objective.observation() == pytest.approx(np.array([1, ratio]))
    floored = ratio_debiased(log, RANKER, p=0.0, floor=0.5, skips=False).objective
    assert isinstance(floored, SessionLambdas)
    floored(np.zeros(2))
    np.testing.assert_allclose(floored.biases, np.array([[1, 0.5], [1, 1]]))


def test_a_method_of_both_kinds_grows_trees_by_its_own_lambdas(sessions: Clicks) -> None:
    settings = FitSettings(threads=1)
    fitted = fit(sessions.merge(by="pattern"), method=PairDebias(tree_p=0.0), ranker=RANKER, settings=settings)
    again = fit(sessions, method=PairDebias(tree_p=0.0), ranker=RANKER, settings=settings)
    np.testing.assert_allclose(fitted.model.score(sessions.lists), again.model.score(sessions.lists), atol=1e-6)
    curve = fitted.observation
    assert curve is not None
    assert curve[0] == 1
    assert 0.05 < curve[-1] < 0.8
    with pytest.raises(DataError, match="pair_debias must know what was clicked together"):
        fit(sessions.merge(), method=PairDebias(), ranker=RANKER, settings=settings)


def test_click_groups_are_groups_of_one_click_weighted_alike(sessions: Clicks) -> None:
    """Against LightGBM on a group a click, its rows repeated, all weighted by the click's inverse propensity."""
    curve = 1 / np.sqrt(np.arange(1, 7))
    entries = np.flatnonzero(sessions.clicks)
    owner = np.searchsorted(sessions.offsets, entries, side="right") - 1
    groups = sessions.take(owner)
    hit = np.zeros(len(groups.rows), dtype=np.int64)
    hit[groups.offsets[:-1] + entries - sessions.offsets[owner]] = 1
    groups = replace(groups, clicks=hit)
    weights = 1 / np.maximum(curve[sessions.positions[entries] - 1], 0.4)
    row_weights = np.repeat(weights, np.diff(groups.offsets))
    row_weights *= len(np.unique(sessions.rows)) / row_weights.sum()
    theirs = plain_lightgbm(groups, weight=row_weights, min_data_in_leaf=1, min_sum_hessian_in_leaf=1e-3)
    free = replace(RANKER, min_data_in_leaf=1)
    ours = grown(ClickGroups(propensities=tuple(curve), floor=0.4).boosting(sessions.merge(), free), free)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_click_groups_take_merged_lists_and_say_what_they_were_given(sessions: Clicks) -> None:
    method = ClickGroups(propensities=tuple(1 / np.sqrt(np.arange(1, 7))))
    one, other = (method.boosting(log, RANKER) for log in (sessions, sessions.merge()))
    assert one.objective is not None
    assert other.objective is not None
    scores = np.random.default_rng(0).normal(size=len(one.rows))
    for a, b in zip(one.objective(scores), other.objective(scores), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert one.observation() == pytest.approx(1 / np.sqrt(np.arange(1, 7)), rel=1e-6)
    with pytest.raises(SettingError, match="give one value for each of the 6 positions"):
        ClickGroups(propensities=(1.0, 0.5)).boosting(sessions, RANKER)
    with pytest.raises(SettingError, match="floor must be in"):
        ClickGroups(floor=-1.0)


def test_click_groups_find_relevance_where_every_list_is_shown_in_one_order() -> None:
    """Expected clicks of a position-based user on pairs: the scores part by log r_i / r_j, whatever the positions."""
    lists = Lists(np.array([[0.0], [1.0]], np.float32), np.array([0, 2]), np.array(["q"]))
    relevance, curve = np.array([0.2, 0.6]), np.array([1.0, 0.25])
    log = Clicks(
        lists, np.array([0, 2]), np.array([0, 1]), np.array([1, 2], np.int32),
        np.rint(1000 * relevance * curve).astype(np.int64), np.array([1000]),
    )  # fmt: skip
    objective = ClickGroups(propensities=tuple(curve), floor=0.0).boosting(log, RANKER).objective
    assert objective is not None
    gaps = np.linspace(0, 3, 3001)
    pulls = [objective(np.array([0.0, gap]))[0][1] for gap in gaps]
    flat = float(gaps[np.argmin(np.abs(pulls))])
    assert flat > 0.5  # log 3, but for the squashing of each group's sum
    even = objective(np.zeros(2))[0]
    assert even[1] < 0 < even[0]


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
    for boosting in (PositionBias().boosting(sessions, hard), by_lambdas(sessions, lambdas(sessions))):
        assert np.ptp(grown(boosting, hard)) == 0
        assert np.ptp(grown(boosting)) > 0.1


def test_positions_come_in_the_order_of_display(sessions: Clicks) -> None:
    boosting = PositionBias().boosting(sessions, RANKER)
    assert boosting.positions is not None
    starts = np.cumsum(boosting.lengths) - boosting.lengths
    assert (boosting.positions[starts] == 1).all()
    assert boosting.observation() is None
    with pytest.raises(SettingError, match="regularisation must not be negative"):
        PositionBias(regularisation=-1.0)
