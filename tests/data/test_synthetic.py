from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickprism.data.synthetic import SyntheticSettings, feature_roles, synthetic
from clickprism.errors import SettingError
from clickprism.settings import build, plain
from clickprism.types import Dataset, Float64, JudgedLists

SMALL = SyntheticSettings(train_queries=300, validation_queries=20, test_queries=30, features=16, seed=3)
MEDIUM = SyntheticSettings(train_queries=1000, validation_queries=0, test_queries=400, features=20, useless=0)


@pytest.fixture(scope="module")
def default() -> Dataset:
    return synthetic(SyntheticSettings())


def parts(data: Dataset) -> tuple[JudgedLists, JudgedLists, JudgedLists]:
    return data.train, data.validation, data.test


def columns(settings: SyntheticSettings, role: str) -> list[int]:
    return [column for column, found in enumerate(feature_roles(settings)) if found == role]


def same(a: JudgedLists, b: JudgedLists) -> bool:
    return (
        np.array_equal(a.lists.features, b.lists.features)
        and np.array_equal(a.lists.offsets, b.lists.offsets)
        and np.array_equal(a.lists.query_ids, b.lists.query_ids)
        and np.array_equal(a.grades, b.grades)
    )


def within_lists(judged: JudgedLists, values: Float64) -> Float64:
    """Values with the mean of their list taken off: what can change an order."""
    lists = judged.lists
    means = np.add.reduceat(values, lists.offsets[:-1], axis=0) / lists.lengths.reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(values - means[lists.list_of])


def test_shapes_and_types_follow_the_settings() -> None:
    data = synthetic(replace(SMALL, min_documents=2, max_documents=5))
    assert [len(part) for part in parts(data)] == [300, 20, 30]
    for part in parts(data):
        assert part.lists.features.shape == (part.lists.documents, 16)
        assert part.lists.features.dtype == np.float32
        assert part.lists.features.flags.c_contiguous
        assert part.grades.dtype == np.int32
        assert len(set(part.lists.query_ids.tolist())) == len(part)
    assert set(data.train.lists.lengths.tolist()) == {2, 3, 4, 5}


def test_a_part_may_be_empty() -> None:
    data = synthetic(replace(SMALL, validation_queries=0))
    assert len(data.validation) == 0
    assert data.validation.lists.features.shape == (0, 16)


