"""The posterior of the relevance of each pair, given the shared parameters: mean and interval.

    P(c | g) = product over cells j and clicks of  p_j^c (1 - p_j)^(n - c),    p_j = o_j (g + trust_j)
    g ~ Beta(K_d m_d, K_d (1 - m_d))

Clicks measure how attractive a result is, which is not only its relevance, and a log cannot separate the two. So the
value of a pair with few clicks stays nearer to its prior than the likelihood of clicks asks for: its prior strength is
K (1 + 6 (1 - w)^4 (1 - W)^4), with the weight w = E / (E + K) of its clicks and the mean W of w over the log.

Errors in the slope of the prior by first-shown position are not alike either: a slope that is too flat turns the order
of all documents without clicks around, while one that is too steep keeps the order of the engine. So the value uses a
slope that is one standard error steeper (`_towards_engine`); if many documents moved, that is the estimate itself. The
mean level and the intervals are those of c_1, with K.

The mean is a doubly robust estimate in the form of shrinkage: E[g | c] is about m + sum(c - n o m) / (sum n o + K), the
imputation m corrected by the clicks that it does not explain. The integral is over a grid in log g, averaged over the
steepness of the query. Intervals are quantiles, widened by the uncertainty of the shared parameters (delta method,
clustered by query).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import expit, gammaln, logit
from scipy.stats import norm

from clickprism.log_model.fit import Fit
from clickprism.log_model.likelihood import HIGHEST, LOWEST, Problem
from clickprism.log_model.results import Relevance
from clickprism.types import Float64, Int64, Text, slices

POINTS: Final = 81  # points of the grid
LEAST: Final = 0.01  # weight of a steepness that is taken into account
CHUNK: Final = 256  # pairs that are integrated at once
SLICE: Final = 100_000  # pairs whose errors are computed at once
CAUTION: Final = 6.0  # by how much stronger the prior of a pair without clicks is than clicks alone ask for
FADE: Final = 4  # how fast this falls with the weight of the clicks
STEEPER: Final = 1.0  # standard errors by which the prior of a value follows the order of the engine more closely
SAMPLE: Final = 10_000  # pairs from which the prior strength is corrected


def relevance(fit: Fit, *, confidence: float = 0.95) -> tuple[Relevance, Float64]:
    """Return the posterior of each pair of a log, and the prior strength of each pair in impressions, [pairs]."""
    problem, counts = fit.problem, fit.problem.counts
    nodes = np.where(fit.value.nodes < LEAST, 0.0, fit.value.nodes)
    nodes /= nodes.sum(axis=0)
    shifts = problem.nodes(fit.theta)[0] if problem.level else np.zeros(1)
    means, rates = _priors(problem, fit.theta, shifts)
    mean = (means * nodes[:, counts.query]).sum(axis=0) if len(means) > 1 else means[0]
    trust, added = np.zeros(len(counts.pair)), 0.0  # clicks by trust in each cell, and at the first position
    if problem.trust is not None:
        trust, added = problem.trust.kappa * problem.trust.gamma, problem.trust.kappa
    table = (counts.clicks, counts.impressions, problem.log_observation(fit.theta), trust)
    nodes = np.ascontiguousarray(nodes.T)
    pairs = _Pairs(counts.starts, counts.query, table, problem.steps(fit.theta), nodes, means, rates)
    factor, tail = _correction(pairs), (1 - confidence) / 2
    centre, lower, upper, _ = pairs.integrate(factor, tail)
    exposure, rate = fit.exposure, factor * problem.strengths(fit.theta, mean)[1]
    unknown = rate / (exposure + rate)  # 1 - w
    caution = 1 + CAUTION * (unknown * unknown.mean()) ** FADE
    theta = _towards_engine(fit)
    means, rates = _priors(problem, theta, shifts)
    table = (counts.clicks, counts.impressions, problem.log_observation(theta), trust)
    value = pairs._replace(table=table, means=means, rates=rates * caution).integrate(factor)[0]
    value *= (exposure @ centre) / max(float(exposure @ value), 1e-300)  # the same mean relevance
    reach = norm.isf(tail) * _shared_error(fit, mean, rate)
    with np.errstate(divide="ignore"):
        middle, low, high = (np.log(np.clip(each, 1e-12, 1 - 1e-12)) for each in (centre, lower, upper))
    lower = np.exp(middle - np.hypot(np.maximum(middle - low, 0.0), reach))
    upper = np.minimum(np.exp(middle + np.hypot(np.maximum(high - middle, 0.0), reach)), 1.0)
    share = exposure / (exposure + caution * rate)
    value, centre, lower, upper, mean = (
        np.minimum(each + added, 1.0) for each in (np.clip(value, lower, upper), centre, lower, upper, mean)
    )
    clicks, impressions = counts.by_pair(counts.clicks), counts.by_pair(counts.impressions)
    source = _source(fit, share)
    found = Relevance(counts.rows, value, centre, lower, upper, mean, exposure, share, source, impressions, clicks)
    return found, rate


def _priors(problem: Problem, theta: Float64, shifts: Float64) -> tuple[Float64, Float64]:
    """Return the prior mean of each pair and its strength in impressions, [shifts, pairs] each."""
    means = np.stack([np.minimum(problem.prior_mean(theta, shift=shift), 0.99) for shift in shifts])
    return means, np.stack([problem.strengths(theta, each)[1] for each in means])


def _towards_engine(fit: Fit) -> Float64:
    """Return the parameters that are likely if the slope of h is `STEEPER` standard errors steeper than estimated.

        theta - STEEPER Cov(theta) a / sqrt(a' Cov(theta) a),      slope = a' theta

    where the slope is that of a regression of h on the first-shown position over all pairs that the engine placed. The
    curve and the slope have errors in common: a curve that is too steep goes with a slope that is too flat.
    """
    problem, first, placed = fit.problem, fit.problem.counts.first, fit.problem.counts.placed
    at = [number for number, name in enumerate(fit.names) if name.startswith("first shown at position")]
    weight = np.ones(len(first)) if placed is None else placed.astype(np.float64)
    centred = weight * (first - (weight @ first) / max(float(weight.sum()), 1.0))
    spread = float(centred @ centred)
    if not at or spread == 0.0:
        return fit.theta
    slope = np.zeros(problem.size)
    slope[at] = problem.prior[:, np.array(at) - problem.start].T @ centred / spread
    towards = fit.covariance @ slope
    return np.asarray(fit.theta - STEEPER * towards / np.sqrt(max(float(slope @ towards), 1e-300)))


class _Pairs(NamedTuple):
    """Inputs of the integral over the relevance of each pair; means and rates at one node are used for all nodes."""

    starts: Int64  # first cell of each pair, and the number of cells, [pairs + 1]
    query: Int64  # of each pair, [pairs]
    table: tuple[Float64, Float64, Float64, Float64]  # clicks, impressions, log observation and trust, [cells] each
    steps: Float64  # steepness at each node, [nodes]
    nodes: Float64  # weight of each node for each query, [queries, nodes]
    means: Float64  # prior mean, [nodes or 1, pairs]
    rates: Float64  # prior strength, [nodes or 1, pairs]

    def integrate(self, factor: float, tail: float = 0.0) -> tuple[Float64, Float64, Float64, Float64]:
        """Return mean, quantiles and log evidence of each pair, with the prior strength times a factor.

        Without a tail, quantiles are not computed.
        """
        return _integrate(self._replace(rates=self.rates * factor), tail)

    def take(self, chosen: Int64) -> _Pairs:
        """Return these pairs only."""
        cells, starts = slices(self.starts, chosen)
        clicks, shown, linear, trust = (each[cells] for each in self.table)
        return self._replace(
            starts=starts,
            query=self.query[chosen],
            table=(clicks, shown, linear, trust),
            means=self.means[:, chosen],
            rates=self.rates[:, chosen],
        )


def _correction(pairs: _Pairs) -> float:
    """Return the factor of the prior strength under which the clicks are most likely as 0 or 1, not as Poisson.

    Where documents are clicked often, the Poisson likelihood of the shared parameters expects more chance than there
    is, and so too little difference between documents.
    """
    size = len(pairs.query)
    if size > SAMPLE:
        pairs = pairs.take(np.sort(np.random.default_rng(0).choice(size, SAMPLE, replace=False)))

    def misfit(log_factor: float) -> float:
        evidence = pairs.integrate(float(np.exp(log_factor)))[3]
        return -float(evidence.sum()) + 0.5 * (log_factor / 2.0) ** 2

    found = minimize_scalar(misfit, bounds=(-6.0, 3.0), method="bounded", options={"xatol": 0.02})
    return float(np.exp(found.x))


def _shared_error(fit: Fit, mean: Float64, rate: Float64) -> Float64:
    """Return the standard error of log E[g] that is due to the shared parameters, [pairs].

    With R = (C + s) / (E + r): d log R = -sum(e_j d log o_j) / (E + r) + terms by log K and the prior's logit.
    """
    problem, counts = fit.problem, fit.problem.counts
    shape, clicked = rate * mean, counts.by_pair(counts.clicks)
    exposure = counts.impressions * np.exp(np.clip(problem.log_observation(fit.theta), LOWEST, HIGHEST))
    sparse, base = problem.exposure_columns(exposure)
    seen = counts.by_pair(exposure) + rate
    by_shape, by_rate = shape / (clicked + shape), rate / seen
    to_prior = (1 - mean) * (by_rate if fit.form.proportional else by_shape)
    variance, plain = np.empty(len(counts)), sparse.shape[1]
    for begin in range(0, len(counts), SLICE):
        at = slice(begin, begin + SLICE)
        part = np.zeros((len(seen[at]), problem.size))
        part[:, :plain] = -(sparse[at].toarray() / seen[at, None])
        if problem.coupled is not None:
            part[:, plain : problem.own] = -(problem.coupled[at] * (base[at] / seen[at])[:, None])
        part[:, problem.own] = (by_shape - by_rate)[at]
        part[:, problem.start :] = problem.prior[at] * to_prior[at, None]
        variance[at] = np.einsum("ij,jk,ik->i", part, fit.covariance, part, optimize=True)
    return np.sqrt(np.maximum(variance, 0.0))


def _source(fit: Fit, share: Float64) -> Text:
    """Return the main source of the value of each pair: its clicks, or the largest part of its prior, [pairs]."""
    columns = fit.problem.prior - fit.problem.prior.mean(axis=0)
    kinds = {"first": "position", "feature": "features", "trees": "features", "imputation": "imputation"}
    parts = {"position": np.zeros(len(columns))}
    for number, name in enumerate(fit.names[fit.problem.start :]):
        kind = kinds.get(name.split(" ")[0])
        if kind is not None:
            moved = fit.theta[fit.problem.start + number] * columns[:, number]
            parts[kind] = parts.get(kind, np.zeros(len(columns))) + moved
    sizes = np.abs(np.stack(list(parts.values())))
    most = np.array(list(parts), dtype=np.str_)[sizes.argmax(axis=0)]
    return np.where(share >= 0.5, "clicks", most).astype(np.str_)


def cold_prior(fit: Fit, found: Relevance) -> tuple[Float64, float]:
    """Return the coefficients of the prior of pairs that were never shown, and the log-odds of the prior's mean.

    It is a logistic regression of the estimated relevance on the features and their query means, without the
    first-shown position: pairs that were never shown have none. Each shown pair counts once.
    """
    value = np.clip(found.value, 1e-4, 1 - 1e-4)
    constant = float(logit(value.mean()))
    if fit.given.features.size == 0:
        return np.zeros(0), constant
    design = np.column_stack([np.ones(len(value)), fit.given.features])
    ridge = np.append(1e-6, np.full(design.shape[1] - 1, 10.0))
    coefficients = np.append(constant, np.zeros(design.shape[1] - 1))
    for _ in range(20):
        mean = expit(design @ coefficients)
        hessian = (design * (mean * (1 - mean))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(hessian, design.T @ (value - mean) - ridge * coefficients)
        coefficients += step
        if np.abs(step).max() < 1e-8:
            break
    return coefficients[1:], float(coefficients[0])


def _integrate(pairs: _Pairs, tail: float) -> tuple[Float64, Float64, Float64, Float64]:
    """Return mean, quantiles and log evidence of each pair by summing over a grid in log-odds."""
    size, cells = pairs.means.shape[1], pairs.starts
    parts = []
    for begin in range(0, size, CHUNK):
        end = min(begin + CHUNK, size)
        at = slice(cells[begin], cells[end])
        clicks, shown, linear, trust = (each[at] for each in pairs.table)
        chunk = pairs._replace(
            starts=cells[begin : end + 1] - cells[begin],
            query=pairs.query[begin:end],
            table=(clicks, shown, linear, trust),
            means=pairs.means[:, begin:end],
            rates=pairs.rates[:, begin:end],
        )
        parts.append(_integrate_chunk(chunk, tail))
    value, lower, upper, evidence = (np.concatenate(each) for each in zip(*parts, strict=True))
    return value, lower, upper, evidence


def _integrate_chunk(pairs: _Pairs, tail: float) -> tuple[Float64, Float64, Float64, Float64]:
    """Return the same for pairs that are few enough for their grids, [pairs, points], to stay in the processor's cache.

    Terms of cells and of the prior are sums of logarithms on the grid, relative to the largest of the pair.
    """
    clicks, shown, linear, trust = pairs.table
    size, cells = len(pairs.query), len(clicks)
    cell_of = np.repeat(np.arange(size), np.diff(pairs.starts))
    by_pair = csr_array((np.ones(cells), np.arange(cells), pairs.starts), shape=(size, cells))
    weights = pairs.nodes[pairs.query]
    nodes = np.flatnonzero(weights.any(axis=0))
    observed = [np.exp(np.minimum(pairs.steps[node] * linear, HIGHEST)) for node in nodes]
    priors = [(pairs.means[kind], pairs.rates[kind]) for kind in np.minimum(nodes, len(pairs.means) - 1)]
    first, width = _grid(pairs, weights[:, nodes], observed, priors)
    odds = first[:, None] + width[:, None] * np.arange(POINTS)
    log_value = -np.log1p(np.exp(-odds))
    log_rest, value = log_value - odds, np.exp(log_value)  # log(1 - g), g
    of_cells = value[cell_of] + trust[:, None]
    clicked, missed = np.flatnonzero(clicks > 0), (shown - clicks)[:, None]
    whole, likely, peak = np.zeros(value.shape), np.zeros(len(value)), np.full(len(value), -1e300)
    for node, seen, (mean, rate) in zip(nodes, observed, priors, strict=True):
        weight, shape, against = weights[:, node], rate * mean, rate * (1 - mean)
        chance = seen[:, None] * of_cells
        np.clip(chance, 1e-300, 0.999999, out=chance)
        by_click = clicks[clicked, None] * np.log(chance[clicked])
        logs = np.log1p(np.negative(chance, out=chance), out=chance)
        logs *= missed
        logs[clicked] += by_click
        density = shape[:, None] * log_value + against[:, None] * log_rest + by_pair @ logs
        best = density.max(axis=1)
        density = np.exp(density - best[:, None])
        total = density.sum(axis=1)
        whole += density * (weight / total)[:, None]
        best += gammaln(shape + against) - gammaln(shape) - gammaln(against)
        highest = np.where(weight > 0, np.maximum(peak, best), peak)
        likely = likely * np.exp(peak - highest) + weight * total * np.exp(np.minimum(best - highest, 0.0))
        peak = highest
    lower, upper = _quantiles(first, width, whole, (tail, 1 - tail)) if tail else np.zeros((2, size))
    return (whole * value).sum(axis=1), lower, upper, peak + np.log(likely) + np.log(width)


def _grid(
    pairs: _Pairs, weights: Float64, observed: list[Float64], priors: list[tuple[Float64, Float64]]
) -> tuple[Float64, Float64]:
    """Return the lowest log-odds and the step of a grid that covers the posterior of each pair at every node."""
    clicks, shown, _, trust = pairs.table
    starts = pairs.starts[:-1]
    total, bottom, top = np.add.reduceat(clicks, starts), np.full(len(starts), 0.5), np.zeros(len(starts))
    for number, (seen, (mean, rate)) in enumerate(zip(observed, priors, strict=True)):
        exposure, by_trust = (np.add.reduceat(each, starts) for each in (shown * seen, shown * seen * trust))
        shape, used = total + rate * mean, weights[:, number] > 0
        high = (shape + 6.0 * np.sqrt(shape) + 10.0) / (exposure + rate)
        least = shape - np.minimum(total, by_trust)  # P(Gamma(s) < x) is below x^s / Gamma(s + 1)
        low = np.maximum(np.exp((gammaln(least + 1.0) - 12.0) / least), least * 1e-8)
        low = np.maximum(least - 6.0 * np.sqrt(shape), low) / (exposure + rate)
        top = np.where(used, np.maximum(top, high), top)
        bottom = np.where(used, np.minimum(bottom, low), bottom)
    first, last = logit(bottom), logit(np.minimum(top, 0.9999))
    return first, (last - first) / (POINTS - 1)


def _quantiles(first: Float64, width: Float64, weights: Float64, shares: tuple[float, ...]) -> list[Float64]:
    """Return values below which these shares of the weights lie; between points the density is linear in log-odds."""
    sums = np.cumsum((weights[:, :-1] + weights[:, 1:]) / 2, axis=1)
    pairs, found = np.arange(len(sums)), []
    for share in shares:
        wanted = share * sums[:, -1]
        step = np.minimum((sums < wanted[:, None]).sum(axis=1), POINTS - 2)
        left = wanted - np.where(step > 0, sums[pairs, step - 1], 0.0)
        low, high = weights[pairs, step], weights[pairs, step + 1]
        # solve low x + (high - low) x^2 / 2 = left
        root = np.sqrt(np.maximum(low**2 + 2 * (high - low) * left, 0.0))
        found.append(np.asarray(expit(first + width * (step + np.minimum(2 * left / (low + root + 1e-300), 1.0)))))
    return found
