"""PairDebias (Hu et al. 2019): pairs of a clicked and an unclicked document, divided by the biases of their positions.

For networks the settings are those of ULTRA, which LBD compares with. For trees it is Unbiased LambdaMART, which
InfoRank calls Ratio-Debiasing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from clickprism._util.compiled import compiled
from clickprism.debias.base import Learner, Method
from clickprism.debias.losses import by_position, score, skips
from clickprism.errors import SettingError
from clickprism.rankers.lambdamart import Boosting, LambdaMART, shown
from clickprism.types import Batch, Bool, Clicks, Float64, Int64

NEAR: Final = 0.01
FAR: Final = 500.0
Sessions: TypeAlias = tuple[Int64, Int64, Int64, Bool, Float64]  # offsets, rows, places, clicked, weights
Sums: TypeAlias = tuple[Float64, Float64]  # derivatives [2, rows], costs [2, positions]


@final
@dataclass(frozen=True)
class PairDebias(Method):
    """Logistic loss on pairs (i clicked, j not) of a session, divided by two biases (Hu et al., 2019).

    loss = sum_ij log(1 + exp(f_j - f_i)) / (t+_k(i) t-_k(j))
    t+_k <- (1 - step) t+_k + step (cost+_k / cost+_1)^(1 / (p + 1)),  cost+_k = sum_j loss_ij / t-_k(j) of a batch
    t-_k likewise, from cost-_k = sum_i loss_ij / t+_k(i)

    The derivation takes the probability of a skip to be t-_k times that of irrelevance, which does not hold for a
    position-based user: the method is a heuristic.

    Attributes:
        p: power of the regulariser on t; larger values keep t closer to 1.
        step: step of the update of t (networks only; trees take the costs of the whole log).
        floor: smaller values of t are raised to it, which ULTRA does not do.
    """

    name = "pair_debias"
    learns_observation = True
    needs_patterns = True
    p: float = 1.0
    step: float = 0.05
    floor: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.p < float("inf"):
            raise SettingError("p", self.p, "not be negative")
        if not 0 < self.step <= 1:
            raise SettingError("step", self.step, "be above 0 and at most 1")
        if not 0 < self.floor <= 1:
            raise SettingError("floor", self.floor, "be above 0 and at most 1")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> PairLearner:
        """Return a learner with two biases for each position of the log, all 1 at the start."""
        return PairLearner(self, ranker, clicks.max_position)

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting:
        """Return what trees grow on: lambdas in place of the logistic loss."""
        return ratio_debiased(clicks, ranker, p=self.p, floor=self.floor)


@final
class PairLearner(Learner):
    """The ranker, and the biases t+ and t-, which no gradient moves."""

    clicked: torch.Tensor
    skipped: torch.Tensor

    def __init__(self, settings: PairDebias, ranker: nn.Module, positions: int) -> None:
        super().__init__(ranker)
        self.settings = settings
        self.register_buffer("clicked", torch.ones(positions))
        self.register_buffer("skipped", torch.ones(positions))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the debiased pair losses: the mean over sessions of their sum."""
        places = batch.positions - 1
        pairs = self._pairs(batch) / self.clicked[places][:, :, None] / self.skipped[places][:, None, :]
        return {"ranking": pairs.sum((1, 2)).mean()}

    def _pairs(self, batch: Batch) -> torch.Tensor:
        """Return the sessions in which i was clicked and j was not, times the pair's loss, [lists, i, j]."""
        scores = score(self.ranker, batch)
        sessions = batch.impressions[:, None].clamp_min(1e-12)
        there = batch.mask[:, :, None] & batch.mask[:, None, :]
        weights = batch.clicks[:, :, None] * (skips(batch) / sessions)[:, None, :]
        losses = softplus(scores[:, None, :] - scores[:, :, None])
        return torch.where(there, weights * losses, torch.zeros_like(losses))

    @torch.no_grad()
    def statistics(self, batch: Batch) -> torch.Tensor:
        """Return the costs of clicked and of unclicked documents, [2, positions]."""
        pairs, places, positions = self._pairs(batch), batch.positions - 1, len(self.clicked)
        clicked = (pairs / self.skipped[places][:, None, :]).sum(2)
        skipped = (pairs / self.clicked[places][:, :, None]).sum(1)
        return torch.stack([by_position(batch, clicked, positions), by_position(batch, skipped, positions)])

    def update(self, sums: torch.Tensor) -> None:
        """Move t towards the ratios of the costs; a batch without a cost at the first position changes nothing."""
        for bias, cost in zip((self.clicked, self.skipped), sums, strict=True):
            if cost[0] > 0:
                ratio = (cost / cost[0]) ** (1 / (self.settings.p + 1))
                bias.lerp_(ratio, self.settings.step).clamp_min_(self.settings.floor)

    def observation(self) -> Float64:
        """Return t+ relative to the first position."""
        curve = self.clicked.double().numpy()
        return np.asarray(curve / curve[0])


