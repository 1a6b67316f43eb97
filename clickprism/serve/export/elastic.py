"""The ranking plugin of Elasticsearch and OpenSearch: trees as `model/xgboost+json`, weights as `model/linear`.

The file is the body of `POST _ltr/_featureset/NAME/_createmodel`. The plugin works in float32 throughout. A split goes
left where `split_condition > x`, strictly, so thresholds are the next float32 above those of LightGBM. A missing value
follows the pointer `missing`, which older plugins ignore: there it goes right. A linear model has no constant term, and
a feature that is missing is 0 to it; `feature_normalizers` are (x - mean) / standard_deviation and (x - minimum) /
(maximum - minimum).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from clickprism.serve.export.export import Package, Source, check_held, linear_parts, refuse, scaling, single
from clickprism.serve.export.forest import Tree, above, descend
from clickprism.serve.export.libraries import raw_forest
from clickprism.types import Bool, Float32, Float64, Int64

FILE = "model.json"


def export(source: Source) -> Package:
    """Return trees as `model/xgboost+json`, or a linear ranker as `model/linear`."""
    if source.kind == "linear":
        return export_linear(source)
    check_held(source, "elasticsearch", "onnx or vespa, or train with ranker.name=lambdamart or linear")
    return export_trees(source)


def export_trees(source: Source) -> Package:
    """LambdaMART as `model/xgboost+json`."""
    forest = raw_forest(source, "xgboost-json")
    definition = [_tree(tree, source.feature_names) for tree in forest.trees]
    left = sum(int(tree.missing_left.sum()) for tree in forest.trees)
    notes = [_post(source)]
    if left:
        notes.append(f"{left} splits send a missing value left; older plugins ignore that and send it right")
    return Package(
        _files(source, "model/xgboost+json", definition),
        lambda files, rows: read(files, rows, source.feature_names),
        notes=tuple(notes),
        forest=forest,
    )


def export_linear(source: Source) -> Package:
    """The linear ranker as `model/linear`, with its normaliser."""
    check_held(source, "linear-json", "xgboost-json for trees, solr for networks of relu or tanh, else onnx")
    centre, factor = scaling(source)
    if source.normaliser is not None and not source.complete:
        why = "the plugin takes a missing feature as 0, the model as the mean of training"
        refuse(source, "linear-json", why, "solr or onnx, or give --complete if every document has every feature")
    weights, bias = linear_parts(source)
    weights = np.where(factor == 0, 0.0, weights)
    named = dict(zip(source.feature_names, single(weights), strict=True))
    normalisers = None
    if source.normaliser is not None:
        keys = ("minimum", "maximum") if source.normaliser.kind == "minmax" else ("mean", "standard_deviation")
        spread = np.divide(1.0, factor, out=np.ones_like(factor), where=factor > 0)
        second = centre + spread if source.normaliser.kind == "minmax" else spread
        kind = "min_max" if source.normaliser.kind == "minmax" else "standard"
        pairs = zip(source.feature_names, single(centre), single(second), factor, strict=True)
        normalisers = {
            name: {kind: dict(zip(keys, values, strict=True))}
            for place, (name, *values, used) in enumerate(pairs)
            if used and place not in source.normaliser.keep
        }
    return Package(
        _files(source, "model/linear", named, normalisers),
        lambda files, rows: read(files, rows, source.feature_names),
        missing=False,
        offset=bias,
        notes=(_post(source), f"scores lack the constant {bias:.6g}, which the plugin cannot add: same order"),
    )


def read(files: Mapping[str, bytes], rows: Float32, features: tuple[str, ...]) -> Float64:
    """Scores by a body of `_createmodel`, as the plugin computes them."""
    model = json.loads(files[FILE])["model"]
    place = {name: column for column, name in enumerate(features)}
    matrix = rows.astype(np.float32)
    for name, given in model.get("feature_normalizers", {}).items():
        ((kind, values),) = given.items()
        first, second = map(np.float32, values.values())
        column = matrix[:, place[name]]
        low, spread = (first, second) if kind == "standard" else (first, second - first)
        matrix[:, place[name]] = (column - low) / spread
    definition = json.loads(model["model"]["definition"])
    total = np.zeros(len(rows), np.float32)
    if model["model"]["type"] == "model/linear":
        for name, weight in definition.items():
            total += np.float32(weight) * matrix[:, place[name]]
        return total.astype(np.float64)

    def left(node: Mapping[str, Any], at: Int64) -> Bool:
        values = matrix[at, place[node["split"]]]
        goes: Bool = np.float32(node["split_condition"]) > values
        return np.where(np.isnan(values), node["missing"] == node["yes"], goes)

    for tree in definition:
        total += descend(
            tree, len(rows), value=lambda node: node.get("leaf"), left=left, children=lambda node: node["children"]
        ).astype(np.float32)
    return total.astype(np.float64)


def _tree(tree: Tree, names: tuple[str, ...]) -> dict[str, Any]:
    condition = above(tree.threshold).tolist()
    splits = len(tree.feature)

    def split(node: int, depth: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        yes, no = left["nodeid"], right["nodeid"]
        return {
            "nodeid": node,
            "depth": depth,
            "split": names[tree.feature[node]],
            "split_condition": condition[node],
            "yes": yes,
            "no": no,
            "missing": yes if tree.missing_left[node] else no,
            "children": [left, right],
        }

    return tree.nested(split, lambda leaf, value: {"nodeid": splits + leaf, "leaf": single(value)})


def _files(source: Source, kind: str, definition: Any, normalisers: dict[str, Any] | None = None) -> dict[str, bytes]:
    """Return the body of `_createmodel`, and with `--requests` all requests that upload the model."""
    model: dict[str, Any] = {"name": source.name}
    if normalisers:
        model["feature_normalizers"] = normalisers
    text = json.dumps(definition, separators=(",", ":"))
    body = {"model": {**model, "model": {"type": kind, "definition": text}}}
    files = {FILE: json.dumps(body).encode()}
    if source.requests:
        files["requests.json"] = json.dumps(_requests(source, body), indent=1).encode()
    return files


def _requests(source: Source, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what to send in order: the plugin's store, the feature set unless it exists already, the model.

    A feature reads the field of its name; a document without the field does not match, so the feature is missing.
    """
    place = f"/_ltr/_featureset/{source.feature_set}"
    features = [
        {
            "name": name,
            "params": [],
            "template_language": "mustache",
            "template": {
                "function_score": {
                    "query": {"exists": {"field": name}},
                    "field_value_factor": {"field": name},
                    "boost_mode": "replace",
                }
            },
        }
        for name in source.feature_names
    ]
    new: list[dict[str, Any]] = [
        {"method": "PUT", "path": "/_ltr", "body": None},
        {"method": "PUT", "path": place, "body": {"featureset": {"name": source.feature_set, "features": features}}},
    ]
    model = {"method": "POST", "path": f"{place}/_createmodel", "body": body}
    return [*(new if source.new_set else []), model]


def _post(source: Source) -> str:
    return f"POST it to _ltr/_featureset/{source.feature_set}/_createmodel; the set must have features of these names"
