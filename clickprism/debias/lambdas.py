"""Lambdas of sessions, summed by document: boosting on sessions at the price of documents."""

from __future__ import annotations

from typing import final

import numpy as np

from clickprism.rankers.boosting import Boosting, shown
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.types import Bool, Clicks, Float64, Int64


@final
class SessionLambdas:
    """LightGBM's lambdarank on sessions, where LightGBM sees each document once.

    lambda_d = sum over sessions s of w_s sum over pairs (i clicked, j not) with d in (i, j) of
        +- sigma(f_j - f_i) |delta nDCG_ij| / (t+_k(i) t-_k(j))

    A document has one score whatever session it stands in, so its derivatives are the sums over its sessions, and the
    trees are those that would grow on a row for every document of every session; only here they cost what documents
    cost, and leaves are counted in documents. As in LightGBM, delta nDCG is divided by .01 + |f_i - f_j|, and the
    lambdas of a session with sum S are scaled by log2(1 + S) / S; S is taken before the division by t, which it would
    half undo. The cost of a pair is its logistic loss without delta nDCG: ranks follow the order of display, so that
    the gain of a pair depends on its positions and would pass for bias.

    Attributes:
        biases: t+ and t-, [2, positions]; all 1 to start with.
        power: after each tree t_k = (cost_k / cost_1)^power, the cost that of an impression at k; None leaves t alone.
        floor: t is raised to it.
        skips: whether t- is learned too; else it stays 1.
        given: the observation to report where none is learned.
    """

    def __init__(
        self,
        rows: Int64,
        offsets: Int64,
        clicked: Bool,
        positions: Int64,
        weights: Float64,
        *,
        documents: int,
        truncation: int,
        power: float | None = None,
        floor: float = 0.0,
        skips: bool = True,
        given: Float64 | None = None,
    ) -> None:
        lengths = np.diff(offsets)
        self.rows, self.offsets, self.clicked, self.places = rows, offsets, clicked, positions - 1
        self.weights = weights * (documents / float((weights * lengths).sum()))
        self.documents, self.truncation = documents, truncation
        self.power, self.floor, self.skips, self.given = power, floor, skips, given
        depth = int(positions.max(initial=1))
        self.impressions = np.bincount(self.places, weights=np.repeat(self.weights, lengths), minlength=depth)
        self.biases = np.ones((2, depth))

    def __call__(self, scores: Float64) -> tuple[Float64, Float64]:
        """The sums of lambdas and of their derivatives, [documents]; then t is updated from the costs."""
        from clickprism.debias.kernels import add_pairs

        derivatives, costs = np.zeros((2, self.documents)), np.zeros_like(self.biases)
        sessions = self.offsets, self.rows, self.places, self.clicked, self.weights
        add_pairs(scores, sessions, self.biases, self.truncation, (derivatives, costs))
        if self.power is not None and (costs[:, 0] > 0).all():
            means = costs / np.maximum(self.impressions, 1e-12)
            ratios = np.maximum((means / means[:, :1]) ** self.power, self.floor)
            learned = (self.impressions > 0) & np.array([[True], [self.skips]])
            self.biases = np.where(learned, ratios, self.biases)
        return derivatives[0], derivatives[1]

    def observation(self) -> Float64 | None:
        """t+ where it is learned, else what was given."""
        return self.given if self.power is None else self.biases[0].copy()


def ratio_debiased(clicks: Clicks, ranker: LambdaMART, *, p: float, floor: float, skips: bool) -> Boosting:
    """Unbiased LambdaMART (Hu et al., 2019): pairs of a session divided by t+ of the clicked and t- of the other.

    Args:
        clicks: a log that knows what was clicked together; sessions clicked alike are merged.
        ranker: whose truncation the pairs follow.
        p: t = (cost_k / cost_1)^(1 / (p + 1)); the larger, the nearer t is to 1.
        floor: t is raised to it.
        skips: whether t- is learned too, as in the paper; else it stays 1.
    """
    merged = clicks.merge(by="pattern")
    rows, _ = shown(merged)
    objective = SessionLambdas(
        np.searchsorted(rows, merged.rows),
        merged.offsets,
        merged.clicks > 0,
        merged.positions.astype(np.int64),
        merged.impressions.astype(np.float64),
        documents=len(rows),
        truncation=ranker.truncation,
        power=1 / (p + 1),
        floor=floor,
        skips=skips,
    )
    return by_lambdas(clicks, objective)


def by_lambdas(clicks: Clicks, objective: SessionLambdas) -> Boosting:
    """One row a document that was shown, and the objective that tells the derivatives of its score."""
    rows, lengths = shown(clicks)
    return Boosting(clicks.lists.features, rows, lengths, np.zeros(len(rows)), objective=objective)
