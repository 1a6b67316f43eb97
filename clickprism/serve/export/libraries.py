"""Model files of tree libraries: LightGBM's text, XGBoost's JSON, RankLib's ensemble.

They take raw features: a normaliser goes into the thresholds (`clickprism.serve.export.forest`). LightGBM and XGBoost
say at every split where a missing value goes; RankLib reads it as 0. XGBoost compares x < threshold in float32, so its
thresholds are the next float32.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from xml.etree import ElementTree as Xml

import numpy as np

from clickprism.rankers.lambdamart import Trees
from clickprism.serve.export.export import Package, Source, refuse, single
from clickprism.serve.export.forest import DEFAULT_LEFT, MISSING_NAN, Node, Split, Tree, above, descend
from clickprism.types import Float32, Float64

FILE: Final = "model.txt"


def export_text(source: Source) -> Package:
    """Return LightGBM's text over raw features, with their names."""
    forest = source.forest
    head = source.model.trees.text.partition("\nTree=0\n")[0]
    own = {"feature_names": " ".join(source.feature_names), "feature_infos": " ".join(["none"] * forest.features)}
    lines = [line.partition("=") for line in head.splitlines() if not line.startswith("tree_sizes=")]
    trees = [_tree_text(place, tree) for place, tree in enumerate(forest.trees)]
    named = [f"{name}{sign}{own.get(name, value)}" for name, sign, value in lines]
    text = "\n".join([*named, "", *trees, "end of trees", ""])

    def reader(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return Trees.from_text(files[FILE].decode())(rows)

    return Package({FILE: text.encode()}, reader, forest=forest)


def _tree_text(place: int, tree: Tree) -> str:
    columns: dict[str, Iterable[Any]] = {
        "split_feature": tree.feature,
        "threshold": tree.threshold.tolist(),
        "decision_type": (MISSING_NAN << 2) + DEFAULT_LEFT * tree.missing_left.astype(np.int64),
        "left_child": tree.left,
        "right_child": tree.right,
        "leaf_value": tree.leaves.tolist(),
    }
    lines = [f"Tree={place}", f"num_leaves={len(tree.leaves)}", "num_cat=0"]
    lines += [f"{name}={' '.join(map(str, values))}" for name, values in columns.items()]
    return "\n".join([*lines, "is_linear=0", "shrinkage=1", "", ""])


def export_xgboost(source: Source) -> Package:
    """Return the JSON that `xgboost.Booster.load_model` reads; trees sum to the score, with the identity as link."""
    forest = source.forest
    count, width = len(forest.trees), str(forest.features)
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(count)},
        "iteration_indptr": list(range(count + 1)),
        "tree_info": [0] * count,
        "trees": [_xgboost_tree(number, tree, width) for number, tree in enumerate(forest.trees)],
    }
    parameters = {"base_score": "0E0", "boost_from_average": "0", "num_class": "0", "num_feature": width}
    learner = {
        "attributes": {},
        "feature_names": list(source.feature_names),
        "feature_types": ["float"] * forest.features,
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {**parameters, "num_target": "1"},
        "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
    }
    content = json.dumps({"learner": learner, "version": [2, 1, 0]}, separators=(",", ":"))
    return Package({"model.json": content.encode()}, read_xgboost, forest=forest)


