"""Linear rankers and small networks: one call of compiled code in place of ONNX Runtime's.

The normalisation is folded into the first layer (`clickprism.serve.folded`), a LayerNorm's own weights into the layer
behind it. The scores are those of ONNX Runtime to about 1e-6, in half its time (`python -m benchmarks serve scoring`);
large networks stay with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.serve.bundle import Bundle, Part, Role, file_name
from clickprism.serve.folded import fill, fold
from clickprism.serve.onnx_graph import check_graph
from clickprism.serve.tensors import read_arrays
from clickprism.types import Float32, Float64, Int64

LARGEST: Final = 1 << 15
"""Weights of a layer up to which a network counts as small."""
_PLACES: Final = np.arange(1024)


@final
class Small:
    """A chain of layers on raw features.

    Args:
        layers: the weights, [units, inputs], and the bias of each, in order; the last has one unit.
        activation: of all layers but the last: elu or relu.
        norms: whether a LayerNorm without weights of its own follows it.
        fill: what a missing feature is taken for; NaN where there is no rule, [features].
    """

    def __init__(
        self, layers: Sequence[tuple[Float64, Float64]], *, activation: str, norms: bool, fill: Float32
    ) -> None:
        from clickprism.serve.kernels import ELU, RELU, SHORT, ranked

        *hidden, (weight, bias) = layers
        kind = {"elu": ELU, "relu": RELU}[activation]
        plan = [(each.shape[1], each.shape[0], kind, int(norms)) for each, _ in hidden]
        flat = [values.ravel() for each, shift in hidden for values in (each.T, shift)]
        weights: Float32 = np.concatenate([fill, *flat]).astype(np.float32)
        self._network = np.array(plan, np.int64).reshape(len(plan), 4), weights, np.concatenate([weight[0], bias])
        self._ranked, self._short = ranked, SHORT

    def rank(self, rows: Float32, places: Int64, first: int) -> tuple[Int64, Float64] | None:
        """The ranking of the documents at these places, [n], and their scores as given and as ranked, [2, n].

        None where a document has no score.

        Args:
            rows: read only, [m, L].
            places: of the documents among the rows, [n].
            first: the column of the first feature.
        """
        count = len(places)
        order, out = np.empty(count, np.int64), np.empty((2, count))
        if not self._ranked(rows, places, first, self._network, (order, out)):
            return None
        if count > self._short:
            order = (-out[0]).argsort(kind="stable")
            out[1] = out[0, order]
        return order, out

    def scores(self, features: Float32) -> Float64:
        """The scores of documents, [n]; not finite where one has none."""
        rows, count = features.view(), len(features)
        rows.flags.writeable = False
        places = _PLACES[:count] if count <= len(_PLACES) else np.arange(count)
        out: Float64 = np.empty((2, count))
        self._ranked(rows, places, 0, self._network, (np.empty(count, np.int64), out))
        scores: Float64 = out[0]
        return scores


def small(bundle: Bundle, part: Part, role: Role, normaliser: Normaliser | None) -> Small | None:
    """A linear ranker or a small network on features before this normalisation; None for other rankers."""
    count, linear = len(bundle.manifest.feature_names), part.kind == "linear"
    if not linear and part.kind != "mlp":
        return None
    activation, norm = ("relu", "none") if linear else (part.settings["activation"], part.settings["layer_norm"])
    if activation not in {"elu", "relu"} or norm not in {"none", "hidden"}:
        return None
    name, graph = file_name(role, "network.safetensors"), file_name(role, "network.onnx")
    if name not in bundle.manifest.files:
        return None
    if graph in bundle.manifest.files:  # it is not used, and nothing may lie in a bundle that is not what it says
        check_graph(bundle.read(graph), file=bundle.path(graph))
    layers = _chain(read_arrays(bundle, name), features=count, file=bundle.path(name))
    if not linear and max(weight.size for weight, _ in layers) > LARGEST:
        return None
    layers[0] = fold(*layers[0], normaliser)
    return Small(layers, activation=str(activation), norms=norm == "hidden", fill=fill(normaliser, features=count))


def _chain(tensors: Mapping[str, NDArray[Any]], *, features: int, file: object) -> list[tuple[Float64, Float64]]:
    """The linear layers, each with the weights of the norm before it folded in; an error where they do not fit."""
    layers: list[tuple[Float64, Float64]] = []
    scale, shift, inputs = np.ones(features), np.zeros(features), features
    starts = {name.rpartition(".")[0] for name in tensors}
    for start in sorted(starts, key=lambda name: (len(name), name)):
        weight, bias = (np.asarray(tensors[f"{start}.{name}"], np.float64) for name in ("weight", "bias"))
        if weight.ndim == 1 and weight.shape == bias.shape == (inputs,):
            scale, shift = weight, bias
            continue
        if weight.ndim != 2 or weight.shape[1] != inputs or bias.shape != weight.shape[:1] or not len(bias):
            raise DataError(
                f"the layer {start} does not fit the one before", file=file, remedy="Create the bundle again"
            )
        layers.append((weight * scale, bias + weight @ shift))
        inputs = len(bias)
        scale, shift = np.ones(inputs), np.zeros(inputs)
    if not layers or inputs != 1:
        raise DataError("does not end in one score", file=file, remedy="Create the bundle again")
    return layers
