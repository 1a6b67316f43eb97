"""Estimators of relevance as published: inverse propensity, affine, doubly robust (Zou et al. 2022, §3 and §5).

The default estimator is the model of the log (`clickprism.log_model`); this module has the other ones.

All estimate c_1, the click probability at position 1 (`clickprism.log_model.results`). With alpha_k and beta_k of
position k, p_k(y) = alpha_k y + beta_k is the click probability of a document with c_1 = y. The paper averages
(c - beta_k) / alpha_k over the impressions of a pair: this is the y at which

    T(y) = sum over impressions of (c - p_k(y)) / alpha_k = total - scale y

is 0. At the true y, T has mean 0 and variance V(y) = sum of p_k (1 - p_k) / alpha_k^2, a polynomial in y. The interval
holds all y that a score test does not reject, T(y)^2 <= z^2 V(y): its ends are the roots of a quadratic. With one
position it is Wilson's interval (1927). The interval estimate +- z sd would be empty for a pair without clicks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, final

import numpy as np
from scipy.special import ndtri

from clickprism.errors import DataError, SettingError
from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.pairs import PairCounts
from clickprism.settings import check_fields
from clickprism.types import Float64, Int64, check

Name: TypeAlias = Literal["log_model", "affine", "ipw", "doubly_robust"]
DEFAULT: Final = "log_model"
LEAST: Final = 1e-12
FLOOR: Final = 1e-3  # least variance of a click, relative to the largest, if parameters do not fit and leave none
SHARE: Final = 0.05  # least share of the variance of clicks that remains with an examination model


@final
@dataclass(frozen=True, kw_only=True)
class EstimateSettings:
    """How the relevance of the pairs of a log is estimated.

    Attributes:
        estimator: The model of the log (log_model), or clicks that are corrected and averaged as in the doubly robust
            paper (affine, ipw, doubly_robust).
        beta_1: Assumed click probability of an irrelevant first result, for doubly_robust. By default 0; with
            --click-parameters first_slot it is estimated.
        click_parameters: Source of the click parameters of affine, ipw and doubly_robust: the model of the log, or
            randomised first results (first_slot), as in the doubly robust paper.
        confidence: Confidence level of the intervals.
        depth: Use only positions 1 to this one; by default all.
        min_users: Exclude query-document pairs seen by fewer users (privacy); 0 excludes none. By default the k of the
            log's windows, 5.
        seed: Random seed of log_model.
    """

    estimator: Name = DEFAULT
    beta_1: float | None = None
    click_parameters: Literal["log_model", "first_slot"] = "log_model"
    confidence: float = 0.95
    depth: int | None = None
    min_users: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        limits: dict[str, Any] = {"depth": (1, None), "min_users": (0, None), "seed": (0, None)}
        check_fields(self, estimator=Name, click_parameters=Literal["log_model", "first_slot"], **limits)
        if self.click_parameters == "first_slot" and self.estimator == DEFAULT:
            must = "be used with the estimators affine, ipw and doubly_robust"
            raise SettingError("click_parameters", self.click_parameters, must)
        if self.beta_1 is not None and self.estimator != DoublyRobust.name:
            raise SettingError("beta_1", self.beta_1, "be used with the estimator doubly_robust only")
        normal_quantile(self.confidence)
        self.build()

    def build(self) -> Estimator | None:
        """Return the estimator with its settings; None for the model of the log."""
        if self.estimator == DoublyRobust.name:
            return DoublyRobust(self.confidence, self.beta_1 or 0.0)
        published = {each.name: each for each in (Affine, InversePropensity)}
        return None if self.estimator == DEFAULT else published[self.estimator](self.confidence)


class Estimator(Protocol):
    """An estimator of relevance."""

    name: ClassVar[str]

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """Return the estimates of all pairs of a log, [pairs]."""
        ...


def normal_quantile(confidence: float) -> float:
    """Return the number of standard deviations on both sides that hold this share of a normal distribution.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    return float(ndtri((1 + confidence) / 2))


