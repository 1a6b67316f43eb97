"""Bias in comparisons and training: by hand, where items are not known, over seeds, and from the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from clickprism._util.tables import Table
from clickprism.cli_old.app import app
from clickprism.errors import SettingError
from clickprism.evaluation.curves import Curve, Shares
from clickprism.evaluation.independence import Independence
from clickprism.experiments.bias import (
    CLUSTERS,
    IDS,
    Bias,
    Moved,
    find_items,
    ground_of,
    independence_of,
    mean_independence,
    mean_moved,
)
from clickprism.experiments.bias_report import BiasResults
from clickprism.types import Clicks, Dataset, JudgedLists, Lists


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
    bias = ground_of(data, log(data), INITIAL, length=2, items=items).bias(np.array([1.0, 2.0, 3.0]))
    assert (bias.items, bias.note) == (IDS, "")
    moved, own = bias.moved, bias.own
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


def test_clustering_that_costs_much_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickprism.experiments.bias.SMALL", 3 * 2 * 3 * 2 - 1)  # documents, features, queries
    unknown, known = dataset(None), dataset()
    skipped = find_items(unknown.train.lists, unknown.test.lists, "auto")
    assert skipped.tested is None
    assert "--set evaluation.items=features" in skipped.note
    assert find_items(unknown.train.lists, unknown.test.lists, "features").tested is not None
    assert find_items(known.train.lists, known.test.lists, "auto").name == IDS
    bias = ground_of(unknown, log(unknown), INITIAL, length=2, items=skipped).bias(INITIAL)
    assert list(bias.moved.parts) == ["position"]
    assert bias.note == skipped.note


def test_items_that_the_log_never_shows_say_nothing_of_popularity() -> None:
    data = dataset(("x", "y", "z"))
    items = find_items(data.train.lists, data.test.lists, "ids")
    bias = ground_of(data, log(data), INITIAL, length=2, items=items).bias(INITIAL)
    assert (bias.moved.frequency, bias.moved.exposure, bias.items) == (None, None, "")
    assert bias.note.startswith("No item of the test part was shown in the log")


def moved(position: list[float], shares: list[float]) -> Moved:
    at, size = np.arange(1.0, len(position) + 1), len(shares)
    each = Shares("popularity", np.arange(float(size)), np.array(shares), np.full(size, 1 / size))
    return Moved(Curve("position", at, np.array(position), np.ones(len(position))), None, each)


def test_means_over_seeds() -> None:
    one, other, short = moved([1, 2], [0.2, 0.8]), moved([2, 1], [0.4, 0.6]), moved([1.5, 1.5], [1.0])
    mean = mean_moved([one, other, short])
    assert mean.position.value.tolist() == [1.5, 1.5]
    assert mean.exposure is not None
    assert mean.exposure.value == pytest.approx([0.3, 0.7])  # the third has other groups
    assert list(mean_moved([one, replace(other, exposure=None)]).parts) == ["position"]
    gap = Independence(0.2, 0.01, 0.5, 0.02, np.array([0.1, 0.3]), 10)
    assert mean_independence([gap]) is gap
    both = mean_independence([gap, Independence(0.4, 0.01, 0.9, 0.04, np.array([0.3]), 8)])
    assert [both.mean, both.largest, both.documents] == pytest.approx([0.3, 0.9, 8])
    assert both.error == pytest.approx(0.1)  # .2 / sqrt 2, the deviation, over sqrt 2
    assert both.by_position == pytest.approx([0.2])


def test_distances_are_means_over_seeds_not_of_means() -> None:
    own, taught = moved([1.5, 1.5], [0.5, 0.5]), moved([1, 2], [0.5, 0.5])
    ranked = {0: moved([1, 2], [0.3, 0.7]), 1: moved([2, 1], [0.7, 0.3])}  # whose mean is the labels' own
    biases = {
        "click": {seed: Bias(each, own, "document ids") for seed, each in ranked.items()},
        "best": {seed: Bias(taught, own, "document ids") for seed in ranked},
    }
    results = BiasResults(biases, {}, "best")
    assert results.from_own["click"] == pytest.approx({"position": 0.5, "exposure": 0.2})
    assert results.from_taught == {"click": pytest.approx({"position": 0.5, "exposure": 0.2})}
    figures, read, table, fair = results.section({"caption": "<svg>"})
    assert figures == {"caption": "<svg>"}
    assert "as flat as the thick one" in str(read)
    assert isinstance(table, Table)
    header = ["position, own", "position, best", "exposure, own", "exposure, best"]
    assert table.header == ["method", *header]
    assert table.rows == [["click", "0.500", "0.500", "20.00%", "20.00%"], ["best", "0.500", "", "0.00%", ""]]
    assert isinstance(fair, str)
    assert "no fair goal" in fair
    assert "--methods" not in fair
    alone = BiasResults(biases, {})
    assert alone.from_taught == {}
    _, _, table, fair = alone.section({})
    assert "Add labels to --methods" in str(fair)
    assert isinstance(table, Table)
    assert table.header == ["method", "position, own", "exposure, own"]


def test_only_some_learners_say_delta_ci() -> None:
    assert independence_of(None, log(dataset())) is None


# From the command line

TINY = [
    f"--set={key}={value}"
    for key, value in {
        "data.synthetic.train_queries": 60,
        "data.synthetic.validation_queries": 10,
        "data.synthetic.test_queries": 20,
        "data.synthetic.features": 12,
        "ranker.name": "mlp",
        "ranker.hidden": [8],
        "fit.epochs": 2,
        "fit.threads": 1,
    }.items()
]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, *TINY])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout


def read(*words: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(run(*words, "--json"), parse_constant=refuse)


def test_compare_shows_bias(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--methods", "labels,click,inforank", "--seeds", "2", "--set", "data.synthetic.items=200"]
    found = read("compare", *words, "--out", str(out))
    bias, details = found["bias"], {(each["method"], each["seed"]): each for each in found["details"]}
    assert (bias["items"], bias["note"]) == ("document ids", None)
    assert set(bias["curves"]) == {"position", "frequency", "exposure"}
    for name, curve in bias["curves"].items():
        assert list(curve["methods"]) == ["labels", "click", "inforank", "initial"]
        assert {len(curve["at"]), *map(len, curve["methods"].values())} == {len(curve["labels_own"])}
        for method, of in bias["distance_from_labels_own"].items():
            each = [details[method, seed]["distance_from_labels_own"][name] for seed in (0, 1)]
            assert of[name] == pytest.approx(np.mean(each))
    assert bias["curves"]["position"]["methods"]["initial"] == list(range(1, 11))
    assert all(sum(each) == pytest.approx(1) for each in bias["curves"]["exposure"]["methods"].values())
    assert set(bias["distance_from_labels_method"]) == {"click", "inforank", "initial"}
    gaps = [details["inforank", seed]["delta_ci"]["mean"] for seed in (0, 1)]
    assert set(bias["delta_ci"]) == {"inforank"}
    assert bias["delta_ci"]["inforank"]["mean"] == pytest.approx(np.mean(gaps))
    assert details["click", 0]["delta_ci"] is None
    page = (out / "report.html").read_text()
    assert all((out / f"{name}.svg").exists() for name in ("positions", "frequency", "exposure"))
    assert f"{bias['distance_from_labels_method']['click']['position']:.3f}</td>" in page
    assert f"click: {bias['distance_from_labels_own']['click']['position']:.2f} from labels" in page
    assert "no fair goal for a ranker" in page
    assert page.index(">Bias</h2>") < page.index("<figcaption>Position bias") < page.index("no fair goal for a ranker")
    epochs = ", ".join(str(details["inforank", seed]["best"]) for seed in (0, 1))
    assert re.search(rf"true and estimated, at the best epoch of at most \d+ \(inforank {epochs}\)", page)
    assert f"{np.mean(gaps):.4f}</td>" in page


def test_compare_without_items(tmp_path: Path) -> None:
    words = ["--methods", "click", "--set", "evaluation.items=none", "--out", str(tmp_path)]
    bias = read("compare", *words)["bias"]
    assert (bias["items"], list(bias["curves"]), bias["delta_ci"]) == (None, ["position"], {})
    assert "evaluation.items" in bias["note"]
    assert bias["note"] in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "exposure.svg").exists()


def test_train_says_delta_ci(tmp_path: Path) -> None:
    words = ["train", "--method", "inforank", "--out", f"{tmp_path}/a"]
    shown, kept = run(*words), read(*words)["delta_ci"]
    line = next(line for line in shown.splitlines() if line.startswith("inforank: Delta-CI"))
    assert line.startswith(f"inforank: Delta-CI {kept['mean']:.4f} ± {kept['error']:.4f}, ")
    assert len(kept["by_position"]) == 10
    assert read("train", "--method", "click", "--out", f"{tmp_path}/b")["delta_ci"] is None
