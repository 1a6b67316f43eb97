"""LightGBM's trees as plain arrays over raw float32 features, decision for decision.

LightGBM compares in double: x <= t. A float32 x is at most t just when it is at most the greatest float32 that is, so
that one is the threshold here. A normaliser is monotone in each feature, so it goes into the threshold as well: the
greatest raw x whose normalised value is at most t, found by bisection through the float32 numbers. What a missing value
does, by LightGBM's rules or as the mean that the normaliser gives it, becomes a direction of each split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.types import Bool, Float32, Float64, Int64

CATEGORICAL: Final = 1
DEFAULT_LEFT: Final = 2
MISSING_ZERO: Final = 1
MISSING_NAN: Final = 2
LARGEST: Final = np.finfo(np.float32).max
SIGN: Final = np.int64(0x80000000)

Nested: TypeAlias = dict[str, Any]


@final
@dataclass(frozen=True, eq=False)
class Tree:
    """A tree: go left in a split if the feature is at most its threshold; a child below 0 is the leaf ~child.

    Attributes:
        feature: of each split, from 0, [splits].
        threshold: [splits]; Float64 as LightGBM has it, until it is brought to raw features.
        missing_left: where a missing value goes, [splits].
        left: the child of each split, [splits].
        right: the other one, [splits].
        leaves: values, [splits + 1].
    """

    feature: Int64
    threshold: Float64
    missing_left: Bool
    left: Int64
    right: Int64
    leaves: Float64

    def root(self) -> int:
        """The first split, or the only leaf."""
        return 0 if len(self.feature) else ~0

    def nested(self, split: Callable[[int, int, Any, Any], Nested], leaf: Callable[[int, float], Nested]) -> Nested:
        """The tree as objects within objects: `split(split, depth, left, right)`, `leaf(leaf, value)`."""

        def at(node: int, depth: int) -> Nested:
            if node < 0:
                return leaf(~node, float(self.leaves[~node]))
            children = (at(int(child[node]), depth + 1) for child in (self.left, self.right))
            return split(node, depth, *children)

        return at(self.root(), 0)


@final
@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose leaves add up to a score."""

    trees: tuple[Tree, ...]
    features: int

    @property
    def scale(self) -> float:
        """The most that a score can be, of either sign."""
        return float(sum(np.abs(tree.leaves).max() for tree in self.trees))

    def splits(self) -> tuple[Float32, ...]:
        """The thresholds of each feature, each once, rising; without those that tell missing values from all others."""
        feature = np.concatenate([tree.feature for tree in self.trees] or [np.zeros(0, np.int64)])
        threshold = np.concatenate([tree.threshold for tree in self.trees] or [np.zeros(0)]).astype(np.float32)
        real = np.abs(threshold) < LARGEST
        return tuple(np.unique(threshold[real & (feature == column)]) for column in range(self.features))


def above(thresholds: Float64) -> Float64:
    """The next float32: x < above is x <= threshold. The largest float32 stays: x is below it as good as always."""
    with np.errstate(over="ignore"):
        following = np.nextafter(thresholds.astype(np.float32), np.float32(np.inf))
    held: Float64 = np.minimum(following, LARGEST).astype(np.float64)
    return held


def forest_of(text: str, features: int, normaliser: Normaliser | None) -> Forest:
    """The trees of a LightGBM model over raw features.

    A split on "zero as missing", or on categories, is refused: no other format has them.
    """
    trees = []
    for part in text.split("\nTree=")[1:]:
        values = dict(line.partition("=")[::2] for line in part.partition("\n\n")[0].splitlines()[1:] if "=" in line)
        trees.append(_tree(values))
    if not trees:
        raise DataError("the model has no trees", remedy="Train it for longer")
    return raw(Forest(tuple(trees), features), normaliser)


def _tree(values: Mapping[str, str]) -> Tree:
    if values.get("is_linear", "0") != "0":
        raise DataError("the trees have linear models in their leaves, which no other format has")

    def array(name: str, kind: Any) -> NDArray[Any]:
        return np.array(values.get(name, "").split(), dtype=kind)

    threshold, decision = array("threshold", np.float64), array("decision_type", np.int64)
    if (decision & CATEGORICAL).any():
        raise DataError("the trees split on categories", remedy="Export lightgbm, which has such splits")
    missing = (decision >> 2) & 3
    if (missing == MISSING_ZERO).any():
        raise DataError("the trees take 0 as missing", remedy="Export lightgbm, which knows that")
    left_out = np.where(missing == MISSING_NAN, (decision & DEFAULT_LEFT) > 0, threshold >= 0)
    return Tree(
        array("split_feature", np.int64),
        threshold,
        left_out,
        array("left_child", np.int64),
        array("right_child", np.int64),
        array("leaf_value", np.float64),
    )


