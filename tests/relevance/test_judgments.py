from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import SettingError
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.judgments import JudgmentSettings, judge
from clickprism.relevance.ranking import RankSettings, rank, scores
from clickprism.types import Float64

QUERIES = np.array(["a", "a", "a", "b", "b", "c"])


def estimates(values: list[float], *, weight: float = 50.0, half: float = 0.1) -> Estimates:
    made: Float64 = np.array(values)
    size = len(made)
    return Estimates(
        made,
        np.nan_to_num(made - half),
        np.nan_to_num(made + half, nan=1.0),
        np.where(np.isnan(made), np.nan, (half / 1.96) ** 2),
        np.full(size, weight),
        np.zeros(size, dtype=np.bool_),
    )


def test_grades_on_each_scale_by_hand() -> None:
    made = estimates([0.8, 0.4, 0.1, 0.2, 0.1, 0.3])
    absolute = judge(made, QUERIES, settings=JudgmentSettings(scale="absolute", cuts=(0.2, 0.4)))
    assert absolute.grades.tolist() == [2, 2, 0, 1, 0, 1]
    relative = judge(made, QUERIES, settings=JudgmentSettings(scale="relative", cuts=(0.5, 0.9)))
    assert relative.grades.tolist() == [2, 1, 0, 2, 1, 2]
    quantile = judge(made, QUERIES, settings=JudgmentSettings(scale="quantile", cuts=(0.5, 0.8)))
    assert quantile.cuts.round(6).tolist() == [0.3, 0.4]
    assert quantile.grades.tolist() == [2, 2, 0, 0, 0, 1]
    lower = judge(made, QUERIES, settings=JudgmentSettings(scale="absolute", cuts=(0.15, 0.4), by="lower"))
    assert lower.grades.tolist() == [2, 1, 0, 0, 0, 1]


def test_quantiles_do_not_depend_on_the_level_and_carry_over() -> None:
    made = estimates([0.8, 0.4, 0.1, 0.2, 0.15, 0.3])
    first = judge(made, QUERIES)
    assert judge(made.at_level((0.5, 0.05)), QUERIES).grades.tolist() == first.grades.tolist()
    part = judge(made.select(slice(3, 6)), QUERIES[3:], cuts=first.cuts)
    assert part.grades.tolist() == first.grades[3:].tolist()


def test_equal_pairs_get_the_grade_of_the_middle_one() -> None:
    never, always = [0.0] * 80 + [0.3] * 15 + [0.6] * 5, [0.0] * 5 + [0.3] * 70 + [1.0] * 25
    queries = np.repeat("q", 100)
    assert judge(estimates(never), queries).summary().grades == {"0": 80, "1": 0, "2": 15, "3": 0, "4": 5}
    assert judge(estimates(always), queries).summary().grades == {"0": 75, "1": 0, "2": 25, "3": 0, "4": 0}
    alike = judge(estimates([0.4] * 10), queries[:10], settings=JudgmentSettings(cuts=(0.6, 0.9)))
    assert alike.grades.tolist() == [0] * 10
    assert np.isnan(alike.cuts).all()


def test_what_is_excluded_is_counted_once_and_by_reason() -> None:
    values = [0.8, np.nan, 0.1, 0.2, 0.1, 0.3]
    made = estimates(values)
    made.weight[2] = 3
    made.imputed_only[3] = True
    made.weight[3] = 0
    made.upper[4] = 1.0
    settings = JudgmentSettings(max_width=0.5)
    judged = judge(made, QUERIES, settings=settings)
    assert judged.pairs.tolist() == [0, 5]
    assert judged.excluded == {
        "nothing known": 1,
        "imputed only": 1,
        "too little evidence": 1,
        "interval too wide": 1,
    }
    assert sum(judged.excluded.values()) + len(judged) == len(made)
    with_imputed = judge(made, QUERIES, settings=JudgmentSettings(max_width=0.5, imputed=True, min_documents=2))
    assert len(with_imputed) == 0
    assert with_imputed.excluded["too few judged documents of the query"] == 3


def test_no_estimates_give_no_judgments() -> None:
    judged = judge(estimates([]), QUERIES[:0])
    assert judged.summary().grades == {"0": 0, "1": 0, "2": 0, "3": 0, "4": 0}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"cuts": (0.5, 0.5)}, "cuts must be numbers from 0 to 1, each above the one before"),
        ({"scale": "log"}, "scale must be one of quantile, absolute, relative"),
        ({"max_width": 0.0}, "max_width must be above 0"),
        ({"min_weight": -1.0}, "min_weight must be 0 or more"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        JudgmentSettings(**settings)  # type: ignore[arg-type]


def test_ranks_by_value_and_lower_end() -> None:
    made = estimates([0.8, 0.4, np.nan, 0.2, 0.1, 0.3])
    made.lower[0] = 0.05
    order, ranks = rank(made, QUERIES)
    assert order.tolist() == [0, 1, 2, 3, 4, 5]
    assert ranks.tolist() == [1, 2, 3, 1, 2, 1]
    order, _ = rank(made, QUERIES, settings=RankSettings(by="lower"))
    assert order[:3].tolist() == [1, 0, 2]


def test_draws_have_the_mean_and_spread_of_the_estimate() -> None:
    size = 20_000
    made = estimates([0.3] * size)
    drawn = scores(made, settings=RankSettings(by="thompson", seed=5))
    assert drawn.mean() == pytest.approx(0.3, abs=0.003)
    assert drawn.std() == pytest.approx(0.1 / 1.96, rel=0.03)
    assert scores(made, settings=RankSettings(by="thompson", seed=5)).tolist() == drawn.tolist()
    unknown = scores(estimates([np.nan] * size), settings=RankSettings(by="thompson"))
    assert unknown.min() >= 0
    assert unknown.max() <= 1
    assert unknown.mean() == pytest.approx(0.5, abs=0.01)
    with pytest.raises(SettingError, match="by must be one of value, lower, thompson"):
        RankSettings(by="ucb")  # type: ignore[arg-type]
