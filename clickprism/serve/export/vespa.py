"""Vespa: trees as the LightGBM JSON that it imports, networks as ONNX, each with the rank profile that uses it.

Vespa reads a LightGBM split as `x < threshold`, though LightGBM means <=, and sends a missing value left or right by
`default_left` alone. So thresholds are the next float32 above, and every direction is written out: this JSON is for
Vespa.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from clickprism.serve.export import onnx as onnx_file
from clickprism.serve.export.export import Package, Source, check_held
from clickprism.serve.export.forest import Tree, above, descend
from clickprism.serve.export.libraries import raw_forest
from clickprism.types import Bool, Float32, Float64, Int64

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PUT = "copy models/ into the application package, and the .profile into schemas/SCHEMA/; fill in its functions"


def export(source: Source) -> Package:
    """The ranker in `models/`, and NAME.profile beside it."""
    check_held(source, "vespa")
    if source.kind == "lambdamart":
        return _trees(source)
    package, path = onnx_file.export(source), f"models/{_identifier(source.name)}.onnx"
    model = _identifier(source.name)
    profile = [
        f"    onnx-model {model} {{",
        f"        file: {path}",
        '        input "features": model_features',
        '        output "scores": scores',
        "    }",
        *_functions(source),
        "    function model_features() {",
        f"        expression: tensor<float>(d0[1],d1[{source.model.features}]):[[{', '.join(source.feature_names)}]]",
        "    }",
        "    second-phase {",
        f"        expression: sum(onnx({model}).scores)",
        "    }",
    ]

    def read_onnx(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return onnx_file.read({"model.onnx": files[path]}, rows)

    files = {path: package.files["model.onnx"], f"{source.name}.profile": _profile(source, profile)}
    return Package(files, read_onnx, notes=(PUT,))


def _trees(source: Source) -> Package:
    forest = raw_forest(source, "vespa")
    path = f"models/{source.name}.json"
    model = {
        "name": "tree",
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "label_index": 0,
        "max_feature_idx": forest.features - 1,
        "objective": "lambdarank",
        "average_output": False,
        "feature_names": list(source.feature_names),
        "monotone_constraints": [],
        "tree_info": [
            {"tree_index": place, "num_leaves": len(tree.leaves), "num_cat": 0, "tree_structure": _structure(tree)}
            for place, tree in enumerate(forest.trees)
        ],
        "pandas_categorical": [],
    }
    lines = ["    second-phase {", f'        expression: lightgbm("{source.name}.json")', "    }"]
    profile = _profile(source, [*_functions(source), *lines])

    def reader(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return read(files[path], rows)

    return Package(
        {path: json.dumps(model, indent=1).encode(), f"{source.name}.profile": profile},
        reader,
        notes=(PUT,),
        forest=forest,
    )


def read(content: bytes, rows: Float32) -> Float64:
    """Scores by a LightGBM dump as Vespa's importer turns it into a ranking expression, in double."""
    matrix = rows.astype(np.float64)

    def left(node: Mapping[str, Any], at: Int64) -> Bool:
        values, threshold = matrix[at, node["split_feature"]], float(node["threshold"])
        goes: Bool = ~(values >= threshold) if node["default_left"] else values < threshold
        return goes

    total = np.zeros(len(rows))
    for tree in json.loads(content)["tree_info"]:
        total += descend(
            tree["tree_structure"],
            len(rows),
            value=lambda node: node.get("leaf_value"),
            left=left,
            children=lambda node: (node["left_child"], node["right_child"]),
        )
    return total


def _structure(tree: Tree) -> dict[str, Any]:
    threshold = above(tree.threshold).tolist()

    def split(node: int, depth: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
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


def _profile(source: Source, inside: list[str]) -> bytes:
    return "\n".join([f"rank-profile {_identifier(source.name)} inherits default {{", *inside, "}", ""]).encode()


def _functions(source: Source) -> list[str]:
    """A function for each feature that is no rank feature of Vespa by its name, to be filled in."""
    return [
        f"    function {name}() {{\n        expression: attribute({name})\n    }}"
        for name in source.feature_names
        if PLAIN.fullmatch(name)
    ]


def _identifier(name: str) -> str:
    """A name that Vespa takes for a profile or a model.

    >>> _identifier("my-model.v2")
    'my_model_v2'
    """
    plain = re.sub(r"\W", "_", name)
    return plain if PLAIN.fullmatch(plain) else f"m_{plain}"