@final
@dataclass(frozen=True, eq=False)
class Score:
    """T(y) = total - scale y of each pair, and its variance V(y).

    >>> parameters = ClickParameters(np.array([1.0]), np.array([0.0]))
    >>> score = click_score(PairCounts(np.array([[30]]), np.array([[3]])), parameters)
    >>> [end.round(4).tolist() for end in score.interval(0.95)]  # Wilson's for 3 of 30
    [[0.0346], [0.2562]]
    """

    total: Float64  # [pairs]
    scale: Float64  # Above 0 for pairs with impressions, [pairs]
    spread: Float64  # Coefficients of V from y^0 to y^2, [pairs, 3]
    # Coefficients of the part of V that an examination model adds, y^0 and y^1, [pairs, 2]; None without one
    added: Float64 | None = None

    def variance(self, y: Float64) -> Float64:
        """Return V(y), [pairs]."""
        clicks = np.maximum(self.spread[:, 0] + y * (self.spread[:, 1] + y * self.spread[:, 2]), 0.0)
        if self.added is None:
            return clicks
        return np.maximum(clicks + self.added[:, 0] + y * self.added[:, 1], SHARE * clicks)

    def interval(self, confidence: float) -> tuple[Float64, Float64]:
        """Return the lower and upper ends within 0 and 1, [pairs]; 0 and 1 for a pair without impressions.

        That alpha_k y + beta_k is a probability too is not used: with estimated parameters this limit is often beyond
        the truth.
        """
        z = normal_quantile(confidence)
        constant, linear = z * z * self.spread[:, 0], z * z * self.spread[:, 1]
        if self.added is not None:
            constant, linear = constant + z * z * self.added[:, 0], linear + z * z * self.added[:, 1]
        square = np.maximum(self.scale**2 - z * z * self.spread[:, 2], LEAST)
        half = self.total * self.scale + linear / 2
        inside = half**2 - square * (self.total**2 - constant)
        scarce = square * z * z * FLOOR * np.maximum(-self.spread[:, 2], LEAST)
        root = np.sqrt(np.where(inside > 0, inside, scarce))
        shown = self.scale > 0
        lower, upper = (np.clip((half + side * root) / square, 0.0, 1.0) for side in (-1, 1))
        return np.where(shown, lower, 0.0), np.where(shown, upper, 1.0)

    def estimates(self, confidence: float) -> Estimates:
        """Return the y at which T is 0, with its interval; nan for pairs without impressions."""
        shown, scale = self.scale > 0, np.where(self.scale > 0, self.scale, 1.0)
        values = np.where(shown, self.total / scale, np.nan)
        lower, upper = self.interval(confidence)
        middle = (lower + upper) / 2
        variance = np.where(shown, self.variance(middle) / scale**2, np.nan)
        weight = np.divide(middle * (1 - middle), variance, out=np.zeros(len(values)), where=shown & (variance > 0))
        return Estimates(values, lower, upper, variance, weight, np.zeros(len(values), dtype=np.bool_))


def click_score(counts: PairCounts, parameters: ClickParameters) -> Score:
    """Return T of the clicks; V includes the uncertainty of alpha and beta, if it is known.

    Errors of alpha and of beta are assumed to be independent: they add the sum over positions of
    (n_k / alpha_k)^2 (y^2 var alpha_k + var beta_k), taken at the estimate.
    """
    deep = counts.positions
    check(deep <= len(parameters), f"the counts have {deep} positions, but the click parameters only {len(parameters)}")
    alpha, beta = parameters.alpha[:deep], parameters.beta[:deep]
    squared = alpha**-2.0
    columns = [squared * beta * (1 - beta), (1 - 2 * beta) / alpha, -np.ones(deep)]
    shown = counts.impressions.astype(np.float64)
    sums = shown @ np.stack([beta / alpha, np.ones(deep), *columns], axis=1)
    score = Score(counts.clicked @ (1 / alpha) - sums[:, 0], sums[:, 1], sums[:, 2:])
    if np.isnan(parameters.alpha_upper).all():
        return score
    wide = 2 * normal_quantile(parameters.confidence)
    slope = np.nan_to_num((parameters.alpha_upper - parameters.alpha_lower)[:deep] / wide)
    start = np.nan_to_num((parameters.beta_upper - parameters.beta_lower)[:deep] / wide)
    near = np.clip(score.total / np.where(score.scale > 0, score.scale, 1), 0.0, 1.0)
    errors = shown**2 @ np.stack([squared * slope**2, squared * start**2], axis=1)
    spread = score.spread.copy()
    spread[:, 0] += near**2 * errors[:, 0] + errors[:, 1]
    return replace(score, spread=spread)


