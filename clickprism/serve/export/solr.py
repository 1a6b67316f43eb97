"""Solr's learning to rank: linear models, trees and networks, with their normalisers, and the features they read.

Two files: `features.json` for the feature store, `model.json` for the model store. Solr works in float32 throughout.
Its trees go left where x <= threshold + 0.000001, the sum rounded to float32; thresholds are chosen so that it is
exact, and where none is, the feature is scaled by a power of two first, which changes no comparison. From Solr 9.2 on a
missing value can have a direction: `isNullSameAsZero` is false, and features have the default value NaN. Linear models
and networks read the mean of training instead, as the default value of the feature.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.export.export import (
    SOLR_LAYERS,
    Package,
    Source,
    check_held,
    linear_parts,
    refuse,
    scaling,
    single,
)
from clickprism.serve.export.forest import Tree, descend
from clickprism.serve.export.libraries import raw_forest
from clickprism.types import Bool, Float32, Float64, Int64

SLACK: Final = np.float32(1e-6)
TINY: Final = 1.1e-35
SAFE: Final = 64.0  # from here on 0.000001 is below half a step of float32: the sum is the threshold itself
LARGEST: Final = float(np.finfo(np.float32).max)


@final
@dataclass(frozen=True)
class Cuts:
    """How the thresholds of a feature are written.

    Attributes:
        shift: the feature is multiplied by 2**shift first.
        written: for each threshold, what Solr has to read.
        zero: values closer to 0 than this may fall on the other side of a threshold.
    """

    shift: int
    written: dict[float, float]
    zero: float = 0.0

    def text(self, threshold: float) -> str:
        """What Solr reads for a threshold; one beyond all numbers, which tells missing values from others, is infinite.

        >>> Cuts(0, {0.5: 0.499999}).text(0.5), Cuts(0, {}).text(LARGEST)
        ('0.499999', 'Infinity')
        """
        if abs(threshold) >= LARGEST:
            return "Infinity" if threshold > 0 else "-Infinity"
        return str(self.written[threshold])


def cuts_of(thresholds: Float32) -> Cuts:
    """Thresholds [n] as Solr has to read them, such that fl(written + 0.000001) is the threshold, scaled if need be.

    LightGBM's own 1e-35 beside 0 are as good as 0 and cannot be reached: x <= 1e-35 becomes x <= 0, and x <= -1e-35 the
    nearest that there is below 0.

    >>> cuts_of(np.array([0.5], np.float32))
    Cuts(shift=0, written={0.5: 0.4999989867210388}, zero=0.0)
    >>> cuts_of(np.array([1e-7, 3.0], np.float32)).shift
    30
    """
    values = thresholds.astype(np.float64)
    tiny = np.abs(values) <= TINY
    near, exact = _reached(thresholds)
    if (exact | tiny).all():
        written, shift = near, 0
    else:
        shift = int(np.ceil(np.log2(SAFE / np.abs(values[~tiny]).min())))
        if shift < 0 or float(np.abs(values).max()) * 2.0**shift > LARGEST:
            problem = (
                f"thresholds from {values.min():.3g} to {values.max():.3g} of one feature are too far apart for solr"
            )
            raise DataError(problem, remedy="Export onnx or xgboost-json, or train with a normaliser such as standard")
        written = (values * 2.0**shift).astype(np.float32)
    zero, nothing = np.float32(-SLACK), np.nextafter(-SLACK, np.float32(-1))
    written = np.where(tiny, np.where(values >= 0, zero, nothing), written)
    closest = float(-(nothing + SLACK)) * 2.0**-shift if (tiny & (values < 0)).any() else TINY
    pairs = zip(values.tolist(), written.astype(np.float64).tolist(), strict=True)
    return Cuts(shift, dict(pairs), closest if (tiny & (values != 0)).any() else 0.0)


def _reached(thresholds: Float32) -> tuple[Float32, np.ndarray]:
    """The float32 to write for each threshold, and whether Solr's sum is just the threshold then."""
    near = (thresholds - SLACK).astype(np.float32)
    tries = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    written, exact = near, near + SLACK == thresholds
    for each in tries[1:]:
        better = ~exact & (each + SLACK == thresholds)
        written, exact = np.where(better, each, written), exact | better
    return written, exact


