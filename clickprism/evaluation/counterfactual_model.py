"""What a click model says a document earns at a position where it never stood: the part that a log cannot show.

    rate(d, k) = o_k gamma_d,    gamma_d = (clicks_d + m prior_d) / (sum over k of n_dk o_k + m)

The curve o is that of documents seen at several positions (`observation.harvest`), the prior a ridge regression on the
features, or the mean where there are none, and m how much the prior is worth, by the spread of documents around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from clickprism.errors import DataError, TrainingError
from clickprism.observation.bootstrap import Bootstrap, Sample
from clickprism.observation.counts import Counts
from clickprism.observation.curve import sums
from clickprism.observation.harvest import AllPairs
from clickprism.types import Bool, Clicks, Float32, Float64, Int64

LEAST: Final = 1e-6
TAILS: Final = (0.05, 0.95)
BLOCK: Final = 65_536  # rows of features read at a time
HALF: Final = 0.5  # places that a document must move to count as moved
FLAT: Final = 0.1  # the least move, in logarithms of the curve, that slopes are taken over


@final
@dataclass(frozen=True)
class Elasticity:
    """How the model errs on documents that move: clicks are exp(slope |move|) times those foretold.

    A move is the difference of the logarithms of the curve. Where features bend what is seen, o_k^(1 + e), the slope is
    the mean of e, or of -e for moves down, over the documents that move.

    Attributes:
        slope: of the logarithm of clicks over those foretold.
        error: of the slope; nan where nothing moved.
        span: the mean length of the moves in the log.
    """

    slope: float
    error: float
    span: float


@final
@dataclass(frozen=True, eq=False)
class RewardModel:
    """A position-based model of the log, with a prior for documents of few clicks.

    Attributes:
        curve: observation at each position, 1 at the first, [positions].
        draws: the same on logs weighted anew by query, [draws, positions]; none where the positions are not linked.
        unlinked: why the curve is but the click-through by position; empty where it is not.
        prior: relevance of each document before its clicks, [documents].
        worth: of the prior, in exposure.
        counts: of each document at each position.
    """

    curve: Float64
    draws: Float64
    unlinked: str
    prior: Float64
    worth: float
    counts: Counts

    @cached_property
    def clicked(self) -> Float64:
        """Clicks on each document, [documents]."""
        return self._sums(self.counts.clicks)

    @cached_property
    def exposure(self) -> Float64:
        """Impressions of each document, each by the curve, [documents]."""
        return self._sums(self.counts.impressions * self.curve[self.counts.positions - 1])

    @cached_property
    def relevance(self) -> Float64:
        """Of each document, as a click rate at the first position, [documents]."""
        relevance: Float64 = (self.clicked + self.worth * self.prior) / (self.exposure + self.worth)
        return relevance

    def rates(self, rows: Int64) -> Float64:
        """Click rates of documents [queries, positions] at their positions; 0 where there is none."""
        rates = np.minimum(self.relevance[np.maximum(rows, 0)] * self.curve, 1.0)
        return np.where(rows >= 0, rates, 0.0)

    def bounds(self) -> tuple[Float64, Float64]:
        """The rates between which nearly all documents lie, by position, [positions] each."""
        low, high = np.quantile(self.relevance[self.exposure > 0], TAILS)
        return np.minimum(low * self.curve, 1.0), np.minimum(high * self.curve, 1.0)

    def drawn(self, rows: Int64, weights: Float64) -> Float64:
        """The sum of rates, each by its weight, [queries, positions], under every draw of the curve, [draws]."""
        at = np.nonzero(weights)
        row, position, weight = rows[at], at[1], weights[at]
        values = np.empty(len(self.draws))
        for draw, curve in enumerate(self.draws):
            exposure = self._sums(self.counts.impressions * curve[self.counts.positions - 1])[row]
            relevance = (self.clicked[row] + self.worth * self.prior[row]) / (exposure + self.worth)
            values[draw] = weight @ np.minimum(relevance * curve[position], 1.0)
        return values

    @cached_property
    def mean_position(self) -> Float64:
        """Where each document stood on average, [documents]; nan for those never shown."""
        total = self._sums(self.counts.impressions * self.counts.positions)
        size = self._sums(self.counts.impressions)
        return np.where(size > 0, total / np.maximum(size, 1), np.nan)

    @cached_property
    def stood(self) -> Float64:
        """The logarithm of the curve where each document stood, on average, [documents]; nan for those never shown."""
        size = self._sums(self.counts.impressions)
        return np.where(size > 0, np.log(np.maximum(self.exposure, LEAST) / np.maximum(size, 1)), np.nan)

    def moves(self, documents: Bool, *, up: bool) -> Elasticity:
        """How these documents [documents] fared when the log moved them up, or down.

        Clicks at a position are foretold from what the same document earned at its others, so that what the model gets
        wrong about documents that move shows.
        """
        counts, curve = self.counts, self.curve[self.counts.positions - 1]
        elsewhere = self.exposure[counts.rows] - counts.impressions * curve
        others = self._sums(counts.impressions)[counts.rows] - counts.impressions
        move = np.log(curve) - np.log(np.maximum(elsewhere, LEAST) / np.maximum(others, 1))
        total = self._sums(counts.impressions * counts.positions)[counts.rows] - counts.impressions * counts.positions
        mean = total / np.maximum(others, 1)
        way = counts.positions < mean - HALF if up else counts.positions > mean + HALF
        at = way & (others > 0) & documents[counts.rows]
        relevance = self.clicked[counts.rows] - counts.clicks + self.worth * self.prior[counts.rows]
        foretold = (np.minimum(relevance / (elsewhere + self.worth) * curve, 1.0) * counts.impressions)[at]
        clicked = counts.clicks[at]
        if foretold.sum() <= 0 or clicked.sum() == 0:
            return Elasticity(0.0, float("nan"), 0.0)
        ratio = clicked.sum() / foretold.sum()
        span = max(abs(float(foretold @ move[at] / foretold.sum())), FLAT)
        rest = np.bincount(counts.rows[at], weights=clicked - ratio * foretold)
        error = np.sqrt((rest**2).sum()) / clicked.sum()
        return Elasticity(float(np.log(ratio)) / span, float(error) / span, span)

    def _sums(self, values: Float64) -> Float64:
        return sums(self.counts.rows, values, len(self.prior))


def reward_model(clicks: Clicks, *, resamples: int, seed: int) -> RewardModel:
    """Fit the model to a log."""
    sample = Sample(clicks, Bootstrap(resamples=resamples, unit="query", seed=seed))
    unlinked = ""
    try:
        curves, _ = AllPairs().estimate(sample)
    except (DataError, TrainingError) as error:
        curves, unlinked = _click_through(sample.counts)[None], str(error)
    counts, documents = sample.counts, clicks.lists.documents
    clicked = sums(counts.rows, counts.clicks, documents)
    seen = counts.impressions * curves[0][counts.positions - 1]
    exposure = sums(counts.rows, seen, documents)
    prior = _prior(clicks.lists.features, clicked, exposure)
    return RewardModel(curves[0], curves[1:], unlinked, prior, _worth(clicked, exposure, prior), counts)


def _click_through(counts: Counts) -> Float64:
    clicked = np.bincount(counts.positions - 1, weights=counts.clicks)
    shown = np.bincount(counts.positions - 1, weights=counts.impressions)
    rates = np.maximum(clicked, 1.0) / np.maximum(shown, 1.0)
    curve: Float64 = rates / rates[0]
    return curve


def _worth(clicked: Float64, exposure: Float64, prior: Float64) -> float:
    """The exposure after which clicks say as much as the prior: the prior over the variance of relevance around it."""
    shown = exposure > 0
    around = (clicked[shown] / exposure[shown] - prior[shown]) ** 2
    variance = ((exposure[shown] * around).sum() - prior[shown].sum()) / exposure.sum()
    return float(np.clip(clicked.sum() / exposure.sum() / max(variance, LEAST), 0.1, 1e4))


def _prior(features: Float32, clicked: Float64, exposure: Float64) -> Float64:
    """The relevance that features foretell, at least a tenth of the mean; the mean where there are none."""
    mean, width = max(clicked.sum() / exposure.sum(), LEAST), features.shape[1]
    if width == 0:
        return np.full(len(clicked), mean)
    gram, slope = np.zeros((width + 1, width + 1)), np.zeros(width + 1)
    for start in range(0, len(features), BLOCK):
        x, at = _block(features, start), slice(start, start + BLOCK)
        gram += (x * exposure[at, None]).T @ x
        slope += x.T @ (clicked - mean * exposure)[at]
    penalty = 1e-3 * np.trace(gram[1:, 1:]) / width + LEAST
    slope = np.linalg.solve(gram + penalty * np.eye(width + 1), slope)
    foretold = [_block(features, start) @ slope for start in range(0, len(features), BLOCK)]
    prior: Float64 = np.maximum(mean + np.concatenate(foretold), 0.1 * mean)
    return prior


def _block(features: Float32, start: int) -> Float64:
    """Some rows with a constant before them; what is missing is 0."""
    x = np.nan_to_num(features[start : start + BLOCK].astype(np.float64), posinf=0.0, neginf=0.0)
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)
