"""Recipes: what is missing is named, what is there is counted, folds turn as published."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickprism.data import recipes
from clickprism.data.letor import join
from clickprism.data.normalise import normalised
from clickprism.data.recipes import RECIPES, Report, check, load, load_parts
from clickprism.errors import DataError, SettingError
from clickprism.types import JudgedLists, Lists
from tests.shared_data import shared_data


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """MQ2008 and Istella-S shrunk to one list a subset, of subset number and position."""
    monkeypatch.setitem(recipes.RECIPES, "mq2008", replace(RECIPES["mq2008"], features=2, queries=5, documents=10))
    counts = {"train": (1, 2), "validation": (1, 2), "test": (1, 2)}
    monkeypatch.setitem(recipes.RECIPES, "istella-s", replace(RECIPES["istella-s"], features=2, parts=counts))


def shown(report: Report) -> str:
    return "\n".join(table.text() for table in report.tables())


def subset(number: int) -> str:
    return f"{number % 2} qid:{number} 1:{number}\n0 qid:{number} 1:{number} 2:5\n"


def queries(judged: JudgedLists) -> list[str]:
    return [str(name) for name in judged.lists.query_ids]


def test_published_counts_add_up() -> None:
    for recipe in RECIPES.values():
        if recipe.parts:
            assert sum(queries for queries, _ in recipe.parts.values()) == recipe.queries
            assert sum(documents for _, documents in recipe.parts.values()) == recipe.documents


def test_unknown_data_sets_and_folds_are_refused() -> None:
    with pytest.raises(SettingError, match="did you mean 'mq2008'"):
        check("mq2009x8", ".")
    with pytest.raises(SettingError, match="fold"):
        load("mq2008", ".", fold=6)


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_missing_is_named(name: str, tmp_path: Path) -> None:
    report = check(name, tmp_path)
    assert not report.ok
    assert report.missing
    assert all(file in shown(report) for file in report.missing)
    assert RECIPES[name].source in shown(report)
    with pytest.raises(DataError, match="Get it from"):
        load(name, tmp_path)


@pytest.mark.usefixtures("small")
def test_folds_rotate_over_the_subsets(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        (tmp_path / f"S{number}.txt").write_text(subset(number))
    assert check("mq2008", tmp_path).missing == ("S5.txt",)
    (tmp_path / "S5.txt.gz").write_bytes(gzip.compress(subset(5).encode()))
    report = check("mq2008", tmp_path, cache=None)
    assert report.ok
    assert "all: 5 queries, 10 documents, feature ids up to 2" in shown(report)
    for fold, train, validation, test in ((1, "123", "4", "5"), (3, "345", "1", "2"), (5, "512", "3", "4")):
        data = load("mq2008", tmp_path, fold=fold, cache=None)
        assert data.name == f"mq2008/fold{fold}"
        assert queries(data.train) == list(train)
        assert queries(data.validation) == list(validation)
        assert queries(data.test) == list(test)


@pytest.mark.usefixtures("small")
def test_folds_are_read_and_their_counts_checked(tmp_path: Path) -> None:
    fold = tmp_path / "Fold2"
    fold.mkdir()
    (fold / "train.txt").write_text(subset(2) + subset(3) + subset(4))
    (fold / "vali.txt").write_text(subset(5))
    assert check("mq2008", tmp_path).missing == ("Fold2/test.txt",)
    (fold / "test.txt").write_text(subset(1))
    assert check("mq2008", tmp_path, cache=None).ok
    data = load("mq2008", tmp_path, fold=2, drop_without_relevant=True, cache=None)
    assert [queries(part) for part in (data.train, data.validation, data.test)] == [["3"], ["5"], ["1"]]
    with pytest.raises(DataError, match=r"lacks Fold1/train\.txt"):
        load("mq2008", tmp_path, fold=1, cache=None)
    (fold / "test.txt").write_text(subset(1) + subset(9))
    assert "6 queries, 12 documents, feature ids up to 2; expected 5 and 10, ids up to 2" in shown(
        check("mq2008", tmp_path, cache=None)
    )
    with pytest.raises(DataError, match=r"expected 5 and 10.*or with --data\.source files"):
        load("mq2008", tmp_path, fold=2, cache=None)


@pytest.mark.usefixtures("small")
def test_istella_is_normalised_by_its_training_part(tmp_path: Path) -> None:
    inner = tmp_path / "sample"
    inner.mkdir()
    for number, name in enumerate(("train", "vali", "test"), start=1):
        (inner / f"{name}.txt").write_text(f"1 qid:{number} 1:{number} 2:1.79769e+308\n0 qid:{number} 1:0 2:0\n")
    data = load("istella-s", tmp_path, cache=None)
    half = np.log(2) / 2  # of 0 and log 2: mean and deviation
    assert data.train.lists.features[:, 0].tolist() == [1, -1]
    assert data.test.lists.features[0, 0] == pytest.approx((np.log(4) - half) / half)
    assert data.train.lists.features[:, 1].tolist() == [1, -1]
    assert load("istella-s", tmp_path, normalise="none", cache=None).test.lists.features[0, 0] == 3


def test_features_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"train": (1, 2), "validation": (1, 2), "test": (1, 2)}
    monkeypatch.setitem(recipes.RECIPES, "istella-s", replace(RECIPES["istella-s"], features=46, parts=counts))
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text(subset(1))
    report = check("istella-s", tmp_path, cache=None)
    assert not report.ok
    assert "train: 1 queries, 2 documents, feature ids up to 2; expected 1 and 2, ids up to 46" in shown(report)
    with pytest.raises(DataError, match=r"train: .* expected 1 and 2, ids up to 46"):
        load("istella-s", tmp_path, cache=None)
    (tmp_path / "train.txt").write_text("1 qid:1 1:1\n0 qid:1 46:1\n")
    assert load("istella-s", tmp_path, cache=None).train.lists.features.shape == (2, 46)
    assert check("istella-s", tmp_path, cache=None).ok, "the other parts need not reach the largest id"
    monkeypatch.setitem(recipes.RECIPES, "istella-s", replace(recipes.RECIPES["istella-s"], largest_id=47))
    assert not check("istella-s", tmp_path, cache=None).ok
    (tmp_path / "test.txt").write_text("1 qid:1 1:1\n0 qid:1 47:1\n")
    with pytest.raises(DataError, match=r"test\.txt:2:9: expected a feature id up to 46"):
        load("istella-s", tmp_path, cache=None)


@pytest.mark.usefixtures("small")
def test_what_was_left_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text(subset(1))
    (tmp_path / "vali.txt").write_text(f"x\n{subset(1)}1 qid:1 9:9\n")
    data = load("istella-s", tmp_path, on_error="quarantine", cache=None)
    assert data.validation.lists.documents == 2
    file = tmp_path / "vali.txt"
    expected = f"2 broken lines of {file} skipped, the first at line 1, column 1: expected a grade"
    assert [record.getMessage()[: len(expected)] for record in caplog.records] == [expected]


@pytest.mark.usefixtures("small")
def test_the_normaliser_can_be_kept(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "vali", "test"), start=1):
        (tmp_path / f"{name}.txt").write_text(subset(number))
    kept, normaliser = normalised(load("istella-s", tmp_path, normalise="none", cache=None), "log1p")
    data = load("istella-s", tmp_path, cache=None)
    assert np.array_equal(kept.test.lists.features, data.test.lists.features)
    assert normaliser.kind == RECIPES["istella-s"].normalise


def test_parts_share_base_and_width(tmp_path: Path) -> None:
    for name, text in (("a", "1 qid:1 1:1\n"), ("b", "1 qid:2 0:2\n"), ("c", "0 qid:3 2:3\n")):
        (tmp_path / name).write_text(text)
    data = load_parts(tmp_path / "a", tmp_path / "b", [tmp_path / "c"], name="mine", cache=None)
    features = [part.lists.features.tolist() for part in (data.train, data.validation, data.test)]
    assert features == [[[0, 1, 0]], [[2, 0, 0]], [[0, 0, 3]]]
    assert data.name == "mine"


def test_parts_are_joined_in_the_order_of_their_queries() -> None:
    lists = Lists(np.arange(20, dtype=np.float32)[:, None], np.arange(0, 21, 2), np.array(list("abcdefghij")))
    judged = JudgedLists(lists, np.zeros(20, np.int32))
    parts = [judged.take(np.array(rows)) for rows in ([3, 5, 9], [0, 1, 2], [4, 6, 7, 8])]
    assert queries(join(parts)) == list("dfjabceghi")
    twice = join([judged, judged])
    assert twice.lists.features[:4].ravel().tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match="different numbers of features"):
        join([judged, judged.with_features(np.zeros((20, 2), np.float32))])
    with pytest.raises(DataError, match="nothing to join"):
        join([])


def test_mq2008_is_complete() -> None:
    folder = shared_data("mq2008")
    report = check("mq2008", folder, cache=None)
    assert report.ok, shown(report)
    data = load("mq2008", folder, fold=1, cache=None)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [471, 157, 156]
    relevant = load("mq2008", folder, fold=1, drop_without_relevant=True, cache=None)
    assert sum(len(part) for part in (relevant.train, relevant.validation, relevant.test)) == 564
