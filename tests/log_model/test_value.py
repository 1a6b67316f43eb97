"""What a click is worth: shrunk means by pair and features, and their product with relevance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clickprism as cp
from clickprism.data.click_table import parse_outcome
from clickprism.errors import SettingError, UnsupportedError
from clickprism.log_model.value import STRENGTH, ClickValue, click_value
from clickprism.relevance.estimate import times_value
from clickprism.relevance.estimates import Estimates


def log(documents: int, clicks: int, *, by_feature: bool, seed: int = 0) -> Any:
    """Return a log of one list per click; a click books with probability .2 or, by the feature, .1 or .7."""
    rng = np.random.default_rng(seed)
    document = rng.integers(0, documents, clicks)
    feature = document % 2
    rate = np.where(feature == 1, 0.7, 0.1) if by_feature else np.full(clicks, 0.2)
    return cp.read_log(
        {
            "query": [f"q{number % 20}" for number in document],
            "document": document.astype(str),
            "position": np.ones(clicks, dtype=int),
            "click": np.ones(clicks, dtype=int),
            "size": feature + rng.normal(0, 0.01, clicks),
            "booked": rng.random(clicks) < rate,
        },
        outcomes={"booking": "booked"},
        features=["size"],
    )


def test_features_predict_the_value_of_pairs_with_few_clicks() -> None:
    found = click_value(log(600, 2000, by_feature=True), "booking")
    assert found is not None
    assert found.features
    ids = log(600, 2000, by_feature=True).clicks.lists.document_ids.astype(int)
    assert abs(found.values[ids % 2 == 1].mean() - 0.7) < 0.05
    assert abs(found.values[ids % 2 == 0].mean() - 0.1) < 0.05


def test_without_differences_all_clicks_have_the_mean_value() -> None:
    found = click_value(log(100, 2000, by_feature=False), "booking")
    assert found is not None
    assert not found.features
    assert found.strength > 50
    assert np.abs(found.values - 0.2).max() < 0.1


def test_the_mean_is_shrunk_by_the_strength() -> None:
    table = {"query": ["q"] * 2, "document": ["a", "b"], "position": [1, 2], "click": [1, 1], "sold": [1, 0]}
    found = click_value(cp.read_log(table, outcomes=["sold"]), "click + 2*sold")
    assert found is not None
    assert found.strength == STRENGTH  # each pair has one click: how much pairs differ is not known
    assert found.mean == 2.0  # (3 + 1) / 2
    np.testing.assert_allclose(found.values, [(3 + 10 * 2) / 11, (1 + 10 * 2) / 11])


def test_the_click_itself_needs_no_value() -> None:
    assert click_value(cp.read_log({"query": ["q"], "document": ["a"], "click": [1]}), "click") is None


def test_wrong_outcomes_are_refused() -> None:
    table = {"query": ["q"], "document": ["a"], "click": [1], "sold": [0]}
    read = cp.read_log(table, outcomes=["sold"])
    with pytest.raises(SettingError, match=r"name outcomes of the log \(sold, click\)"):
        click_value(read, "solt")
    with pytest.raises(UnsupportedError, match="no click of the log has the outcome 'sold'"):
        click_value(read, "sold")
    for text in ("", "5*", "click + click", "0*sold", "click - sold"):
        with pytest.raises(SettingError):
            parse_outcome(text)


def test_relevance_times_value_combines_both_errors() -> None:
    one = np.ones(1)
    estimates = Estimates(0.5 * one, 0.4 * one, 0.6 * one, one, one, one == 0)
    value = ClickValue({"cart": 2.0}, one, 0.0 * one, 1.0, 1.0, features=False)
    product = times_value(estimates, value, np.zeros(1, np.int64), 0.95)
    np.testing.assert_allclose([product.values[0], product.lower[0], product.upper[0]], [0.25, 0.2, 0.3])
    uncertain = ClickValue({"cart": 2.0}, one, 0.2 * one, 1.0, 1.0, features=False)
    wider = times_value(estimates, uncertain, np.zeros(1, np.int64), 0.95)
    assert wider.lower[0] < 0.2
    assert wider.upper[0] > 0.3
