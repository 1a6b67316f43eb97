"""The ranking plugin of Elasticsearch and OpenSearch: trees as `model/xgboost+json`, weights as `model/linear`.

The file is the body of `POST _ltr/_featureset/NAME/_createmodel`. The plugin works in float32. A split goes left if
`split_condition > x`, strictly, so thresholds are the next float32 above those of LightGBM. A missing value follows the
pointer `missing`; older plugins ignore it and send the value right. A linear model has no constant term and takes a
missing feature as 0; `feature_normalizers` are (x - mean) / standard_deviation and (x - minimum) / (maximum - minimum).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from clickprism.serve.export.export import Package, Source, refuse, single
from clickprism.serve.export.forest import Node, Split, above, descend
from clickprism.types import Float32, Float64

FILE: Final = "model.json"
KEYS: Final = {"min_max": ("minimum", "maximum"), "standard": ("mean", "standard_deviation")}


def export(source: Source) -> Package:
    """Return trees as `model/xgboost+json`, or a linear ranker with its normaliser as `model/linear`."""

    def reader(files: Mapping[str, bytes], rows: Float32) -> Float64:
        return read(files, rows, source.feature_names)

    place = f"_ltr/_featureset/{source.feature_set}"
    notes = [f"POST it to {place}/_createmodel; the set must have features of these names"]
    if source.kind == "linear":
        if source.normaliser is not None and not source.complete:
            why = "the plugin takes a missing feature as 0, the model as the mean of training"
            remedy = "Export solr or onnx, or give --complete if no feature is ever missing"
            refuse(source, "the ranking plugin", why, remedy)
        weights = source.weights()
        offset = float(weights["output.bias"][0])
        notes.append(f"scores lack the constant {offset:.6g}, which the plugin cannot add: same order")
        named = dict(zip(source.feature_names, single(weights["output.weight"][0]), strict=True))
        scaled = zip(source.feature_names, source.scaled("min_max", "standard"), strict=True)
        normalisers = {
            name: {each[0]: dict(zip(KEYS[each[0]], each[1], strict=True))} for name, each in scaled if each is not None
        }
        files = _files(source, "model/linear", named, normalisers)
        return Package(files, reader, missing=False, offset=offset, notes=tuple(notes))
    forest, trees = source.forest, []
    for tree in forest.trees:
        condition, splits = above(tree.threshold).tolist(), len(tree.feature)

        def split(node: int, left: Any, right: Any) -> dict[str, Any]:
            yes, no = left["nodeid"], right["nodeid"]
            name, missing = source.feature_names[tree.feature[node]], yes if tree.missing_left[node] else no  # noqa: B023
            about = {"nodeid": node, "split": name, "split_condition": condition[node]}  # noqa: B023
            return {**about, "yes": yes, "no": no, "missing": missing, "children": [left, right]}

        trees.append(tree.nested(split, lambda leaf, value: {"nodeid": splits + leaf, "leaf": single(value)}))  # noqa: B023
    if left := sum(int(tree.missing_left.sum()) for tree in forest.trees):
        notes.append(f"{left} splits send a missing value left; older plugins ignore that and send it right")
    return Package(_files(source, "model/xgboost+json", trees, {}), reader, notes=tuple(notes), forest=forest)


def read(files: Mapping[str, bytes], rows: Float32, features: tuple[str, ...]) -> Float64:
    """Return the scores of a body of `_createmodel`, as the plugin computes them."""
    model, matrix = json.loads(files[FILE])["model"], rows.astype(np.float32)
    columns = {name: column for column, name in enumerate(features)}
    for name, given in model.get("feature_normalizers", {}).items():
        ((kind, values),) = given.items()
        low, second = map(np.float32, values.values())
        matrix[:, columns[name]] = (matrix[:, columns[name]] - low) / (second if kind == "standard" else second - low)
    definition, total = json.loads(model["model"]["definition"]), np.zeros(len(rows), np.float32)
    if model["model"]["type"] == "model/linear":
        for name, weight in definition.items():
            total += np.float32(weight) * matrix[:, columns[name]]
        return total.astype(np.float64)

    def node(of: Node) -> float | Split:
        if "leaf" in of:
            return float(of["leaf"])
        missing_left, condition = of["missing"] == of["yes"], np.float32(of["split_condition"])
        left, right = of["children"]
        return columns[of["split"]], lambda x: np.where(np.isnan(x), missing_left, condition > x), left, right

    for tree in definition:
        total += descend(tree, matrix, node).astype(np.float32)
    return total.astype(np.float64)


def _files(source: Source, kind: str, definition: Any, normalisers: dict[str, Any]) -> dict[str, bytes]:
    """Return the body of `_createmodel`, and with `--requests` all requests that upload the model, in order.

    These create the plugin's store and the feature set, unless the set exists already. A feature reads the field of its
    name; a document without the field does not match, so the feature is missing.
    """
    model: dict[str, Any] = {"name": source.name}
    if normalisers:
        model["feature_normalizers"] = normalisers
    text = json.dumps(definition, separators=(",", ":"))
    body = {"model": {**model, "model": {"type": kind, "definition": text}}}
    files = {FILE: json.dumps(body).encode()}
    if source.requests:
        path, features = f"/_ltr/_featureset/{source.feature_set}", []
        for name in source.feature_names:
            query = {"query": {"exists": {"field": name}}, "field_value_factor": {"field": name}}
            template = {"function_score": {**query, "boost_mode": "replace"}}
            features.append({"name": name, "params": [], "template_language": "mustache", "template": template})
        new = {"featureset": {"name": source.feature_set, "features": features}}
        requests = [("PUT", "/_ltr", None), ("PUT", path, new)] if source.new_set else []
        requests.append(("POST", f"{path}/_createmodel", body))
        named = [dict(zip(("method", "path", "body"), each, strict=True)) for each in requests]
        files["requests.json"] = json.dumps(named, indent=1).encode()
    return files
