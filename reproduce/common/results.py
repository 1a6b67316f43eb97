"""From runs to figures: means with their errors over draws, and whether a difference is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isnan, nan, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from clickprism.evaluation.significance import paired_t
from clickprism.types import Float64
from reproduce.common.files import Run, read


def mark_of(difference: float, p_value: float, *, higher_is_better: bool = True) -> str:
    """Return + or - for p below .05, ++ or -- for p below .005; + is better.

    >>> mark_of(0.01, 0.001), mark_of(0.01, 0.03, higher_is_better=False), mark_of(0.01, 0.2)
    ('++', '-', '')
    """
    if isnan(p_value) or p_value >= 0.05 or difference == 0:
        return ""
    sign = "+" if (difference > 0) == higher_is_better else "-"
    return sign * (2 if p_value < 0.005 else 1)


def mean_of(values: Float64) -> tuple[float, float | None]:
    """Return the mean and its standard error; None instead of the error for a single value."""
    error = float(values.std(ddof=1) / sqrt(len(values))) if len(values) > 1 else None
    return float(values.mean()), error


def t_interval(values: Float64) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean over draws; None for one draw.

    mean +- t_{n-1, .975} sd / sqrt(n)

    >>> [round(end, 4) for end in t_interval(np.array([1.0, 2.0, 3.0]))]  # 2 +- 4.3027 / sqrt(3)
    [-0.4841, 4.4841]
    """
    from scipy.special import stdtrit

    mean, error = mean_of(values)
    if error is None:
        return None
    reach = float(stdtrit(len(values) - 1, 0.975)) * error
    return mean - reach, mean + reach


def over_draws(ours: Float64, theirs: Float64) -> tuple[tuple[float, float] | None, float | None]:
    """Return the t interval of the mean difference over draws and the p-value of the same test; None for one draw.

    A claim is about other draws of users and clicks, so it is tested over draws: thousands of queries of one draw only
    tell how this draw came out.

    >>> interval, p_value = over_draws(np.array([3.0, 5.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    >>> [round(end, 4) for end in interval], round(p_value, 4)
    ([-0.4841, 4.4841], 0.0742)
    """
    interval = t_interval(ours - theirs)
    return interval, None if interval is None else paired_t(ours, theirs).p_value


def common(one: Float64, other: Float64) -> tuple[Float64, Float64]:
    """Return both over the first seeds, which both have."""
    seeds = min(len(one), len(other))
    return one[:seeds], other[:seeds]


class Store:
    """Read each result once, and average; runs are in the order of seeds, and of folds within a seed."""

    def __init__(self, out: Path, *, folds: int) -> None:
        self.out, self.folds = out, folds
        self._read: dict[str, dict[str, Any] | None] = {}

    def result(self, run: Run) -> dict[str, Any] | None:
        """Return the result of a run; None if it was not done."""
        if run.key not in self._read:
            self._read[run.key] = read(run, self.out)
        return self._read[run.key]

    def found(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Return the results of the runs that were done."""
        return [result for run in runs if (result := self.result(run)) is not None]

    def by_seed(self, results: Sequence[Mapping[str, Any]], measure: str, epoch: str = "clicks") -> Float64:
        """Return the mean over queries and folds, [seeds]."""
        return self.fold_means([result[epoch][measure] for result in results])

    def fold_means(self, values: Sequence[float]) -> Float64:
        """Return values of runs averaged over folds, [seeds]."""
        means: Float64 = np.array(values, dtype=np.float64).reshape(-1, self.folds).mean(axis=1)
        return means

    def by_query(self, results: Sequence[Mapping[str, Any]], measure: str, epoch: str = "clicks") -> Float64:
        """Return the values of each query, the folds one after another, [seeds, queries]."""
        values = [[nan if v is None else v for v in result["queries"][epoch][measure]] for result in results]
        rows = [[*chain(*values[i : i + self.folds])] for i in range(0, len(values), self.folds)]
        return np.array(rows, dtype=np.float64)
