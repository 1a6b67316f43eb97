"""Vespa: trees as the LightGBM JSON that it imports, networks as ONNX, each with the rank profile that uses it.

Vespa reads a LightGBM split as `x < threshold`, although LightGBM means <=, and sends a missing value left or right by
`default_left` alone. So thresholds are the next float32 above, and every direction is written: this JSON is for Vespa.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from clickprism.serve.export import onnx as onnx_file
from clickprism.serve.export.export import Package, Source
from clickprism.serve.export.forest import Node, Split, Tree, above, descend
from clickprism.types import Float32, Float64

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NOTE: Final = "copy models/ into the application package, and the .profile into schemas/SCHEMA/; fill in its functions"
ONNX_PROFILE: Final = """\
    onnx-model {model} {{
        file: {path}
        input "features": model_features
        output "scores": scores
    }}
{functions}\
    function model_features() {{
        expression: tensor<float>(d0[1],d1[{width}]):[[{names}]]
    }}
    second-phase {{
        expression: sum(onnx({model}).scores)
    }}
"""
TREE_PROFILE: Final = """\
{functions}\
    second-phase {{
        expression: lightgbm("{name}.json")
    }}
"""


def export(source: Source) -> Package:
    """Return the ranker in `models/`, and NAME.profile beside it."""
    names = source.feature_names
    model = re.sub(r"\W", "_", source.name)
    model = model if PLAIN.fullmatch(model) else f"m_{model}"
    functions = "".join(  # of the features that are no rank feature of Vespa by their name
        f"    function {name}() {{\n        expression: attribute({name})\n    }}\n"
        for name in names
        if PLAIN.fullmatch(name)
    )
    if source.kind == "lambdamart":
        path, template, forest = f"models/{source.name}.json", TREE_PROFILE, source.forest
        trees = [
            {"tree_index": place, "num_leaves": len(tree.leaves), "num_cat": 0, "tree_structure": _structure(tree)}
            for place, tree in enumerate(forest.trees)
        ]
        about = {"name": "tree", "version": "v4", "num_class": 1, "num_tree_per_iteration": 1, "label_index": 0}
        about |= {"max_feature_idx": forest.features - 1, "objective": "lambdarank", "average_output": False}
        about |= {"feature_names": list(names), "monotone_constraints": [], "tree_info": trees}
        content, reader = json.dumps({**about, "pandas_categorical": []}, indent=1).encode(), read
    else:
        path, template, forest = f"models/{model}.onnx", ONNX_PROFILE, None
        content = onnx_file.export(source).files["model.onnx"]

        def reader(content: bytes, rows: Float32) -> Float64:
            return onnx_file.read({"model.onnx": content}, rows)

    inside = template.format(
        model=model, path=path, functions=functions, width=len(names), names=", ".join(names), name=source.name
    )
    profile = f"rank-profile {model} inherits default {{\n{inside}}}\n".encode()

    def read_files(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return reader(files[path], rows)

    return Package({path: content, f"{source.name}.profile": profile}, read_files, notes=(NOTE,), forest=forest)


def read(content: bytes, rows: Float32) -> Float64:
    """Return the scores of a LightGBM dump as Vespa's importer turns it into a ranking expression, in double."""

    def node(of: Node) -> float | Split:
        if "leaf_value" in of:
            return float(of["leaf_value"])
        threshold, default_left = np.float64(of["threshold"]), of["default_left"]
        children = of["left_child"], of["right_child"]
        return of["split_feature"], lambda x: ~(x >= threshold) if default_left else x < threshold, *children

    trees = json.loads(content)["tree_info"]
    total: Float64 = np.sum([descend(tree["tree_structure"], rows, node) for tree in trees], axis=0)
    return total


def _structure(tree: Tree) -> Any:
    threshold = above(tree.threshold).tolist()

    def split(node: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {
            "split_index": node,
            "split_feature": int(tree.feature[node]),
            "threshold": threshold[node],
            "decision_type": "<=",
            "default_left": bool(tree.missing_left[node]),
            "missing_type": "NaN",
            "left_child": left,
            "right_child": right,
        }

    return tree.nested(split, lambda leaf, value: {"leaf_index": leaf, "leaf_value": value})
