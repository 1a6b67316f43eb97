"""Measures of predicted clicks by hand, on merged logs and at their edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.evaluation.clicks import log_likelihood, perplexity, rate_error
from clickprism.types import Clicks, Lists


def make_log(patterns: list[list[int]], impressions: list[int], *, positions: list[int] | None = None) -> Clicks:
    """The same documents in every session, at the same positions."""
    size, count = len(patterns[0]), len(patterns)
    lists = Lists(np.zeros((size, 0), np.float32), np.array([0, size]), np.array(["q"]))
    places = np.array(positions or range(1, size + 1), dtype=np.int32)
    clicks = (np.array(patterns) * np.array(impressions)[:, None]).ravel()
    offsets = np.arange(count + 1) * size
    return Clicks(
        lists, offsets, np.tile(np.arange(size), count), np.tile(places, count), clicks, np.array(impressions)
    )


def test_perplexity_agrees_with_a_calculation_by_hand() -> None:
    log = make_log([[1, 0], [0, 0]], [3, 1])
    found = perplexity(np.array([0.75, 0.5, 0.75, 0.5]), log)
    assert found == pytest.approx([(0.75**3 * 0.25) ** (-1 / 4), 2.0])


def test_log_likelihood_is_that_of_the_sessions() -> None:
    log = make_log([[1, 0], [0, 1]], [3, 1])
    found = log_likelihood(np.array([0.6, 0.2, 0.6, 0.5]), log)
    assert found == pytest.approx((3 * math.log(0.6 * 0.8) + math.log(0.4 * 0.5)) / 4)


def test_merged_and_single_sessions_give_the_same() -> None:
    log = make_log([[1, 0], [1, 0], [0, 0]], [1, 1, 1])
    probability = np.array([0.6, 0.2])
    merged = log.merge()
    for measure in (log_likelihood, perplexity, rate_error):
        assert measure(np.tile(probability, 3), log) == pytest.approx(measure(probability, merged))


def test_the_right_rates_have_the_least_perplexity_and_no_error() -> None:
    log = make_log([[1, 0], [0, 0]], [3, 1]).merge()
    right = np.array([0.75, 0.0])
    assert perplexity(right, log)[1] == pytest.approx(1.0, abs=1e-5)
    assert rate_error(right, log) == 0
    assert perplexity(right, log)[0] < min(perplexity(np.array([p, 0.0]), log)[0] for p in (0.7, 0.8))


def test_what_was_called_impossible() -> None:
    log = make_log([[1]], [1])
    assert log_likelihood(np.zeros(1), log) == pytest.approx(math.log(1e-6))
    assert log_likelihood(np.ones(1), log) == pytest.approx(0, abs=2e-6)


def test_a_position_that_is_not_shown_has_none() -> None:
    log = make_log([[1, 0]], [1], positions=[1, 3])
    found = perplexity(np.array([0.5, 0.5]), log)
    assert np.isnan(found).tolist() == [False, True, False]
    assert found[[0, 2]] == pytest.approx([2.0, 2.0])


def test_bad_probabilities_are_errors() -> None:
    log = make_log([[1, 0]], [1])
    with pytest.raises(DataError, match=r"2 entries but probabilities of shape \(1,\)"):
        perplexity(np.ones(1), log)
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(DataError, match="between 0 and 1"):
            log_likelihood(np.array([bad, 0.5]), replace(log))