@pytest.mark.parametrize("features", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("useless", [0.0, 0.5, 1.0])
def test_any_number_of_features_works(features: int, useless: float) -> None:
    settings = replace(SMALL, train_queries=5, features=features, useless=useless)
    roles = feature_roles(settings)
    assert len(roles) == features
    assert roles.count("useless") == round(useless * features)
    assert np.isfinite(synthetic(settings).train.lists.features).all()


@pytest.mark.parametrize("seed", [0, 2**63])
def test_extreme_settings_give_finite_features(seed: int) -> None:
    settings = replace(SMALL, noise=10, query_effects=10, correlation=0.99, nonlinearity=1, seed=seed)
    assert np.isfinite(synthetic(settings).train.lists.features).all()


def test_the_default_has_every_role() -> None:
    roles = feature_roles(SyntheticSettings())
    counts = {role: roles.count(role) for role in dict.fromkeys(roles)}
    assert counts == {"match": 19, "count": 7, "document": 9, "flag": 4, "query": 6, "redundant": 6, "useless": 13}


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    first, second, other = synthetic(SMALL), synthetic(SMALL), synthetic(replace(SMALL, seed=4))
    assert all(same(a, b) for a, b in zip(parts(first), parts(second), strict=True))
    assert not any(same(a, b) for a, b in zip(parts(first), parts(other), strict=True))


@pytest.mark.parametrize("grown", [301, 900])
def test_more_queries_leave_the_first_ones_as_they_were(grown: int) -> None:
    small, large = synthetic(SMALL), synthetic(replace(SMALL, train_queries=grown, test_queries=600))
    assert same(small.train, large.train.take(range(300)))
    assert same(small.test, large.test.take(range(30)))
    assert same(small.validation, large.validation)


def test_parts_share_no_document() -> None:
    data = synthetic(replace(SMALL, validation_queries=300, test_queries=300))
    rows = np.concatenate([part.lists.features for part in parts(data)])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_features_are_finite_and_about_standard(default: Dataset) -> None:
    features = default.train.lists.features
    assert np.isfinite(features).all()
    assert np.abs(features.mean(axis=0)).max() < 0.1
    assert np.abs(features.std(axis=0) - 1).max() < 0.1
    flags = features[:, columns(SyntheticSettings(), "flag")]
    assert all(len(np.unique(column)) == 2 for column in flags.T)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("shares", [(0.50, 0.27, 0.16, 0.05, 0.02), (0.8, 0.2), (0.2, 0.0, 0.8)])
def test_grades_have_the_shares_asked_for(seed: int, shares: tuple[float, ...]) -> None:
    settings = SyntheticSettings(features=1, validation_queries=0, test_queries=0, grade_shares=shares, seed=seed)
    grades = synthetic(settings).train.grades
    assert np.abs(np.bincount(grades, minlength=len(shares)) / len(grades) - shares).max() < 0.02


def test_queries_differ_in_how_much_is_relevant_and_a_few_have_nothing(default: Dataset) -> None:
    train = default.train
    assert 0.005 < 1 - len(train.with_relevant()) / len(train) < 0.06
    relevant = np.add.reduceat(train.grades > 0, train.lists.offsets[:-1]) / train.lists.lengths
    calm = synthetic(replace(MEDIUM, query_effects=0)).train
    relevant_calm = np.add.reduceat(calm.grades > 0, calm.lists.offsets[:-1]) / calm.lists.lengths
    assert relevant.std() > 2 * relevant_calm.std()


def test_query_features_are_constant_within_lists_and_no_other_is(default: Dataset) -> None:
    lists = default.test.lists
    low = np.minimum.reduceat(lists.features, lists.offsets[:-1])
    high = np.maximum.reduceat(lists.features, lists.offsets[:-1])
    constant = np.flatnonzero((low == high).all(axis=0)).tolist()
    assert constant == columns(SyntheticSettings(), "query")


def test_document_features_do_not_depend_on_the_query(default: Dataset) -> None:
    """Their variance between lists is that of means of independent documents, about 1 in 20; a match's is more."""
    lists = default.train.lists
    means = np.add.reduceat(lists.features, lists.offsets[:-1]) / lists.lengths[:, None]
    between = means.var(axis=0)
    assert between[columns(SyntheticSettings(), "document")].max() < 0.06
    assert between[columns(SyntheticSettings(), "match")].min() > 0.06


def test_useless_features_say_nothing_and_the_others_something(default: Dataset) -> None:
    """A correlation of nothing over 63,000 documents has a standard error of .004; five of them are .02."""
    train = default.train
    grades = within_lists(train, train.grades.astype(np.float64))
    features = within_lists(train, train.lists.features.astype(np.float64))
    settings = SyntheticSettings()
    told = [c for c in range(settings.features) if feature_roles(settings)[c] not in ("useless", "query")]
    kept = told + columns(settings, "useless")
    correlation = np.corrcoef(features[:, kept].T, grades)[-1, :-1]
    assert np.abs(correlation[len(told) :]).max() < 0.02
    assert np.abs(correlation[: len(told)]).min() > 0.03
    assert np.abs(correlation[: len(told)]).max() > 0.3


def test_redundant_features_follow_from_others(default: Dataset) -> None:
    features = default.test.lists.features
    settings = SyntheticSettings()
    told = [c for c, role in enumerate(feature_roles(settings)) if role in ("match", "count", "document", "flag")]
    for column in columns(settings, "redundant"):
        found, *_ = np.linalg.lstsq(features[:, told], features[:, column], rcond=None)
        assert np.corrcoef(features[:, told] @ found, features[:, column])[0, 1] ** 2 > 0.9


def explained(train: JudgedLists, test: JudgedLists, *, products: bool) -> float:
    """Share of the grades' variance within test lists that a least-squares fit explains, with products or without."""

    def design(judged: JudgedLists) -> Float64:
        x = judged.lists.features.astype(np.float64)
        if products:
            upper = np.triu_indices(x.shape[1])
            x = np.hstack([x, x[:, upper[0]] * x[:, upper[1]]])
        return within_lists(judged, x)

    def target(judged: JudgedLists) -> Float64:
        return within_lists(judged, judged.grades.astype(np.float64))

    x = design(train)
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ target(train))
    left = target(test) - design(test) @ weights
    return 1 - float((left**2).sum() / (target(test) ** 2).sum())


def test_products_of_features_pay_the_more_the_less_linear_relevance_is() -> None:
    """Even linear relevance leaves them some gain: grades are a convex function of it, and features saturate."""

    def gain(nonlinearity: float) -> float:
        data = synthetic(replace(MEDIUM, nonlinearity=nonlinearity))
        return explained(data.train, data.test, products=True) - explained(data.train, data.test, products=False)

    assert gain(0.0) + 0.03 < gain(0.5) < gain(1.0) - 0.03


def test_noise_hides_the_signal() -> None:
    quiet, loud = (synthetic(replace(MEDIUM, noise=noise)) for noise in (0.0, 2.0))
    assert explained(quiet.train, quiet.test, products=False) > 2 * explained(loud.train, loud.test, products=False)


def test_correlation_joins_the_matches() -> None:
    def mean_correlation(correlation: float) -> float:
        settings = replace(MEDIUM, correlation=correlation, query_effects=0)
        match = synthetic(settings).train.lists.features[:, columns(settings, "match")]
        return float(np.corrcoef(match.T).mean())

    assert mean_correlation(0.0) < mean_correlation(0.4) - 0.1 < mean_correlation(0.8) - 0.2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_queries", -1),
        ("validation_queries", -1),
        ("test_queries", -1),
        ("min_documents", 0),
        ("max_documents", 13),
        ("features", 0),
        ("noise", -0.1),
        ("noise", float("nan")),
        ("useless", 1.5),
        ("correlation", 1.0),
        ("query_effects", -1.0),
        ("query_effects", float("inf")),
        ("nonlinearity", -0.5),
        ("grade_shares", (1.0,)),
        ("grade_shares", (0.5, 0.6)),
        ("grade_shares", (1.5, -0.5)),
        ("grade_shares", (float("nan"), 1.0)),
        ("seed", -1),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{field} must ") as error:
        SyntheticSettings(**{field: value})
    assert error.value.field == field


def test_settings_survive_a_round_trip_through_plain_values() -> None:
    assert build(SyntheticSettings, plain(SMALL)) == SMALL