MODELS: Final = "org.apache.solr.ltr.model."
NORMS: Final = "org.apache.solr.ltr.norm."
FIELD: Final = "org.apache.solr.ltr.feature.FieldValueFeature"
APPLIED: Final[dict[str, Callable[[Float32], Any]]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leakyrelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def export(source: Source) -> Package:
    """The ranker as the files of Solr's two stores."""
    check_held(source, "solr")
    if source.kind == "lambdamart":
        return _export_trees(source)
    centre, factor = scaling(source)
    spread = np.divide(1.0, factor, out=np.ones_like(factor), where=factor > 0)
    kept = set() if source.normaliser is None else set(source.normaliser.keep)
    norms: list[dict[str, Any] | None] = [None] * len(factor)
    if source.normaliser is not None:
        standard = source.normaliser.kind == "standard"
        kind, keys = ("StandardNormalizer", ("avg", "std")) if standard else ("MinMaxNormalizer", ("min", "max"))
        ends = np.stack([centre, spread if standard else centre + spread], axis=1)
        norms = [
            _norm(kind, dict(zip(keys, map(str, pair), strict=True))) if used and place not in kept else None
            for place, (pair, used) in enumerate(zip(single(ends), factor, strict=True))
        ]
    defaults: list[str | None] = [None] * len(factor)
    if source.normaliser is not None:
        means = single(source.normaliser.mean)
        defaults = [None if place in kept else str(mean) for place, mean in enumerate(means)]
    offset, notes = 0.0, [_put(source)]
    params: dict[str, Any]
    if source.kind == "linear":
        weights, offset = linear_parts(source)
        values = single(np.where(factor == 0, 0.0, weights))
        model, params = "LinearModel", {"weights": dict(zip(source.feature_names, values, strict=True))}
        notes.append(f"scores lack the constant {offset:.6g}, which a LinearModel cannot add: same order")
    else:
        model, params = "NeuralNetworkModel", {"layers": _layers(source, factor)}
    return Package(_files(source, model, params, norms, defaults), read, offset=offset, notes=tuple(notes))


def _export_trees(source: Source) -> Package:
    forest = raw_forest(source, "solr")
    cuts = [cuts_of(splits) for splits in forest.splits()]
    norms = [
        _norm("StandardNormalizer", {"avg": "0.0", "std": str(2.0**-cut.shift)}) if cut.shift else None for cut in cuts
    ]
    params = {
        "isNullSameAsZero": False,
        "trees": [{"weight": "1.0", "root": _tree(tree, source.feature_names, cuts)} for tree in forest.trees],
    }
    notes = [_put(source), "missing values need Solr 9.2 or later"]
    zero = max(cut.zero for cut in cuts)
    if zero:
        notes.append(f"a value closer to 0 than {zero:.1g} may count as another: Solr adds 0.000001 to thresholds")
    return Package(
        _files(source, "MultipleAdditiveTreesModel", params, norms, ["NaN"] * len(cuts)),
        read,
        notes=tuple(notes),
        forest=forest,
        zero=zero,
    )


def read(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Scores by the two files, as Solr's classes compute them."""
    model, store = json.loads(files["model.json"]), json.loads(files["features.json"])
    default = {feature["name"]: np.float32(feature["params"].get("defaultValue", 0)) for feature in store}
    names = [feature["name"] for feature in model["features"]]
    matrix = np.where(np.isnan(rows), [default[name] for name in names], rows).astype(np.float32)
    for column, feature in enumerate(model["features"]):
        if "norm" in feature:
            matrix[:, column] = _normalised(feature["norm"], matrix[:, column])
    kind, params = model["class"].removeprefix(MODELS), model["params"]
    if kind == "LinearModel":
        total = np.zeros(len(rows), np.float32)
        for column, name in enumerate(names):
            total += matrix[:, column] * np.float32(params["weights"][name])
        return total.astype(np.float64)
    if kind == "NeuralNetworkModel":
        return _read_layers(params["layers"], matrix)
    return _read_trees(params, matrix, {name: column for column, name in enumerate(names)})


def _normalised(norm: Mapping[str, Any], values: Float32) -> Float32:
    given = {name: np.float32(value) for name, value in norm["params"].items()}
    with np.errstate(over="ignore"):
        if norm["class"] == f"{NORMS}StandardNormalizer":
            low, spread = given["avg"], given["std"]
        else:
            low, spread = given["min"], given["max"] - given["min"]
        scaled: Float32 = (values - low) / spread
    return scaled


def _read_layers(layers: list[Mapping[str, Any]], values: Float32) -> Float64:
    for layer in layers:
        matrix, bias = np.asarray(layer["matrix"], np.float32), np.asarray(layer["bias"], np.float32)
        values = APPLIED[layer["activation"]](values @ matrix.T + bias).astype(np.float32)
    return values[:, 0].astype(np.float64)


def _read_trees(params: Mapping[str, Any], matrix: Float32, place: Mapping[str, int]) -> Float64:
    with_missing = not params.get("isNullSameAsZero", True)

    def left(node: Mapping[str, Any], at: Int64) -> Bool:
        values = matrix[at, place[node["feature"]]]
        goes = values <= np.float32(node["threshold"]) + SLACK
        return np.where(np.isnan(values), with_missing and node.get("missing") == "left", goes)

    total = np.zeros(len(matrix), np.float32)
    for tree in params["trees"]:
        leaves = descend(
            tree["root"],
            len(matrix),
            value=lambda node: float(node["value"]) if "value" in node else None,
            left=left,
            children=lambda node: (node["left"], node["right"]),
        )
        total += np.float32(tree["weight"]) * leaves.astype(np.float32)
    return total.astype(np.float64)


def _tree(tree: Tree, names: tuple[str, ...], cuts: list[Cuts]) -> dict[str, Any]:
    def split(node: int, depth: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
        feature = int(tree.feature[node])
        return {
            "feature": names[feature],
            "threshold": cuts[feature].text(float(tree.threshold[node])),
            "missing": "left" if tree.missing_left[node] else "right",
            "left": left,
            "right": right,
        }

    return tree.nested(split, lambda _, value: {"value": str(single(value))})


def _layers(source: Source, factor: Float64) -> list[dict[str, Any]]:
    settings = source.model.ranker
    if settings.layer_norm != "none":
        refuse(source, "solr", "its networks have no layer norm", "onnx, or train with ranker.layer_norm=none")
    if settings.activation not in SOLR_LAYERS["activation"]:
        why = f"its networks have no {settings.activation}"
        refuse(source, "solr", why, f"onnx, or train with ranker.activation={' or '.join(SOLR_LAYERS['activation'])}")
    state = {name: value.detach().numpy() for name, value in source.model.network.state_dict().items()}
    names = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    layers = [
        {
            "matrix": single(state[f"{name}.weight"]),
            "bias": single(state[f"{name}.bias"]),
            "activation": settings.activation if name != names[-1] else "identity",
        }
        for name in names
    ]
    layers[0]["matrix"] = single(np.where(factor == 0, 0.0, state[f"{names[0]}.weight"]))
    return layers


def _norm(kind: str, params: dict[str, str]) -> dict[str, Any]:
    return {"class": NORMS + kind, "params": params}


def _files(
    source: Source,
    kind: str,
    params: Mapping[str, Any],
    norms: list[dict[str, Any] | None],
    defaults: list[str | None] | list[str],
) -> dict[str, bytes]:
    features = [
        {
            "store": source.feature_set,
            "name": name,
            "class": FIELD,
            "params": {"field": name} | ({} if default is None else {"defaultValue": default}),
        }
        for name, default in zip(source.feature_names, defaults, strict=True)
    ]
    model = {
        "store": source.feature_set,
        "class": MODELS + kind,
        "name": source.name,
        "features": [
            {"name": name} | ({} if norm is None else {"norm": norm})
            for name, norm in zip(source.feature_names, norms, strict=True)
        ],
        "params": params,
    }
    return {"features.json": json.dumps(features, indent=1).encode(), "model.json": json.dumps(model).encode()}


def _put(source: Source) -> str:
    return (
        "PUT features.json to schema/feature-store, then model.json to schema/model-store; features read the field of "
        f"their name in store {source.feature_set}: change class and params to what computes them, keep defaultValue"
    )
