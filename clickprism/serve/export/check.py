"""The proof of an export: rows that are likely to tell, scored by the model and by a reader of the files."""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.export.source import Package, Source
from clickprism.types import Float32

ROWS: Final = 1024
GIVEN: Final = 512
LGBM_ZERO: Final = 1.1e-35  # LightGBM takes what is this close to 0 for 0
HUGE: Final = np.float32(1e30)
OF_TREES: Final = 2e-6
OF_NETWORKS: Final = 1e-4


def check(source: Source, package: Package, format_name: str, *, rows: int = ROWS, seed: int = 0) -> int:
    """Refuse an export whose reader scores a row differently; how many rows were compared.

    Rows are those the source gives, and drawn ones: within the ranges of training, at every threshold and beside it,
    extreme, and with missing values where the format has them. Scores may differ by what float32 sums differ by.
    """
    matrix = sample(source, package, rows=rows, seed=seed)
    expected = source.scores(matrix) - package.offset
    found = np.asarray(package.reader(package.files, matrix), dtype=np.float64)
    if found.shape != expected.shape:
        raise DataError(f"{format_name} gives {found.shape} scores for {len(matrix)} rows; nothing was written")
    if package.scale is None:
        allowed = OF_NETWORKS * np.maximum(np.abs(expected), np.median(np.abs(expected)))
    else:
        allowed = np.full(len(matrix), OF_TREES * package.scale)
    wrong = np.flatnonzero(~(np.abs(found - expected) <= allowed))
    if len(wrong):
        row = int(wrong[0])
        values = ", ".join(f"{value:.9g}" for value in matrix[row][:8]) + (", ..." if matrix.shape[1] > 8 else "")
        problem = f"row {row} ({values}) scores {found[row]:.9g} in {format_name} and {expected[row]:.9g} in the model"
        remedy = "Nothing was written: export another format, and report this"
        raise DataError(f"{problem} ({len(wrong)} of {len(matrix)} rows differ)", remedy=remedy)
    return len(matrix)


def sample(source: Source, package: Package, *, rows: int, seed: int) -> Float32:
    """Rows that are likely to tell an export from its model, [about rows, features]."""
    generator = np.random.default_rng(seed)
    matrix = _plain(source, package, rows, generator)
    if any(map(len, package.splits)):
        _at_splits(matrix, package, generator)
        extreme = generator.random(matrix.shape) < 0.01
        matrix[extreme] = generator.choice(np.array([-HUGE, HUGE, 0.0, -0.0], np.float32), int(extreme.sum()))
        matrix[np.abs(matrix) <= max(package.zero, LGBM_ZERO)] = 0
    elif not source.by_list:
        matrix[: rows // 16] *= np.float32(100)
    codes = list(getattr(source.model.ranker, "categorical", ()))
    for column, size in zip(codes, getattr(source.model.ranker, "categories", ()), strict=True):
        matrix[:, column] = generator.integers(0, size + 2, len(matrix))
    if package.missing and (package.splits or source.normaliser is not None):
        missing = generator.random(matrix.shape) < generator.choice([0.0, 0.1, 0.5], (len(matrix), 1))
        missing[-1] = True
        missing[:, codes] = False
        if source.normaliser is not None and not package.splits:
            missing[:, list(source.normaliser.keep)] = False
        matrix[missing] = np.nan
    if not package.missing:
        matrix = np.nan_to_num(matrix, nan=0.0, posinf=None, neginf=None)
    return matrix


def _plain(source: Source, package: Package, rows: int, generator: np.random.Generator) -> Float32:
    width = source.model.features
    centre, spread = np.zeros(width), np.ones(width)
    if source.normaliser is not None:
        centre = np.where(np.isfinite(source.normaliser.mean), source.normaliser.mean, 0.0)
        if source.normaliser.kind == "log1p":
            centre = np.copysign(np.expm1(np.minimum(np.abs(centre), 80)), centre)
        factor = source.normaliser.factor
        spread = np.clip(np.divide(1.0, factor, out=np.ones(width), where=factor > 0), 1e-30, 1e30)
    for column, cuts in enumerate(package.splits):
        if len(cuts) > 1:
            centre[column] = float(np.median(cuts))
            spread[column] = (float(cuts[-1]) - float(cuts[0])) / 2
    drawn = np.clip(centre + spread * generator.normal(size=(rows, width)), -HUGE, HUGE).astype(np.float32)
    if source.rows is None or not len(source.rows):
        return drawn
    return np.concatenate([source.rows[:GIVEN], drawn]).astype(np.float32)


def _at_splits(matrix: Float32, package: Package, generator: np.random.Generator) -> None:
    """Put values at thresholds and right beside them, half of all; every threshold, as far as there are rows."""
    for column, cuts in enumerate(package.splits):
        if not len(cuts):
            continue
        beside = np.concatenate([cuts, np.nextafter(cuts, np.float32(np.inf)), np.nextafter(cuts, np.float32(-np.inf))])
        places = generator.permutation(len(matrix))[: len(matrix) // 2]
        matrix[places, column] = np.resize(generator.permutation(beside), len(places))
