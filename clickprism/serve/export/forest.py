"""LightGBM's trees as arrays over raw float32 features, with the same decision at every split.

LightGBM compares in double: x <= t. A float32 x is at most t exactly if it is at most the greatest float32 below or at
t, so that one is the threshold here. A normaliser is monotone in each feature, so it goes into the threshold as well:
the greatest raw x whose normalised value is at most t, found by bisection over the float32 numbers. Where a missing
value goes, by LightGBM's rules or as the mean that the normaliser gives it, becomes a direction of each split.
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

Node: TypeAlias = Mapping[str, Any]
Split: TypeAlias = tuple[int, Callable[[Float32], Bool], Any, Any]  # column, which values go left, left, right


@final
@dataclass(frozen=True, eq=False)
class Tree:
    """A tree: a value goes left if it is at most the threshold of the split; a child below 0 is the leaf ~child.

    Attributes:
        feature: Feature of each split, from 0, [splits].
        threshold: Threshold of each split, [splits].
        missing_left: Whether a missing value goes left, [splits].
        left: Left child of each split, [splits].
        right: Right child of each split, [splits].
        leaves: Value of each leaf, [splits + 1].
    """

    feature: Int64
    threshold: Float64
    missing_left: Bool
    left: Int64
    right: Int64
    leaves: Float64

    def root(self) -> int:
        """Return the first split, or the only leaf."""
        return 0 if len(self.feature) else ~0

    def nested(self, split: Callable[[int, Any, Any], Any], leaf: Callable[[int, float], Any]) -> Any:
        """Return the tree as nested objects, built by `split(number, left, right)` and `leaf(number, value)`."""

        def build(node: int) -> Any:
            if node < 0:
                return leaf(~node, float(self.leaves[~node]))
            return split(node, build(int(self.left[node])), build(int(self.right[node])))

        return build(self.root())

    def children(self) -> tuple[list[int], list[int]]:
        """Return the left and right children as nodes of one numbering: the splits first, then the leaves."""
        left, right = (np.where(side < 0, len(self.feature) + ~side, side).tolist() for side in (self.left, self.right))
        return left, right


@final
@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose leaves sum to a score."""

    trees: tuple[Tree, ...]
    features: int

    @property
    def scale(self) -> float:
        """The largest absolute value that a score can have."""
        return float(sum(np.abs(tree.leaves).max() for tree in self.trees))

    def splits(self) -> tuple[Float32, ...]:
        """Return the distinct thresholds of each feature, without those that only separate missing values."""
        feature = np.concatenate([tree.feature for tree in self.trees] or [np.zeros(0, np.int64)])
        threshold = np.concatenate([tree.threshold for tree in self.trees] or [np.zeros(0)]).astype(np.float32)
        real = np.abs(threshold) < LARGEST
        return tuple(np.unique(threshold[real & (feature == column)]) for column in range(self.features))


def above(thresholds: Float64) -> Float64:
    """Return the next float32: x < above is x <= threshold. The largest float32 does not change."""
    with np.errstate(over="ignore"):
        following = np.nextafter(thresholds.astype(np.float32), np.float32(np.inf))
    held: Float64 = np.minimum(following, LARGEST).astype(np.float64)
    return held


def forest_of(text: str, features: int, normaliser: Normaliser | None) -> Forest:
    """Return the trees of a LightGBM model over raw features.

    Splits on categories, or on 0 as a missing value, are refused: no other format has them.
    """
    trees = []
    for part in text.split("\nTree=")[1:]:
        values = dict(line.partition("=")[::2] for line in part.partition("\n\n")[0].splitlines()[1:] if "=" in line)
        trees.append(_tree(values))
    if not trees:
        raise DataError("the model has no trees", remedy="Train it for longer")
    return _raw(Forest(tuple(trees), features), normaliser)


def _tree(values: Mapping[str, str]) -> Tree:
    if values.get("is_linear", "0") != "0":
        raise DataError("the trees have linear models in their leaves, which no other format has")

    def array(name: str, kind: Any) -> NDArray[Any]:
        return np.array(values.get(name, "").split(), dtype=kind)

    threshold, decision = array("threshold", np.float64), array("decision_type", np.int64)
    missing = (decision >> 2) & 3
    if (decision & CATEGORICAL).any() or (missing == MISSING_ZERO).any():
        raise DataError("the trees split on categories, or take 0 as missing, which no other format does")
    missing_left = np.where(missing == MISSING_NAN, (decision & DEFAULT_LEFT) > 0, threshold >= 0)
    left, right = array("left_child", np.int64), array("right_child", np.int64)
    return Tree(array("split_feature", np.int64), threshold, missing_left, left, right, array("leaf_value", np.float64))


