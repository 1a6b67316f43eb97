"""ONNX: any ranker on features as one graph, `features` [documents, features], raw, to `scores` [documents], float32.

Networks are those of bundles (`clickprism.serve.onnx.networks`). Trees are a TreeEnsembleRegressor over raw features,
with the thresholds of `clickprism.serve.export.forest` and a direction for missing values; onnxmltools gave other
scores for 4,629 of 9,000 rows at exact thresholds.

Vespa evaluates the same graph, by the rank profile that is written with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from clickprism.serve.export.export import Package, Source
from clickprism.serve.export.forest import Forest
from clickprism.serve.onnx.graph import FLOAT, Graph
from clickprism.serve.onnx.networks import ROWS, network_onnx
from clickprism.types import Float32, Float64

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NOTE: Final = "copy models/ into the application package, and the .profile into schemas/SCHEMA/; fill in its functions"
PROFILE: Final = """\
rank-profile {model} inherits default {{
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
}}
"""


def export(source: Source) -> Package:
    """Return the ranker as `model.onnx`."""
    notes = ("features [documents, features] float32, raw, in this order; scores [documents]",)
    if source.kind == "lambdamart":
        forest = source.forest
        return Package({"model.onnx": trees_onnx(forest)}, read, notes=notes, forest=forest)
    model = source.model
    content = network_onnx(model.ranker, model.network, features=model.features, normaliser=source.normaliser)
    return Package({"model.onnx": content}, read, notes=notes)


def read(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Return the scores of a graph by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(files["model.onnx"], options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"features": rows})
    return np.asarray(scores, dtype=np.float64)


def trees_onnx(forest: Forest) -> bytes:
    """Return trees as a TreeEnsembleRegressor, which sums them in float32."""
    columns: list[dict[str, list[Any]]] = []
    for number, tree in enumerate(forest.trees):
        splits, leaves = len(tree.feature), len(tree.leaves)
        nothing, (left, right) = [0] * leaves, tree.children()
        columns.append(
            {
                "nodes_treeids": [number] * (splits + leaves),
                "nodes_nodeids": list(range(splits + leaves)),
                "nodes_featureids": tree.feature.tolist() + nothing,
                "nodes_values": tree.threshold.tolist() + [0.0] * leaves,
                "nodes_modes": ["BRANCH_LEQ"] * splits + ["LEAF"] * leaves,
                "nodes_truenodeids": left + nothing,
                "nodes_falsenodeids": right + nothing,
                "nodes_missing_value_tracks_true": tree.missing_left.astype(np.int64).tolist() + nothing,
                "target_treeids": [number] * leaves,
                "target_nodeids": list(range(splits, splits + leaves)),
                "target_ids": nothing,
                "target_weights": tree.leaves.tolist(),
            }
        )
    attributes: dict[str, Any] = {name: [value for each in columns for value in each[name]] for name in columns[0]}
    graph = Graph()
    features = graph.input("features", FLOAT, ROWS, forest.features)
    sums = graph.op("TreeEnsembleRegressor", features, domain="ai.onnx.ml", n_targets=1, **attributes)
    graph.output(graph.shaped(sums, -1), "scores", FLOAT, ROWS)
    return graph.bytes()


def export_vespa(source: Source) -> Package:
    """Return the ranker in `models/`, and its rank profile NAME.profile."""
    names, graph = source.feature_names, export(source)
    model = re.sub(r"\W", "_", source.name)
    model = model if PLAIN.fullmatch(model) else f"m_{model}"
    path = f"models/{model}.onnx"
    functions = "".join(  # of the features that are no rank feature of Vespa by their name
        f"    function {name}() {{\n        expression: attribute({name})\n    }}\n"
        for name in names
        if PLAIN.fullmatch(name)
    )
    profile = PROFILE.format(
        model=model, path=path, functions=functions, width=len(names), names=", ".join(names)
    ).encode()

    def read_model(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return read({"model.onnx": files[path]}, rows)

    files = {path: graph.files["model.onnx"], f"{source.name}.profile": profile}
    return Package(files, read_model, notes=(NOTE,), forest=graph.forest)