def _xgboost_tree(number: int, tree: Tree, features: str) -> dict[str, Any]:
    """Return a tree as arrays over its nodes: splits first, then leaves."""
    splits, leaves = len(tree.feature), len(tree.leaves)
    left, right = tree.children()
    parents = [2**31 - 1] * (splits + leaves)
    for parent, children in enumerate(zip(left, right, strict=True)):
        for child in children:
            parents[child] = parent
    nodes = str(splits + leaves)
    return {
        "id": number,
        "tree_param": {"num_deleted": "0", "num_feature": features, "num_nodes": nodes, "size_leaf_vector": "1"},
        "split_indices": tree.feature.tolist() + [0] * leaves,
        "split_conditions": single(above(tree.threshold)) + single(tree.leaves),
        "default_left": tree.missing_left.astype(int).tolist() + [0] * leaves,
        "left_children": left + [-1] * leaves,
        "right_children": right + [-1] * leaves,
        "parents": parents,
        "base_weights": [0.0] * splits + single(tree.leaves),
        "split_type": [0] * (splits + leaves),
        **{name: [0.0] * (splits + leaves) for name in ("loss_changes", "sum_hessian")},
        **{name: [] for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
    }


def read_xgboost(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Return the scores of an XGBoost model, as XGBoost computes them."""
    total = np.zeros(len(rows), np.float32)
    for tree in json.loads(files["model.json"])["learner"]["gradient_booster"]["model"]["trees"]:

        def node(at: Node) -> float | Split:
            place, tree = at["place"], at["tree"]
            condition = np.float32(tree["split_conditions"][place])
            left, right = ({**at, "place": tree[f"{side}_children"][place]} for side in ("left", "right"))
            if left["place"] < 0:
                return float(condition)
            default = tree["default_left"][place] == 1
            column = tree["split_indices"][place]
            return column, lambda x: np.where(np.isnan(x), default, x < condition), left, right

        total += descend({"tree": tree, "place": 0}, rows, node).astype(np.float32)
    return total.astype(np.float64)


def export_ranklib(source: Source) -> Package:
    """Return LambdaMART as RankLib's ensemble of trees."""
    forest = source.forest
    as_zero = all((tree.missing_left == (tree.threshold >= 0)).all() for tree in forest.trees)
    if not as_zero and not source.complete:
        why = "it reads a missing feature as 0, the model does not"
        refuse(source, "ranklib", why, "Export elasticsearch, or give --complete if no feature is ever missing")
    ensemble = Xml.Element("ensemble")
    for place, tree in enumerate(forest.trees, 1):

        def leaf(_: int, value: float) -> Xml.Element:
            return _element("split", _element("output", text=f" {single(value)!r} "))

        def split(node: int, left: Xml.Element, right: Xml.Element) -> Xml.Element:
            left.set("pos", "left")
            right.set("pos", "right")
            feature = _element("feature", text=f" {tree.feature[node] + 1} ")  # noqa: B023
            threshold = _element("threshold", text=f" {single(tree.threshold[node])!r} ")  # noqa: B023
            return _element("split", feature, threshold, left, right)

        ensemble.append(_element("tree", tree.nested(split, leaf), id=str(place), weight="1.0"))
    Xml.indent(ensemble, "\t")
    head = f"## LambdaMART\n## No. of trees = {len(forest.trees)}\n\n"
    content = f"{head}{Xml.tostring(ensemble, encoding='unicode')}\n".encode()
    note = "the features of the set must be in the order of the model: RankLib has numbers, no names"
    return Package({FILE: content}, read_ranklib, missing=as_zero, notes=(note,), forest=forest)


def _element(tag: str, *children: Xml.Element, text: str | None = None, **attributes: str) -> Xml.Element:
    element = Xml.Element(tag, attributes)
    element.text = text
    element.extend(children)
    return element


def read_ranklib(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Return the scores of an ensemble, as RankLib computes them."""
    matrix, total = np.where(np.isnan(rows), np.float32(0), rows), np.zeros(len(rows), np.float32)

    def node(split: Any) -> float | Split:
        output = split.findtext("output")
        if output is not None:
            return float(output)
        column, threshold = int(split.findtext("feature")) - 1, np.float32(split.findtext("threshold"))
        return column, lambda x: x <= threshold, *split.findall("split")

    text = "\n".join(line for line in files[FILE].decode().splitlines() if not line.lstrip().startswith("##"))
    for tree in Xml.fromstring(text):  # noqa: S314 - our own file
        root: Any = tree.find("split")
        total += np.float32(tree.get("weight")) * descend(root, matrix, node).astype(np.float32)
    return total.astype(np.float64)
