"""The text of LightGBM's model files.

It takes raw features: a normaliser goes into the thresholds (`clickprism.serve.export.forest`), and where a missing
value goes is written with every split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from clickprism.rankers.lambdamart import Trees
from clickprism.serve.export.export import Package, Source, want_alone, want_kind
from clickprism.serve.export.forest import DEFAULT_LEFT, MISSING_NAN, Forest, Tree, forest_of
from clickprism.types import Float32, Float64

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