def _raw(forest: Forest, normaliser: Normaliser | None) -> Forest:
    """Return the same trees over features as they were before the normaliser, with float32 thresholds."""
    feature = np.concatenate([tree.feature for tree in forest.trees])
    threshold = np.concatenate([tree.threshold for tree in forest.trees])
    distinct = [np.unique(threshold[feature == column]) for column in range(forest.features)]
    table = np.full((max(map(len, distinct), default=0), forest.features), np.nan)
    for column, values in enumerate(distinct):
        table[: len(values), column] = values
    raw = _floor(table) if normaliser is None else _bisected(table, normaliser)
    means = np.full(forest.features, np.nan)
    if normaliser is not None:  # what a missing value becomes; NaN if it stays missing
        means = normaliser.features(means[None].astype(np.float32), np.array([0, 1]))[0].astype(np.float64)
    trees = []
    for tree in forest.trees:
        pairs = zip(tree.feature, tree.threshold, strict=True)
        place = np.array([np.searchsorted(distinct[column], value) for column, value in pairs], np.int64)
        mean = means[tree.feature]
        missing_left = np.where(np.isnan(mean), tree.missing_left, mean <= tree.threshold)
        cut = raw[place, tree.feature] if len(place) else tree.threshold
        trees.append(pruned(replace(tree, threshold=cut, missing_left=missing_left)))
    return Forest(tuple(trees), forest.features)


def pruned(tree: Tree) -> Tree:
    """Return the tree without splits that send every value, and a missing one, to the same side."""
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
    left, right = (np.array([new[end(int(side[node]))] for node in splits], int) for side in (tree.left, tree.right))
    values = tree.leaves[[~node for node in leaves]]
    return Tree(tree.feature[splits], threshold[splits], tree.missing_left[splits], left, right, values)


def _floor(values: Float64) -> Float64:
    """Return the greatest float32 that is at most each value; infinities beyond the range of float32."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    down = np.where(near.astype(np.float64) > values, np.nextafter(near, np.float32(-np.inf)), near)
    floor: Float64 = np.where(values >= LARGEST, np.inf, down.astype(np.float64))
    return floor


def _bisected(table: Float64, normaliser: Normaliser) -> Float64:
    """Return the greatest raw float32 of each feature whose normalised value is at most each threshold, or -inf."""
    offsets = np.array([0, len(table)])
    top = int(LARGEST.view(np.uint32))
    low, high = np.full(table.shape, -top - 1), np.full(table.shape, top)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        left = normaliser.features(_float(middle, top), offsets) <= table
        low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
    found = _float(low, top).astype(np.float64)
    return np.where(low == top, np.inf, np.where(low < -top, -np.inf, found))


def _float(keys: Int64, top: int) -> Float32:
    """Return the float32 of each key, a whole number from -top to top in the order of the numbers; 0 is 0."""
    keys = np.clip(keys, -top, top)
    return np.where(keys < 0, SIGN - keys, keys).astype(np.uint32).view(np.float32)


def descend(root: Node, matrix: Float32, read: Callable[[Node], float | Split]) -> Float64:
    """Return the value of the leaf that each row of a matrix reaches, [rows].

    `read` returns the value of a leaf; of a split the column, which values of it go left, and both children.

    >>> tree = {"at": 2, "no": {"leaf": 1.5}, "yes": {"leaf": -1.0}}
    >>> rows = np.array([[0], [1], [2]], np.float32)
    >>> descend(tree, rows, lambda node: node.get("leaf") or (0, lambda x: x < node["at"], node["yes"], node["no"]))
    array([-1. , -1. ,  1.5])
    """
    result = np.empty(len(matrix))
    todo: list[tuple[Node, Int64]] = [(root, np.arange(len(matrix)))]
    while todo:
        node, rows = todo.pop()
        found = read(node)
        if not isinstance(found, tuple):
            result[rows] = found
        elif len(rows):
            column, goes_left, left, right = found
            goes = goes_left(matrix[rows, column])
            todo += [(left, rows[goes]), (right, rows[~goes])]
    return result
