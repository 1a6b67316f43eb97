"""Trees as other engines write them, objects within objects, walked by all rows at once: the core of every reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from clickprism.types import Bool, Float64, Int64


def descend(
    root: Mapping[str, Any],
    rows: int,
    *,
    value: Callable[[Mapping[str, Any]], float | None],
    left: Callable[[Mapping[str, Any], Int64], Bool],
    children: Callable[[Mapping[str, Any]], tuple[Any, Any]],
) -> Float64:
    """The leaf value that each row ends at, [rows].

    Args:
        root: the first node.
        rows: how many there are.
        value: of a leaf; None for a split.
        left: which of some rows go left at a split.
        children: of a split, the left one first.

    >>> tree = {"at": 2, "no": {"leaf": 1.5}, "yes": {"leaf": -1.0}}
    >>> descend(tree, 4, value=lambda node: node.get("leaf"), left=lambda node, rows: rows < node["at"],
    ...     children=lambda node: (node["yes"], node["no"])).tolist()
    [-1.0, -1.0, 1.5, 1.5]
    """
    result = np.empty(rows)
    todo: list[tuple[Mapping[str, Any], Int64]] = [(root, np.arange(rows))]
    while todo:
        node, at = todo.pop()
        if not len(at):
            continue
        leaf = value(node)
        if leaf is not None:
            result[at] = leaf
            continue
        goes = left(node, at)
        first, second = children(node)
        todo += [(first, at[goes]), (second, at[~goes])]
    return result