def raw(forest: Forest, normaliser: Normaliser | None) -> Forest:
    """The same trees over features as they were before the normaliser, with float32 thresholds."""
    by_feature: list[list[float]] = [[] for _ in range(forest.features)]
    for tree in forest.trees:
        for feature, threshold in zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True):
            by_feature[feature].append(threshold)
    distinct = [np.unique(values) for values in by_feature]
    most = max(map(len, distinct), default=0)
    table = np.full((most, forest.features), np.nan)
    for column, values in enumerate(distinct):
        table[: len(values), column] = values
    found = _floor(table) if normaliser is None else _bisected(table, normaliser)
    means = None if normaliser is None else _missing(normaliser)
    trees = []
    for tree in forest.trees:
        place = np.array(
            [np.searchsorted(distinct[f], t) for f, t in zip(tree.feature, tree.threshold, strict=True)], np.int64
        )
        missing_left = tree.missing_left
        if means is not None:
            value = means[tree.feature]
            missing_left = np.where(np.isnan(value), missing_left, value <= tree.threshold)
        threshold = found[place, tree.feature] if len(place) else tree.threshold
        trees.append(pruned(replace(tree, threshold=threshold, missing_left=missing_left)))
    return Forest(tuple(trees), forest.features)


def pruned(tree: Tree) -> Tree:
    """The tree without splits that send every value, and a missing one, the same way."""
    always = np.where(np.isposinf(tree.threshold) & tree.missing_left, 1, 0)
    always = np.where(np.isneginf(tree.threshold) & ~tree.missing_left, -1, always)
    threshold = np.clip(tree.threshold, -LARGEST, LARGEST)
    if not always.any():
        return replace(tree, threshold=threshold)

    def end(node: int) -> int:
        while node >= 0 and always[node]:
            node = int((tree.left if always[node] > 0 else tree.right)[node])
        return node

    splits: list[int] = []
    leaves: list[int] = []
    todo = [end(tree.root())]
    while todo:
        node = todo.pop()
        if node < 0:
            leaves.append(node)
            continue
        splits.append(node)
        todo += [end(int(tree.right[node])), end(int(tree.left[node]))]
    new = {node: place for place, node in enumerate(splits)} | {node: ~place for place, node in enumerate(leaves)}
    left, right = (
        np.array([new[end(int(side[node]))] for node in splits], np.int64) for side in (tree.left, tree.right)
    )
    values = tree.leaves[[~node for node in leaves]]
    return Tree(tree.feature[splits], threshold[splits], tree.missing_left[splits], left, right, values)


def _floor(values: Float64) -> Float64:
    """The greatest float32 that is at most each value; infinities beyond float32's range."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    down = np.where(near.astype(np.float64) > values, np.nextafter(near, np.float32(-np.inf)), near)
    floor: Float64 = np.where(values >= LARGEST, np.inf, down.astype(np.float64))
    return floor


def _bisected(table: Float64, normaliser: Normaliser) -> Float64:
    """The greatest raw float32 of each feature whose normalised value is at most each of its thresholds, or -inf."""
    offsets = np.array([0, len(table)])
    top = _key(np.array([LARGEST], np.float32))[0]
    low, high = np.full(table.shape, -top - 1), np.full(table.shape, top)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        left = normaliser.features(_value(middle), offsets) <= table
        low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
    found = _value(low).astype(np.float64)
    return np.where(low == top, np.inf, np.where(low < -top, -np.inf, found))


def _key(values: Float32) -> Int64:
    """A whole number for each float32 that rises with it; both zeros have 0."""
    bits = values.view(np.uint32).astype(np.int64)
    return np.where(bits >= SIGN, SIGN - bits, bits)


def _value(keys: Int64) -> Float32:
    """The float32 of each key; those beyond the range are its ends."""
    top = int(_key(np.array([LARGEST], np.float32))[0])
    keys = np.clip(keys, -top, top)
    return np.where(keys < 0, SIGN - keys, keys).astype(np.uint32).view(np.float32)


def _missing(normaliser: Normaliser) -> Float64:
    """What a missing value of each feature becomes; NaN where it stays missing, [features]."""
    row = np.full((1, len(normaliser.mean)), np.nan, np.float32)
    made: Float64 = normaliser.features(row, np.array([0, 1]))[0].astype(np.float64)
    return made


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
