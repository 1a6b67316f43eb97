"""RankLib's text for trees, which the plugin of Elasticsearch and OpenSearch takes as `model/ranklib`.

Features are numbered from 1. A split goes left where x <= threshold, in float32; leaves add up in float32. RankLib
reads a missing value as 0, so trees that send it elsewhere are refused, unless documents are complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from clickprism.serve.export.forest import Tree
from clickprism.serve.export.lightgbm_files import raw_forest
from clickprism.serve.export.nested import descend
from clickprism.serve.export.source import Package, Source, refuse, single
from clickprism.types import Bool, Float32, Float64, Int64

FILE = "model.txt"
TREE = re.compile(r'<tree id="\d+" weight="([^"]+)">(.*?)</tree>', re.DOTALL)
TOKEN = re.compile(r"(<split[^>]*>)|(</split>)|<(feature|threshold|output)>\s*(\S+)\s*</")


def export(source: Source) -> Package:
    """LambdaMART as RankLib's ensemble of trees."""
    forest = raw_forest(source, "ranklib")
    as_zero = all((tree.missing_left == (tree.threshold >= 0)).all() for tree in forest.trees)
    if not as_zero and not source.complete:
        why = "it reads a missing feature as 0, the model does not"
        refuse(source, "ranklib", why, "xgboost-json, or give --complete if every document has every feature")
    head = ["## LambdaMART", f"## No. of trees = {len(forest.trees)}", "", "<ensemble>"]
    body = [line for place, tree in enumerate(forest.trees, 1) for line in _tree(place, tree)]
    content = "\n".join([*head, *body, "</ensemble>", ""]).encode()
    names = "the features of the set must stand in the order of the model: RankLib has numbers, no names"
    return Package({FILE: content}, read, missing=as_zero, notes=(names,), forest=forest)


def read(files: Mapping[str, bytes], rows: Float32) -> Float64:
    """Scores by an ensemble, as RankLib computes them."""
    matrix = np.where(np.isnan(rows), np.float32(0), rows)
    total = np.zeros(len(rows), np.float32)

    def left(node: Mapping[str, Any], at: Int64) -> Bool:
        goes: Bool = matrix[at, node["feature"] - 1] <= np.float32(node["threshold"])
        return goes

    for weight, text in TREE.findall(files[FILE].decode()):
        leaves = descend(
            _parsed(text),
            len(rows),
            value=lambda node: node.get("output"),
            left=left,
            children=lambda node: node["split"],
        )
        total += np.float32(weight) * leaves.astype(np.float32)
    return total.astype(np.float64)


def _parsed(text: str) -> dict[str, Any]:
    """The outermost split of a tree, with those within it in order."""
    outer: dict[str, Any] = {"split": []}
    path = [outer]
    for opened, closed, tag, value in TOKEN.findall(text):
        if opened:
            node: dict[str, Any] = {"split": []}
            path[-1]["split"].append(node)
            path.append(node)
        elif closed:
            path.pop()
        else:
            path[-1][tag] = int(value) if tag == "feature" else float(value)
    found: dict[str, Any] = outer["split"][0]
    return found


def _tree(place: int, tree: Tree) -> list[str]:
    def split(node: int, depth: int, left: list[str], right: list[str]) -> Any:
        tab = "\t" * (depth + 3)
        return [
            f"{tab}<feature> {tree.feature[node] + 1} </feature>",
            f"{tab}<threshold> {single(tree.threshold[node])!r} </threshold>",
            f'{tab}<split pos="left">',
            *left,
            f"{tab}</split>",
            f'{tab}<split pos="right">',
            *right,
            f"{tab}</split>",
        ]

    inside: Any = tree.nested(split, lambda _, value: [f"<output> {single(value)!r} </output>"])  # type: ignore[arg-type, return-value]
    return [f'\t<tree id="{place}" weight="1.0">', "\t\t<split>", *inside, "\t\t</split>", "\t</tree>"]
