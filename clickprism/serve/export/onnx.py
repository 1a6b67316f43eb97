"""ONNX: any feature ranker as one graph, `features` [documents, features], raw, to `scores` [documents], float32.

Networks are those of bundles (`clickprism.serve.onnx.networks`). Trees are a TreeEnsembleRegressor over raw features,
with the thresholds of `clickprism.serve.export.forest` and a direction for missing values. A normalisation within lists
goes into the graph as well: then each call must hold one list, whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from clickprism.data.normalise import LARGEST, Normaliser
from clickprism.serve.export.export import Package, Source
from clickprism.serve.export.forest import Forest, forest_of
from clickprism.serve.onnx.graph import DOUBLE, FLOAT, IR_VERSION, OPSET, Graph, in_graph
from clickprism.serve.onnx.networks import ROWS, network_onnx
from clickprism.types import Float32, Float64


def normaliser_onnx(normaliser: Normaliser) -> bytes:
    """`Normaliser.features`, value for value; the rows of a call are one list."""
    graph, width = Graph(), len(normaliser.mean)
    features = graph.input("features", FLOAT, ROWS, width)
    value = graph.cast(features, DOUBLE)
    if normaliser.kind == "log1p":
        grown = graph.op("Log", graph.op("Add", graph.op("Abs", value), graph.const(np.array(1.0))))
        value = graph.op("Mul", graph.op("Sign", value), grown)
    value = graph.op("Where", graph.op("IsNaN", value), graph.const(normaliser.mean), value)
    if normaliser.kind == "quantile":
        value = _quantile(graph, value, normaliser)
    elif normaliser.kind.startswith("query-"):
        value = _by_list(graph, value, normaliser)
    else:
        value = graph.op("Sub", value, graph.const(normaliser.centre))
        value = graph.op("Mul", value, graph.const(normaliser.factor))
        value = graph.op("Clip", value, graph.const(np.array(-LARGEST)), graph.const(np.array(LARGEST)))
    value = graph.cast(value, FLOAT)
    if normaliser.keep:
        kept = np.isin(np.arange(width), normaliser.keep)
        value = graph.op("Where", graph.const(kept), features, value)
    graph.output(value, "normalised", FLOAT, ROWS, width)
    return graph.bytes()


def _by_list(graph: Graph, value: str, normaliser: Normaliser) -> str:
    rows, none = graph.const(np.array([0])), graph.const(np.array(0.0))
    low, high = graph.op("ReduceMin", value, rows), graph.op("ReduceMax", value, rows)
    width = graph.op("Sub", high, low)
    centre, spread = low, width
    if normaliser.kind == "query-standard":
        centre = graph.op("ReduceMean", value, rows)
        away = graph.op("Sub", value, centre)
        spread = graph.op("Sqrt", graph.op("ReduceMean", graph.op("Mul", away, away), rows))
    varies = graph.op("And", graph.op("Greater", width, none), graph.op("Greater", spread, none))
    one = graph.const(np.array(1.0))
    factor = graph.op("Where", varies, graph.op("Div", one, graph.op("Where", varies, spread, one)), none)
    return graph.op("Mul", graph.op("Sub", value, centre), factor)


def _quantile(graph: Graph, value: str, normaliser: Normaliser) -> str:
    """2 F(x) - 1 by linear interpolation in the grid, the mean of its value from above and from below at ties."""
    used = normaliser.factor != 0
    upper = _interpolated(graph, value, normaliser.grid)
    mirrored = _interpolated(graph, graph.op("Neg", value), -normaliser.grid[::-1])
    both = graph.op("Sub", upper, mirrored)  # the lower is 1 - mirrored
    return graph.op("Where", graph.const(used), both, graph.const(np.array(0.0)))


def _interpolated(graph: Graph, value: str, grid: np.ndarray) -> str:
    """np.interp(value, grid, linspace(0, 1)) of each column: the place in the grid by bisection, then a line."""
    count = len(grid)
    table = graph.const(grid)
    low = graph.op("Expand", graph.const(np.array(0)), graph.op("Shape", value))
    for step in [2**power for power in reversed(range(math.ceil(math.log2(count + 1))))]:
        tried = graph.op("Add", low, graph.const(np.array(step)))
        inside = graph.op("Min", tried, graph.const(np.array(count)))
        before = graph.op("GatherElements", table, graph.op("Sub", inside, graph.const(np.array(1))), axis=0)
        fits = graph.op(
            "And",
            graph.op("LessOrEqual", tried, graph.const(np.array(count))),
            graph.op("LessOrEqual", before, value),
        )
        low = graph.op("Where", fits, tried, low)
    first = graph.op("Clip", low, graph.const(np.array(1)), graph.const(np.array(count - 1)))
    start = graph.op("GatherElements", table, graph.op("Sub", first, graph.const(np.array(1))), axis=0)
    end = graph.op("GatherElements", table, first, axis=0)
    one, none = graph.const(np.array(1.0)), graph.const(np.array(0.0))
    length = graph.op("Sub", end, start)
    flat = graph.op("Equal", length, none)
    share = graph.op("Div", graph.op("Sub", value, start), graph.op("Where", flat, one, length))
    share = graph.op("Clip", share, none, one)
    place = graph.op("Add", graph.cast(graph.op("Sub", first, graph.const(np.array(1))), DOUBLE), share)
    found = graph.op("Div", place, graph.const(np.array(float(count - 1))))
    top = graph.op("GreaterOrEqual", low, graph.const(np.array(count)))
    bottom = graph.op("Equal", low, graph.const(np.array(0)))
    found = graph.op("Where", top, one, found)
    return graph.op("Where", bottom, none, found)


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
