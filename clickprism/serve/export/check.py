"""Check an export: a reader of the target's format must give every row the score of the ranker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.export.forest import Forest, Tree
from clickprism.types import Float32

if TYPE_CHECKING:
    from clickprism.serve.export.export import Package, Source

ROWS: Final = 1024
GIVEN: Final = 512
SPLITS: Final = 10_000
LGBM_ZERO: Final = 1.1e-35  # LightGBM takes values this close to 0 as 0
HUGE: Final = np.float32(1e30)
OF_TREES: Final = 2e-6
OF_NETWORKS: Final = 1e-4
Ranges: TypeAlias = dict[int, tuple[np.float32, np.float32]]


def check(source: Source, package: Package, format_name: str, *, rows: int = ROWS, seed: int = 0) -> int:
    """Return how many rows were compared; raise a DataError if the reader of an export scores one differently.

    The rows are those of the source and drawn ones: within the ranges of training, extreme, and with missing values
    where the format has them. For trees, three more rows lead to each of at most 10,000 splits: at its threshold,
    right above it, and missing. Scores may differ by what sums in float32 differ by.
    """
    matrix = sample(source, package, rows=rows, seed=seed)
    expected = source.scores(matrix) - package.offset
    found = np.asarray(package.reader(package.files, matrix), dtype=np.float64)
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
    """Return rows that are likely to reveal a wrong export, [rows or more, features]."""
    from clickprism.serve.bundle.build import raw_features

    generator, forest, ranker = np.random.default_rng(seed), package.forest, source.model.ranker
    nowhere = np.zeros(source.model.features, np.bool_)
    drawn = raw_features(source.normaliser, rows=rows, missing=nowhere, generator=generator).astype(np.float64)
    if forest is None:
        drawn[: rows // 16] *= 100
    else:
        for column, cuts in enumerate(forest.splits()):
            if len(cuts) > 1:
                spread = (float(cuts[-1]) - float(cuts[0])) / 2
                drawn[:, column] = float(np.median(cuts)) + spread * generator.normal(size=rows)
        extreme = generator.random(drawn.shape) < 0.01
        drawn[extreme] = generator.choice(np.array([-HUGE, HUGE, 0.0, -0.0]), int(extreme.sum()))
    matrix = np.clip(drawn, -HUGE, HUGE).astype(np.float32)
    if source.rows is not None:
        matrix = np.concatenate([source.rows[:GIVEN], matrix])
    codes = list(getattr(ranker, "categorical", ()))
    for column, size in zip(codes, getattr(ranker, "categories", ()), strict=True):
        matrix[:, column] = generator.integers(0, size + 2, len(matrix))
    if forest is not None or source.normaliser is not None:
        missing = generator.random(matrix.shape) < generator.choice([0.0, 0.1, 0.5], (len(matrix), 1))
        missing[-1] = True
        missing[:, codes] = False
        if source.normaliser is not None and forest is None:
            missing[:, list(source.normaliser.keep)] = False
        matrix[missing] = np.nan
    if forest is not None:
        matrix = np.concatenate([matrix, at_splits(forest, matrix, generator)])
        matrix[np.abs(matrix) <= max(package.zero, LGBM_ZERO)] = 0
    return matrix if package.missing else np.where(np.isnan(matrix), np.float32(0), matrix)


def at_splits(forest: Forest, matrix: Float32, generator: np.random.Generator) -> Float32:
    """Return three rows for each split, which lead there: at its threshold, above it, and with a missing value."""
    splits = [split for tree in forest.trees if len(tree.feature) for split in _ranges(tree)]
    chosen = generator.permutation(len(splits))[:SPLITS]
    rows = matrix[generator.integers(0, len(matrix), len(chosen))].repeat(3, axis=0)
    for row, place in enumerate(chosen.tolist()):
        column, threshold, ranges = splits[place]
        three = slice(3 * row, 3 * row + 3)
        for feature, (low, high) in ranges.items():
            rows[three, feature] = high if high < HUGE else np.nextafter(max(low, -HUGE), HUGE)
        following = min(np.nextafter(threshold, np.float32(np.inf)), HUGE) if threshold < HUGE else threshold
        rows[three, column] = np.clip([threshold, following, np.nan], -HUGE, HUGE)
    return rows


def _ranges(tree: Tree) -> Iterator[tuple[int, np.float32, Ranges]]:
    """Yield the feature and threshold of each split, and which values lead there: above one number, up to another."""
    todo: list[tuple[int, Ranges]] = [(tree.root(), {})]
    while todo:
        node, ranges = todo.pop()
        if node < 0:
            continue
        feature, threshold = int(tree.feature[node]), np.float32(tree.threshold[node])
        yield feature, threshold, ranges
        low, high = ranges.get(feature, (np.float32(-np.inf), np.float32(np.inf)))
        todo.append((int(tree.left[node]), {**ranges, feature: (low, min(high, threshold))}))
        todo.append((int(tree.right[node]), {**ranges, feature: (max(low, threshold), high)}))
