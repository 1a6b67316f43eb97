"""Refine the curve: binomial clicks, and relevance whose distribution around its prior mean has any shape.

    c_dj ~ Binomial(n_dj, o_dj m_d u_d),    log o_dj = (log o of the fit) + delta_k,    u_d ~ pi, free on a grid

The likelihood of `likelihood` has closed forms because clicks are Poisson and relevance is a Gamma variable. Neither is
exact: a click probability is at most 1, and the relevance of real documents often has several modes. Most curves hardly
depend on it. But an engine that reacts to clicks moves a document because it is better than its prior; if the prior has
too thin a tail, the model believes the position instead of the document, and the curve becomes too steep.

The logits of pi have a smoothness prior around the Gamma distribution of the fit. The curve that is used is the mean of
the one with a Gamma distribution and the one with a free distribution (`refine`).
Derivatives are those of a mixture (Louis 1982): the Hessian is the expected one plus the covariance of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, final

import numpy as np
from scipy.sparse import csr_array
from scipy.special import log_softmax

from clickprism._util.compiled import compiled
from clickprism.errors import TrainingError
from clickprism.log_model.fit import Fit, fit_form, sampled_queries, solve
from clickprism.log_model.likelihood import Problem, Value
from clickprism.types import Float64, Int64

GRID: Final = np.linspace(-4.0, 2.5, 27)  # log u
CHANGE: Final = 0.05  # prior standard deviation of the second differences of the logits of pi
LEVEL: Final = 5.0  # of the logits themselves
HIGHEST: Final = float(np.log(0.98))  # log click probability
TOLERANCE: Final = 1e-5  # largest entry of the gradient, per click
PINNED: Final = 1e6  # precision of a curve that is kept


class _Cells(NamedTuple):
    """The cells of a log; their clicks and missed impressions are scaled."""

    starts: Int64  # first cell of each pair, and the number of cells, [pairs + 1]
    position: Int64  # from 0, [cells]
    clicks: Float64
    missed: Float64
    logs: Float64  # log observation, or log click probability at u = 1


@final
@dataclass(frozen=True, eq=False)
class Shape:
    """The likelihood of delta, the coefficients v of the prior mean, and the logits of pi, in this order.

    Attributes:
        problem: The likelihood of the fit that is refined.
        theta: Its parameters.
    """

    problem: Problem
    theta: Float64

    @cached_property
    def below(self) -> int:
        """Return the number of positions below the first."""
        return self.problem.counts.positions - 1

    @property
    def clicks(self) -> Float64:
        """Return the scaled clicks of each cell, [cells]."""
        return self.problem.clicks

    @cached_property
    def centre(self) -> Float64:
        """Return the parameters to start from: no change, and the Gamma distribution of the fit."""
        problem, prior = self.problem, self.theta[self.problem.start :]
        shape = float(np.mean(problem.strengths(self.theta, problem.prior_mean(self.theta))[0]))
        return np.concatenate([np.zeros(self.below), prior, shape * (GRID - np.exp(GRID) + 1)])

    @cached_property
    def precision(self) -> Float64:
        """Return the prior precision of the parameters; the curve and v have those of the fit."""
        below, first, old = self.below, self.problem.start, self.problem.precision
        result = np.zeros((len(self.centre), len(self.centre)))
        result[:below, :below] = old[:below, :below]
        result[below : -len(GRID), below : -len(GRID)] = old[first:, first:]
        twice = np.diff(np.eye(len(GRID)), 2, axis=0) / CHANGE
        result[-len(GRID) :, -len(GRID) :] = twice.T @ twice + np.eye(len(GRID)) / LEVEL**2
        return result

    @cached_property
    def pull(self) -> Float64:
        """Return the gradient of the penalty at `centre`: the prior of curve and v is around the centre of the fit."""
        off = self.theta - self.problem.centre
        off = np.concatenate([off[: self.below], off[self.problem.start :], np.zeros(len(GRID))])
        return np.asarray(self.precision @ off)

    @cached_property
    def _cells(self) -> _Cells:
        """Return the cells, with the log observation of the fit."""
        counts, problem = self.problem.counts, self.problem
        missed = np.maximum(problem.impressions - problem.clicks, 0.0)
        return _Cells(counts.starts, counts.position, problem.clicks, missed, problem.log_observation(self.theta))

    @cached_property
    def _positions(self) -> csr_array:
        """Return the indicators of the positions below the first, [cells, positions - 1]."""
        counts = self.problem.counts
        cells = np.flatnonzero(counts.position > 0)
        where = (cells, counts.position[cells] - 1)
        return csr_array((np.ones(len(cells)), where), shape=(len(counts.pair), self.below))

    def evaluate(self, theta: Float64, *, second: bool = False) -> Value:
        """Return the loss and its gradient; if `second`, also the Hessian and the scores."""
        counts, below, prior = self.problem.counts, self.below, self.problem.prior
        log_pi = log_softmax(theta[-len(GRID) :])
        pi = np.exp(log_pi)
        mean = self.problem.prior_mean(np.concatenate([self.theta[: self.problem.start], theta[below : -len(GRID)]]))
        curve = np.concatenate([[0.0], theta[:below]])
        logs = self._cells.logs + curve[counts.position] + np.log(mean)[counts.pair]
        value, pull, post, turned, block, cross, by_pair = _expect(
            self._cells._replace(logs=logs), log_pi, counts.positions, second
        )
        slope = 1 - mean  # of log m by its logit
        off = theta - self.centre
        push = self.precision @ off + self.pull
        total = counts.by_pair(pull)
        gradient = push.copy()
        gradient[:below] -= self._positions.T @ pull
        gradient[below : -len(GRID)] -= prior.T @ (total * slope)
        gradient[-len(GRID) :] -= post.sum(axis=0) - len(counts) * pi
        loss = float(off @ (0.5 * (self.precision @ off) + self.pull)) - float(value.sum())
        matrix, each = np.zeros((0, 0)), np.zeros((0, 0))
        if second:
            matrix = self.precision.copy()
            v, u = slice(below, -len(GRID)), slice(-len(GRID), None)
            matrix[:below, :below] -= block[1:, 1:]
            to_prior = self._positions.T @ (prior[counts.pair] * (turned * slope[counts.pair])[:, None])
            matrix[:below, v] -= to_prior
            matrix[v, :below] -= to_prior.T
            twice = counts.by_pair(turned) * slope**2 - total * mean * slope
            matrix[v, v] -= (prior * twice[:, None]).T @ prior
            matrix[:below, u] -= cross[1:]
            matrix[u, :below] -= cross[1:].T
            to_pi = (prior * slope[:, None]).T @ by_pair
            matrix[v, u] -= to_pi
            matrix[u, v] -= to_pi.T
            matrix[u, u] -= np.diag(post.sum(axis=0)) - post.T @ post - len(counts) * (np.diag(pi) - np.outer(pi, pi))
            each = np.concatenate(
                [
                    counts.by_query_and_position(pull)[:, 1:],
                    self.problem.query_sums @ (prior * (total * slope)[:, None]),
                    self.problem.query_sums @ (post - pi),
                ],
                axis=1,
            )
        by_query = np.asarray(self.problem.query_sums @ value)
        return Value(loss, gradient, matrix, by_query, each, np.ones((1, counts.queries)))


def refine(fit: Fit, *, seed: int = 0) -> Fit:
    """Return the fit with the mean of two curves, to which all other parameters are fitted again.

        b       =  (b_Gamma + b_free) / 2
        Cov(b)  =  Cov(b_Gamma) + (b_free - b_Gamma) (b_free - b_Gamma)' / 4

    The curve is too steep with a Gamma distribution of relevance and too flat with a free one, and clicks do not decide
    between them; half the difference counts as a standard error. A fit is returned unchanged if its queries differ in
    steepness or it has trust, because it already is a mixture, and if the free curve is not the flatter one. On large
    logs the difference is estimated on a sample of the queries.
    """
    problem = fit.problem
    below = problem.counts.positions - 1
    if below < 1 or not fit.form.curve or fit.form.steepness or fit.form.trust:
        return fit
    plain, drawn = fit, sampled_queries(problem.counts, seed)
    if not drawn.all():
        given = fit.given.take(drawn[problem.counts.query])
        plain = fit_form(problem.counts.take(drawn)[0], fit.form, given, start=fit)
    shape, curve = Shape(plain.problem, plain.theta), slice(below)
    try:
        moved = solve(shape, shape.centre, tolerance=TOLERANCE)[0][curve] / 2
    except (TrainingError, np.linalg.LinAlgError):
        return fit
    if moved.mean() <= 0:
        return fit
    centre, precision = problem.centre.copy(), problem.precision.copy()
    centre[curve] = fit.theta[curve] + moved
    precision[curve, curve] = PINNED * np.eye(below)
    pinned = replace(problem, centre=centre, precision=precision)
    start = fit.theta.copy()
    start[curve] = centre[curve]
    theta, value, steps = solve(pinned, start)
    covariance = fit.covariance[curve, curve] + np.outer(moved, moved)
    return replace(fit, problem=pinned, theta=theta, value=value, steps=steps, curve_covariance=covariance)


@compiled
def _expect(
    cells: _Cells, log_pi: Float64, positions: int, second: bool
) -> tuple[Float64, Float64, Float64, Float64, Float64, Float64, Float64]:
    """Return log-likelihoods of pairs, scores of cells, posteriors on the grid, and sums of second derivatives.

    The last four are 0 unless asked for: by cell and the sum over the cells of its pair, [cells]; by two positions; by
    position and grid point; by pair and grid point.
    """
    starts, size = cells.starts, len(cells.clicks)
    pairs, points = len(starts) - 1, len(log_pi)
    value, pull, post = np.zeros(pairs), np.zeros(size), np.zeros((pairs, points))
    turned, block = np.zeros(size), np.zeros((positions, positions))
    cross, by_pair = np.zeros((positions, points)), np.zeros((pairs if second else 0, points))
    most = (starts[1:] - starts[:-1]).max()
    score, curvature = np.zeros((most, points)), np.zeros((most, points))
    for pair in range(pairs):
        first, last = starts[pair], starts[pair + 1]
        post[pair] = log_pi
        for cell in range(first, last):
            _at_grid(cells, cell, post[pair], score[cell - first], curvature[cell - first])
        top = post[pair].max()
        post[pair] = np.exp(post[pair] - top)
        whole = post[pair].sum()
        post[pair] /= whole
        value[pair] = top + np.log(whole)
        for cell in range(first, last):
            pull[cell] = (post[pair] * score[cell - first]).sum()
        if not second:
            continue
        for cell in range(first, last):
            at, weighted = cells.position[cell], post[pair] * (score[cell - first] - pull[cell])
            second = (post[pair] * curvature[cell - first]).sum()
            block[at, at] += second
            turned[cell] += second
            cross[at] += weighted
            by_pair[pair] += weighted
            for other in range(first, last):
                both = (weighted * score[other - first]).sum()
                block[at, cells.position[other]] += both
                turned[cell] += both
    return value, pull, post, turned, block, cross, by_pair


@compiled
def _at_grid(cells: _Cells, cell: int, total: Float64, score: Float64, curvature: Float64) -> None:
    """Add the log-likelihood of a cell on the grid to `total`; set its first and second derivatives by log o."""
    clicked, missed = cells.clicks[cell], cells.missed[cell]
    for point in range(len(total)):
        log_chance = cells.logs[cell] + GRID[point]
        inside = 1.0 if log_chance < HIGHEST else 0.0
        log_chance = min(log_chance, HIGHEST)
        chance = np.exp(log_chance)
        odds = chance / (1 - chance)
        total[point] += clicked * log_chance + missed * np.log1p(-chance)
        score[point] = inside * (clicked - missed * odds)
        curvature[point] = -inside * missed * odds / (1 - chance)