def _imputations(counts: PairCounts, imputed: Float64 | None) -> Float64:
    """Return the imputations of all pairs; raise `DataError` if there are none, or one is not a probability."""
    if imputed is None:
        raise DataError("this estimator needs an imputation for each pair")
    valid = imputed.shape == (len(counts),) and bool(((imputed >= 0) & (imputed <= 1)).all())
    check(valid, f"imputations must be between 0 and 1, one for each of {len(counts)} pairs")
    return imputed


@final
@dataclass(frozen=True)
class Affine(Estimator):
    """Correct each click for trust and position, (c - beta_k) / alpha_k, and average (§3; Vardasbi et al. 2020).

    Unbiased if alpha and beta are right (Theorem 1). Pairs without impressions have no estimate.

    >>> parameters = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    >>> counts = PairCounts(np.array([[10, 20]]), np.array([[4, 5]]))
    >>> Affine().estimate(counts, parameters).values.round(4).tolist()  # (4 / 1 + 3 / .5) / 30
    [0.3333]
    """

    name: ClassVar[str] = "affine"

    confidence: float = 0.95

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """Return the estimates of these pairs, [pairs]."""
        return click_score(counts, parameters).estimates(self.confidence)


@final
@dataclass(frozen=True)
class InversePropensity(Estimator):
    """Correct each click for position alone, c / theta_k, and average (§3).

    It ignores trust: it is the affine estimate with alpha = theta_k / theta_1 and beta = 0. If theta is not known,
    alpha is used in its place, as under the position-based model.
    """

    name: ClassVar[str] = "ipw"

    confidence: float = 0.95

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """Return the estimates of these pairs, [pairs]."""
        theta = parameters.alpha if parameters.theta is None else parameters.theta / parameters.theta[0]
        without_trust = ClickParameters(theta, np.zeros(len(theta)), parameters.theta)
        return click_score(counts, without_trust).estimates(self.confidence)


