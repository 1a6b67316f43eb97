"""The proof of an export: rows that are likely to tell, scored by the model and by a reader of the files."""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.export.forest import Forest, Tree
from clickprism.serve.export.source import Package, Source
from clickprism.types import Float32

ROWS: Final = 1024
GIVEN: Final = 512
SPLITS: Final = 10_000
LGBM_ZERO: Final = 1.1e-35  # LightGBM takes what is this close to 0 for 0
HUGE: Final = np.float32(1e30)
OF_TREES: Final = 2e-6
OF_NETWORKS: Final = 1e-4


def check(source: Source, package: Package, format_name: str, *, rows: int = ROWS, seed: int = 0) -> int:
    """Refuse an export whose reader scores a row differently; how many rows were compared.

    Rows are those the source gives, and drawn ones: within the ranges of training, extreme, and with missing values
    where the format has them. For trees, three rows more lead to each split, or to each of many where there are very
    many: at its threshold, right above, and missing. Scores may differ by what float32 sums differ by.
    """
    matrix = sample(source, package, rows=rows, seed=seed)
    expected = source.scores(matrix) - package.offset
    found = np.asarray(package.reader(package.files, matrix), dtype=np.float64)
    if found.shape != expected.shape:
        raise DataError(f"{format_name} gives {found.shape} scores for {len(matrix)} rows; nothing was written")
    if package.forest is None:
        allowed = OF_NETWORKS * np.maximum(np.abs(expected), np.median(np.abs(expected)))
    else:
        allowed = np.full(len(matrix), OF_TREES * package.forest.scale)
    wrong = np.flatnonzero(~(np.abs(found - expected) <= allowed))
    if len(wrong):
        row = int(wrong[0])
        values = ", ".join(f"{value:.9g}" for value in matrix[row][:8]) + (", ..." if matrix.shape[1] > 8 else "")
        problem = f"row {row} ({values}) scores {found[row]:.9g} in {format_name} and {expected[row]:.9g} in the model"
        remedy = "Nothing was written: export another format, and report this"
        raise DataError(f"{problem} ({len(wrong)} of {len(matrix)} rows differ)", remedy=remedy)
    return len(matrix)


def sample(source: Source, package: Package, *, rows: int, seed: int) -> Float32:
    """Rows that are likely to tell an export from its model, [rows or more, features]."""
    generator = np.random.default_rng(seed)
    forest = None if source.by_list else package.forest
    matrix = _plain(source, forest, rows, generator)
    codes = list(getattr(source.model.ranker, "categorical", ()))
    for column, size in zip(codes, getattr(source.model.ranker, "categories", ()), strict=True):
        matrix[:, column] = generator.integers(0, size + 2, len(matrix))
    if package.forest is not None or source.normaliser is not None:
        missing = generator.random(matrix.shape) < generator.choice([0.0, 0.1, 0.5], (len(matrix), 1))
        missing[-1] = True
        missing[:, codes] = False
        if source.normaliser is not None and package.forest is None:
            missing[:, list(source.normaliser.keep)] = False
        matrix[missing] = np.nan
    if forest is not None:
        matrix = np.concatenate([matrix, at_splits(forest, matrix, generator)])
        matrix[np.abs(matrix) <= max(package.zero, LGBM_ZERO)] = 0
    return matrix if package.missing else np.where(np.isnan(matrix), np.float32(0), matrix)


def at_splits(forest: Forest, matrix: Float32, generator: np.random.Generator) -> Float32:
    """Three rows for each split that lead there from the root and then to its threshold, above it, and nowhere."""
    places = [(tree, node) for tree in forest.trees for node in range(len(tree.feature))]
    chosen = generator.permutation(len(places))[:SPLITS]
    rows = matrix[generator.integers(0, len(matrix), len(chosen))].repeat(3, axis=0)
    above: dict[int, list[int]] = {}
    for row, place in enumerate(chosen.tolist()):
        tree, node = places[place]
        parents = above.setdefault(id(tree), _parents(tree))
        three = slice(3 * row, 3 * row + 3)
        for feature, (low, high) in _ranges(tree, node, parents).items():
            rows[three, feature] = high if high < HUGE else np.nextafter(max(low, -HUGE), HUGE)
        threshold = np.float32(tree.threshold[node])
        following = min(np.nextafter(threshold, np.float32(np.inf)), HUGE) if threshold < HUGE else threshold
        rows[three, tree.feature[node]] = np.clip([threshold, following, np.nan], -HUGE, HUGE)
    return rows


def _parents(tree: Tree) -> list[int]:
    """The split above each split: twice its number, one more for its right side; -1 for the root."""
    parents = [-1] * len(tree.feature)
    for side, children in ((0, tree.left), (1, tree.right)):
        for parent, child in enumerate(children.tolist()):
            if child >= 0:
                parents[child] = 2 * parent + side
    return parents


def _ranges(tree: Tree, node: int, parents: list[int]) -> dict[int, tuple[np.float32, np.float32]]:
    """The values of each feature that lead from the root to a split: above the first, at most the second."""
    ranges: dict[int, tuple[np.float32, np.float32]] = {}
    while parents[node] >= 0:
        node, right = divmod(parents[node], 2)
        feature, threshold = int(tree.feature[node]), np.float32(tree.threshold[node])
        low, high = ranges.get(feature, (np.float32(-np.inf), np.float32(np.inf)))
        ranges[feature] = (max(low, threshold), high) if right else (low, min(high, threshold))
    return ranges


def _plain(source: Source, forest: Forest | None, rows: int, generator: np.random.Generator) -> Float32:
    width = source.model.features
    centre, spread = np.zeros(width), np.ones(width)
    if source.normaliser is not None:
        centre = np.where(np.isfinite(source.normaliser.mean), source.normaliser.mean, 0.0)
        if source.normaliser.kind == "log1p":
            centre = np.copysign(np.expm1(np.minimum(np.abs(centre), 80)), centre)
        factor = source.normaliser.factor
        spread = np.clip(np.divide(1.0, factor, out=np.ones(width), where=factor > 0), 1e-30, 1e30)
    for column, cuts in enumerate(() if forest is None else forest.splits()):
        if len(cuts) > 1:
            centre[column] = float(np.median(cuts))
            spread[column] = (float(cuts[-1]) - float(cuts[0])) / 2
    drawn = centre + spread * generator.normal(size=(rows, width))
    if forest is not None:
        extreme = generator.random(drawn.shape) < 0.01
        drawn[extreme] = generator.choice(np.array([-HUGE, HUGE, 0.0, -0.0]), int(extreme.sum()))
    elif not source.by_list:
        drawn[: rows // 16] *= 100
    matrix = np.clip(drawn, -HUGE, HUGE).astype(np.float32)
    return matrix if source.rows is None else np.concatenate([source.rows[:GIVEN], matrix]).astype(np.float32)
