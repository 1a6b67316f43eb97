"""A ranker in the format of another engine, scored there on a sample before a byte is written."""

from __future__ import annotations

from typing import Final

FORMATS: Final[dict[str, str]] = {
    "onnx": "clickprism.serve.export.onnx_file:export",
    "lightgbm": "clickprism.serve.export.lightgbm_files:export_text",
    "lightgbm-json": "clickprism.serve.export.lightgbm_files:export_json",
    "xgboost-json": "clickprism.serve.export.plugin:export_trees",
    "linear-json": "clickprism.serve.export.plugin:export_linear",
    "ranklib": "clickprism.serve.export.ranklib:export",
    "solr": "clickprism.serve.export.solr:export",
    "vespa": "clickprism.serve.export.vespa:export",
}
