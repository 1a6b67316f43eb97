r"""The likelihood of the shared parameters, with the relevance of every pair integrated out.

    c_dj | g_d  ~ Poisson(n_dj o_dj g_d)                    clicks on pair d in cell j
    log o_dj    = t_q [X beta + u (F w)_d]_dj,    t_q = exp(sigma z_q), z_q ~ Normal(0, 1)
    g_d         ~ Gamma(shape s_d, rate s_d / m_d),         m_d = sigmoid((Z v)_d + sigma z_q)

g_d is c_1, the click probability at the first position, where o = 1. Integrated over g_d, a pair contributes

    L_d = sum_j c_dj log o_dj + log Gamma(C_d + s_d) - log Gamma(s_d) + s_d log r_d - (C_d + s_d) log(E_d + r_d)

with C_d = sum_j c_dj, E_d = sum_j n_dj o_dj and r_d = s_d / m_d. The first sum compares the positions of one document,
whatever its relevance; the others compare documents with the same prior mean. How much the second comparison counts is
the prior strength, which is estimated. It is a number of clicks, s_d = K ("proportional": relevance differs from m_d by
a factor), or a number of impressions at the first position, r_d = K; held-out clicks choose between the two. z_q is
how much a query differs from the others: in the steepness t_q of its observation, or in the level of its relevance, or
in neither. It is integrated out by Gauss-Hermite quadrature over all pairs of the query.

Trust bias adds clicks that do not depend on the document: n_dj o_dj kappa gamma_k. They are split off by expectation
maximisation (`Trust`), which leaves the rest of the likelihood as it is.

A random position, a ranking that depends on earlier clicks, or a document that is shown more often after it was clicked
do not change the likelihood: given what was shown, clicks depend on g_d and o_dj only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, final

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from clickprism._util.compiled import compiled
from clickprism.log_model.counts import LogCounts
from clickprism.types import Float64, Int64

NODES: Final = 7  # nodes of the quadrature over the steepness of a query
ENOUGH: Final = 200.0  # clicks on a pair beyond which more of them count less: no model is exactly right
LOWEST, HIGHEST = -60.0, 1.5  # log observation; no click probability is that small
EDGE: Final = 1e-9


@final
@dataclass(frozen=True, eq=False)
class Trust:
    """Clicks that trust in the engine adds: n o kappa gamma_k, of which `clicks` are the expected ones.

    Attributes:
        kappa: Click probability at the first position that relevance does not explain.
        gamma: 1 / (k - .4) at the position of each cell, relative to the first, [cells].
        clicks: Expected number of such clicks in each cell, [cells].
    """

    kappa: float
    gamma: Float64
    clicks: Float64


class Value(NamedTuple):
    """The penalised negative log-likelihood and its derivatives; Hessian and scores are empty unless asked for."""

    loss: float
    gradient: Float64  # [parameters]
    hessian: Float64  # [parameters, parameters]
    by_query: Float64  # log-likelihood, [queries]
    scores: Float64  # gradient of it, [queries, parameters]
    nodes: Float64  # posterior weight of each node, [nodes, queries]


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """The likelihood of one form of the model on one log.

    The parameters are one vector: beta, log K, log sigma if queries differ in steepness, v.

    Attributes:
        counts: Counts of the log.
        design: X, [cells, columns].
        prior: Z, [pairs, prior parameters].
        precision: Prior precision of the parameters, [parameters, parameters].
        centre: Prior mean of the parameters, [parameters].
        steepness: Whether queries differ in how fast observation falls.
        level: Whether queries differ in the level of relevance; not together with `steepness`.
        proportional: Whether the prior strength is a number of clicks, not of impressions.
        coupled: F, features that make the curve of a pair steeper, [pairs, columns]; no columns without coupling.
        base: u, the log curve that they multiply, [cells].
        offset: Fixed part of log o, [cells]: given propensities.
        trust: Clicks that trust adds, or None.
        names: What the parameters are, [parameters].
    """

    counts: LogCounts
    design: csr_array
    prior: Float64
    precision: Float64
    centre: Float64
    steepness: bool = False
    level: bool = False
    proportional: bool = False
    coupled: Float64 | None = None
    base: Float64 | None = None
    offset: Float64 | None = None
    trust: Trust | None = None
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Return the number of parameters."""
        return len(self.centre)

    @property
    def own(self) -> int:
        """Return the number of parameters of the observation, beta and w."""
        return int(self.design.shape[1]) + (0 if self.coupled is None else self.coupled.shape[1])

    @property
    def start(self) -> int:
        """Return the first parameter of the prior mean."""
        return self.size - int(self.prior.shape[1])

    @cached_property
    def scale(self) -> Float64:
        """Return the weight of each pair's counts: those of pairs with many clicks are scaled down, [pairs]."""
        return np.asarray(1 / (1 + self.counts.by_pair(self.counts.clicks) / ENOUGH))

    @cached_property
    def clicks(self) -> Float64:
        """Return the scaled clicks of each cell, [cells]."""
        return np.asarray(self.counts.clicks * self.scale[self.counts.pair])

    @cached_property
    def impressions(self) -> Float64:
        """Return the scaled impressions of each cell, [cells]."""
        return np.asarray(self.counts.impressions * self.scale[self.counts.pair])

    @cached_property
    def relevant_clicks(self) -> Float64:
        """Return the scaled clicks of each pair that are not due to trust, [pairs]."""
        return np.maximum(self.counts.by_pair(self.relevant_cell_clicks), 0.0)

    @property
    def relevant_cell_clicks(self) -> Float64:
        """Return the scaled clicks of each cell that are not due to trust, [cells]."""
        by_trust = 0.0 if self.trust is None else self.trust.clicks * self.scale[self.counts.pair]
        return np.asarray(self.clicks - by_trust)

    @cached_property
    def _starts(self) -> Int64:
        """Return where the entries of X of each pair start, and their number, [pairs + 1]."""
        return np.asarray(self.design.indptr[self.counts.starts], dtype=np.int64)

    @cached_property
    def _cell_of(self) -> Int64:
        """Return the cell of each entry of X, [entries]."""
        return np.repeat(np.arange(len(self.counts.pair)), np.diff(self.design.indptr))

    @cached_property
    def query_sums(self) -> csr_array:
        """Return the matrix that adds up pairs by query, [queries, pairs]."""
        counts = self.counts
        starts = np.searchsorted(counts.query, np.arange(counts.queries + 1))
        return csr_array((np.ones(len(counts)), np.arange(len(counts)), starts), shape=(counts.queries, len(counts)))

    def nodes(self, theta: Float64) -> tuple[Float64, Float64]:
        """Return sigma z at each node of the quadrature over queries, and the log of its weight, [nodes] each."""
        if not self.steepness and not self.level:
            return np.zeros(1), np.zeros(1)
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        return np.asarray(np.exp(theta[self.own + 1]) * nodes), np.asarray(np.log(weights / weights.sum()))

    def steps(self, theta: Float64) -> Float64:
        """Return the steepness of the observation at each node, [nodes]."""
        shifts = self.nodes(theta)[0]
        return np.exp(shifts) if self.steepness else np.ones(len(shifts))

    def log_observation(self, theta: Float64) -> Float64:
        """Return X beta, the log observation of each cell at steepness 1, [cells]."""
        columns = self.design.shape[1]
        linear = self.design @ theta[:columns]
        if self.coupled is not None and self.base is not None:
            linear = linear + self.base * (self.coupled @ theta[columns : self.own])[self.counts.pair]
        return np.asarray(linear if self.offset is None else linear + self.offset)

    def _transposed(self, values: Float64) -> Float64:
        """Return the sums of values of cells, weighted by each column of the design, [observation parameters]."""
        own = self.design.T @ values
        if self.coupled is None or self.base is None:
            return np.asarray(own)
        return np.concatenate([own, self.coupled.T @ self.counts.by_pair(self.base * values)])

    def exposure_columns(self, values: Float64) -> tuple[csr_array, Float64]:
        """Return the sums over each pair of values of cells times X, and times the base of the coupling.

        Several entries of the matrix may be for one column of X; they add up.
        """
        entries = self.design.data * values[self._cell_of]
        shape = (len(self.counts), self.design.shape[1])
        base = np.zeros(0) if self.base is None else self.counts.by_pair(self.base * values)
        return csr_array((entries, self.design.indices, self._starts), shape=shape), base

    def prior_mean(self, theta: Float64, *, shift: float = 0.0) -> Float64:
        """Return m of each pair, [pairs]; `shift` is sigma z of a node, if queries differ in their level."""
        odds = self.prior @ theta[self.start :] + (shift if self.level else 0.0)
        return np.asarray(np.clip(expit(odds), EDGE, 1 - EDGE))

    def strengths(self, theta: Float64, mean: Float64) -> tuple[Float64, Float64]:
        """Return shape and rate of the Gamma prior of each pair with these prior means, [pairs] each."""
        strength = float(np.exp(np.clip(theta[self.own], -7.0, 14.0)))
        if self.proportional:
            return np.full(len(mean), strength), np.asarray(strength / mean)
        return np.asarray(strength * mean), np.full(len(mean), strength)

    def evaluate(self, theta: Float64, *, second: bool = False) -> Value:
        """Return the loss and its gradient at these parameters; if `second`, also the Hessian and the scores."""
        counts, own, size = self.counts, self.own, self.size
        linear = self.log_observation(theta)
        shifts, weights = self.nodes(theta)
        nodes = [self._node(theta, linear, step, shift) for step, shift in zip(self.steps(theta), shifts, strict=True)]
        values = np.stack([self.query_sums @ node.value for node in nodes]) + weights[:, None]
        top = values.max(axis=0)
        posterior = np.exp(values - top)
        norm = posterior.sum(axis=0)
        posterior /= norm
        by_query = top + np.log(norm)
        off = theta - self.centre
        push = self.precision @ off
        loss = 0.5 * float(off @ push) - float(by_query.sum())
        gradient = push.copy()
        matrix = self.precision.copy() if second else np.zeros((0, 0))
        scores = np.zeros((counts.queries, size)) if second else np.zeros((0, 0))
        pull_prior, curve_prior = np.zeros(len(counts)), np.zeros(len(counts))
        start = self.start
        for number, node in enumerate(nodes):
            weight = posterior[number][counts.query]
            weighted = weight[counts.pair] * node.pull
            gradient[:own] -= node.step * self._transposed(weighted)
            gradient[own] -= float(weight @ (node.by_shape + node.by_rate))
            if self.steepness:
                gradient[own + 1] -= node.shift * float(weighted @ node.logs)
            elif self.level:
                gradient[own + 1] -= node.shift * float(weight @ node.to_prior)
            pull_prior += weight * node.to_prior
            if second:
                each = self._scores(node)
                scores += posterior[number][:, None] * each
                if len(nodes) > 1:
                    matrix -= (each * posterior[number][:, None]).T @ each
                curve_prior += self._curvature(matrix, node, weight, weighted)
        gradient[start:] -= self.prior.T @ pull_prior
        if second:
            matrix[start:, start:] -= (self.prior * curve_prior[:, None]).T @ self.prior
            if len(nodes) > 1:
                matrix += scores.T @ scores
            matrix = (matrix + matrix.T) / 2
        return Value(loss, gradient, matrix, by_query, scores, posterior)

    def _node(self, theta: Float64, linear: Float64, step: float, shift: float) -> _Node:
        """Return the log-likelihood of each pair at one node of the quadrature, and its first derivatives."""
        counts, clicked = self.counts, self.relevant_clicks
        mean = self.prior_mean(theta, shift=shift)
        shape, rate = self.strengths(theta, mean)
        logs = step * linear
        inside = (logs > LOWEST) & (logs < HIGHEST)
        logs = np.clip(logs, LOWEST, HIGHEST)
        exposure = self.impressions * np.exp(logs)
        total = counts.by_pair(exposure)
        value = counts.by_pair(self.clicks * logs) - (clicked + shape) * np.log(total + rate)
        log_gammas, digammas, trigammas = gamma_differences(clicked, shape)
        value += log_gammas + shape * np.log(rate)
        ratio = (clicked + shape) / (total + rate)
        flow = ratio[counts.pair] * exposure
        if self.trust is not None:
            extra = self.trust.kappa * self.trust.gamma * exposure
            value -= counts.by_pair(extra)
            flow = flow + extra
        pull = np.where(inside, self.clicks - flow, 0.0)
        by_shape = shape * (digammas + np.log(rate) - np.log(total + rate))
        by_rate = shape - rate * ratio
        # derivatives of log shape and log rate by the prior's logit
        up, down = (0.0 * mean, mean - 1) if self.proportional else (1 - mean, 0.0 * mean)
        to_prior = up * by_shape + down * by_rate
        return _Node(
            step, shift, mean, shape, rate, logs, inside * exposure, inside * flow, total, ratio, value, pull, by_shape,
            by_rate, up, down, to_prior, trigammas,
        )  # fmt: skip

    def _scores(self, node: _Node) -> Float64:
        """Return the gradient of the log-likelihood of each query at one node, [queries, parameters]."""
        start, columns = self.start, self.design.shape[1]
        result = np.zeros((self.counts.queries, self.size))
        pull = node.step * node.pull
        key = self.counts.query[self.counts.pair[self._cell_of]] * columns + self.design.indices
        entries = self.design.data * pull[self._cell_of]
        sums = np.bincount(key, weights=entries, minlength=self.counts.queries * columns)
        result[:, :columns] = sums.reshape(self.counts.queries, columns)
        if self.coupled is not None and self.base is not None:
            base = self.counts.by_pair(self.base * pull)
            result[:, columns : self.own] = self.query_sums @ (self.coupled * base[:, None])
        result[:, self.own] = self.query_sums @ (node.by_shape + node.by_rate)
        if self.steepness:
            result[:, self.own + 1] = node.shift * (self.query_sums @ self.counts.by_pair(node.pull * node.logs))
        elif self.level:
            result[:, self.own + 1] = node.shift * (self.query_sums @ node.to_prior)
        result[:, start:] = self.query_sums @ (self.prior * node.to_prior[:, None])
        return result

    def _gram(
        self, step: float, flow: Float64, exposure: Float64, shared: Float64, slope: Float64 | None
    ) -> tuple[Float64, Callable[[Float64], Float64]]:
        """Return the second derivatives by the observation parameters, log sigma last, and a product with exposure.

        The columns are sparse ones (positions, contexts), those of the coupling, which are a feature of the pair times
        the base of the cell, so that sums over the cells of a pair suffice, and log sigma if `slope`, the derivative of
        log o by it, is given.
        """
        by_pair, plain = self.counts.by_pair, self.design.shape[1]
        sparse, base = self.exposure_columns(step * exposure)
        indices = self.design.indices.astype(np.int64, copy=False)
        block = _products(self._starts, indices, sparse.data, shared, plain)
        block -= step**2 * _products(self.design.indptr.astype(np.int64), indices, self.design.data, flow, plain)
        parts: list[Callable[[Float64], Float64]] = [lambda values: np.asarray(sparse.T @ values)]
        if self.coupled is not None and self.base is not None:
            coupled, base_values = self.coupled, self.base
            crossed = step**2 * self.exposure_columns(flow * base_values)[0]
            side = -(crossed.T @ coupled) + sparse.T @ (coupled * (shared * base)[:, None])
            weight = shared * base**2 - step**2 * by_pair(flow * base_values**2)
            block = np.block([[block, side], [side.T, (coupled * weight[:, None]).T @ coupled]])
            parts.append(lambda values: coupled.T @ (values.T * base).T)
        if slope is not None:
            own = by_pair(exposure * slope)
            edge = np.concatenate([part(shared * own) for part in parts]) - step * self._transposed(flow * slope)
            corner = float(shared @ own**2) - float(flow @ slope**2)
            block = np.block([[block, edge[:, None]], [edge[None, :], np.array([[corner]])]])
            parts.append(lambda values: np.atleast_1d(own @ values) if values.ndim == 1 else (own @ values)[None, :])
        return np.asarray(block), lambda values: np.concatenate([part(values) for part in parts])

    def _curvature(self, matrix: Float64, node: _Node, weight: Float64, weighted: Float64) -> Float64:
        """Subtract the second derivatives at one node from `matrix`; return those by the prior's logit, [pairs]."""
        counts, own, start = self.counts, self.own, self.start
        shared = weight / (node.total + node.rate)
        flow = weight[counts.pair] * node.flow
        slope = node.shift * node.logs if self.steepness else None
        block, moved = self._gram(node.step, flow, node.exposure, shared * node.ratio, slope)
        to_k = -moved(shared * node.by_rate)
        lean = shared * (node.up * node.shape - node.down * node.rate * node.ratio)
        to_prior = -moved(self.prior * lean[:, None])
        if self.steepness:  # log o = exp(sigma z) X beta is not linear in log sigma
            turned, last = node.shift * node.step * self._transposed(weighted), len(block) - 1
            block[:own, last] += turned
            block[last, :own] += turned
            block[last, last] += float(weighted @ node.logs) * node.shift * (1 + node.shift)
        where = [*range(own), own + 1][: len(block)]
        matrix[np.ix_(where, where)] -= block
        matrix[where, own] -= to_k
        matrix[own, where] -= to_k
        matrix[np.ix_(where, range(start, self.size))] -= to_prior
        matrix[np.ix_(range(start, self.size), where)] -= to_prior.T
        seen = node.total / (node.total + node.rate)
        twice, mixed = node.by_shape + node.shape**2 * node.trigammas, node.shape * seen
        last_part = -node.rate * node.ratio * seen
        matrix[own, own] -= float(weight @ (twice + 2 * mixed + last_part))
        by_k = weight * (node.up * (twice + mixed) + node.down * (mixed + last_part))
        cross = self.prior.T @ by_k
        matrix[own, start:] -= cross
        matrix[start:, own] -= cross
        curvature = node.mean * (1 - node.mean) * (node.by_rate if self.proportional else -node.by_shape)
        squares = node.up**2 * twice + 2 * node.up * node.down * mixed + node.down**2 * last_part
        second = weight * (squares + curvature)
        if self.level:  # the prior's logit has the term sigma z
            at, shift = own + 1, node.shift
            matrix[at, at] -= shift**2 * float(second.sum()) + shift * float(weight @ node.to_prior)
            side = np.zeros(self.size)
            side[:own] = -shift * moved(lean)
            side[own] = shift * float(by_k.sum())
            side[start:] = shift * (self.prior.T @ second)
            matrix[at] -= side
            matrix[:, at] -= side
        return np.asarray(second)


