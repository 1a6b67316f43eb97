"""Rankers with their normalisation folded into the first layer: what is left of a score is the layers alone.

    W ((x - centre) factor) + b  =  (W factor) x + (b - W factor centre)

A missing value becomes the mean before.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.serve.bundle import Bundle, Part, Role, file_name
from clickprism.serve.onnx_graph import FLOAT, Graph
from clickprism.serve.tensors import read_arrays
from clickprism.types import Float32, Float64

FAR: Final = 16.0
"""How many deviations from 0 the centre of a feature may lie: beyond, single precision would tell in the score."""
PLAIN: Final = frozenset({"none", "minmax", "standard"})


def folded_network(bundle: Bundle, part: Part, role: Role, normaliser: Normaliser | None) -> bytes | None:
    """The MLP on raw features as an ONNX graph; None where its normalisation cannot be folded."""
    if part.kind != "mlp" or normaliser is None or not can_fold(normaliser):
        return None
    tensors = read_arrays(bundle, file_name(role, "network.safetensors"))
    first = min(int(name.split(".")[1]) for name in tensors)
    names = f"layers.{first}.weight", f"layers.{first}.bias"
    weight, bias = (np.asarray(tensors[name], np.float64) for name in names)
    if weight.ndim != 2:
        return None
    folded = zip(names, fold(weight, bias, normaliser), strict=True)
    tensors |= {name: values.astype(np.float32) for name, values in folded}
    graph = Graph()
    raw = graph.input("features", FLOAT, "documents", len(bundle.manifest.feature_names))
    value = graph.layers(raw, tensors, "layers.", activation=str(part.settings["activation"]))
    graph.output(graph.shaped(value, -1), "scores", FLOAT, "documents")
    return graph.bytes()


def can_fold(normaliser: Normaliser | None) -> bool:
    """Whether a normalisation is a sum and a factor, small enough for single precision."""
    if normaliser is None:
        return True
    near = np.abs(normaliser.centre * normaliser.factor).max(initial=0.0) <= FAR
    return normaliser.kind in PLAIN and bool(near)


def fold(weight: Float64, bias: Float64, normaliser: Normaliser | None) -> tuple[Float64, Float64]:
    """The weights, [units, features], and the bias of a layer on raw features."""
    if normaliser is None or normaliser.kind == "none":
        return weight, bias
    kept = np.isin(np.arange(len(normaliser.centre)), normaliser.keep)
    factor, centre = np.where(kept, 1.0, normaliser.factor), np.where(kept, 0.0, normaliser.centre)
    scaled = weight * factor
    return scaled, bias - scaled @ centre


def fill(normaliser: Normaliser | None, *, features: int) -> Float32:
    """What a missing value is taken for, NaN where there is no rule, [features]."""
    if normaliser is None or normaliser.kind == "none":
        return np.full(features, np.nan, np.float32)
    values = normaliser.mean.astype(np.float32)
    values[list(normaliser.keep)] = np.nan
    return values
