"""The parts of the model that a log may or may not need: what observation and the prior of relevance depend on.

    log o_dj = b_k + e_jk + (w.x_d - a pop_dj) b_k     curve, context or last click, coupling, popularity
    logit m_d = v.[1, first-shown position, x_d, mean of x over the query, imputation]

A form says which parts are in the model. The coupling w (LBD) and the popularity a (InfoRank) make the curve of a
document steeper or flatter. They multiply the curve b of the previous fit, so that log o is linear in all parameters.
The ridge on w is the Lipschitz penalty of LBD: the gradient of log o_k by x is b_k w.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, final

import numpy as np
from scipy.linalg import block_diag
from scipy.sparse import csr_array, hstack
from scipy.special import logit

from clickprism.log_model.counts import LogCounts
from clickprism.log_model.likelihood import Problem
from clickprism.types import Float64, Int64

SLOPE: Final = 1.0  # prior standard deviation of the slope of log o by log position, at the first position
CHANGE: Final = 0.5  # prior standard deviation of the change of that slope from one position to the next
ROUGH: Final = 5.0  # the same, if the curve is rough
CONTEXT: Final = 0.3  # a context's deviation from the common curve, as a share of these two
BROWSING: Final = 1.0  # deviation of (position, last click) from the curve
COUPLING: Final = 0.1  # w, of standardised features
POPULARITY: Final = 0.5  # a
STRENGTH: Final = (5.0, 2.0)  # K: median, and standard deviation of log K
SPREAD: Final = (0.37, 1.0)  # sigma: median, and standard deviation of log sigma
ENGINE: Final = -0.5  # prior mean of the slope of logit m by the log of the first-shown position: engines work
FIRST: Final = 1.0  # its prior standard deviation, at the first position
FIRST_CHANGE: Final = 0.1  # of its change from one knot to the next: sparse logs need a line, on which the order stays
BENT: Final = 0.5  # the same, if held-out clicks prefer a prior that falls unevenly (`Form.bent`)
AT_RANDOM: Final = 2.0  # logit of pairs that only chance has placed
KNOTS: Final = np.array([1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 40, 60, 100, 200])  # positions
FEATURE: Final = 0.5  # coefficients of standardised features
IMPUTED: Final = 2.0  # coefficient of trees, and of an imputation
CONSTANT: Final = 100.0
MOST_FEATURES: Final = 64  # maximum number of features that enter one by one; trees use all


@final
@dataclass(frozen=True, kw_only=True)
class Form:
    """Which parts are in the model.

    Attributes:
        curve: Observation depends on the position.
        first: The prior depends on the position at which a pair was first shown.
        features: The prior depends on the features, one by one ("linear") or by trees ("trees"); "" for neither.
        imputation: The prior depends on a given imputation.
        steepness: Queries differ in how fast observation falls.
        level: Queries differ in the level of relevance; not together with `steepness`.
        context: Each context, such as a device, has its own curve.
        browsing: Observation depends on the last click above.
        coupling: Observation depends on the features (LBD).
        popularity: Observation depends on the clicks of earlier days (InfoRank).
        trust: Users click on high positions whatever is shown there.
        proportional: The prior strength is a number of clicks, not of impressions at the first position.
        rough: The curve may rise and fall from one position to the next, as on a page with several columns.
        bent: The prior may fall faster from some positions to the next than from others; it never rises.
    """

    curve: bool = True
    first: bool = True
    features: str = ""
    imputation: bool = False
    steepness: bool = False
    level: bool = False
    context: bool = False
    browsing: bool = False
    coupling: bool = False
    popularity: bool = False
    trust: bool = False
    proportional: bool = True
    rough: bool = False
    bent: bool = False

    def with_part(self, name: str, value: object = True) -> Form:
        """Return the form with one part changed."""
        return replace(self, **{name: value})  # type: ignore[arg-type]


@final
@dataclass(frozen=True, eq=False)
class Scaler:
    """Mean and standard deviation of each chosen feature; the spread of a constant feature is infinite."""

    chosen: Int64
    mean: Float64
    spread: Float64

    @classmethod
    def of(cls, features: object, weight: Float64 | None = None) -> Scaler:
        """Return the scaler of all features, or of the `MOST_FEATURES` that covary most with `weight`."""
        x = finite(features)
        mean = x.mean(axis=0) if len(x) else np.zeros(x.shape[1])
        spread = x.std(axis=0) if len(x) else np.ones(x.shape[1])
        chosen = np.flatnonzero(spread > 1e-9 * np.maximum(np.abs(mean), 1.0))
        if len(chosen) > MOST_FEATURES and weight is not None:
            pull = np.abs(((x[:, chosen] - mean[chosen]) / spread[chosen]).T @ weight)
            chosen = np.sort(chosen[np.argsort(-pull, kind="stable")[:MOST_FEATURES]])
        return cls(chosen.astype(np.int64), mean[chosen], spread[chosen])

    def __call__(self, features: object) -> Float64:
        """Return the chosen features, standardised; missing values become the mean, [pairs, columns]."""
        x = np.asarray(features)[:, self.chosen].astype(np.float64)
        return np.asarray((np.where(np.isfinite(x), x, self.mean) - self.mean) / self.spread)


@final
@dataclass(frozen=True, eq=False)
class Covariates:
    """Inputs of the parts of a form, in addition to the counts.

    Attributes:
        own: Standardised features of each pair, [pairs, columns].
        features: The same, and their means over the query, [pairs, 2 columns].
        trees: Log-odds that trees predict for each pair from other queries, [pairs].
        imputation: Log-odds of the given imputation, [pairs].
        curve: Log observation by position of an earlier fit, [positions].
        kappa: Click probability at the first position that trust adds.
    """

    own: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    features: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    trees: Float64 = field(default_factory=lambda: np.zeros(0))
    imputation: Float64 = field(default_factory=lambda: np.zeros(0))
    curve: Float64 = field(default_factory=lambda: np.zeros(0))
    kappa: float = 0.0

    def take(self, pairs: object) -> Covariates:
        """Return the covariates of these pairs."""
        names = [name for name in ("own", "features", "trees", "imputation") if len(getattr(self, name))]
        return replace(self, **{name: getattr(self, name)[pairs] for name in names})


def design(counts: LogCounts, form: Form, given: Covariates, offset: Float64 | None = None) -> Problem:
    """Return the likelihood of a form on a log, with the prior of its parameters."""
    positions, cells = counts.positions, len(counts.pair)
    below = np.flatnonzero(counts.position > 0)
    lower = range(2, positions + 1)
    blocks, precisions, names = [csr_array((cells, 0))], [np.zeros((0, 0))], list[str]()
    if form.curve and positions > 1:
        blocks.append(_indicators(below, counts.position[below] - 1, cells, positions - 1))
        precisions.append(smoothness(positions, ROUGH if form.rough else CHANGE))
        names += [f"log o at position {k}" for k in lower]
    if form.context and len(counts.contexts) > 1 and positions > 1:
        for number, context in enumerate(counts.contexts):
            at = below[counts.context[below] == number]
            blocks.append(_indicators(at, counts.position[at] - 1, cells, positions - 1))
            precisions.append(smoothness(positions) / CONTEXT**2)
            names += [f"log o at position {k}, {context}" for k in lower]
    if form.browsing and counts.last_click is not None:
        key = counts.position[below] * (positions + 1) + counts.last_click[below]
        kinds, kind = np.unique(key, return_inverse=True)
        blocks.append(_indicators(below, kind, cells, len(kinds)))
        precisions.append(np.eye(len(kinds)) / BROWSING**2)
        names += [f"position {k // (positions + 1) + 1}, last click {k % (positions + 1)}" for k in kinds.tolist()]
    base = given.curve[counts.position] if form.coupling or form.popularity else None
    if form.popularity and counts.popularity is not None and base is not None:
        blocks.append(csr_array(-(counts.popularity * base)[:, None]))
        precisions.append(np.eye(1) / POPULARITY**2)
        names.append("popularity")
    if form.coupling:
        precisions.append(np.eye(given.own.shape[1]) / COUPLING**2)
        names += [f"w {number}" for number in range(given.own.shape[1])]
    centres = {"log K": float(np.log(STRENGTH[0])), "log sigma": float(np.log(SPREAD[0]))}
    centres |= {f"first shown at position {knot}": ENGINE * float(np.log(knot)) for knot in KNOTS.tolist()}
    precisions.append(np.eye(1) / STRENGTH[1] ** 2)
    names.append("log K")
    if form.steepness or form.level:
        precisions.append(np.eye(1) / SPREAD[1] ** 2)
        names.append("log sigma")
    prior, prior_precisions, prior_names = prior_columns(counts, form, given)
    names += prior_names
    return Problem(
        counts,
        csr_array(hstack(blocks, format="csr")),
        prior,
        np.asarray(block_diag(*precisions, *prior_precisions)),
        np.array([centres.get(name, 0.0) for name in names]),
        names=tuple(names),
        steepness=form.steepness,
        level=form.level,
        proportional=form.proportional,
        coupled=given.own if form.coupling else None,
        base=base,
        offset=offset,
    )


def prior_columns(counts: LogCounts, form: Form, given: Covariates) -> tuple[Float64, list[Float64], list[str]]:
    """Return Z, [pairs, columns], the precision of each block of coefficients, and the name of each coefficient."""
    columns, precisions, names = [np.ones((len(counts), 1))], [np.eye(1) / CONSTANT**2], ["constant"]
    if form.first:
        own, knots = first_columns(counts.first, counts.positions)
        if counts.placed is not None:  # the position of a pair that only chance has placed is no evidence
            own = own * counts.placed[:, None]
        columns.append(own)
        precisions.append(_steps(np.log(knots), FIRST, BENT if form.bent else FIRST_CHANGE))
        names += [f"first shown at position {knot}" for knot in knots[1:].tolist()]
        if counts.placed is not None:
            columns.append((~counts.placed[:, None]).astype(np.float64))
            precisions.append(np.eye(1) / AT_RANDOM**2)
            names.append("first shown at random")
    if form.features == "linear":
        columns.append(given.features)
        precisions.append(np.eye(given.features.shape[1]) / FEATURE**2)
        names += [f"feature {number}" for number in range(given.features.shape[1])]
    for name, used in (("trees", form.features == "trees"), ("imputation", form.imputation)):
        if used:
            columns.append(getattr(given, name)[:, None])
            precisions.append(np.eye(1) / IMPUTED**2)
            names.append(name)
    return np.concatenate(columns, axis=1), precisions, names


def first_columns(first: Float64, positions: int) -> tuple[Float64, Int64]:
    """Return the columns of a function of the first-shown position that is linear in its log between knots, and these.

    Columns are [pairs, knots - 1]. Only documents shown at several positions separate the curve from this function.
    """
    knots = KNOTS[: max(int(np.searchsorted(KNOTS, positions)) + 1, 2)]
    logs = np.log(knots)
    right = np.clip(np.searchsorted(logs, first, side="right"), 1, len(logs) - 1)
    share = np.clip((first - logs[right - 1]) / (logs[right] - logs[right - 1]), 0.0, 1.0)
    columns = np.zeros((len(first), len(knots)))
    rows = np.arange(len(first))
    columns[rows, right], columns[rows, right - 1] = share, 1 - share
    return columns[:, 1:], knots


def smoothness(positions: int, change: float = CHANGE) -> Float64:
    """Return the prior precision of log o at positions 2, 3, ...: its slope by log position changes little.

    The slope at the first position has mean 0 and standard deviation `SLOPE`; from one position to the next it changes
    by `change`. Documents that were shown at several positions override it; where nothing links the positions, it
    decides.
    """
    return _steps(np.log(np.arange(1, positions + 1)), SLOPE, change)


def _steps(logs: Float64, slope: float, change: float) -> Float64:
    """Return the precision of values at these points, the first of which is 0; the slope changes little."""
    slopes = np.zeros((len(logs) - 1, len(logs)))
    step = 1 / np.diff(logs)
    at = np.arange(len(logs) - 1)
    slopes[at, at + 1], slopes[at, at] = step, -step
    changes = np.concatenate([slopes[:1] / slope, np.diff(slopes, axis=0) / change])[:, 1:]
    return np.asarray(changes.T @ changes)


def with_query_means(features: Float64, query: Int64) -> Float64:
    """Return features and their mean over the query, [pairs, 2 columns]."""
    size = int(query.max(initial=-1)) + 1
    total = np.zeros((size, features.shape[1]))
    np.add.at(total, query, features)
    mean = total / np.maximum(np.bincount(query, minlength=size), 1)[:, None]
    return np.concatenate([features, mean[query]], axis=1)


def finite(features: object) -> Float64:
    """Return the features as numbers; a missing or infinite value becomes the mean of its column."""
    x = np.asarray(features, dtype=np.float64)
    known = np.isfinite(x)
    total = np.where(known, x, 0.0).sum(axis=0)
    return np.where(known, x, total / np.maximum(known.sum(axis=0), 1))


def log_odds(values: Float64) -> Float64:
    """Return the log-odds of probabilities, within reason."""
    return np.asarray(logit(np.clip(values, 1e-4, 1 - 1e-4)), dtype=np.float64)


def _indicators(rows: Int64, columns: Int64, height: int, width: int) -> csr_array:
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(height, width))
