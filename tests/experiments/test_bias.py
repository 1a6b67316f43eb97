"""Bias in comparisons and training: by hand, without items, over runs, and in results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickprism._util.tables import Table, to_plain
from clickprism.errors import SettingError
from clickprism.evaluation.curves import Curve, Shares
from clickprism.evaluation.independence import Independence
from clickprism.experiments.bias import (
    CLUSTERS,
    IDS,
    Bias,
    BiasCurves,
    bias_basis,
    bias_results,
    find_items,
    independence_of,
    mean_curves,
    mean_independence,
)
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.results import Results, write_results
from clickprism.experiments.settings import EvaluationSettings
from clickprism.experiments.train import train_ranker
from clickprism.types import Clicks, Dataset, JudgedLists, Lists
from tests.experiments.conftest import SETTINGS


def judged(ids: tuple[str, ...] | None, grades: tuple[int, ...]) -> JudgedLists:
    """One list, the features of a document an indicator of its place."""
    size = len(grades)
    names = None if ids is None else np.array(ids)
    lists = Lists(np.eye(size, dtype=np.float32), np.array([0, size]), np.array(["q"]), names)
    return JudgedLists(lists, np.array(grades, np.int32))


def dataset(test: tuple[str, ...] | None = ("c", "a", "new")) -> Dataset:
    train = judged(None if test is None else ("a", "b", "c"), (0, 1, 2))
    return Dataset("tiny", train, train, judged(test, (1, 0, 2)))


def log(data: Dataset) -> Clicks:
    """Four sessions that show a, b, c, and two of a, b: a was clicked once, b never, c three times."""
    rows, places = np.array([0, 1, 2, 0, 1]), np.array([1, 2, 3, 1, 2], np.int32)
    return Clicks(
        data.train.lists, np.array([0, 3, 5]), rows, places, np.array([1, 0, 3, 0, 0]), np.array([4, 2], np.int64)
    )


INITIAL = np.array([3.0, 2.0, 1.0])


def test_a_ranking_by_hand() -> None:
    data = dataset()
    items = find_items(data.train.lists, data.test.lists, "auto")
    bias = bias_basis(data, log(data), INITIAL, length=2, items=items).bias(np.array([1.0, 2.0, 3.0]))
    assert (bias.items, bias.note) == (IDS, "")
    moved, own = bias.curves, bias.labels_own
    # of the two that users are shown, c and a, the ranking puts a first; the labels leave them
    assert (moved.position.at.tolist(), moved.position.value.tolist()) == ([1, 2], [2, 1])
    assert own.position.value.tolist() == [1, 2]
    # c was shown 4 times, a 6 times
    assert moved.frequency is not None
    assert (moved.frequency.at.tolist(), moved.frequency.value.tolist()) == ([4 / 6, 1], [2, 1])
    # clicks: new 0, a 1, c 3; the ranking is new, a, c and the labels' own new, c, a
    worth = 1 / np.log2([2, 3, 4])
    assert moved.exposure is not None
    assert moved.exposure.at == pytest.approx([0, 1 / 3, 1])
    assert moved.exposure.value == pytest.approx(worth / worth.sum())
    away = (worth[1] - worth[2]) / worth.sum()
    assert moved.distances(own) == pytest.approx({"position": 1, "frequency": 1, "exposure": away})


def test_what_items_are() -> None:
    known, unknown = dataset(), dataset(None)
    assert find_items(known.train.lists, known.test.lists, "features").name == CLUSTERS
    found = find_items(unknown.train.lists, unknown.test.lists, "auto")
    assert found.name == CLUSTERS
    assert found.tested is not None
    assert found.trained is not None
    assert found.tested.tolist() == found.trained.tolist()  # the same features
    assert find_items(known.train.lists, known.test.lists, "none").tested is None
    apart = dataset(("x", "y", "z"))
    assert find_items(apart.train.lists, apart.test.lists, "auto").name == CLUSTERS
    assert find_items(apart.train.lists, apart.test.lists, "ids").name == IDS
    with pytest.raises(
        SettingError, match=r"evaluation\.items must be 'features', .* where documents have no ids, got 'ids'"
    ):
        find_items(unknown.train.lists, unknown.test.lists, "ids")


def test_expensive_clustering_is_done_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickprism.experiments.bias.SMALL", 3 * 2 * 3 * 2 - 1)  # documents, features, queries
    unknown, known = dataset(None), dataset()
    skipped = find_items(unknown.train.lists, unknown.test.lists, "auto")
    assert skipped.tested is None
    assert "evaluation.items=features" in skipped.note
    assert find_items(unknown.train.lists, unknown.test.lists, "features").tested is not None
    assert find_items(known.train.lists, known.test.lists, "auto").name == IDS
    bias = bias_basis(unknown, log(unknown), INITIAL, length=2, items=skipped).bias(INITIAL)
    assert list(bias.curves.parts) == ["position"]
    assert bias.note == skipped.note


def test_popularity_is_not_measured_if_the_log_shows_no_item_of_the_test_part() -> None:
    data = dataset(("x", "y", "z"))
    items = find_items(data.train.lists, data.test.lists, "ids")
    bias = bias_basis(data, log(data), INITIAL, length=2, items=items).bias(INITIAL)
    assert (bias.curves.frequency, bias.curves.exposure, bias.items) == (None, None, "")
    assert bias.note.startswith("Popularity was not measured: the log shows no item of the test part")


def curves(position: list[float], shares: list[float]) -> BiasCurves:
    at, size = np.arange(1.0, len(position) + 1), len(shares)
    each = Shares("popularity", np.arange(float(size)), np.array(shares), np.full(size, 1 / size))
    return BiasCurves(Curve("position", at, np.array(position), np.ones(len(position))), None, each)


def test_means_over_runs() -> None:
    one, other, short = curves([1, 2], [0.2, 0.8]), curves([2, 1], [0.4, 0.6]), curves([1.5, 1.5], [1.0])
    mean = mean_curves([one, other, short])
    assert mean.position.value.tolist() == [1.5, 1.5]
    assert mean.exposure is not None
    assert mean.exposure.value == pytest.approx([0.3, 0.7])  # the third has other groups
    assert list(mean_curves([one, replace(other, exposure=None)]).parts) == ["position"]
    gap = Independence(0.2, 0.01, 0.5, 0.02, np.array([0.1, 0.3]), 10)
    assert mean_independence([gap]) is gap
    both = mean_independence([gap, Independence(0.4, 0.01, 0.9, 0.04, np.array([0.3]), 8)])
    assert [both.mean, both.largest, both.documents] == pytest.approx([0.3, 0.9, 8])
    assert both.error == pytest.approx(0.1)  # .2 / sqrt 2, the deviation, over sqrt 2
    assert both.by_position == pytest.approx([0.2])


def test_distances_are_means_over_runs_not_distances_of_means() -> None:
    own, taught = curves([1.5, 1.5], [0.5, 0.5]), curves([1, 2], [0.5, 0.5])
    ranked = {0: curves([1, 2], [0.3, 0.7]), 1: curves([2, 1], [0.7, 0.3])}  # whose mean is the labels' own
    biases = {
        "click": {seed: Bias(each, own, "document ids") for seed, each in ranked.items()},
        "best": {seed: Bias(taught, own, "document ids") for seed in ranked},
    }
    results = bias_results(biases, {}, "best")
    assert results.distance_from_labels_own["click"] == pytest.approx({"position": 0.5, "exposure": 0.2})
    assert results.distance_from_labels_method == {"click": pytest.approx({"position": 0.5, "exposure": 0.2})}
    figures, read, table, fair = results.section({"caption": "<svg>"})
    assert figures == {"caption": "<svg>"}
    assert "as flat as the thick one" in str(read)
    assert isinstance(table, Table)
    header = ["position, own", "position, best", "exposure, own", "exposure, best"]
    assert table.header == ["method", *header]
    assert table.rows == [["click", "0.500", "0.500", "20.00%", "20.00%"], ["best", "0.500", "", "0.00%", ""]]
    assert isinstance(fair, str)
    assert "not a fair goal" in fair
    assert "Add the method" not in fair
    alone = bias_results(biases, {})
    assert alone.distance_from_labels_method == {}
    _, _, table, fair = alone.section({})
    assert "Add the method labels" in str(fair)
    assert isinstance(table, Table)
    assert table.header == ["method", "position, own", "exposure, own"]


def test_a_learner_without_conditional_relevance_has_no_delta_ci() -> None:
    assert independence_of(None, log(dataset())) is None


def test_a_comparison_shows_bias(comparison: Results, tmp_path: Path) -> None:
    results = comparison
    bias, runs = results.bias, {(run.label, run.seed): run for run in results.runs}
    assert (bias.items, bias.note) == (IDS, "")
    assert list(bias.methods) == ["labels", "click", "inforank", "initial"]
    for name, own in bias.labels_own.parts.items():
        for method, of in bias.distance_from_labels_own.items():
            assert len(bias.methods[method].parts[name].at) == len(own.at)
            each = [run.bias.curves.distances(run.bias.labels_own)[name] for run in results.of(method)]
            assert of[name] == pytest.approx(np.mean(each))
    assert bias.methods["initial"].position.value.tolist() == list(range(1, 11))
    assert all(curves.parts["exposure"].value.sum() == pytest.approx(1) for curves in bias.methods.values())
    assert set(bias.distance_from_labels_method) == {"click", "inforank", "initial"}
    gaps = [gap.mean for seed in (0, 1) if (gap := runs["inforank", seed].independence) is not None]
    assert set(bias.delta_ci) == {"inforank"}
    assert bias.delta_ci["inforank"].mean == pytest.approx(np.mean(gaps))
    assert runs["click", 0].independence is None
    page = write_results(results, tmp_path, title="bias").read_text()
    assert all((tmp_path / f"{name}.svg").exists() for name in ("positions", "frequency", "exposure"))
    assert f"{bias.distance_from_labels_method['click']['position']:.3f}</td>" in page
    assert f"click: {bias.distance_from_labels_own['click']['position']:.2f} from labels" in page
    assert (
        page.index(">Bias</h2>") < page.index("<figcaption>Position bias") < page.index("not a fair goal for a ranker")
    )
    epochs = ", ".join(str(run.best) for run in results.of("inforank"))
    assert re.search(rf"true and estimated, at the best epoch of at most \d+ \(inforank {epochs}\)", page)
    assert f"{np.mean(gaps):.4f}</td>" in page
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept == to_plain(results)
    assert kept["bias"]["delta_ci"]["inforank"]["mean"] == pytest.approx(np.mean(gaps))
    assert [run["label"] for run in kept["runs"]] == [run.label for run in results.runs]


def test_a_comparison_without_items(tmp_path: Path) -> None:
    alone = replace(SETTINGS, methods={"click": {}}, evaluation=EvaluationSettings(items="none"), runs=1)
    results = compare_methods(alone)
    assert (results.bias.items, list(results.bias.labels_own.parts), results.bias.delta_ci) == ("", ["position"], {})
    assert "evaluation.items" in results.bias.note
    assert results.bias.note in write_results(results, tmp_path, title="bias").read_text()
    assert not (tmp_path / "exposure.svg").exists()


def test_training_measures_delta_ci(tmp_path: Path) -> None:
    trained = train_ranker(SETTINGS, method="inforank", out=tmp_path / "inforank")
    gap = trained.independence
    assert gap is not None
    assert f"Delta-CI {gap.mean:.4f} ± {gap.error:.4f}, " in trained.tables()[0].text()
    assert len(gap.by_position) == 10
    assert train_ranker(SETTINGS, method="click", out=tmp_path / "click").independence is None
