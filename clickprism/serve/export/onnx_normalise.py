"""Normalisations as ONNX graphs of their own, in double: `features` to `normalised`, both float32."""

from __future__ import annotations

import math

import numpy as np

from clickprism.data.normalise import LARGEST, Normaliser
from clickprism.serve.networks_onnx import ROWS
from clickprism.serve.onnx_graph import DOUBLE, FLOAT, Graph


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
