"""Trust bias where relevance is a function of features: few impressions of each document then suffice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from clickprism.errors import DataError, TrainingError
from clickprism.observation.counts import Counts
from clickprism.observation.curve import sums
from clickprism.types import Float64, Int64

STEPS: Final = 2000
RIDGE: Final = 1e-3  # of the coefficients of standardised features, in impressions


@final
@dataclass(frozen=True, eq=False)
class FeatureTrust:
    """P(click at k on d) = plus_k r_d + minus_k (1 - r_d),  logit r_d = w . x_d + w_0.

    Attributes:
        alpha: slopes in the gauge of the first slot, [positions].
        beta: intercepts in that gauge, [positions].
        relevance: r of each document of the counts, in the order of their rows, [documents].
        rows: those documents.
        steps: that were taken.
        pulls: the scores of plus, minus and w of each of them, [documents, parameters].
        turns: how alpha_2, ..., beta_2, ... move with a sum of scores, [parameters, 2 (positions - 1)].
    """

    alpha: Float64
    beta: Float64
    relevance: Float64
    rows: Int64
    steps: int
    pulls: Float64
    turns: Float64


def fit_trust_by_features(counts: Counts, features: Float64) -> FeatureTrust:
    """The position-based model with trust by maximum likelihood, relevance being logistic in the features.

    The maximum that regression-based expectation maximisation (Wang et al. 2018) climbs to, found by its gradient. No
    document need be seen at several positions: features tie the positions together. Unbiased in the limit of many
    searches if relevance is such a function; where it is not, what features do not explain is lost, and slopes lean to
    positions where documents are sorted by it.

    Args:
        counts: of the log.
        features: of every document that the rows of the counts point into, [documents, features].
    """
    rows, document = np.unique(counts.rows, return_inverse=True)
    columns = _standard(features[rows])
    model = _Model(counts, document, columns)
    size = counts.max_position
    rate = sums(counts.positions - 1, counts.clicks, size) / sums(counts.positions - 1, counts.impressions, size)
    start = np.zeros(2 * size + columns.shape[1])
    start[:size] = logit(np.clip(1.5 * rate + 0.05, 0.02, 0.95))
    start[size : 2 * size] = logit(np.clip(rate / 2, 1e-3, 0.9))
    found = minimize(
        model.loss,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 30},
    )
    if not np.isfinite(found.fun) or found.nit >= STEPS:
        raise TrainingError(f"trust by features has not settled after {found.nit} steps")
    point = found.x
    plus, minus = expit(point[:size]), expit(point[size : 2 * size])
    if plus[0] < minus[0]:
        plus, minus = minus, plus
        point = np.concatenate([point[size : 2 * size], point[:size], -point[2 * size :]])
    if not (np.diff([minus, plus], axis=0) > 0).all():
        place = int(np.flatnonzero(plus <= minus)[0]) + 1
        raise DataError(
            f"clicks at position {place} do not rise with what features say of relevance",
            remedy="More searches, better features, or by documents: TrustMap(by_features=False)",
        )
    slope = (plus - minus) / (plus[0] - minus[0])
    pulls, bend = model.scores(point)
    turns = np.linalg.pinv(bend, hermitian=True) @ _gauge_slopes(plus, minus, columns.shape[1])
    relevance = expit(columns @ point[2 * size :])
    return FeatureTrust(slope, minus - minus[0] * slope, relevance, rows, int(found.nit), pulls, turns)


def _standard(features: Float64) -> Float64:
    """Columns with mean 0 and deviation 1, and one of ones; constant columns are left out."""
    if not np.isfinite(features).all():
        raise DataError("features must be finite", remedy="Impute missing values first (normalise does)")
    scale = features.std(axis=0)
    kept = scale > 1e-9 * np.maximum(np.abs(features).max(axis=0, initial=0), 1)
    columns = (features[:, kept] - features[:, kept].mean(axis=0)) / scale[kept]
    return np.concatenate([columns, np.ones((len(features), 1))], axis=1)


def _gauge_slopes(plus: Float64, minus: Float64, width: int) -> Float64:
    """How alpha_2, ..., beta_2, ... move with plus, minus and w, as logits, [parameters, 2 (positions - 1)]."""
    size = len(plus)
    spread, slope = plus - minus, (plus - minus) / (plus[0] - minus[0])
    alpha = np.zeros((2 * size, size))
    k = np.arange(size)
    alpha[k, k], alpha[size + k, k] = 1 / spread[0], -1 / spread[0]
    alpha[0] -= slope / spread[0]
    alpha[size] += slope / spread[0]
    beta = -minus[0] * alpha
    beta[size + k, k] += 1
    beta[size] -= slope
    chain = np.concatenate([plus * (1 - plus), minus * (1 - minus)])[:, None]
    moves = np.concatenate([alpha[:, 1:], beta[:, 1:]], axis=1) * chain
    return np.concatenate([moves, np.zeros((width, moves.shape[1]))])


@dataclass(frozen=True, eq=False)
class _Model:
    counts: Counts
    document: Int64
    columns: Float64

    def _parts(self, point: Float64) -> tuple[Float64, Float64, Float64, Float64]:
        """Click probabilities, and how they move with plus, minus and the logit of relevance, [entries]."""
        size, places = self.counts.max_position, self.counts.positions - 1
        plus, minus = expit(point[:size])[places], expit(point[size : 2 * size])[places]
        relevance = expit(self.columns @ point[2 * size :])[self.document]
        chance = np.clip(minus + (plus - minus) * relevance, 1e-9, 1 - 1e-9)
        moves = (
            plus * (1 - plus) * relevance,
            minus * (1 - minus) * (1 - relevance),
            (plus - minus) * relevance * (1 - relevance),
        )
        return chance, *moves

    def loss(self, point: Float64) -> tuple[float, Float64]:
        """Minus the mean log-likelihood of an impression, and its slope."""
        counts, size, places = self.counts, self.counts.max_position, self.counts.positions - 1
        chance, *moves = self._parts(point)
        skips, total = counts.impressions - counts.clicks, counts.impressions.sum()
        value = counts.clicks @ np.log(chance) + skips @ np.log1p(-chance)
        rise = counts.clicks / chance - skips / (1 - chance)
        by_document = sums(self.document, rise * moves[2], len(self.columns))
        slope = np.concatenate([*(sums(places, rise * each, size) for each in moves[:2]), by_document @ self.columns])
        weights = point[2 * size : -1]
        slope[2 * size : -1] -= RIDGE * weights
        return float(RIDGE * (weights @ weights) / 2 - value) / total, -slope / total

    def scores(self, point: Float64) -> tuple[Float64, Float64]:
        """The slope of the log-likelihood of each document, [documents, parameters], and the expected curvature."""
        counts, size, places = self.counts, self.counts.max_position, self.counts.positions - 1
        chance, *moves = self._parts(point)
        rise = counts.clicks / chance - (counts.impressions - counts.clicks) / (1 - chance)
        information = counts.impressions / (chance * (1 - chance))
        count, cells = len(self.columns), self.document * size + places
        pulls = [sums(cells, rise * each, count * size).reshape(count, size) for each in moves[:2]]
        pulls.append(sums(self.document, rise * moves[2], count)[:, None] * self.columns)
        width = self.columns.shape[1]
        bend = np.zeros((2 * size + width, 2 * size + width))
        for one in range(2):
            for other in range(2):
                block = np.diag(sums(places, information * moves[one] * moves[other], size))
                bend[one * size : (one + 1) * size, other * size : (other + 1) * size] = block
            across = sums(cells, information * moves[one] * moves[2], count * size).reshape(count, size)
            bend[one * size : (one + 1) * size, 2 * size :] = across.T @ self.columns
            bend[2 * size :, one * size : (one + 1) * size] = self.columns.T @ across
        inner = sums(self.document, information * moves[2] ** 2, count)
        bend[2 * size :, 2 * size :] = (self.columns * inner[:, None]).T @ self.columns
        return np.concatenate(pulls, axis=1), bend
