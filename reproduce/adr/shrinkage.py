"""Clicks, shrunk towards an imputation: the estimator without a model of the log that the reproduction compares.

The package estimates by `clickprism.log_model`, whose posterior is this kind of shrinkage, with a prior that depends on
the first-shown position and on features too.

Before any click, the c_1 of a pair with imputation m is spread around m like a Beta distribution of k impressions: mean
m, variance m (1 - m) / (k + 1). The best estimate that is linear in the clicks then counts the imputation as k
impressions at position 1 (credibility; Bühlmann 1967):

    [sum of w (c - beta_k) + k m] / [sum of w alpha_k + k]

k is learned from the log without labels: the clicks of pairs with several impressions differ from m by more than
chance. So are shift and slope of m = sigmoid(shift + slope logit(imputed)), which put the imputation on the scale of
c_1. The three maximise the normal likelihood of the corrected sums, whose mean and variance are known functions of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from clickprism.errors import SettingError
from clickprism.log_model.parameters import ClickParameters
from clickprism.relevance.estimates import Estimates, PairCounts, check_inputs, source_of
from clickprism.relevance.estimators import Score, Sums
from clickprism.types import Float64

EDGE: Final = 1e-6
FLOOR: Final = 1e-3  # least variance of one impression
PAIRS: Final = 50_000  # pairs of the log to learn from
USUAL: Final = 10.0  # k if the log has no information about it
BOUNDS: Final = ((np.log(0.05), np.log(1e5)), (-15.0, 15.0), (0.0, 15.0))


@final
@dataclass(frozen=True)
class Shrunk:
    """Clicks, shrunk towards the imputation: [sum w (c - beta) + k m] / [sum w alpha + k].

    The interval is that of the clicks and k more impressions at position 1 with the click rate m. It has its
    confidence level over all pairs of a log, not for each single pair.

    Attributes:
        sums: How clicks are added up.
        k: Number of impressions at position 1 that the imputation is equivalent to; None learns it from the log.
        calibrate: Whether to learn shift and slope too, if k is learned.
        shift: Shift of the logit of the imputation.
        slope: Slope of the logit of the imputation.

    >>> parameters = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    >>> counts = PairCounts(np.array([[10, 20], [0, 0]]), np.array([[4, 5], [0, 0]]))
    >>> made = Shrunk(Sums("ratio"), k=5.0).estimate(counts, parameters, np.array([0.2, 0.2]))
    >>> made.values.round(4).tolist(), made.imputed_only.tolist()  # (4 + 3 + 5 * .2) / (10 + 10 + 5)
    ([0.32, 0.2], [False, True])
    """

    name: ClassVar[str] = "shrunk"

    sums: Sums = field(default_factory=lambda: Sums(clip=True))
    k: float | None = None
    calibrate: bool = True
    shift: float = 0.0
    slope: float = 1.0

    def __post_init__(self) -> None:
        if self.k is not None and not 0 <= self.k < float("inf"):
            raise SettingError("k", self.k, "be 0 or more")
        if not np.isfinite(self.shift):
            raise SettingError("shift", self.shift, "be finite")
        if not 0 <= self.slope < float("inf"):
            raise SettingError("slope", self.slope, "be 0 or more")

    def learn(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Shrunk:
        """Return the same with the click rates of this log or sample, and with k, shift and slope if k is None.

        Without imputations all pairs share one m. The uncertainty of alpha and beta is not used here: all pairs have
        the same errors, and as independent noise they would seem to explain how pairs differ.
        """
        check_inputs(counts, parameters, imputed)
        sums = self.sums.learn(counts)
        if self.k is not None:
            return replace(self, sums=sums)
        shown = np.flatnonzero(counts.impressions.any(axis=1))
        if len(shown) > PAIRS:
            shown = np.sort(np.random.default_rng(0).choice(shown, PAIRS, replace=False))
        score, _ = replace(sums, parameter_uncertainty=False).score(counts.select(shown), parameters)
        logits = np.zeros(len(shown)) if imputed is None else _logit(imputed[shown])
        k, shift, slope = _learned(score, logits, calibrate=self.calibrate or imputed is None)
        return replace(self, sums=sums, k=k, shift=shift, slope=slope)

    def prior(self, imputed: Float64 | None, pairs: int) -> Float64:
        """Return the imputations on the scale of c_1, [pairs]."""
        logits = np.zeros(pairs) if imputed is None else _logit(imputed)
        return np.asarray(expit(self.shift + self.slope * logits), dtype=np.float64)

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """Return the estimates of these pairs, [pairs]."""
        check_inputs(counts, parameters, imputed)
        return self.learn(counts, parameters, imputed)._estimate(counts, parameters, imputed)

    def _estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None) -> Estimates:
        k = 0.0 if self.k is None else self.k
        clicks, _ = self.sums.score(counts, parameters)
        joined = replace(
            clicks,
            total=clicks.total + k * self.prior(imputed, len(counts)),
            scale=clicks.scale + k,
            spread=clicks.spread + k * np.array([0.0, 1.0, -1.0]),
        )
        found = self.sums.estimates(joined)
        middle = (found.lower + found.upper) / 2
        spread = clicks.variance(middle)
        weight = np.zeros(len(counts))
        np.divide(middle * (1 - middle) * clicks.scale**2, spread, out=weight, where=spread > 0)
        return replace(found, weight=weight, imputed_only=clicks.scale <= 0, source=source_of(weight))


def _learned(score: Score, logits: Float64, *, calibrate: bool) -> tuple[float, float, float]:
    """Return k, shift and slope of the highest likelihood."""
    centre, width = (float(logits.mean()), float(logits.std())) if calibrate and len(logits) else (0.0, 1.0)
    x = (logits - centre) / width if width > 0 else np.zeros(len(logits))
    whole = float(score.scale.sum())
    rate = float(np.clip(score.total.sum() / whole, 0.01, 0.99)) if whole > 0 else 0.5
    starts = [(float(logit(rate)), 0.1), (float(logit(rate)), 1.0)] if calibrate else [(0.0, 1.0)]
    fits = [
        minimize(
            misfit,
            np.array([np.log(USUAL), *start]),
            args=(score, x),
            jac=True,
            method="L-BFGS-B",
            bounds=BOUNDS if calibrate else [BOUNDS[0], (0.0, 0.0), (1.0, 1.0)],
        )
        for start in starts
    ]
    log_k, shift, slope = (float(value) for value in min(fits, key=lambda fit: float(fit.fun)).x)
    slope = slope / width if width > 0 else 0.0
    return float(np.exp(log_k)), shift - slope * centre, slope


def misfit(values: Float64, score: Score, x: Float64) -> tuple[float, Float64]:
    """Return minus the log likelihood of the corrected sums for (log k, shift, slope), and its gradient.

        total ~ Normal(scale m, E[V(y)] + scale^2 var y),    var y = m (1 - m) / (k + 1)

    If the log has little information about k, a large k would make intervals too narrow. So the share 20 / (k + 20)
    has a uniform prior (Daniels 1999), and the likelihood is multiplied by it (Morris and Tang 2011), which is highest
    at k = 10. Every pair must have impressions.
    """
    k = np.exp(values[0])
    mean = expit(values[1] + values[2] * x)
    step = mean * (1 - mean)
    wide = score.scale**2 + score.spread[:, 2]
    curve = score.spread[:, 1] + 2 * score.spread[:, 2] * mean
    variance = score.variance(mean)
    inside, variance = variance > 0, variance + wide * step / (k + 1)
    free = variance > FLOOR * score.scale
    variance = np.maximum(variance, FLOOR * score.scale)
    off = (score.total - score.scale * mean) / variance
    by_variance = free * (1 / variance - off**2) / 2
    slope = inside * curve + wide * (1 - 2 * mean) / (k + 1)
    by_mean = (by_variance * slope - off * score.scale) * step
    by_k = -float((by_variance * wide * step).sum()) * k / (k + 1) ** 2
    loss = float((np.log(variance) + off**2 * variance).sum()) / 2 + 3 * np.log(k + 2 * USUAL) - values[0]
    return loss, np.array([by_k + 3 * k / (k + 2 * USUAL) - 1, by_mean.sum(), (by_mean * x).sum()])


def _logit(imputed: Float64) -> Float64:
    return np.asarray(logit(np.clip(imputed, EDGE, 1 - EDGE)), dtype=np.float64)
