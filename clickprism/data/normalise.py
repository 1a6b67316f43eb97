"""Features brought to a common scale, with statistics from the training part only.

What a kind does, with `min`, `max`, `mean`, `std` of each feature over the documents of the training part:

| kind | value |
|---|---|
| none | x |
| minmax | (x - min) / (max - min) |
| standard | (x - mean) / std |
| log1p | s = sign(x) log(1 + |x|), then (s - mean) / std of s (as Qin et al. 2021 do) |
| quantile | 2 F(x) - 1, F the distribution function of the training part (ties in the middle): uniform in [-1, 1] |
| query-minmax | minmax with the min and max of the list itself |
| query-standard | standard with the mean and std of the list itself |

A feature that is constant becomes 0. A missing value (NaN) takes the training mean first (for log1p that of s); `none`
leaves it. Columns to `keep`, such as codes of names, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest
from clickprism.types import Dataset, Float32, Float64, Int64, Lists

Kind: TypeAlias = Literal["none", "minmax", "standard", "log1p", "quantile", "query-minmax", "query-standard"]
KINDS: tuple[str, ...] = get_args(Kind)

BLOCK = 1 << 16
QUANTILES = 1001
QUANTILE_ROWS = 200_000
LARGEST = float(np.finfo(np.float32).max)


@final
@dataclass(frozen=True, eq=False)
class Normaliser:
    """A fitted normalisation: call it with lists, or give a matrix and the offsets of its lists to `features`.

    Attributes:
        kind: What it does, see `clickprism.data.normalise`.
        mean: Training mean of each feature, which replaces missing values, [features].
        centre: Subtracted from each feature, [features].
        factor: Multiplies each feature after that; 0 for a constant one, [features].
        grid: Training quantiles of each feature, of kind quantile only, [quantiles, features].
        keep: Features that are not changed, from 0, rising.
    """

    kind: Kind
    mean: Float64
    centre: Float64
    factor: Float64
    grid: Float64
    keep: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingError("normalise", self.kind, f"be a known kind ({suggest(self.kind, KINDS)})")
        width = len(self.mean)
        shapes = (self.mean.shape, self.centre.shape, self.factor.shape, self.grid.shape[1:])
        if any(shape != (width,) for shape in shapes):
            raise DataError(f"the arrays of a normaliser disagree on the number of features: {shapes}")
        if list(self.keep) != sorted({place for place in self.keep if 0 <= place < width}):
            raise SettingError("keep", self.keep, f"be features from 0 to {width - 1}, rising, each once")

    def __call__(self, lists: Lists) -> Lists:
        """Return the lists with normalised features."""
        return lists if self.kind == "none" else lists.with_features(self.features(lists.features, lists.offsets))

    def features(self, matrix: Float32, offsets: Int64) -> Float32:
        """Normalise a matrix [documents, features]; `offsets` [lists + 1] matter to the kinds by query only."""
        if matrix.ndim != 2 or matrix.shape[1] != len(self.mean):
            raise DataError(f"the normaliser was fitted to {len(self.mean)} features, got a matrix {matrix.shape}")
        if self.kind == "none":
            return matrix
        result = np.empty(matrix.shape, np.float32)
        bounds = _blocks(offsets) if self.kind.startswith("query-") else _slices(len(matrix))
        for start, stop in bounds:
            block = _transformed(self.kind, matrix[start:stop])
            block = np.where(np.isnan(block), self.mean, block)
            if self.kind in ("query-minmax", "query-standard"):
                inside = offsets[(offsets >= start) & (offsets <= stop)] - start
                result[start:stop] = _within_lists(self.kind, block, np.unique(inside))
            elif self.kind == "quantile":
                result[start:stop] = self._ranks(block)
            else:
                result[start:stop] = np.clip((block - self.centre) * self.factor, -LARGEST, LARGEST)
            result[start:stop, self.keep] = matrix[start:stop, self.keep]
        return result

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a file must hold: plain settings, and arrays."""
        arrays = {"mean": self.mean, "centre": self.centre, "factor": self.factor, "grid": self.grid}
        return {"kind": self.kind, "keep": list(self.keep)}, dict(arrays)

    @staticmethod
    def from_state(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Normaliser:
        """Return the normaliser with this state."""
        try:
            mean, centre, factor, grid = (
                np.asarray(arrays[name], dtype=np.float64) for name in ("mean", "centre", "factor", "grid")
            )
            keep = tuple(int(place) for place in settings.get("keep", ()))
            return Normaliser(settings["kind"], mean, centre, factor, grid, keep)
        except KeyError as error:
            raise DataError(f"the state of a normaliser lacks {error}") from None

    def _ranks(self, block: Float64) -> Float64:
        share = np.linspace(0, 1, len(self.grid))
        ranks = np.zeros_like(block)
        for column in np.flatnonzero(self.factor):
            grid, values = self.grid[:, column], block[:, column]
            upper = np.interp(values, grid, share)
            lower = -np.interp(-values, -grid[::-1], -share[::-1])
            ranks[:, column] = upper + lower - 1
        return ranks


def fit(kind: Kind, lists: Lists, *, keep: Sequence[int] = ()) -> Normaliser:
    """Fit a normaliser to the training part; the features `keep`, from 0, are not changed.

    >>> lists = Lists(np.array([[1, 5], [3, 5]], np.float32), np.array([0, 2]), np.array(["q"]))
    >>> fit("minmax", lists)(lists).features.tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """
    if kind not in KINDS:
        raise SettingError("normalise", kind, f"be a known kind ({suggest(kind, KINDS)})")
    matrix = lists.features
    width = matrix.shape[1]
    nothing, grid = np.zeros(width), np.zeros((0, width))
    if kind == "none":
        return Normaliser(kind, nothing, nothing, np.ones(width), grid, tuple(keep))
    if len(matrix) == 0:
        raise DataError("cannot fit a normaliser to no documents")
    low, high, mean, deviation = _statistics(kind, matrix)
    centre, spread = nothing, np.ones(width)
    if kind == "minmax":
        centre, spread = low, high - low
    elif kind in ("standard", "log1p"):
        centre, spread = mean, deviation
    elif kind == "quantile":
        grid = _grid(matrix, mean)
    factor = np.divide(1.0, spread, out=np.zeros(width), where=(high > low) & (spread > 0))
    return Normaliser(kind, mean, centre, factor, grid, tuple(keep))


def normalised(dataset: Dataset, kind: Kind, *, keep: Sequence[int] = ()) -> tuple[Dataset, Normaliser]:
    """Return the data set with every part normalised by its training part, and the normaliser."""
    normaliser = fit(kind, dataset.train.lists, keep=keep)
    return dataset.map(lambda part: part.with_features(normaliser(part.lists).features)), normaliser


def _slices(rows: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK))


