"""Model files of tree libraries: LightGBM's text, XGBoost's JSON, RankLib's ensemble.

They take raw features: a normaliser goes into the thresholds (`clickprism.serve.export.forest`). LightGBM and XGBoost
write with every split where a missing value goes; RankLib reads it as 0. XGBoost compares x < threshold in float32, so
its thresholds are the next float32.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from clickprism.rankers.lambdamart import Trees
from clickprism.serve.export.export import Package, Source, check_held, refuse, single
from clickprism.serve.export.forest import DEFAULT_LEFT, MISSING_NAN, Forest, Tree, above, descend, forest_of
from clickprism.types import Bool, Float32, Float64, Int64

INFOS = "feature_infos="
NAMES = "feature_names="


def raw_forest(source: Source, format_name: str) -> Forest:
    """Return the trees of a model over raw features; refuse other rankers, and normalisation within lists."""
    check_held(source, format_name, "linear-json for a linear ranker, solr for networks of relu or tanh, else onnx")
    return forest_of(source.model.trees.text, source.model.features, source.normaliser)


def export_text(source: Source) -> Package:
    """The text of LightGBM's model files, over raw features and with their names."""
    forest = raw_forest(source, "lightgbm")
    text = _text(source, forest)

    def reader(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return Trees.from_text(files["model.txt"].decode())(rows)

    return Package({"model.txt": text.encode()}, reader, forest=forest)


def _text(source: Source, forest: Forest) -> str:
    """LightGBM's text with the names of the features; over raw ones, the trees are written anew."""
    head, _, rest = source.model.trees.text.partition("\nTree=0\n")
    lines = [line for line in head.splitlines() if not line.startswith("tree_sizes=")]
    infos = INFOS + " ".join(["none"] * forest.features)
    lines = [NAMES + " ".join(source.feature_names) if line.startswith(NAMES) else line for line in lines]
    if source.normaliser is None:
        body, _, parameters = rest.partition("\nend of trees\n")
        parameters = parameters[parameters.index("\nparameters:") :]
        return "\n".join([*lines, "", f"Tree=0\n{body}\nend of trees\n{parameters}"])
    lines = [infos if line.startswith(INFOS) else line for line in lines]
    trees = [_tree_text(place, tree) for place, tree in enumerate(forest.trees)]
    return "\n".join([*lines, "", *trees, "end of trees", ""])


def _tree_text(place: int, tree: Tree) -> str:
    decision = (MISSING_NAN << 2) + DEFAULT_LEFT * tree.missing_left.astype(np.int64)
    columns: dict[str, Iterable[Any]] = {
        "split_feature": tree.feature,
        "threshold": tree.threshold.tolist(),
        "decision_type": decision,
        "left_child": tree.left,
        "right_child": tree.right,
        "leaf_value": tree.leaves.tolist(),
    }
    lines = [f"Tree={place}", f"num_leaves={len(tree.leaves)}", "num_cat=0"]
    lines += [f"{name}={' '.join(map(str, values))}" for name, values in columns.items()]
    return "\n".join([*lines, "is_linear=0", "shrinkage=1", "", ""])


XGBOOST_VERSION: Final = (2, 1, 0)


def export_xgboost(source: Source) -> Package:
    """Return the JSON that `xgboost.Booster.load_model` reads; trees sum to the score, with the identity as link."""
    forest = raw_forest(source, "xgboost")
    trees = [_xgboost_tree(number, tree, forest.features) for number, tree in enumerate(forest.trees)]
    count, width = len(trees), str(forest.features)
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(count)},
        "iteration_indptr": list(range(count + 1)),
        "tree_info": [0] * count,
        "trees": trees,
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
    content = json.dumps({"learner": learner, "version": XGBOOST_VERSION}, separators=(",", ":"))
    return Package({"model.json": content.encode()}, read_xgboost, forest=forest)


