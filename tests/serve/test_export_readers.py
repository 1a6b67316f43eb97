"""The readers of other engines' formats, on examples of their own documentation and arithmetic by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickprism.errors import DataError
from clickprism.serve.export import elastic, libraries, solr
from clickprism.serve.export.forest import LARGEST, Forest, Tree, above, pruned
from clickprism.serve.export.solr import SLACK, cuts_of
from clickprism.types import Float32

NAN = float("nan")


def matrix(*rows: tuple[float, ...]) -> Float32:
    return np.array(rows, np.float32)


def scores_by_plugin(kind: str, definition: Any, rows: Float32, **more: Any) -> list[float]:
    body = {"model": {"name": "m", **more, "model": {"type": kind, "definition": json.dumps(definition)}}}
    found: list[float] = elastic.read({"model.json": json.dumps(body).encode()}, rows, ("multi", "title")).tolist()
    return found


def test_the_plugin_goes_left_strictly_below_and_by_the_pointer_where_a_value_is_missing() -> None:
    """The tree of its documentation, with leaves for what is left out there."""
    inner = {"nodeid": 1, "depth": 1, "split": "title", "split_condition": 2.20631, "yes": 3, "no": 4, "missing": 3}
    inner["children"] = [{"nodeid": 3, "leaf": -0.03125}, {"nodeid": 4, "leaf": 0.25}]
    tree = {"nodeid": 0, "depth": 0, "split": "multi", "split_condition": 11.2009, "yes": 1, "no": 2, "missing": 2}
    tree["children"] = [inner, {"nodeid": 2, "leaf": 1.0}]
    rows = matrix((11, 2), (11, 2.20631), (11.2009, 0), (12, 0), (NAN, 0), (0, NAN))
    assert scores_by_plugin("model/xgboost+json", [tree], rows) == [-0.03125, 0.25, 1, 1, 1, -0.03125]
    assert scores_by_plugin("model/xgboost+json", [tree, tree], rows)[3] == 2


def test_the_plugin_normalises_before_it_weighs() -> None:
    weights = {"multi": 0.5, "title": 2.0}
    assert scores_by_plugin("model/linear", weights, matrix((4, 1), (0, 0))) == [4.0, 0.0]
    normalisers = {
        "multi": {"standard": {"mean": 1970, "standard_deviation": 30}},
        "title": {"min_max": {"minimum": 0, "maximum": 10}},
    }
    rows = matrix((2000, 10), (1970, 0), (1940, 5))
    assert scores_by_plugin("model/linear", weights, rows, feature_normalizers=normalisers) == [2.5, 0.0, 0.5]


def scores_by_solr(kind: str, params: Any, rows: Float32, norms: Any = (), defaults: Any = ()) -> list[float]:
    names = [f"f{place}" for place in range(rows.shape[1])]
    features = [{"name": name} for name in names]
    for feature, norm in zip(features, norms, strict=False):
        feature["norm"] = norm
    store = [{"name": name, "class": "x", "params": {"field": name}} for name in names]
    for each, default in zip(store, defaults, strict=False):
        each["params"]["defaultValue"] = default  # type: ignore[index]
    model = {"class": f"org.apache.solr.ltr.model.{kind}", "name": "m", "features": features, "params": params}
    files = {"model.json": json.dumps(model).encode(), "features.json": json.dumps(store).encode()}
    found: list[float] = solr.read(files, rows).tolist()
    return found


def test_trees_of_solr_have_weights_a_slack_and_a_branch_for_what_is_missing() -> None:
    """The model of its documentation, with missing branches as its tests have them."""
    right = {"feature": "f1", "threshold": "10.0", "missing": "left", "left": {"value": "50"}, "right": {"value": "75"}}
    root = {"feature": "f0", "threshold": "0.5", "missing": "right", "left": {"value": "-100"}, "right": right}
    trees = [{"weight": "1", "root": root}, {"weight": "2", "root": {"value": "-10"}}]
    rows = matrix((0.5, 0), (0.5000009, 0), (0.500002, 10), (1, 10.1), (NAN, 0), (1, NAN))
    with_branches = {"isNullSameAsZero": False, "trees": trees}
    found = scores_by_solr("MultipleAdditiveTreesModel", with_branches, rows, defaults=["NaN", "NaN"])
    assert found == [-120, -120, 30, 55, 30, 30]
    assert scores_by_solr("MultipleAdditiveTreesModel", {"trees": trees}, matrix((NAN, 11)), defaults=["1"]) == [55]
    assert scores_by_solr("MultipleAdditiveTreesModel", {"trees": trees}, matrix((NAN, 11))) == [-120]


def test_norms_and_layers_of_solr() -> None:
    standard = {"class": "org.apache.solr.ltr.norm.StandardNormalizer", "params": {"avg": "42", "std": "6"}}
    ends = {"class": "org.apache.solr.ltr.norm.MinMaxNormalizer", "params": {"min": "0", "max": "50"}}
    weights = {"weights": {"f0": 2.0, "f1": 10.0}}
    rows = matrix((39, 55), (42, -5), (45, 5))
    found = scores_by_solr("LinearModel", weights, rows, norms=[standard, ends])
    assert found == pytest.approx([10.0, -1.0, 2.0], rel=1e-6)
    layers = [
        {"matrix": [[1.0, 2.0], [3.0, -4.0]], "bias": [0.5, 1.0], "activation": "relu"},
        {"matrix": [[1.0, 1.0], [2.0, -1.0]], "bias": [0.0, 0.0], "activation": "leakyrelu"},
        {"matrix": [[1.0, 1.0]], "bias": [-1.0], "activation": "identity"},
    ]
    by_hand = [3.5 + 0.07 * 0 + 7.0 - 1.0, 1.5 + 4.0 + (3.0 - 4.0) * 0.01 - 1.0]
    assert scores_by_solr("NeuralNetworkModel", {"layers": layers}, matrix((1, 1), (1, 0))) == pytest.approx(by_hand)
    layers = [{"matrix": [[1.0]], "bias": [0.0], "activation": kind} for kind in ("sigmoid", "tanh")]
    assert scores_by_solr("NeuralNetworkModel", {"layers": layers}, matrix((0.0,))) == pytest.approx([np.tanh(0.5)])


SIZES = st.floats(width=32, min_value=2.0**-60, max_value=2.0**60)
THRESHOLDS = SIZES | SIZES.map(lambda size: -size) | st.sampled_from([0.0, 1e-35, -1e-35, -1.0, -0.99999994])


@given(st.lists(THRESHOLDS, min_size=1, max_size=8))
def test_solr_adds_its_slack_to_just_the_threshold(values: list[float]) -> None:
    thresholds = np.unique(np.array(values, np.float32))
    cuts = cuts_of(thresholds)
    for threshold in thresholds:
        read = np.float32(cuts.text(float(threshold))) + SLACK
        if abs(float(threshold)) > 1.1e-35:
            assert read == np.float32(float(threshold) * 2.0**cuts.shift)
        else:
            assert (read < 0) == (threshold < 0)
            assert abs(float(read)) <= cuts.zero * 2.0**cuts.shift


def test_thresholds_that_solr_cannot_have() -> None:
    with pytest.raises(DataError, match="too far apart for solr"):
        cuts_of(np.array([1e-30, 1e30], np.float32))


def test_ranklib_numbers_features_from_1_and_takes_what_is_missing_for_0() -> None:
    text = """## LambdaMART
    ## No. of trees = 1

    <ensemble>
        <tree id="1" weight="0.1">
            <split>
                <feature> 2 </feature>
                <threshold> 1.5 </threshold>
                <split pos="left">
                    <output> -2.0 </output>
                </split>
                <split pos="right">
                    <feature> 1 </feature>
                    <threshold> -1.0 </threshold>
                    <split pos="left">
                        <output> 1.0 </output>
                    </split>
                    <split pos="right">
                        <output> 4.0 </output>
                    </split>
                </split>
            </split>
        </tree>
    </ensemble>"""
    found = libraries.read_ranklib({"model.txt": text.encode()}, matrix((0, 1.5), (-1, 2), (NAN, 2), (0, NAN)))
    assert found.tolist() == pytest.approx([-0.2, 0.1, 0.4, -0.2])


def test_splits_that_send_all_one_way_are_taken_out() -> None:
    infinite = np.array([np.inf, 0.5, -np.inf])
    numbers = np.array([[0, 1, 2], [1, ~0, ~2], [2, ~1, ~3]])
    tree = Tree(numbers[0], infinite, np.array([True, False, False]), numbers[1], numbers[2], np.arange(4.0))
    kept = pruned(tree)
    assert (kept.feature.tolist(), kept.threshold.tolist(), kept.leaves.tolist()) == ([1], [0.5], [0.0, 1.0])
    stump = Tree(np.zeros(1, int), infinite[2:], np.zeros(1, bool), np.array([~0]), np.array([~1]), np.arange(2.0))
    assert (pruned(stump).root(), pruned(stump).leaves.tolist()) == (~0, [1.0])
    held = pruned(replace(stump, threshold=infinite[:1]))
    assert held.threshold.tolist() == [LARGEST]
    assert above(held.threshold).tolist() == [LARGEST]
    assert Forest((held,), 1).splits()[0].tolist() == []
