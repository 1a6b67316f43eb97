"""Solr's learning to rank: linear models, trees and networks, with their normalisers, and the features they read.

Two files: `features.json` for the feature store, `model.json` for the model store. Solr works in float32. Its trees go
left if x <= threshold + 0.000001, the sum rounded to float32; thresholds are chosen so that this sum is exact. Where
none is, the feature is scaled by a power of two first, which changes no comparison. From Solr 9.2 on a missing value
can have a direction: `isNullSameAsZero` is false, and features have the default value NaN. Linear models and networks
read the mean of training instead, as the default value of the feature.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.export.export import SOLR_LAYERS, Package, Source, refuse, single
from clickprism.serve.export.forest import LARGEST, Node, Split, descend
from clickprism.types import Float32, Float64

SLACK: Final = np.float32(1e-6)
TINY: Final = 1.1e-35
SAFE: Final = 64.0  # from here on 0.000001 is below half a step of float32: the sum is the threshold itself
MODELS: Final = "org.apache.solr.ltr.model."
NORMS: Final = "org.apache.solr.ltr.norm."
KEYS: Final = {"MinMaxNormalizer": ("min", "max"), "StandardNormalizer": ("avg", "std")}
APPLIED: Final[dict[str, Callable[[Float32], Any]]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leakyrelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


@final
@dataclass(frozen=True)
class Cuts:
    """How the thresholds of a feature are written.

    Attributes:
        shift: The feature is multiplied by 2**shift first.
        written: What Solr has to read, by threshold.
        zero: Values closer to 0 than this may be on the wrong side of a threshold.
    """

    shift: int
    written: dict[float, float]
    zero: float = 0.0

    def text(self, threshold: float) -> str:
        """Return what Solr reads for a threshold; the largest number, which only missing values pass, is infinite.

        >>> Cuts(0, {0.5: 0.499999}).text(0.5), Cuts(0, {}).text(float(LARGEST))
        ('0.499999', 'Infinity')
        """
        if abs(threshold) >= float(LARGEST):
            return "Infinity" if threshold > 0 else "-Infinity"
        return str(self.written[threshold])


def cuts_of(thresholds: Float32) -> Cuts:
    """Return thresholds [n] as Solr has to read them: fl(written + 0.000001) is the threshold, scaled if need be.

    LightGBM's own 1e-35 beside 0 are as good as 0 and cannot be reached: x <= 1e-35 becomes x <= 0, and x <= -1e-35 the
    nearest possible one below 0.

    >>> cuts_of(np.array([0.5], np.float32))
    Cuts(shift=0, written={0.5: 0.4999989867210388}, zero=0.0)
    >>> cuts_of(np.array([1e-7, 3.0], np.float32)).shift
    30
    """
    values, shift = thresholds.astype(np.float64), 0
    tiny = np.abs(values) <= TINY
    near = (thresholds - SLACK).astype(np.float32)
    tries = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    exact = np.stack([each + SLACK == thresholds for each in tries])
    written = np.choose(exact.argmax(axis=0), tries)
    if not (exact.any(axis=0) | tiny).all():
        shift = int(np.ceil(np.log2(SAFE / np.abs(values[~tiny]).min())))
        if shift < 0 or float(np.abs(values).max()) * 2.0**shift > float(LARGEST):
            ends = f"{values.min():.3g} to {values.max():.3g}"
            remedy = "Export onnx or elasticsearch, or train with a normaliser such as standard"
            raise DataError(f"thresholds from {ends} of one feature are too far apart for solr", remedy=remedy)
        written = (values * 2.0**shift).astype(np.float32)
    zero, nothing = np.float32(-SLACK), np.nextafter(-SLACK, np.float32(-1))
    written = np.where(tiny, np.where(values >= 0, zero, nothing), written)
    closest = float(-(nothing + SLACK)) * 2.0**-shift if (tiny & (values < 0)).any() else TINY
    pairs = zip(values.tolist(), written.astype(np.float64).tolist(), strict=True)
    return Cuts(shift, dict(pairs), closest if (tiny & (values != 0)).any() else 0.0)


def export(source: Source) -> Package:
    """Return the ranker as the files of Solr's two stores."""
    names, normaliser = source.feature_names, source.normaliser
    notes = [
        "PUT features.json to schema/feature-store, then model.json to schema/model-store; features read the field of "
        f"their name in store {source.feature_set}: change class and params to what computes them, keep defaultValue"
    ]
    if source.kind == "lambdamart":
        forest = source.forest
        cuts = [cuts_of(splits) for splits in forest.splits()]
        norms = [("StandardNormalizer", (0.0, 2.0**-cut.shift)) if cut.shift else None for cut in cuts]

        def split(tree: Any, node: int, left: Any, right: Any) -> dict[str, Any]:
            feature, missing = int(tree.feature[node]), "left" if tree.missing_left[node] else "right"
            threshold = cuts[feature].text(float(tree.threshold[node]))
            about = {"feature": names[feature], "threshold": threshold, "missing": missing}
            return {**about, "left": left, "right": right}

        trees = []
        for tree in forest.trees:
            root = tree.nested(
                lambda *node, tree=tree: split(tree, *node), lambda _, value: {"value": str(single(value))}
            )
            trees.append({"weight": "1.0", "root": root})
        notes.append("missing values need Solr 9.2 or later")
        zero = max(cut.zero for cut in cuts)
        if zero:
            notes.append(f"a value closer to 0 than {zero:.1g} may count as another: Solr adds 0.000001 to thresholds")
        params: dict[str, Any] = {"isNullSameAsZero": False, "trees": trees}
        files = _files(source, "MultipleAdditiveTreesModel", params, norms, ["NaN"] * len(cuts))
        return Package(files, read, notes=tuple(notes), forest=forest, zero=zero)
    defaults: list[str | None] = [None] * len(names)
    if normaliser is not None:
        means = enumerate(single(normaliser.mean))
        defaults = [None if place in normaliser.keep else str(mean) for place, mean in means]
    offset = 0.0
    if source.kind == "linear":
        weights, model = source.weights(), "LinearModel"
        offset = float(weights["output.bias"][0])
        params = {"weights": dict(zip(names, single(weights["output.weight"][0]), strict=True))}
        notes.append(f"scores lack the constant {offset:.6g}, which a LinearModel cannot add: same order")
    else:
        model, params = "NeuralNetworkModel", {"layers": _layers(source)}
    files = _files(source, model, params, source.scaled("MinMaxNormalizer", "StandardNormalizer"), defaults)
    return Package(files, read, offset=offset, notes=tuple(notes))


