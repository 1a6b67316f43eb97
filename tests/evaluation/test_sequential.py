import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.interleaving import confidence_sequence


def test_the_formula_by_hand() -> None:
    values = np.array([1.0, 3.0, 1.0, 3.0])
    made = confidence_sequence(values, confidence=0.9, tightest=10, first_look=2)
    r = (-2 * np.log(0.1) + np.log(1 - 2 * np.log(0.1))) / 10
    reach = 1.0 * np.sqrt(2 * (4 * r + 1) / (16 * r) * np.log(np.sqrt(4 * r + 1) / 0.1))
    assert made.means.tolist() == [1.0, 2.0, 5 / 3, 2.0]
    assert made.high[-1] - made.means[-1] == pytest.approx(reach)
    assert np.isneginf(made.low[0])
    assert np.isfinite(made.low[1])


def test_never_wrong_at_any_time_in_95_of_100_tests_that_are_looked_at_all_the_time() -> None:
    random, tests = np.random.default_rng(0), 400
    values = (random.random((tests, 3_000)) < 0.2) - 0.2
    wrong = np.mean([confidence_sequence(row).decided is not None for row in values])
    peeking = np.mean(
        [(np.abs(np.cumsum(row)) / np.sqrt(0.16 * np.arange(1, 3_001)) > 1.96)[100:].any() for row in values]
    )
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / tests)
    assert peeking > 0.3  # what the usual interval does under the same looks


def test_a_difference_is_found_and_not_much_later_than_the_usual_test_could_at_its_best() -> None:
    values = 0.1 + np.random.default_rng(1).standard_normal(20_000)
    decided = confidence_sequence(values).decided
    assert decided is not None
    assert 100 <= decided <= 4 * (1.96 / 0.1) ** 2 * 4
    assert confidence_sequence(-values).decided == decided


def test_wrong_settings_and_data_are_refused() -> None:
    with pytest.raises(SettingError, match="confidence must be between 0 and 1"):
        confidence_sequence(np.zeros(3), confidence=1)
    with pytest.raises(SettingError, match="first_look must be at least 2"):
        confidence_sequence(np.zeros(3), first_look=1)
    with pytest.raises(DataError, match="finite"):
        confidence_sequence(np.array([np.nan]))
    assert confidence_sequence(np.zeros(0)).decided is None