@final
@dataclass(frozen=True)
class DoublyRobust(Estimator):
    """The imputation, corrected by the clicks on documents that were observed (§5, Eq. 4).

        imp + mean of (c - beta_k - alpha_k (beta_1 + e / theta_k (imp - beta_1))) / alpha_k

    with the examination e of each impression and its mean theta_k at position k in the log. This is Eq. 4 for the
    relevance gamma = (c_1 - beta_1) / alpha_1; the value depends on the assumed beta_1. Unbiased if alpha and beta are
    right and e has the mean theta_k for each pair, for any imputation (Theorem 2). If e is theta_k, it is the affine
    estimate. The estimate of a pair without impressions is the imputation.

    A right imputation makes up for a wrong alpha_k only if alpha_k is wrong by its theta_k alone and e is right; give
    the `theta` that alpha was computed with.

    The variance needs `examination_clicked` and `examination_squared` of the counts. Without them it is an upper bound
    for every e that is not negatively correlated with clicks.

    >>> parameters = ClickParameters(np.array([1.0]), np.array([0.0]))
    >>> counts = PairCounts(np.array([[4], [0]]), np.array([[1], [0]]), np.array([[2.5], [0.0]]))
    >>> found = DoublyRobust(theta=(0.5,)).estimate(counts, parameters, np.array([0.6, 0.3]))
    >>> found.values.round(6).tolist()  # .6 + (1 - 2.5 / .5 * .6) / 4
    [0.1, 0.3]
    """

    name: ClassVar[str] = "doubly_robust"

    confidence: float = 0.95  # Confidence level of the intervals
    beta_1: float = 0.0  # Assumed click probability, at position 1, of a document that is not relevant at all
    theta: tuple[float, ...] | None = None  # Mean of e at each position; None takes it from the log

    def __post_init__(self) -> None:
        if not 0 <= self.beta_1 < 1:
            raise SettingError("beta_1", self.beta_1, "be 0 or more and below 1")
        if self.theta is not None and not all(0 < mean <= 1 for mean in self.theta):
            raise SettingError("theta", self.theta, "be above 0 and at most 1")

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """Return the estimates of these pairs, [pairs]; that of a pair without impressions is the imputation."""
        known = _imputations(counts, imputed)
        score = self.score(counts, parameters, known)
        found, alone = score.estimates(self.confidence), score.scale <= 0
        return replace(found, values=np.where(alone, known, found.values), imputed_only=alone)

    def means(self, counts: PairCounts) -> tuple[Float64, Float64, Float64]:
        """Return the mean of e at each position, that of clicked impressions, and the mean of e^2, [positions] each.

        With a given `theta`, or without the sums for the last two, those are upper bounds.
        """
        examined = _examination(counts).sum(axis=0)
        if self.theta is not None:
            if len(self.theta) < counts.positions:
                raise SettingError("theta", self.theta, f"have a value for each of the {counts.positions} positions")
            given = np.array(self.theta)[: counts.positions]
            return given, given, given
        total = counts.total()
        shown, clicked = total.impressions[0], total.clicked[0]
        theta = np.clip(_mean(examined, shown, np.ones(len(shown))), 1e-6, 1.0)
        if total.examination_clicked is None or total.examination_squared is None:
            return theta, theta, theta
        with_click = _mean(total.examination_clicked[0], clicked, theta)
        return theta, with_click, _mean(total.examination_squared[0], shown, theta**2)

    def subtracted(self, parameters: ClickParameters, imputed: Float64, theta: Float64) -> tuple[Float64, Float64]:
        """Return what Eq. 4 subtracts from a click per unit of e, and regardless of e; both [pairs, positions]."""
        alpha, beta = parameters.alpha[: len(theta)], parameters.beta[: len(theta)]
        return (imputed[:, None] - self.beta_1) * alpha / theta, np.tile(beta + alpha * self.beta_1, (len(imputed), 1))

    def score(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64) -> Score:
        """Return T(y) of the estimate; V includes the covariance of e with clicks."""
        theta, clicked, squared = self.means(counts)
        clicks = click_score(counts, parameters)
        alpha, beta = parameters.alpha[: len(theta)], parameters.beta[: len(theta)]
        per_e, always = self.subtracted(parameters, imputed, theta)
        per_e /= alpha
        regardless = (counts.impressions * (always - beta)) @ (1 / alpha)
        subtracted = (_examination(counts) * per_e).sum(axis=1) + regardless
        along = (2 * counts.impressions * per_e * (clicked - theta) / alpha) @ np.stack([beta, alpha], axis=1)
        spread = (counts.impressions * per_e**2) @ (squared - theta**2)
        added = np.stack([spread, np.zeros(len(counts))], axis=1) - along
        return replace(clicks, total=clicks.total + imputed * clicks.scale - subtracted, added=added)


def _examination(counts: PairCounts) -> Float64:
    """Return the sums of examination; raise `DataError` if the counts have none."""
    if counts.examination is None:
        raise DataError(
            "the doubly robust estimator needs the examination of each impression, which these counts do not have",
            remedy="Train a model with clickprism bias examination, or use the estimator log_model or affine",
        )
    return counts.examination


def _mean(sums: Float64, number: Int64, otherwise: Float64) -> Float64:
    """Return the mean at each position, and `otherwise` where nothing was added up."""
    return np.where(number > 0, sums / np.maximum(number, 1), otherwise)