def _xgboost_tree(number: int, tree: Tree, features: int) -> dict[str, Any]:
    """Return a tree as arrays over its nodes: splits first, then leaves."""
    splits, leaves = len(tree.feature), len(tree.leaves)
    nodes = splits + leaves
    left, right = (np.where(child < 0, splits + ~child, child).tolist() for child in (tree.left, tree.right))
    parents = [2**31 - 1] * nodes
    for parent, children in enumerate(zip(left, right, strict=True)):
        for child in children:
            parents[child] = parent
    sizes = {"num_deleted": "0", "num_feature": str(features), "num_nodes": str(nodes), "size_leaf_vector": "1"}
    return {
        "id": number,
        "tree_param": sizes,
        "split_indices": tree.feature.tolist() + [0] * leaves,
        "split_conditions": single(above(tree.threshold)) + single(tree.leaves),
        "default_left": tree.missing_left.astype(int).tolist() + [0] * leaves,
        "left_children": left + [-1] * leaves,
        "right_children": right + [-1] * leaves,
        "parents": parents,
        "base_weights": [0.0] * splits + single(tree.leaves),
        "split_type": [0] * nodes,
        "loss_changes": [0.0] * nodes,
        "sum_hessian": [0.0] * nodes,
        **{name: [] for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
    }


def read_xgboost(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Return the scores of an XGBoost model, as XGBoost computes them."""
    total = np.zeros(len(rows), np.float32)
    for tree in json.loads(files["model.json"])["learner"]["gradient_booster"]["model"]["trees"]:
        feature, condition = tree["split_indices"], np.array(tree["split_conditions"], np.float32)
        node = np.zeros(len(rows), np.int64)
        while True:
            inner = np.array(tree["left_children"])[node] >= 0
            if not inner.any():
                break
            values = rows[np.arange(len(rows)), np.array(feature)[node]]
            goes = np.where(np.isnan(values), np.array(tree["default_left"])[node] == 1, values < condition[node])
            child = np.where(goes, np.array(tree["left_children"])[node], np.array(tree["right_children"])[node])
            node = np.where(inner, child, node)
        total += condition[node]
    return total.astype(np.float64)


RANKLIB_FILE = "model.txt"
TREE = re.compile(r'<tree id="\d+" weight="([^"]+)">(.*?)</tree>', re.DOTALL)
TOKEN = re.compile(r"(<split[^>]*>)|(</split>)|<(feature|threshold|output)>\s*(\S+)\s*</")


def export_ranklib(source: Source) -> Package:
    """LambdaMART as RankLib's ensemble of trees."""
    forest = raw_forest(source, "ranklib")
    as_zero = all((tree.missing_left == (tree.threshold >= 0)).all() for tree in forest.trees)
    if not as_zero and not source.complete:
        why = "it reads a missing feature as 0, the model does not"
        refuse(source, "ranklib", why, "xgboost-json, or give --complete if every document has every feature")
    head = ["## LambdaMART", f"## No. of trees = {len(forest.trees)}", "", "<ensemble>"]
    body = [line for place, tree in enumerate(forest.trees, 1) for line in _ranklib_tree(place, tree)]
    content = "\n".join([*head, *body, "</ensemble>", ""]).encode()
    names = "the features of the set must stand in the order of the model: RankLib has numbers, no names"
    return Package({RANKLIB_FILE: content}, read_ranklib, missing=as_zero, notes=(names,), forest=forest)


def read_ranklib(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Scores by an ensemble, as RankLib computes them."""
    matrix = np.where(np.isnan(rows), np.float32(0), rows)
    total = np.zeros(len(rows), np.float32)

    def left(node: Mapping[str, Any], at: Int64) -> Bool:
        goes: Bool = matrix[at, node["feature"] - 1] <= np.float32(node["threshold"])
        return goes

    for weight, text in TREE.findall(files[RANKLIB_FILE].decode()):
        leaves = descend(
            _parsed(text),
            len(rows),
            value=lambda node: node.get("output"),
            left=left,
            children=lambda node: node["split"],
        )
        total += np.float32(weight) * leaves.astype(np.float32)
    return total.astype(np.float64)


def _parsed(text: str) -> dict[str, Any]:
    """The outermost split of a tree, with those within it in order."""
    outer: dict[str, Any] = {"split": []}
    path = [outer]
    for opened, closed, tag, value in TOKEN.findall(text):
        if opened:
            node: dict[str, Any] = {"split": []}
            path[-1]["split"].append(node)
            path.append(node)
        elif closed:
            path.pop()
        else:
            path[-1][tag] = int(value) if tag == "feature" else float(value)
    found: dict[str, Any] = outer["split"][0]
    return found


def _ranklib_tree(place: int, tree: Tree) -> list[str]:
    def split(node: int, depth: int, left: list[str], right: list[str]) -> Any:
        tab = "\t" * (depth + 3)
        return [
            f"{tab}<feature> {tree.feature[node] + 1} </feature>",
            f"{tab}<threshold> {single(tree.threshold[node])!r} </threshold>",
            f'{tab}<split pos="left">',
            *left,
            f"{tab}</split>",
            f'{tab}<split pos="right">',
            *right,
            f"{tab}</split>",
        ]

    inside: Any = tree.nested(split, lambda _, value: [f"<output> {single(value)!r} </output>"])  # type: ignore[arg-type, return-value]
    return [f'\t<tree id="{place}" weight="1.0">', "\t\t<split>", *inside, "\t\t</split>", "\t</tree>"]
