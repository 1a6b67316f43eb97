"""LightGBM's own formats: the text that it loads, and the JSON that it dumps for other tools.

They take raw features: a normaliser goes into the thresholds (`clickprism.serve.export.forest`), and where a missing
value goes is written with every split.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from clickprism.rankers.lambdamart import Trees
from clickprism.serve.export.forest import DEFAULT_LEFT, MISSING_NAN, Forest, Tree, forest_of
from clickprism.serve.export.nested import descend
from clickprism.serve.export.source import Package, Source, want_alone, want_kind
from clickprism.types import Bool, Float32, Float64, Int64

INFOS = "feature_infos="
NAMES = "feature_names="


def raw_forest(source: Source, format_name: str) -> Forest:
    """The trees of a model over raw features; refused where a list decides what a feature is."""
    want_kind(
        source,
        format_name,
        ("lambdamart",),
        "linear-json for a linear ranker, solr for networks of relu or tanh, else onnx",
    )
    want_alone(source, format_name)
    return forest_of(source.model.trees.text, source.model.features, source.normaliser)


def export_text(source: Source) -> Package:
    """The text of LightGBM's model files, over raw features and with their names."""
    forest = raw_forest(source, "lightgbm")
    text = _text(source, forest)

    def reader(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return Trees.from_text(files["model.txt"].decode())(rows)

    return Package({"model.txt": text.encode()}, reader, forest=forest)


def export_json(source: Source) -> Package:
    """What LightGBM's dump_model gives, over raw features and with their names."""
    forest = raw_forest(source, "lightgbm-json")
    content = json.dumps(Trees.from_text(_text(source, forest)).dump(), indent=1).encode()
    return Package({"model.json": content}, read_json, forest=forest)


def read_json(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Scores by a dump: x <= threshold goes left, in double; a missing x as `missing_type` and `default_left` say."""
    matrix = rows.astype(np.float64)

    def left(node: Mapping[str, Any], at: Int64) -> Bool:
        if node["decision_type"] != "<=" or node["missing_type"] not in ("None", "NaN"):
            raise ValueError(f"a split by {node['decision_type']}, missing {node['missing_type']}")
        values = matrix[at, node["split_feature"]]
        gone = np.isnan(values)
        goes = np.where(gone, 0.0, values) <= node["threshold"]
        return np.where(gone & (node["missing_type"] == "NaN"), bool(node["default_left"]), goes)

    total = np.zeros(len(rows))
    for tree in json.loads(files["model.json"])["tree_info"]:
        total += descend(
            tree["tree_structure"],
            len(rows),
            value=lambda node: node.get("leaf_value"),
            left=left,
            children=lambda node: (node["left_child"], node["right_child"]),
        )
    return total


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