@final
class SessionLambdas:
    """LightGBM's lambdarank on sessions, where LightGBM sees each document once.

    lambda_d = sum over sessions s of w_s sum over pairs (i clicked, j not) with d in (i, j) of
        +- sigma(f_j - f_i) |delta nDCG_ij| / (t+_k(i) t-_k(j))

    A document has one score in all its sessions, so its derivatives are sums over sessions and the trees are those of
    one row for every document of every session. As in LightGBM, delta nDCG is divided by .01 + |f_i - f_j|, and the
    lambdas of a session with sum S are scaled by log2(1 + S) / S; S is taken before the division by t. The cost of a
    pair is its logistic loss without delta nDCG, which depends on the positions and would be mistaken for bias.

    Attributes:
        biases: t+ and t-, [2, positions]; all 1 at the start.
        power: after each tree t_k = (cost_k / cost_1)^power, where cost_k is per impression; None leaves t as it is.
        floor: smaller values of t are raised to it.
    """

    def __init__(self, log: Clicks, *, truncation: int, power: float | None = None, floor: float = 0.0) -> None:
        rows, _ = shown(log)
        lengths, weights = np.diff(log.offsets), log.impressions.astype(np.float64)
        self.rows, self.offsets = np.searchsorted(rows, log.rows), log.offsets
        self.clicked, self.places = log.clicks > 0, log.positions.astype(np.int64) - 1
        self.weights = weights * (len(rows) / float((weights * lengths).sum()))
        self.documents, self.truncation, self.power, self.floor = len(rows), truncation, power, floor
        depth = log.max_position
        self.impressions = np.bincount(self.places, weights=np.repeat(self.weights, lengths), minlength=depth)
        self.biases = np.ones((2, depth))

    def __call__(self, scores: Float64) -> tuple[Float64, Float64]:
        """Return the sums of lambdas and of their derivatives, [documents]; then update t from the costs."""
        derivatives, costs = np.zeros((2, self.documents)), np.zeros_like(self.biases)
        sessions = self.offsets, self.rows, self.places, self.clicked, self.weights
        add_pairs(scores, sessions, self.biases, self.truncation, (derivatives, costs))
        if self.power is not None and (costs[:, 0] > 0).all():
            means = costs / np.maximum(self.impressions, 1e-12)
            ratios = np.maximum((means / means[:, :1]) ** self.power, self.floor)
            self.biases = np.where(self.impressions > 0, ratios, self.biases)
        return derivatives[0], derivatives[1]

    def observation(self) -> Float64 | None:
        """Return t+ if it is learned."""
        return None if self.power is None else self.biases[0].copy()


def ratio_debiased(clicks: Clicks, ranker: LambdaMART, *, p: float, floor: float) -> Boosting:
    """Return what Unbiased LambdaMART grows on; sessions of a list with the same clicks are merged."""
    merged = clicks.merge(by="pattern")
    return by_lambdas(clicks, SessionLambdas(merged, truncation=ranker.truncation, power=1 / (p + 1), floor=floor))


def by_lambdas(clicks: Clicks, objective: SessionLambdas) -> Boosting:
    """Return one row for each shown document, and the objective that computes the derivatives of its score."""
    rows, lengths = shown(clicks)
    return Boosting(clicks.lists.features, rows, lengths, np.zeros(len(rows)), objective=objective)


@compiled
def add_pairs(scores: Float64, sessions: Sessions, biases: Float64, truncation: int, sums: Sums) -> None:
    """Add the pairs of each session, clicked against not, to the derivatives and the costs."""
    offsets, rows, places, clicked, weights = sessions
    derivatives, costs = sums
    longest = 1
    for session in range(len(offsets) - 1):
        longest = max(longest, offsets[session + 1] - offsets[session])
    discounts = 1.0 / np.log2(np.arange(longest) + 2.0)
    order, rank, own = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest)
    parts = np.empty((2, longest))
    for session in range(len(offsets) - 1):
        start, end = offsets[session], offsets[session + 1]
        length, hits = end - start, clicked[start:end]
        clicks = int(hits.sum())
        if clicks * (length - clicks) == 0:  # no pair
            continue
        for entry in range(length):
            own[entry] = scores[rows[start + entry]]
        _rank(own[:length], order, rank)
        best = discounts[: min(clicks, truncation)].sum()
        apart = own[order[0]] != own[order[length - 1]]
        parts[:] = 0.0
        total = 0.0
        for i in np.flatnonzero(hits):
            for j in range(length):
                if hits[j] or min(rank[i], rank[j]) >= truncation:
                    continue
                gap = own[i] - own[j]
                gain = abs(discounts[rank[i]] - discounts[rank[j]]) / best
                up, down = places[start + i], places[start + j]
                cost = weights[session] * (max(-gap, 0.0) + math.log1p(math.exp(-abs(gap))))
                costs[0, up] += cost / biases[1, down]
                costs[1, down] += cost / biases[0, up]
                if apart:
                    gain /= NEAR + abs(gap)
                chance = 1.0 / (1.0 + math.exp(min(gap, FAR)))
                total += 2 * chance * gain
                pull = chance * gain / (biases[0, up] * biases[1, down])
                parts[0, i] -= pull
                parts[0, j] += pull
                parts[1, i] += pull * (1 - chance)
                parts[1, j] += pull * (1 - chance)
        scale = weights[session] * (math.log2(1 + total) / total if total > 0 else 1.0)
        for entry in range(length):
            derivatives[0, rows[start + entry]] += scale * parts[0, entry]
            derivatives[1, rows[start + entry]] += scale * parts[1, entry]


@compiled
def _rank(scores: Float64, order: Int64, rank: Int64) -> None:
    """Write the order of the scores, highest first and ties in the given order, and the rank of each."""
    for i in range(len(scores)):
        place = i
        while place > 0 and scores[order[place - 1]] < scores[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    for place in range(len(scores)):
        rank[order[place]] = place