def _blocks(offsets: Int64) -> Iterator[tuple[int, int]]:
    """Yield row ranges of about a block that hold whole lists."""
    start = 0
    while start < int(offsets[-1]):
        last = int(np.searchsorted(offsets, start + BLOCK, side="right")) - 1
        stop = int(offsets[last])
        if stop <= start:
            stop = int(offsets[np.searchsorted(offsets, start, side="right")])
        yield start, stop
        start = stop


def _transformed(kind: Kind, block: Float32) -> Float64:
    values = block.astype(np.float64)
    if kind == "log1p":
        values = np.copysign(np.log1p(np.abs(values)), values)
    return values


def _statistics(kind: Kind, matrix: Float32) -> tuple[Float64, Float64, Float64, Float64]:
    """Return min, max, mean and standard deviation of each feature, without missing values."""
    width = matrix.shape[1]
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    total, count, squares = np.zeros(width), np.zeros(width), np.zeros(width)
    for start, stop in _slices(len(matrix)):
        block = _transformed(kind, matrix[start:stop])
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
        total += np.nansum(block, axis=0)
        count += np.count_nonzero(~np.isnan(block), axis=0)
    low[count == 0] = high[count == 0] = 0
    mean = np.divide(total, count, out=np.zeros(width), where=count > 0)
    for start, stop in _slices(len(matrix)):
        squares += np.nansum((_transformed(kind, matrix[start:stop]) - mean) ** 2, axis=0)
    return low, high, mean, np.sqrt(np.divide(squares, count, out=np.zeros(width), where=count > 0))


def _grid(matrix: Float32, mean: Float64) -> Float64:
    """Return quantiles of every row, or of evenly spaced ones if there are very many."""
    rows = matrix[:: max(1, len(matrix) // QUANTILE_ROWS)].astype(np.float64)
    grid: Float64 = np.quantile(np.where(np.isnan(rows), mean, rows), np.linspace(0, 1, QUANTILES), axis=0)
    return grid


def _within_lists(kind: Kind, block: Float64, offsets: Int64) -> Float64:
    """Scale each list of a block separately; no list is empty."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    low, high = np.minimum.reduceat(block, starts), np.maximum.reduceat(block, starts)
    centre, spread = low, high - low
    if kind == "query-standard":
        centre = np.add.reduceat(block, starts) / lengths[:, None]
        squares = (block - np.repeat(centre, lengths, axis=0)) ** 2
        spread = np.sqrt(np.add.reduceat(squares, starts) / lengths[:, None])
    factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=(high > low) & (spread > 0))
    result: Float64 = (block - np.repeat(centre, lengths, axis=0)) * np.repeat(factor, lengths, axis=0)
    return result