def _layers(source: Source) -> list[dict[str, Any]]:
    settings = source.model.ranker
    for name, known in SOLR_LAYERS.items():
        if getattr(settings, name) not in known:
            why = f"its networks have no {name} {getattr(settings, name)}"
            refuse(source, "solr", why, f"Export onnx, or train with ranker.{name}={' or '.join(known)}")
    state = source.weights()
    names = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    return [
        {
            "matrix": single(state[f"{name}.weight"]),
            "bias": single(state[f"{name}.bias"]),
            "activation": settings.activation if name != names[-1] else "identity",
        }
        for name in names
    ]


def _files(
    source: Source,
    kind: str,
    params: Mapping[str, Any],
    norms: Sequence[tuple[str, tuple[float, float]] | None],
    defaults: Sequence[str | None],
) -> dict[str, bytes]:
    store: list[dict[str, Any]] = []
    features: list[dict[str, Any]] = []
    for name, norm, default in zip(source.feature_names, norms, defaults, strict=True):
        about = {"field": name} | ({} if default is None else {"defaultValue": default})
        reader = {"class": "org.apache.solr.ltr.feature.FieldValueFeature", "params": about}
        store.append({"store": source.feature_set, "name": name, **reader})
        features.append({"name": name})
        if norm is not None:
            values = dict(zip(KEYS[norm[0]], map(str, norm[1]), strict=True))
            features[-1]["norm"] = {"class": NORMS + norm[0], "params": values}
    model: dict[str, Any] = {"store": source.feature_set, "class": MODELS + kind, "name": source.name}
    model |= {"features": features, "params": params}
    return {"features.json": json.dumps(store, indent=1).encode(), "model.json": json.dumps(model).encode()}


def read(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Return the scores of the two files, as Solr's classes compute them."""
    model, store = json.loads(files["model.json"]), json.loads(files["features.json"])
    default = {feature["name"]: np.float32(feature["params"].get("defaultValue", 0)) for feature in store}
    names = [feature["name"] for feature in model["features"]]
    matrix = np.where(np.isnan(rows), [default[name] for name in names], rows).astype(np.float32)
    for column, feature in enumerate(model["features"]):
        if "norm" in feature:
            kind, params = feature["norm"]["class"].removeprefix(NORMS), feature["norm"]["params"]
            low, second = (np.float32(params[name]) for name in KEYS[kind])
            with np.errstate(over="ignore"):
                spread = second if kind == "StandardNormalizer" else second - low
                matrix[:, column] = (matrix[:, column] - low) / spread
    kind, params = model["class"].removeprefix(MODELS), model["params"]
    if kind == "NeuralNetworkModel":
        for layer in params["layers"]:
            weight, bias = np.asarray(layer["matrix"], np.float32), np.asarray(layer["bias"], np.float32)
            matrix = APPLIED[layer["activation"]](matrix @ weight.T + bias).astype(np.float32)
        return matrix[:, 0].astype(np.float64)
    total = np.zeros(len(rows), np.float32)
    if kind == "LinearModel":
        for column, name in enumerate(names):
            total += matrix[:, column] * np.float32(params["weights"][name])
        return total.astype(np.float64)
    with_missing = not params.get("isNullSameAsZero", True)

    def node(of: Node) -> float | Split:
        if "value" in of:
            return float(of["value"])
        missing_left, threshold = with_missing and of.get("missing") == "left", np.float32(of["threshold"]) + SLACK
        column = names.index(of["feature"])
        return column, lambda x: np.where(np.isnan(x), missing_left, x <= threshold), of["left"], of["right"]

    for tree in params["trees"]:
        total += np.float32(tree["weight"]) * descend(tree["root"], matrix, node).astype(np.float32)
    return total.astype(np.float64)
