from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import SettingError
from clickprism.relevance.ranking import RankSettings, rank, scores
from tests.relevance.pair_worlds import estimates_around

QUERIES = np.array(["a", "a", "a", "b", "b", "c"])


def test_ranks_by_value_and_lower_end() -> None:
    made = estimates_around([0.8, 0.4, np.nan, 0.2, 0.1, 0.3])
    made.lower[0] = 0.05
    order, ranks = rank(made, QUERIES)
    assert order.tolist() == [0, 1, 2, 3, 4, 5]
    assert ranks.tolist() == [1, 2, 3, 1, 2, 1]
    order, _ = rank(made, QUERIES, settings=RankSettings(by="lower"))
    assert order[:3].tolist() == [1, 0, 2]


def test_draws_have_the_mean_and_spread_of_the_estimate() -> None:
    size = 20_000
    made = estimates_around([0.3] * size)
    drawn = scores(made, settings=RankSettings(by="thompson", seed=5))
    assert drawn.mean() == pytest.approx(0.3, abs=0.003)
    assert drawn.std() == pytest.approx(0.1 / 1.96, rel=0.03)
    assert scores(made, settings=RankSettings(by="thompson", seed=5)).tolist() == drawn.tolist()
    unknown = scores(estimates_around([np.nan] * size), settings=RankSettings(by="thompson"))
    assert unknown.min() >= 0
    assert unknown.max() <= 1
    assert unknown.mean() == pytest.approx(0.5, abs=0.01)
    with pytest.raises(SettingError, match="by must be one of value, lower, thompson"):
        RankSettings(by="ucb")  # type: ignore[arg-type]
