"""Rankers on targets: a blend is one network that scores as the mean of its members does."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.choice.candidates import RANKERS
from clickprism.choice.training import blended, train
from clickprism.errors import DataError
from clickprism.types import Float64, Lists


def easy() -> tuple[Lists, Float64]:
    """Sixty queries of four documents; what is earned grows with the first feature."""
    features = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float32)
    lists = Lists(features, np.arange(0, 241, 4), np.arange(60).astype(str))
    return lists, np.exp(features[:, 0].astype(np.float64)) / 20


@pytest.mark.parametrize("ranker", RANKERS)
def test_every_ranker_learns_what_is_earned(ranker: str) -> None:
    lists, target = easy()
    target[::7] = np.nan
    queries = np.arange(60) < 50
    scores = train(lists, target, ranker, queries=queries, seed=1).score(lists)
    assert np.corrcoef(scores[200:], lists.features[200:, 0])[0, 1] > 0.8
    if ranker in ("linear", "lambdamart"):
        assert (train(lists, target, ranker, queries=queries, seed=1).score(lists) == scores).all()


def test_a_blend_scores_as_the_mean_of_its_members() -> None:
    lists, target = easy()
    queries = np.arange(60) < 20
    members = [train(lists, target, ranker, queries=queries, seed=0) for ranker in ("linear", "mlp")]
    mean = np.mean([member.score(lists) for member in members], axis=0)
    assert blended(members).score(lists) == pytest.approx(mean, abs=1e-4)


def test_nothing_to_learn_from_is_refused() -> None:
    lists, target = easy()
    with pytest.raises(DataError, match="no document has a click left"):
        train(lists, 0 * target, "linear", queries=np.ones(60, dtype=np.bool_), seed=0)


def test_queries_count_by_their_weight() -> None:
    lists, target = easy()
    queries = np.ones(60, dtype=np.bool_)
    alike = train(lists, target, "linear", queries=queries, seed=0, weights=np.full(60, 0.3)).score(lists)
    assert alike == pytest.approx(train(lists, target, "linear", queries=queries, seed=0).score(lists), abs=1e-4)
    half = np.where(np.arange(60) < 30, 1.0, 0.0)
    weighed = train(lists, target, "linear", queries=queries, seed=0, weights=half).score(lists)
    assert np.abs(weighed - alike).max() > 1e-3
