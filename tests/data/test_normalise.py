"""Normalisation by hand-worked numbers; statistics come from the training part only."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clickprism.data import normalise
from clickprism.data.normalise import KINDS, Kind, Normaliser, fit, normalised
from clickprism.errors import DataError, SettingError
from clickprism.types import Dataset, JudgedLists, Lists

NAN = float("nan")


def lists(*rows: list[float], lengths: list[int] | None = None) -> Lists:
    lengths = [len(rows)] if lengths is None else lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Lists(np.array(rows, np.float32), offsets, np.array([str(i) for i in range(len(lengths))]))


def test_minmax_scales_to_the_range_of_the_training_data() -> None:
    normaliser = fit("minmax", lists([1, 5], [3, 5]))
    assert normaliser(lists([2, 5], [5, 9])).features.tolist() == [[0.5, 0], [2, 0]]


def test_standard_uses_mean_and_deviation_of_the_training_data() -> None:
    normaliser = fit("standard", lists([1], [3]))  # mean 2, deviation 1
    assert normaliser(lists([1], [2], [5])).features.tolist() == [[-1], [0], [3]]


def test_log1p_is_signed_and_standardised() -> None:
    e = float(np.e)
    normaliser = fit("log1p", lists([e - 1], [1 - e]))  # s = 1, -1: mean 0, deviation 1
    assert normaliser(lists([e**2 - 1], [0], [1 - e**2])).features.ravel() == pytest.approx([2, 0, -2], abs=1e-6)


def test_log1p_bears_the_largest_values() -> None:
    largest = float(np.finfo(np.float32).max)
    result = fit("log1p", lists([largest], [-largest], [0])).features(lists([largest]).features, np.array([0, 1]))
    assert result.ravel() == pytest.approx([np.sqrt(1.5)])


def test_quantile_is_uniform_with_ties_in_the_middle() -> None:
    train = lists(*[[float(i)] for i in range(1001)])
    normaliser = fit("quantile", train)
    assert normaliser(lists([0], [250], [500], [1000], [2000], [-5])).features.ravel() == pytest.approx(
        [-1, -0.5, 0, 1, 1, -1]
    )
    tied = fit("quantile", lists(*[[0.0]] * 500, *[[1.0]] * 500))
    assert tied(lists([0], [1])).features.ravel() == pytest.approx([-0.5, 0.5], abs=0.01)
    assert fit("quantile", lists([3], [3]))(lists([4])).features.tolist() == [[0]]


def test_queries_are_normalised_on_their_own() -> None:
    data = lists([1, 7], [3, 7], [10, 0], [10, 4], [10, 2], lengths=[2, 0, 3])
    assert fit("query-minmax", data)(data).features.tolist() == [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0.5]]
    deviation = np.sqrt(8 / 3)
    expected = [-1, 0, 1, 0, 0, -2 / deviation, 0, 2 / deviation, 0, 0]
    assert fit("query-standard", data)(data).features.ravel() == pytest.approx(expected)


def test_blocks_of_rows_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    data = lists(*rng.random((50, 2)).tolist(), lengths=[3, 0, 10, 1, 20, 7, 9, 0])
    whole = {kind: fit(kind, data)(data).features for kind in KINDS}  # type: ignore[arg-type]
    monkeypatch.setattr(normalise, "BLOCK", 5)
    for kind, expected in whole.items():
        assert fit(kind, data)(data).features == pytest.approx(expected, abs=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_constant_features_become_zero_and_missing_ones_finite(kind: Kind) -> None:
    data = lists([0.1, 1, NAN], [0.1, NAN, NAN], [0.1, 3, NAN])
    result = fit(kind, data)(data).features
    if kind == "none":
        assert result is data.features
        return
    assert np.isfinite(result).all()
    assert result[:, [0, 2]].tolist() == [[0, 0]] * 3
    if kind != "log1p":
        assert result[1, 1] == pytest.approx((result[0, 1] + result[2, 1]) / 2, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_normaliser_gives_the_same_features(kind: Kind) -> None:
    data = lists([1, 2], [3, 5], [9, 4])
    normaliser = fit(kind, data)
    settings, arrays = normaliser.state()
    again = Normaliser.from_state(json.loads(json.dumps(settings)), arrays)
    assert np.array_equal(again(data).features, normaliser(data).features)


def test_wrong_settings_and_data_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingError, match="did you mean 'minmax'"):
        fit("minmaxx", lists([1]))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="fitted to 1 features"):
        fit("minmax", lists([1]))(lists([1, 2]))
    with pytest.raises(DataError, match="no documents"):
        fit("standard", Lists(np.zeros((0, 2), np.float32), np.array([0]), np.array([], np.str_)))
    with pytest.raises(DataError, match="lacks 'mean'"):
        Normaliser.from_state({"kind": "none"}, {})


def test_only_the_training_part_counts() -> None:
    parts = [JudgedLists(lists([value], [0.0]), np.zeros(2, np.int32)) for value in (2.0, 4.0, 8.0)]
    dataset, normaliser = normalised(Dataset("d", *parts), "minmax")
    assert normaliser.kind == "minmax"
    assert [part.lists.features[0, 0] for part in (dataset.train, dataset.validation, dataset.test)] == [1, 2, 4]
    assert parts[2].lists.features[0, 0] == 8


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_features_to_keep_stay_as_they_are_and_go_with_the_state(kind: Kind) -> None:
    data = lists([1, 7, 3], [3, 0, 9], [8, 2, 1], lengths=[2, 1])
    normaliser = fit(kind, data, keep=(1,))
    result = normaliser(data).features
    assert result[:, 1].tolist() == [7, 0, 2]
    np.testing.assert_array_equal(result[:, [0, 2]], fit(kind, data)(data).features[:, [0, 2]])
    settings, arrays = normaliser.state()
    again = Normaliser.from_state(json.loads(json.dumps(settings)), arrays)
    assert again.keep == (1,)
    np.testing.assert_array_equal(again(data).features, result)
    del settings["keep"]
    assert Normaliser.from_state(settings, arrays).keep == ()


@pytest.mark.parametrize("keep", [(3,), (-1,), (1, 1), (2, 0)])
def test_features_to_keep_must_be_there(keep: tuple[int, ...]) -> None:
    with pytest.raises(SettingError, match="keep must be features from 0 to 2"):
        fit("standard", lists([1, 7, 3], [3, 0, 9]), keep=keep)
