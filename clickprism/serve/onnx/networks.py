"""Networks as ONNX: the linear ranker, the MLP, attention, and the approximated doubly robust estimate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.serve.onnx.graph import DOUBLE, FLOAT, INT64, Graph, Tensors, columns
from clickprism.types import Float32

if TYPE_CHECKING:
    from torch import nn

    from clickprism.rankers.attention import Attention, AttentionNetwork
    from clickprism.relevance.approximation import Approximation


ROWS: Final = "documents"
TINY, SEEN = 1e-6, 1e-3  # those of clickprism.relevance.approximation


def network_onnx(ranker: Any, network: nn.Module, *, features: int, normaliser: Normaliser | None) -> bytes:
    """Return a ranker as ONNX: `features` [documents, features] to `scores` [documents], in float32.

    The features are raw, unless the normaliser is not given because a graph cannot hold it (`in_graph`).
    """
    graph, tensors = Graph(), _tensors(network)
    raw = graph.input("features", FLOAT, ROWS, features)
    value = graph.normalised(raw, normaliser)
    if ranker.name == "linear":
        value = graph.op("Gemm", value, tensors["output.weight"], tensors["output.bias"], transB=1)
    elif ranker.name == "mlp":
        value = graph.layers(value, tensors, "layers.", activation=ranker.activation)
    elif ranker.name == "attention":
        pooled = _attention(graph, value, network, tensors)  # type: ignore[arg-type]
        value = graph.layers(pooled, tensors, "layers.", activation="elu")
    else:
        raise DataError(f"a ranker of kind {ranker.name} is no network that ONNX is made of here")
    graph.output(graph.shaped(value, -1), "scores", FLOAT, ROWS)
    return graph.bytes()


def approximation_onnx(fitted: Approximation) -> bytes:
    """Return an approximation as ONNX.

    Inputs are `x` [pairs, inputs], scaled click vectors; `imputed` [pairs], in (0, 1); and `shown` [pairs], the number
    of impressions. Outputs are `estimate`, `affine`, `trade_off`, means over the members, and `spread`, [pairs] each.
    """
    graph = Graph()
    x = graph.input("x", FLOAT, ROWS, fitted.scale.width)
    imputed, shown = graph.input("imputed", FLOAT, ROWS), graph.input("shown", FLOAT, ROWS)
    begin = _begin(graph, fitted, shown)
    found: dict[str, list[str]] = {"estimate": [], "affine": [], "trade_off": []}
    for member in fitted.members:
        tensors = _tensors(member)
        odds = [
            graph.shaped(graph.layers(x, tensors, f"{name}.layers.", activation="relu"), -1)
            for name in ("affine", "trade_off")
        ]
        affine, zeta = graph.op("Sigmoid", odds[0]), graph.op("Tanh", graph.op("Add", begin, odds[1]))
        estimate = _blend(graph, fitted, zeta, imputed, affine)
        for name, value in (("estimate", estimate), ("affine", affine), ("trade_off", zeta)):
            found[name].append(graph.cast(value, DOUBLE))
    count = np.array(float(len(fitted.members)))
    means = {name: graph.op("Div", graph.op("Sum", *values), count) for name, values in found.items()}
    apart = [graph.op("Sub", value, means["estimate"]) for value in found["estimate"]]
    squares = [graph.op("Mul", each, each) for each in apart]
    means["spread"] = graph.op("Sqrt", graph.op("Div", graph.op("Sum", *squares), count))
    for name, value in means.items():
        graph.output(value, name, DOUBLE, ROWS)
    return graph.bytes()


def _begin(graph: Graph, fitted: Approximation, shown: str) -> str:
    """`clickprism.relevance.approximation.begin`."""
    if fitted.k == 0:
        return graph.op("Mul", shown, np.float32(0.0))
    ratio = graph.op("Div", np.float32(fitted.k), graph.op("Max", shown, np.float32(SEEN)))
    ratio = graph.op("Add", graph.op("Mul", ratio, np.float32(2.0)), np.float32(1.0))
    return graph.op("Mul", graph.op("Log", ratio), np.float32(0.5))


def _blend(graph: Graph, fitted: Approximation, zeta: str, imputed: str, affine: str) -> str:
    """`blend` and `published_blend` of `clickprism.relevance.approximation`."""
    if fitted.settings.published:
        return graph.op("Add", graph.op("Mul", zeta, imputed), affine)
    away = graph.op("Mul", zeta, graph.op("Sub", _logit(graph, imputed), np.float32(fitted.means[1])))
    return graph.op("Sigmoid", graph.op("Add", _logit(graph, affine), away))


def _logit(graph: Graph, share: str) -> str:
    held = graph.op("Clip", share, np.float32(TINY), np.float32(1 - TINY))
    return graph.op("Log", graph.op("Div", held, graph.op("Sub", np.float32(1.0), held)))


def _attention(graph: Graph, features: str, network: AttentionNetwork, tensors: Tensors) -> str:
    """`clickprism.rankers.attention.AttentionBody`: [documents, features] to [documents, pooled]."""
    settings = network.settings
    body, width, heads = network.body, settings.width, settings.heads
    codes = list(settings.categorical)
    numbers = [column for column in range(network.features) if column not in codes]
    continuous = features if not codes else graph.op("Gather", features, columns(numbers), axis=1)
    tokens = _tokens(graph, features, continuous, network, tensors)
    if body.context is not None:
        # 0 for each document, whatever its tokens: adding it repeats the context without an operator that makes shapes
        nothing = graph.cast(graph.op("Less", tokens, tokens), FLOAT)
        nothing = graph.op("ReduceSum", nothing, columns([1, 2]), keepdims=1)
        context = graph.op("Add", tensors["body.context"][None], nothing)
        tokens = graph.op("Concat", tokens, context, axis=1)
    count, wide = len(body.tokens.groups) + settings.context, len(tensors["body.project.weight"]) // (3 * heads)
    project = tensors["body.project.weight"].reshape(3, heads * wide, width)
    query, key, value = (
        graph.op("Transpose", graph.shaped(graph.linear(tokens, weight), 0, count, heads, wide), perm=perm)
        for weight, perm in zip(project, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scale = 1 / (settings.temperature or math.sqrt(wide))
    alpha = graph.op("Softmax", graph.op("Mul", graph.op("MatMul", query, key), np.float32(scale)), axis=-1)
    attended = graph.op("MatMul", alpha, value)

    def layer(name: str, given: str) -> str:
        return graph.linear(given, tensors[f"body.{name}.weight"], tensors.get(f"body.{name}.bias"))

    if settings.form == "paper":
        mean = graph.op("ReduceMean", attended, columns([1]), keepdims=0)
        said = layer("weigh", graph.op("Tanh", layer("pool", graph.op("Sigmoid", layer("combine", mean)))))
        return graph.op("ReduceMean", said, columns([1]), keepdims=0)
    joined = graph.shaped(graph.op("Transpose", attended, perm=[0, 2, 1, 3]), 0, count, width)
    together = graph.op("Add", tokens, layer("combine", joined))
    omega = graph.norm(together, tensors["body.norm.weight"], tensors["body.norm.bias"])
    said = graph.shaped(graph.op("Tanh", layer("pool", omega)), 0, count * width)
    pooled = graph.linear(said, tensors["body.weigh.weight"] / np.float32(count), tensors["body.weigh.bias"])
    if "body.around.weight" in tensors:
        pooled = graph.op("Add", pooled, layer("around", continuous))
    return graph.activated(pooled, "elu")


def _tokens(graph: Graph, features: str, continuous: str, network: AttentionNetwork, tensors: Tensors) -> str:
    """`clickprism.rankers.attention.Tokens`: [documents, features] to [documents, tokens, width]."""
    settings = network.settings
    groups, codes = network.body.tokens.groups, list(settings.categorical)
    slope, own = tensors["body.tokens.slope"], tensors["body.tokens.own"]
    together, _, size, units = slope.shape
    found = []
    if together:
        missing = together * size - (network.features - len(codes))
        padded = graph.op("Pad", continuous, columns([0, 0, 0, missing])) if missing else continuous
        values = graph.op("Transpose", graph.shaped(padded, 0, together, size, 1), perm=[1, 0, 2, 3])
        shifted = graph.op("Add", graph.op("Mul", values, slope), tensors["body.tokens.bias"])
        flat = graph.shaped(graph.activated(shifted, "elu"), 0, 0, size * units)
        mixed = graph.op("MatMul", flat, tensors["body.tokens.mix"])
        placed = graph.op("Add", mixed, own[:together])
        found.append(graph.op("Transpose", placed, perm=[1, 0, 2]))
    if codes:
        later = len(groups) - together
        vectors = graph.op("Gather", tensors["body.tokens.table"], _code_rows(graph, features, settings))
        missing = later * size - len(codes)
        if missing:
            vectors = graph.op("Pad", vectors, columns([0, 0, 0, 0, missing, 0]))
        apart = graph.shaped(vectors, 0, later, size, settings.width)
        sums = graph.op("ReduceSum", apart, columns([2]), keepdims=0)
        found.append(graph.op("Add", sums, own[together:, 0]))
    return found[0] if len(found) == 1 else graph.op("Concat", *found, axis=1)


def _code_rows(graph: Graph, features: str, settings: Attention) -> str:
    """The rows of the table of codes, [documents, columns]; what is no code gets the last row of its column."""
    sizes = np.array(settings.categories, np.float32)
    starts = np.cumsum(np.array(settings.categories, np.int64) + 1) - np.array(settings.categories, np.int64) - 1
    given = graph.op("Gather", features, columns(settings.categorical), axis=1)
    inside = graph.op("And", graph.op("GreaterOrEqual", given, np.float32(0.0)), graph.op("Less", given, sizes))
    known = graph.op("And", inside, graph.op("Equal", given, graph.op("Floor", given)))
    row = graph.cast(graph.op("Where", known, given, sizes), INT64)
    return graph.op("Add", row, starts)


def _tensors(network: nn.Module) -> dict[str, Float32]:
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
