"""Trust bias: users observe positions as in the PBM, and judge documents at high positions as more relevant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, final

import numpy as np
from scipy.sparse.csgraph import connected_components

from clickprism._util.compiled import compiled
from clickprism.click_models.factors import Groups
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.users import Response, Shown
from clickprism.errors import DataError
from clickprism.settings import check_fields
from clickprism.types import Float64, Int32, Int64

Table: TypeAlias = tuple[Int64, Int64, Float64, Float64]  # offsets, positions from 0, clicks, skips
Setting: TypeAlias = Literal["eye-tracking", "hyperbolic"]
BLOCK = 50  # steps of EM between two looks at the curve
LEAST = 1e-6


@final
@dataclass(frozen=True)
class TrustUser:
    """P(click at k) = theta_k (plus_k a + minus_k (1 - a)) (Agarwal et al. 2019).

    `attracted` in the truth means: judged relevant at the position where it was shown. Two published settings:

    - "eye-tracking": theta as in `PositionUser`, plus = 1 - (k + 1)/100, minus = .65/k; plus is at least minus
      (which matters below position 98).
    - "hyperbolic": theta = .35/k + .65/(1 + .05 (k - 1)), plus = 1/(1 + .005 (k - 1)), minus = .65/k. It was published
      with a = grade / ymax: simulate it with `gain="linear"` and `noise=0`.

    Attributes:
        setting: "eye-tracking" or "hyperbolic".
        severity: exponent of theta; 0 means that every position is observed.
    """

    name: ClassVar[str] = "trust"

    setting: Setting = "eye-tracking"
    severity: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, setting=Setting, severity=(0, 100))

    def observation(self, positions: Int64 | Int32) -> Float64:
        """Return theta, the probability that a document at each position is observed, [positions]."""
        if self.setting == "eye-tracking":
            return PositionUser(self.severity).observation(positions)
        return np.asarray((0.35 / positions + 0.65 / (1 + 0.05 * (positions - 1))) ** self.severity, dtype=np.float64)

    def trust(self, positions: Int64 | Int32) -> tuple[Float64, Float64]:
        """Return (plus, minus): P(click | observed) of a relevant and of an irrelevant document at each position.

        The affine correction of clicks (Vardasbi et al. 2020) has alpha = theta (plus - minus), beta = theta minus.
        """
        minus = 0.65 / np.asarray(positions, dtype=np.float64)
        if self.setting == "eye-tracking":
            return np.maximum(1 - (positions + 1) / 100, minus), minus
        return 1 / (1 + 0.005 * (positions - 1)), minus

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        from clickprism.click_models.kernels import by_entry, see

        plus, minus = self.trust(shown.positions)
        believed = plus * shown.attraction + minus * (1 - shown.attraction)
        seen = self.observation(shown.positions).astype(np.float32)
        return see(by_entry, replace(shown, attraction=believed.astype(np.float32)), seed, seen)


@final
@dataclass(frozen=True, eq=False)
class TrustFit:
    """The result of `fit_trust`: P(click at k) = alpha_k r + beta_k.

    Attributes:
        alpha: How much relevance adds to the click probability, relative to position 1, [positions].
        beta: Click probability of a document without relevance, [positions].
        iterations: Number of EM steps.
        converged: Whether the estimated distance of alpha and beta from convergence is below the tolerance.
    """

    alpha: Float64
    beta: Float64
    iterations: int
    converged: bool


def fit_trust(groups: Groups, *, tolerance: float = 1e-3, max_iterations: int = 20_000) -> TrustFit:
    """Fit the position-based model with trust by expectation maximisation on counts (Agarwal et al. 2019).

    P(click at k on d) = plus_k r_d + minus_k (1 - r_d),  plus and minus with the observation in them
    E: P(relevant | click) = plus_k r_d / P(click),  P(relevant | skip) = (1 - plus_k) r_d / P(skip)
    M: r_d, plus_k and minus_k are the shares that follow from these

    Clicks do not identify the scale of r: a r + b explains the same clicks, with other alpha = plus - minus and
    beta = minus. The result has alpha_1 = 1 and the smallest possible beta, which is 0 at the position where beta is
    lowest relative to alpha. The order of documents does not depend on this choice. The estimate is unbiased in the
    limit of many impressions of each document at several positions, if the model holds; with few impressions the spread
    of r is overestimated.

    Args:
        groups: Counts by position (`count_positions`). Only documents shown at several positions are used.
        tolerance: Stop when no alpha, relative to itself, and no beta, relative to the largest, is further than this
            from its limit.
        max_iterations: Maximum number of EM steps.

    >>> r, alpha, beta = np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.4]), np.array([0.2, 0.0])
    >>> chance = (r[:, None] * alpha + beta).ravel()
    >>> offsets, positions = np.array([0, 2, 4, 6]), np.tile([0, 1], 3)
    >>> fitted = fit_trust(Groups(np.arange(3), offsets, positions, 1e4 * chance, np.full(6, 1e4), 2))
    >>> fitted.alpha.round(2).tolist(), fitted.beta.round(2).tolist()
    ([1.0, 0.8], [0.2, 0.0])
    """
    table, positions = _of_several(groups), groups.size
    offsets, cells, clicks, skips = table
    _check_linked(offsets, cells, positions)
    shown = np.bincount(cells, weights=clicks + skips, minlength=positions)
    rate = np.bincount(cells, weights=clicks, minlength=positions) / np.maximum(shown, 1)
    plus, minus = np.clip(2 * rate + 0.1, 0.01, 0.95), np.clip(rate / 2, 1e-3, 0.9)
    relevance = np.full(len(offsets) - 1, 0.3)
    before, moved, done = _gauge(plus, minus), np.inf, 0
    while done < max_iterations:
        _iterate(table, relevance, plus, minus, BLOCK)
        done += BLOCK
        now = _gauge(plus, minus)
        step = max(
            float(np.abs(now[0] / np.maximum(before[0], LEAST) - 1).max()),
            float(np.abs(now[1] - before[1]).max() / max(now[1].max(), LEAST)),
        )
        slowing = min(step / moved, 0.999) if np.isfinite(moved) and moved > 0 else 0.999
        if step / (1 - slowing) < tolerance:
            return TrustFit(*now, done, converged=True)
        before, moved = now, step
    return TrustFit(*before, done, converged=False)


def _of_several(groups: Groups) -> Table:
    """Return the counts of documents shown at several positions: offsets, positions from 0, clicks and skips."""
    times = np.diff(groups.offsets)
    kept = np.repeat(times > 1, times)
    offsets = np.append(0, np.cumsum(times[times > 1])).astype(np.int64)
    return offsets, groups.cells[kept], groups.clicks[kept], (groups.impressions - groups.clicks)[kept]


def _check_linked(offsets: Int64, cells: Int64, positions: int) -> None:
    """Raise DataError if documents do not link every position to position 1."""
    inside = np.ones(len(cells), dtype=np.bool_)
    inside[offsets[:-1]] = False
    following = np.flatnonzero(inside)
    ties = np.zeros((positions, positions))
    ties[cells[following - 1], cells[following]] = 1.0
    groups, of = connected_components(ties, directed=False)
    if groups > 1:
        alone = int(np.flatnonzero(of != of[0])[0]) + 1
        raise DataError(
            f"trust bias is not identifiable: no document links position {alone} to position 1",
            remedy="Log several rankings of the same query, or swap documents in some sessions",
        )


def _gauge(plus: Float64, minus: Float64) -> tuple[Float64, Float64]:
    alpha = np.maximum(plus - minus, LEAST)
    least = float((minus / alpha).min())
    return alpha / alpha[0], np.maximum(minus - least * alpha, 0.0)


@compiled
def _iterate(table: Table, relevance: Float64, plus: Float64, minus: Float64, steps: int) -> None:
    """Run EM steps, in place."""
    offsets, cells, clicks, skips = table
    positions = len(plus)
    for _ in range(steps):
        relevant_clicks, relevant_shown = np.zeros(positions), np.zeros(positions)
        all_clicks, all_shown = np.zeros(positions), np.zeros(positions)
        for document in range(len(offsets) - 1):
            share, total, shown = relevance[document], 0.0, 0.0
            for pair in range(offsets[document], offsets[document + 1]):
                cell = cells[pair]
                clicked = plus[cell] * share + minus[cell] * (1 - share)
                skipped = 1 - clicked
                by_click = clicks[pair] * plus[cell] * share / max(clicked, 1e-12)
                by_skip = skips[pair] * (1 - plus[cell]) * share / max(skipped, 1e-12)
                relevant_clicks[cell] += by_click
                relevant_shown[cell] += by_click + by_skip
                all_clicks[cell] += clicks[pair]
                all_shown[cell] += clicks[pair] + skips[pair]
                total += by_click + by_skip
                shown += clicks[pair] + skips[pair]
            relevance[document] = total / max(shown, 1e-12)
        for cell in range(positions):
            plus[cell] = relevant_clicks[cell] / max(relevant_shown[cell], 1e-12)
            minus[cell] = (all_clicks[cell] - relevant_clicks[cell]) / max(
                all_shown[cell] - relevant_shown[cell], 1e-12
            )
