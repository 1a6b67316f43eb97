"""Tests and intervals: arithmetic, scipy as the oracle, and coverage on simulated truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.significance import (
    PairedTest,
    by_query,
    differences,
    holm,
    interval,
    intervals,
    paired_randomisation,
    paired_t,
)
from clickprism.types import Float64


def pair(queries: int, *, seed: int = 0, effect: float = 0.1) -> tuple[Float64, Float64]:
    rng = np.random.default_rng(seed)
    first = rng.beta(2, 2, size=queries)
    return first + effect + rng.normal(scale=0.3, size=queries), first


@pytest.mark.parametrize("queries", [2, 5, 40, 1000])
def test_t_agrees_with_scipy(queries: int) -> None:
    first, second = pair(queries)
    ours, theirs = paired_t(first, second), stats.ttest_rel(first, second)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.difference == pytest.approx((first - second).mean(), rel=1e-12)
    assert ours.queries == queries


@pytest.mark.parametrize("queries", [2, 7, 11])
def test_exact_randomisation_agrees_with_scipy(queries: int) -> None:
    first, second = pair(queries, effect=0.2)
    theirs = stats.permutation_test(
        (first, second), lambda x, y: (x - y).mean(), permutation_type="samples", n_resamples=2**queries
    )
    assert paired_randomisation(first, second).p_value == pytest.approx(theirs.pvalue, rel=1e-12)


def test_randomisation_agrees_with_a_calculation_by_hand() -> None:
    # |+-1 +-2 +-3| >= 4: the sums 6, 4, -4, -6 of eight patterns.
    p_value = paired_randomisation(np.array([-1.0, 2.0, 3.0]), np.zeros(3)).p_value
    assert p_value == 4 / 8


def test_random_signs_agree_with_the_t_test_where_both_hold() -> None:
    first, second = pair(400, effect=0.03)
    sampled = paired_randomisation(first, second, flips=20_000, seed=3)
    expected = paired_t(first, second).p_value
    assert sampled.p_value == pytest.approx(expected, abs=4 * np.sqrt(expected / 20_000))
    assert sampled == paired_randomisation(first, second, flips=20_000, seed=3)
    assert sampled != paired_randomisation(first, second, flips=20_000, seed=4)


def test_random_signs_never_give_a_p_of_zero() -> None:
    first, second = pair(400, effect=5.0)
    assert paired_randomisation(first, second, flips=99).p_value == 1 / 100


@pytest.mark.parametrize("test", [paired_t, paired_randomisation])
def test_paired_tests_of_few_equal_or_missing_values_are_defined(
    test: Callable[[Float64, Float64], PairedTest],
) -> None:
    same = np.array([0.1, 0.5, 0.9])
    assert test(same, same).p_value == 1.0
    one = test(np.array([0.5]), np.array([0.25]))
    assert one.difference == 0.25
    assert np.isnan(one.p_value)
    none = test(np.array([np.nan]), np.array([0.25]))
    assert none.queries == 0
    assert np.isnan(none.difference)
    with_nan = test(np.array([1.0, np.nan, 3.0, 2.0]), np.array([0.5, 1.0, np.nan, 0.0]))
    assert with_nan == test(np.array([1.0, 2.0]), np.array([0.5, 0.0]))
    with pytest.raises(DataError, match="cannot be paired"):
        test(np.zeros(3), np.zeros(4))


def test_the_same_difference_everywhere() -> None:
    ones, zeros = np.ones(4), np.zeros(4)
    assert paired_t(ones, zeros).p_value == 0.0
    assert paired_randomisation(ones, zeros).p_value == 2 / 16
    assert paired_randomisation(ones, zeros, flips=1).p_value == 2 / 16
    with pytest.raises(SettingError, match="flips"):
        paired_randomisation(ones, zeros, flips=0)


def test_runs_are_averaged_and_never_pass_for_queries() -> None:
    runs = np.array([[1.0, 2.0, np.nan, np.nan], [3.0, np.nan, 5.0, np.nan]])
    np.testing.assert_array_equal(by_query(runs), [2.0, 2.0, 5.0, np.nan])
    first, second = pair(30)
    repeated = paired_t(np.stack([first] * 5), np.stack([second] * 5))
    assert repeated.queries == 30
    assert repeated.p_value == pytest.approx(paired_t(first, second).p_value, rel=1e-9)
    assert interval(np.stack([first] * 5)).high == pytest.approx(interval(first).high, rel=1e-12)
    with pytest.raises(DataError, match="shape"):
        by_query(np.zeros((2, 2, 2)))


def test_holm_agrees_with_a_calculation_by_hand() -> None:
    corrected = holm(np.array([0.04, 0.01, np.nan, 0.03, 0.6]))
    np.testing.assert_allclose(corrected, [0.09, 0.04, np.nan, 0.09, 0.6])
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_and_keeps_the_order(values: list[float]) -> None:
    p_values = np.array(values)
    corrected = holm(p_values)
    assert (corrected >= p_values).all()
    assert (corrected <= 1).all()
    assert (np.diff(corrected[np.argsort(p_values)]) >= 0).all()


@pytest.mark.parametrize("queries", [8, 37, 400])
def test_intervals_agree_with_scipy_draw_for_draw(queries: int) -> None:
    values = np.random.default_rng(queries).beta(1, 6, size=queries)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=999, method="bca", confidence_level=0.9, rng=np.random.default_rng(7)
    ).confidence_interval
    ours = interval(values, confidence=0.9, resamples=999, seed=7)
    np.testing.assert_allclose([ours.low, ours.high], [theirs.low, theirs.high], rtol=1e-9)


def test_columns_share_their_resamples() -> None:
    first, second = pair(50)
    low, high = intervals(np.stack([first, second, first - second], axis=1), seed=5)
    for i, values in enumerate([first, second, differences(first, second)]):
        alone = interval(values, seed=5)
        np.testing.assert_allclose([low[i], high[i]], [alone.low, alone.high], rtol=1e-12)


def test_intervals_cover_the_true_mean() -> None:
    rng = np.random.default_rng(0)
    draws = 400
    covered = 0
    for seed in range(draws):
        found = interval(rng.exponential(size=60), resamples=400, seed=seed)
        covered += found.low <= 1.0 <= found.high
    # Nominal 95%; on skewed data of this size BCa is known to cover a little less. Three standard errors are .033.
    assert covered / draws == pytest.approx(0.935, abs=0.033)


def test_intervals_of_few_equal_or_missing_values_are_defined() -> None:
    one = interval(np.array([0.5]))
    assert (one.mean, one.queries) == (0.5, 1)
    assert np.isnan([one.low, one.high]).all()
    none = interval(np.array([np.nan, np.nan]))
    assert none.queries == 0
    assert np.isnan(none.mean)
    flat = interval(np.full(20, 0.3))
    assert (flat.low, flat.high) == (0.3, 0.3)
    assert interval(np.array([1.0, np.nan, 2.0, 4.0])) == interval(np.array([1.0, 2.0, 4.0]))
    for wrong in ({"confidence": 1.0}, {"resamples": 1}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            interval(np.arange(3.0), **wrong)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.integers(0, 100))
def test_an_interval_lies_within_the_data(values: list[float], seed: int) -> None:
    found = interval(np.array(values), resamples=50, seed=seed)
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
