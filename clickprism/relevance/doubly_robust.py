"""The doubly robust estimator (Zou et al. 2022, §5): an imputation, corrected by clicks on what was examined."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, final, get_args

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.estimates import Estimates, check_inputs, require_imputed
from clickprism.relevance.intervals import Score, over_positions
from clickprism.relevance.sums import Sums
from clickprism.types import Float64, Int64

LEAST: Final = 1e-6
Correction = Literal["click", "relevance"]


@final
@dataclass(frozen=True)
class DoublyRobust:
    """The imputation, corrected by what clicks say beyond it where a document was examined (§5, Eq. 4).

        "click":      imp + [sum of w (c - e / theta_k (alpha_k imp + beta_k))] / [sum of w alpha_k]
        "relevance":  imp + [sum of w (c - beta_k - alpha_k (beta_1 + e / theta_k (imp - beta_1)))] / [sum of w alpha_k]

    with the examination e of each impression and theta_k its mean at position k in the log. The second is Eq. 4, which
    depends on the level of relevance: it takes away the part of a click that is due to relevance where it was seen, and
    the other part seen or not. The first takes away the whole expected click where it was seen; it does not depend on
    the level, and e explains more of the clicks. Unbiased if alpha and beta are right and e has the mean theta_k for
    each pair, whatever the imputation is (Theorem 2). Were e just theta_k, both would be the affine estimate. A pair
    without impressions has the imputation.

    That a right imputation makes up for a wrong alpha needs an alpha_k that is wrong in its theta_k alone, and e right:
    give `theta` as it went into alpha. Clicks do not tell theta from trust.

    The variance needs how e goes with clicks, `examination_clicked` and `examination_squared` of the counts. Where they
    were not kept, it is that of an e that is 0 or 1 and knows nothing of clicks: none is larger, unless e goes against
    them.

    Attributes:
        sums: how clicks are added up; `Sums("mean")` is the paper's form.
        correction: "click" or "relevance".
        beta_1: the assumed click probability, in the first slot, of what is not relevant at all; "relevance" needs it.
        theta: the mean of e at each position; None learns it from the log, and the other two with it.
        theta_clicked: the mean of e where there was a click.
        theta_squared: the mean of e^2.

    >>> parameters = ClickParameters(np.array([1.0]), np.array([0.0]))
    >>> counts = PairCounts(np.array([[4], [0]]), np.array([[1], [0]]), np.array([[2.5], [0.0]]))
    >>> made = DoublyRobust(theta=(0.5,)).estimate(counts, parameters, np.array([0.6, 0.3]))
    >>> made.values.round(6).tolist()  # .6 + (1 - 2.5 / .5 * .6) / 4
    [0.1, 0.3]
    """

    name: ClassVar[str] = "doubly_robust"

    sums: Sums = field(default_factory=Sums)
    correction: Correction = "click"
    beta_1: float = 0.0
    theta: tuple[float, ...] | None = None
    theta_clicked: tuple[float, ...] | None = None
    theta_squared: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.correction not in get_args(Correction):
            raise SettingError("correction", self.correction, f"be one of {', '.join(get_args(Correction))}")
        if not 0 <= self.beta_1 < 1:
            raise SettingError("beta_1", self.beta_1, "be 0 or more and below 1")
        if self.theta is not None and not all(0 < mean <= 1 for mean in self.theta):
            raise SettingError("theta", self.theta, "be above 0 and at most 1")
        for name in ("theta_clicked", "theta_squared"):
            means = getattr(self, name)
            if means is not None and (self.theta is None or len(means) != len(self.theta)):
                raise SettingError(name, means, "have as many positions as theta")

    def learn(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> DoublyRobust:
        """The same with the click rates and the mean examination of the log."""
        sums = self.sums.learn(counts)
        if self.theta is not None:
            return replace(self, sums=sums)
        if counts.examination is None:
            raise DataError(
                "the doubly robust estimator needs the examination of each impression, which these counts lack",
                remedy="Train a model with clickprism bias examination, or use the estimator shrunk or affine",
            )
        whole = counts.total()
        shown, clicked = whole.impressions[0], whole.clicked[0]
        theta = np.clip(_mean(whole.examination, shown, np.ones(len(shown))), LEAST, 1.0)
        made = replace(self, sums=sums, theta=tuple(theta.tolist()))
        if counts.examination_clicked is None or counts.examination_squared is None:
            return made
        with_click = _mean(whole.examination_clicked, clicked, theta)
        squared = _mean(whole.examination_squared, shown, theta**2)
        return replace(made, theta_clicked=tuple(with_click.tolist()), theta_squared=tuple(squared.tolist()))

    def estimate(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64 | None = None) -> Estimates:
        """The estimates of these pairs, [pairs]."""
        check_inputs(counts, parameters, imputed)
        known, settled = require_imputed(imputed), self.learn(counts, parameters)
        score = settled.score(counts, parameters, known)
        made, alone = settled.sums.estimates(score), score.scale <= 0
        return replace(made, values=np.where(alone, known, made.values), imputed_only=alone)

    def taken(self, parameters: ClickParameters, imputed: Float64, positions: int) -> tuple[Float64, Float64]:
        """What is taken from each click for each e, and whether seen or not, both [pairs, positions]."""
        alpha, beta = parameters.alpha[:positions], parameters.beta[:positions]
        theta = np.ones(positions) if self.theta is None else np.array(self.theta)[:positions]
        if self.correction == "click":
            return (imputed[:, None] * alpha + beta) / theta, np.zeros((len(imputed), positions))
        return (imputed[:, None] - self.beta_1) * alpha / theta, np.tile(beta + alpha * self.beta_1, (len(imputed), 1))

    def score(self, counts: PairCounts, parameters: ClickParameters, imputed: Float64) -> Score:
        """T(y) of the estimate, once it has learned; its V has in it how e goes with clicks."""
        deep = counts.positions
        if counts.examination is None or self.theta is None or len(self.theta) < deep:
            raise DataError(f"the doubly robust estimator needs examination at all {deep} positions")
        clicks, weights = self.sums.score(counts, parameters)
        alpha, beta, theta = parameters.alpha[:deep], parameters.beta[:deep], np.array(self.theta)[:deep]
        squared = theta if self.theta_squared is None else np.array(self.theta_squared)[:deep]
        clicked = theta if self.theta_clicked is None else np.array(self.theta_clicked)[:deep]
        each, always = self.taken(parameters, imputed, deep)
        each *= weights
        seen_or_not = over_positions(counts.impressions * (always - beta), weights[:, None])[:, 0]
        moved = (counts.examination * each).sum(axis=1) + seen_or_not
        along = over_positions(2 * counts.impressions * each * weights * (clicked - theta), np.stack([beta, alpha], 1))
        spread = over_positions(counts.impressions * each**2, (squared - theta**2)[:, None])
        added = np.concatenate([spread, np.zeros_like(spread)], axis=1) - along
        return replace(clicks, total=clicks.total + imputed * clicks.scale - moved, added=added)


def _mean(sums: Float64 | None, shown: Int64, otherwise: Float64) -> Float64:
    """The means of a row of sums, and `otherwise` where nothing was added up."""
    total = np.zeros((1, len(shown))) if sums is None else sums
    return np.where(shown > 0, total[0] / np.maximum(shown, 1), otherwise)
