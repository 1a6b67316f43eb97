"""ONNX: any feature ranker as one graph, `features` [documents, features], raw, to `scores` [documents], float32.

Networks are those of bundles (`clickprism.serve.networks_onnx`). Trees are a TreeEnsembleRegressor over raw features,
with the thresholds of `clickprism.serve.export.forest` and a direction for missing values. A normalisation within lists
goes into the graph as well: then each call must hold one list, whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.serve.export.forest import Forest, forest_of
from clickprism.serve.export.onnx_normalise import normaliser_onnx
from clickprism.serve.export.source import Package, Source
from clickprism.serve.networks_onnx import ROWS, network_onnx
from clickprism.serve.onnx_graph import IR_VERSION, OPSET, in_graph
from clickprism.types import Float32, Float64

ML = "ai.onnx.ml"
ML_OPSET = 3


def export(source: Source) -> Package:
    """The ranker as `model.onnx`."""
    normaliser, width = source.normaliser, source.model.features
    notes = ["features [documents, features] float32, raw, in this order; scores [documents]"]
    before: Normaliser | None = None
    forest: Forest | None = None
    if source.kind == "lambdamart":
        before = normaliser if source.by_list else None
        forest = forest_of(source.model.trees.text, width, None if source.by_list else normaliser)
        content = trees_onnx(forest)
    else:
        before = None if in_graph(normaliser) else normaliser
        within = None if before is not None else normaliser
        content = network_onnx(source.model.ranker, source.model.network, features=width, normaliser=within)
    if before is not None:
        content = _joined(normaliser_onnx(before), content)
    if source.by_list:
        notes.append("each call must hold one whole list: features are normalised within it")
    return Package({"model.onnx": content}, read, notes=tuple(notes), forest=forest)


def read(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Scores by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(files["model.onnx"], options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"features": rows})
    return np.asarray(scores, dtype=np.float64)


def trees_onnx(forest: Forest) -> bytes:
    """Trees as a TreeEnsembleRegressor; they add up in float32 there."""
    from onnx import TensorProto, checker, helper

    nodes: dict[str, list[Any]] = {name: [] for name in NODE_FIELDS}
    targets: dict[str, list[Any]] = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for number, tree in enumerate(forest.trees):
        splits, leaves = len(tree.feature), len(tree.leaves)
        place = [np.where(child < 0, splits + ~child, child) for child in (tree.left, tree.right)]
        nothing = [0] * leaves
        added: dict[str, list[Any]] = {
            "treeids": [number] * (splits + leaves),
            "nodeids": list(range(splits + leaves)),
            "featureids": tree.feature.tolist() + nothing,
            "values": tree.threshold.tolist() + [0.0] * leaves,
            "modes": ["BRANCH_LEQ"] * splits + ["LEAF"] * leaves,
            "truenodeids": place[0].tolist() + nothing,
            "falsenodeids": place[1].tolist() + nothing,
            "missing_value_tracks_true": tree.missing_left.astype(np.int64).tolist() + nothing,
        }
        for name, values in added.items():
            nodes[name] += values
        targets["treeids"] += [number] * leaves
        targets["nodeids"] += range(splits, splits + leaves)
        targets["ids"] += nothing
        targets["weights"] += tree.leaves.tolist()
    attributes: dict[str, Any] = {f"nodes_{name}": values for name, values in nodes.items()}
    attributes |= {f"target_{name}": values for name, values in targets.items()}
    graph = helper.make_graph(
        [
            helper.make_node("TreeEnsembleRegressor", ["features"], ["column"], domain=ML, n_targets=1, **attributes),
            helper.make_node("Reshape", ["column", "flat"], ["scores"]),
        ],
        "clickprism",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [ROWS, forest.features])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [ROWS])],
        [helper.make_tensor("flat", TensorProto.INT64, [1], [-1])],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="clickprism", ir_version=IR_VERSION)
    checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


NODE_FIELDS = (
    "treeids",
    "nodeids",
    "featureids",
    "values",
    "modes",
    "truenodeids",
    "falsenodeids",
    "missing_value_tracks_true",
)


def _joined(first: bytes, second: bytes) -> bytes:
    """Two graphs one after the other: the `normalised` of the first are the `features` of the second."""
    import onnx
    from onnx import compose

    models = [onnx.load_model_from_string(content) for content in (first, second)]
    domains = {opset.domain for opset in models[1].opset_import}
    if ML in domains:
        models[0].opset_import.append(onnx.helper.make_opsetid(ML, ML_OPSET))
    later = compose.add_prefix(models[1], "ranker_")
    joined = compose.merge_models(models[0], later, io_map=[("normalised", "ranker_features")])
    joined.graph.node[-1].output[0] = "scores"
    joined.graph.output[0].name = "scores"
    onnx.checker.check_model(joined)
    content: bytes = joined.SerializeToString(deterministic=True)
    return content