class _Node(NamedTuple):
    """The likelihood at one node of the quadrature over queries: terms of pairs and cells that derivatives share."""

    step: float
    shift: float
    mean: Float64
    shape: Float64
    rate: Float64
    logs: Float64
    exposure: Float64
    flow: Float64
    total: Float64
    ratio: Float64
    value: Float64
    pull: Float64
    by_shape: Float64
    by_rate: Float64
    up: Float64
    down: Float64
    to_prior: Float64
    trigammas: Float64


@compiled
def gamma_differences(clicks: Float64, shape: Float64) -> tuple[Float64, Float64, Float64]:
    """Return log Gamma(C + s) - log Gamma(s) of each pair, and its first two derivatives by s; most pairs have C = 0.

    The derivatives are sums of 1 / x and 1 / x^2 up to where the asymptotic series hold (Abramowitz and Stegun 1964,
    6.3.18 and 6.4.12).
    """
    result = np.zeros((3, len(clicks)))
    for pair in range(len(clicks)):
        if clicks[pair] <= 0:
            continue
        for sign, given in ((1.0, clicks[pair] + shape[pair]), (-1.0, shape[pair])):
            x = given
            result[0, pair] += sign * math.lgamma(x)
            while x < 8.0:
                result[1, pair] -= sign / x
                result[2, pair] += sign / x**2
                x += 1.0
            y = 1 / x**2
            first = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))
            second = 1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * 5 / 66)))
            result[1, pair] += sign * (math.log(x) - 0.5 / x - first)
            result[2, pair] += sign * (1 / x + 0.5 * y + second * y / x)
    return result[0], result[1], result[2]


@compiled
def _products(starts: Int64, columns: Int64, values: Float64, weights: Float64, size: int) -> Float64:
    """Return A' diag(weights) A for a sparse A with entries by row, [size, size]; entries of one column add up."""
    result = np.zeros((size, size))
    for row in range(len(weights)):
        for one in range(starts[row], starts[row + 1]):
            value = weights[row] * values[one]
            for other in range(starts[row], starts[row + 1]):
                result[columns[one], columns[other]] += value * values[other]
    return result
