"""Fit the shared parameters, and choose by held-out likelihood which parts the model of a log has.

Every form is fitted by Newton's method on the marginal likelihood (`likelihood`), and valued by the log-likelihood of
each query under parameters that were fitted without it. One step gives these parameters: theta - H^-1 s_q, with the
score s_q of the query and the Hessian H, so that the held-out log-likelihood is L_q - s_q' H^-1 s_q and needs no refit.

The engine's own order is in the prior unless held-out clicks speak against it: where nothing was shown at several
positions, clicks alone cannot decide between "less relevant" and "less observed", and logs come from engines that work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol, final

import numpy as np
from scipy.special import digamma, logsumexp

from clickprism.errors import DataError, TrainingError
from clickprism.log_model.counts import LogCounts
from clickprism.log_model.likelihood import HIGHEST, LOWEST, NODES, Problem, Trust, Value
from clickprism.log_model.results import Verdict
from clickprism.log_model.terms import Covariates, Form, Scaler, design, finite, log_odds, with_query_means
from clickprism.types import Float64, Int64

TOLERANCE: Final = 1e-6  # largest entry of the gradient, per click
MOST_STEPS: Final = 100
LONGEST: Final = 2.0  # step of one parameter
SURE: Final = 2.0  # standard errors by which a part must improve the held-out log-likelihood
ROUNDS: Final = 30  # of expectation maximisation for trust
CLOSE: Final = 1e-4  # change of every parameter at which these end
FEWEST: Final = 10  # clicks that a fit needs
SAMPLE: Final = 200_000  # cells from which the form is chosen; all are used for the fit
FOLDS: Final = 5
BINS: Final = 63  # of a feature, for trees
LEAST_MOVED: Final = 3.0  # log-likelihood that moved documents must gain by different steepness
SIZES: Final = (0.7, 1.0, 1.4)  # of the curve, in the test of different steepness
SHARES: Final = (0.15, 0.3, 0.6, 1.0)  # of sigma, likewise
TRUST_SHAPE: Final = 0.4  # gamma_k = 1 / (k - .4), as in the trust term that was published with the affine estimator


class Likelihood(Protocol):
    """A penalised likelihood that `solve` maximises."""

    @property
    def clicks(self) -> Float64:
        """Return the clicks of each cell, [cells]."""
        ...

    def evaluate(self, theta: Float64, *, hessian: bool = False, scores: bool = False) -> Value:
        """Return the loss and its derivatives at these parameters."""
        ...


def one_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread: many small products are up to 30 times slower with threads on a busy machine."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """One form, fitted.

    Attributes:
        form: Parts of the model.
        problem: Its likelihood.
        given: Covariates of its parts.
        theta: Parameters.
        value: Loss and derivatives at the parameters.
        steps: Newton steps that were taken.
        names: What the parameters are.
        curve_covariance: Covariance of the curve if `shape.refine` found it, [positions - 1, positions - 1].
    """

    form: Form
    problem: Problem
    given: Covariates
    theta: Float64
    value: Value
    steps: int
    names: tuple[str, ...]
    curve_covariance: Float64 | None = None

    @cached_property
    def inverse(self) -> Float64:
        """Return the inverse Hessian, [parameters, parameters]."""
        return np.asarray(np.linalg.pinv(self.value.hessian, hermitian=True))

    @cached_property
    def held_out(self) -> Float64:
        """Return the held-out log-likelihood of each query, [queries]."""
        cost = np.einsum("qi,ij,qj->q", self.value.scores, self.inverse, self.value.scores, optimize=True)
        return np.asarray(self.value.by_query - cost)

    @cached_property
    def covariance(self) -> Float64:
        """Return the covariance of the parameters, clustered by query: H^-1 (sum of s s' + P) H^-1.

        P, the precision of the prior, stands for the bias of parameters that are not at their prior mean. Few queries
        do not tell how much the parameters vary: H^-1 is added then.
        """
        scores, queries = self.value.scores, len(self.value.scores)
        spread = scores.T @ scores * (queries / max(queries - 1, 1)) + self.problem.precision
        few = self.inverse if queries < 2 * len(self.theta) else 0.0
        own = np.asarray(self.inverse @ spread @ self.inverse + few)
        if self.curve_covariance is None:
            return own
        # the other parameters follow the refined curve: d theta / d b = -H^-1 H_b
        below = len(self.curve_covariance)
        follow = np.eye(len(self.theta), below)
        rest = slice(below, None)
        follow[rest] = -np.linalg.lstsq(self.value.hessian[rest, rest], self.value.hessian[rest, :below], rcond=None)[0]
        own[:below], own[:, :below] = 0.0, 0.0
        return np.asarray(own + follow @ self.curve_covariance @ follow.T)

    @property
    def gradient_norm(self) -> float:
        """Return the largest entry of the gradient per click: how far the fit is from its optimum."""
        return float(np.abs(self.value.gradient).max() / max(self.problem.clicks.sum(), 1.0))

    @property
    def strength(self) -> float:
        """Return K, the prior strength: a number of clicks if the form is proportional, otherwise of impressions."""
        return float(np.exp(self.theta[self.problem.own]))

    @property
    def sigma(self) -> float:
        """Return the spread over queries, of log steepness or of the log-odds of relevance; 0 if they do not differ."""
        varies = self.form.steepness or self.form.level
        return float(np.exp(self.theta[self.problem.own + 1])) if varies else 0.0

    @property
    def exposure(self) -> Float64:
        """Return the expected number of observed impressions of each pair, relative to the first position, [pairs]."""
        counts, linear = self.problem.counts, self.problem.log_observation(self.theta)
        total = np.zeros(len(counts))
        for step, weight in zip(self.problem.steps(self.theta), self.value.nodes, strict=True):
            total += weight[counts.query] * counts.by_pair(
                counts.impressions * np.exp(np.clip(step * linear, LOWEST, HIGHEST))
            )
        return total


def gain(better: Fit, worse: Fit) -> tuple[float, float]:
    """Return by how much one fit improves the held-out log-likelihood of another, and the standard error."""
    difference = better.held_out - worse.held_out
    return float(difference.sum()), float(difference.std() * np.sqrt(len(difference)))


def solve(
    problem: Likelihood, start: Float64, *, scores: bool = True, tolerance: float = TOLERANCE
) -> tuple[Float64, Value, int]:
    """Minimise the loss by Newton's method; the Hessian's negative eigenvalues are turned around.

    `tolerance` is the largest entry of the gradient per click at which the method stops.
    """
    theta, clicks = start.copy(), max(float(problem.clicks.sum()), 1.0)
    value = problem.evaluate(theta, hessian=True)
    if not np.isfinite(value.loss):
        raise TrainingError("the likelihood of the log is not a number at the start of the fit")
    steps = 0
    while steps < MOST_STEPS:
        steps += 1
        roots, vectors = np.linalg.eigh(value.hessian)
        roots = np.maximum(np.abs(roots), 1e-7 * np.abs(roots).max())
        move = -(vectors @ ((vectors.T @ value.gradient) / roots))
        share = min(1.0, LONGEST / max(float(np.abs(move).max()), 1e-300))
        while share > 1e-6:
            ahead = problem.evaluate(theta + share * move)
            if ahead.loss <= value.loss + 1e-4 * share * float(move @ value.gradient) + 1e-12 * abs(value.loss):
                break
            share /= 2
        else:
            break
        theta = theta + share * move
        value = problem.evaluate(theta, hessian=True)
        if np.abs(value.gradient).max() < tolerance * clicks:
            break
    return theta, problem.evaluate(theta, hessian=True, scores=scores), steps


def fit_form(
    counts: LogCounts, form: Form, given: Covariates, *, start: Fit | None = None, offset: Float64 | None = None
) -> Fit:
    """Fit one form.

    Args:
        counts: Counts of the log.
        form: Parts of the model.
        given: Covariates that the parts need.
        start: A fit to start from; parameters of the same name are taken from it.
        offset: Fixed log observation of each cell, for given propensities.
    """
    made = design(counts, form, given)
    problem = Problem(
        counts,
        made.observation,
        made.prior,
        made.precision,
        made.centre,
        steepness=form.steepness,
        level=form.level,
        proportional=form.proportional,
        coupled=made.coupled,
        base=made.base,
        offset=offset,
    )
    theta = _start(problem, made.names, start)
    if not form.trust:
        theta, value, steps = _solve_again(problem, made.names, *solve(problem, theta))
        return Fit(form, problem, given, theta, value, steps, made.names)
    return _fit_trust(problem, form, given, theta, made.names)


def _solve_again(
    problem: Problem, names: tuple[str, ...], theta: Float64, value: Value, steps: int
) -> tuple[Float64, Value, int]:
    """Return the given optimum, or a better one that is found from a falling curve.

    Where nothing links the positions, the likelihood can have two optima: one with a curve that falls, and one with a
    curve that rises while the prior by first-shown position falls all the more. A curve above 1 is a reason to look for
    the first.
    """
    usual, start = _usual_curve(problem.counts.positions), theta.copy()
    if all(theta[number] <= 0 for number, name in enumerate(names) if name in usual):
        return theta, value, steps
    for number, name in enumerate(names):
        if name in usual or name.startswith("first shown at position"):
            start[number] = usual.get(name, problem.centre[number])
    again = solve(problem, start)
    return again if again[1].loss < value.loss else (theta, value, steps)


def _usual_curve(positions: int) -> dict[str, float]:
    """Return the log observation from which fits start, by name of the parameter."""
    return {f"log o at position {k}": float(-0.5 * np.log(k)) for k in range(2, positions + 1)}


def _start(problem: Problem, names: tuple[str, ...], start: Fit | None) -> Float64:
    theta = problem.centre.copy()
    positions = problem.counts.positions
    rate = problem.clicks.sum() / problem.impressions.sum()
    known = dict(zip(start.names, start.theta, strict=True)) if start is not None else {}
    usual = _usual_curve(positions)
    usual["constant"] = float(log_odds(np.array([min(1.5 * rate, 0.9)]))[0])
    for number, name in enumerate(names):
        theta[number] = known.get(name, usual.get(name, theta[number]))
    return theta


def moved_gain(fit: Fit, plain: Fit) -> tuple[float, float]:
    """Return what documents shown at several positions say for queries of different steepness, and its standard error.

    Given how often a pair was clicked in all, its clicks fall on its cells in proportion to n o, whatever its
    relevance. The gain is that of this conditional likelihood with the spread of `fit` against no spread, for the best
    scale of the curve. The marginal likelihood cannot tell steeper observation from relevance that falls faster.
    """
    counts, scale = plain.problem.counts, plain.problem.scale
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    linear = plain.problem.log_observation(plain.theta)
    clicked = counts.by_pair(counts.clicks)

    def value(size: float, sigma: float) -> Float64:
        values = []
        for node in nodes:
            logs = np.clip(np.exp(sigma * node) * size * linear, LOWEST, HIGHEST)
            total = counts.by_pair(counts.impressions * np.exp(logs))
            each = scale * (counts.by_pair(counts.clicks * logs) - clicked * np.log(total))
            values.append(np.bincount(counts.query, weights=each, minlength=counts.queries))
        return np.asarray(logsumexp(np.stack(values), axis=0, b=(weights / weights.sum())[:, None]))

    without = max((value(size, 0.0) for size in SIZES), key=lambda each: float(each.sum()))
    spreads = [share * fit.sigma for share in SHARES]
    found = max((value(size, sigma) for size in SIZES for sigma in spreads), key=lambda each: float(each.sum()))
    difference = found - without
    return float(difference.sum()), float(difference.std() * np.sqrt(len(difference)))


def multiplied(fit: Fit, given: Covariates | None = None) -> Covariates:
    """Return covariates, those of the fit by default, with the curve of a fit: coupling and popularity multiply it."""
    positions = fit.problem.counts.positions
    curve = np.zeros(positions)
    curve[1:] = fit.theta[: positions - 1]
    return replace(fit.given if given is None else given, curve=curve)


def trust_gamma(position: Int64) -> Float64:
    """Return gamma_k = 1 / (k - .4) relative to the first position, for positions from 0."""
    return np.asarray((1 - TRUST_SHAPE) / (position + 1 - TRUST_SHAPE))


def _fit_trust(problem: Problem, form: Form, given: Covariates, theta: Float64, names: tuple[str, ...]) -> Fit:
    """Fit a form with trust of a known size: its clicks are split from the others by expectation maximisation.

    kappa is not estimated by this: the bound of the likelihood prefers no trust, since it ignores that the relevance of
    a pair is uncertain. Documents shown at several positions identify kappa (`trust.estimate_trust`).
    """
    counts, kappa = problem.counts, given.kappa
    gamma = trust_gamma(counts.position)
    theta, value, steps = solve(problem, theta, scores=False)
    for _ in range(ROUNDS):
        relevant = np.exp(_relevance_log_mean(problem, theta, value))[counts.pair]
        clicks = counts.clicks * kappa * gamma / (relevant + kappa * gamma)
        problem, before = replace(problem, trust=Trust(kappa, gamma, clicks)), theta
        theta, value, more = solve(problem, theta, scores=False)
        steps += more
        if np.abs(theta - before).max() < CLOSE:
            break
    return Fit(form, problem, given, theta, problem.evaluate(theta, hessian=True, scores=True), steps, names)


def _relevance_log_mean(problem: Problem, theta: Float64, value: Value) -> Float64:
    """Return E[log g] of each pair given its clicks, [pairs]."""
    counts = problem.counts
    linear, total = problem.log_observation(theta), np.zeros(len(counts))
    shifts = problem.nodes(theta)[0]
    for step, shift, weight in zip(problem.steps(theta), shifts, value.nodes, strict=True):
        exposure = counts.by_pair(problem.impressions * np.exp(np.clip(step * linear, LOWEST, HIGHEST)))
        shape, rate = problem.strengths(theta, problem.prior_mean(theta, shift=shift))
        total += weight[counts.query] * (digamma(problem.relevant_clicks + shape) - np.log(exposure + rate))
    return total


@final
@dataclass(frozen=True)
class Part:
    """A part that was tried.

    Attributes:
        name: Name of the part in `Form`.
        gain: Improvement of the held-out log-likelihood.
        error: Standard error of the gain, over queries.
        used: Whether the part is in the model.
        blocked: Whether the part is better but not used: an engine that reacts to clicks would leave the same trace.
    """

    name: str
    gain: float
    error: float
    used: bool
    blocked: bool = False


@final
@dataclass(frozen=True, eq=False)
class Chosen:
    """The fit of a log, and how its form was chosen.

    Attributes:
        fit: The fit of the chosen form to the whole log.
        parts: Parts that were tried.
        tried: Fits of the parts that were tried, by name, to a sample of the queries if the log is large.
        scaler: Standardises the features; None if the log has none.
    """

    fit: Fit
    parts: tuple[Part, ...]
    tried: dict[str, Fit]
    scaler: Scaler | None = field(default=None)

    def with_part(self, name: str, found: Fit, plain: Fit, *, use: bool) -> Chosen:
        """Return the choice after one more part was tried against a fit without it."""
        better, error = gain(found, plain)
        clear = better > (SURE + 1) * error and better > 0
        part = Part(name, better, error, used=use and clear, blocked=clear and not use)
        tried = {**self.tried, name: found}
        return Chosen(found if part.used else self.fit, (*self.parts, part), tried, self.scaler)


def choose(
    counts: LogCounts,
    *,
    try_parts: tuple[str, ...] = (),
    imputation: Float64 | None = None,
    offset: Float64 | None = None,
    feedback: Verdict = "absent",
    progress: Callable[[str], None] | None = None,
    seed: int = 0,
) -> Chosen:
    """Choose the form of the model by held-out likelihood, and fit it to the whole log.

    Args:
        counts: Counts of the log.
        try_parts: Parts beyond the prior and the steepness to try: context, coupling, popularity.
        imputation: Imputed relevance of each pair, [pairs].
        offset: Fixed log observation of each cell, for given propensities.
        feedback: Whether the engine reacts to clicks. If it does, or may, coupling is tested but not used: positions
            that follow clicks leave a trace like it.
        progress: Called with the name of each part.
        seed: Random seed of the folds of trees, and of the sample on which forms are compared.
    """
    clicks = float(counts.clicks.sum())
    if clicks < FEWEST:
        raise DataError(
            f"the log has {clicks:.0f} clicks, too few to fit a model",
            remedy=f"Collect at least {FEWEST} clicks; a useful estimate needs hundreds",
        )
    tell = progress or (lambda _: None)
    with one_thread():
        small, cells = _sampled(counts, seed)
        known = None if imputation is None else imputation[np.searchsorted(counts.rows, small.rows)]
        given = None if offset is None else offset[cells]
        search = _Search(small, known, given, feedback=feedback, seed=seed)
        tell("prior")
        search.prior()
        for name in ("queries", "features", *try_parts):
            tell(name)
            search.attempt(name)
        if len(small) == len(counts):
            return Chosen(search.best, tuple(search.parts), search.tried, search.scaler)
        tell("all queries")
        whole = _Search(counts, imputation, offset, feedback=feedback, seed=seed)
        whole.scaler = search.scaler
        return Chosen(whole.repeat(search.best), tuple(search.parts), search.tried, whole.scaler)


class _Search:
    """Forward selection of parts; keeps the best fit so far."""

    def __init__(
        self,
        counts: LogCounts,
        imputation: Float64 | None = None,
        offset: Float64 | None = None,
        *,
        feedback: Verdict = "absent",
        seed: int = 0,
    ) -> None:
        self.counts, self.offset, self.seed = counts, offset, seed
        self.reacts, self.calm = feedback == "present", feedback == "absent"
        self.parts: list[Part] = []
        self.tried: dict[str, Fit] = {}
        self.scaler: Scaler | None = None
        odds = np.zeros(0) if imputation is None else log_odds(imputation)
        self.given = Covariates(imputation=odds)
        self.form = Form(imputation=imputation is not None, curve=offset is None)
        self.best: Fit = self.fit(self.form)
        self._turn("proportional")
        if self.form.curve and counts.positions > 2:
            self._turn("rough", sure=SURE)

    def fit(self, form: Form, start: Fit | None = None) -> Fit:
        return fit_form(self.counts, form, self.given, start=start, offset=self.offset)

    def prior(self) -> None:
        """Choose between a prior by the first-shown position and a constant one."""
        if self.counts.positions < 2:
            self.best = self.fit(self.form.with_part("first", False))
        constant = self.fit(self.best.form.with_part("first", False), self.best)
        better, error = gain(self.best, constant)
        keep = better > -SURE * error
        self.parts.append(Part("first", better, error, used=keep))
        if not keep:
            self.best = constant

    def features(self) -> None:
        """Try features in the prior: one by one, and by trees."""
        self._standardise(self.best)
        fits = [self.fit(self.best.form.with_part("features", "linear"), self.best)]
        trees = self._trees(fits[0])
        if trees is not None:
            self.given = replace(self.given, trees=trees)
            fits.append(self.fit(self.best.form.with_part("features", "trees"), fits[0]))
        found = max(fits, key=lambda each: float(each.held_out.sum()))
        self._keep(f"features ({found.form.features})", found)
        self._turn("proportional")

    def queries(self) -> None:
        """Try whether queries differ: in the level of relevance, or in how fast observation falls.

        The marginal likelihood cannot tell steeper observation from relevance that falls faster, so documents shown at
        several positions decide (`moved_gain`). If the engine reacts to clicks, they cannot, and steepness must be far
        more likely than level.
        """
        plain = self.best
        level = self.fit(plain.form.with_part("level"), plain)
        self._keep("level", level)
        found = self.fit(plain.form.with_part("steepness"), plain)
        better, error = gain(found, plain)
        moved, moved_error = gain(found, level) if self.reacts else moved_gain(found, plain)
        sure = SURE + 1 if self.reacts else SURE
        used = better > SURE * error and better > 0 and moved > max(sure * moved_error, LEAST_MOVED)
        self.tried["steepness"] = found
        self.parts.append(Part("steepness", moved, moved_error, used=used))
        if used:
            self.best = found

    def attempt(self, name: str) -> None:
        """Add a part if it improves the held-out log-likelihood."""
        counts = self.counts
        lacking = {
            "features": not counts.features.shape[1],
            # without features in the prior, the observation would explain the relevance that they predict
            "coupling": not self.best.form.features,
            "popularity": counts.popularity is None,
            "context": len(counts.contexts) < 2,
            "browsing": counts.last_click is None,
            "queries": counts.queries < 2 or not self.best.form.curve,
        }
        if lacking.get(name, False) or counts.positions < 2:
            return
        if name == "features":
            self.features()
            return
        if name == "queries":
            self.queries()
            return
        self.given = multiplied(self.best, self.given)
        found = self.fit(self.best.form.with_part(name), self.best)
        if name == "coupling":  # it multiplies the curve of the fit before
            self.given = multiplied(found, self.given)
            found = self.fit(found.form, found)
        self._keep(name, found, sure=SURE if name == "context" else SURE + 1, use=name == "context" or self.calm)

    def repeat(self, before: Fit) -> Fit:
        """Fit the form of another search to this log."""
        if self.counts.features.shape[1]:
            self._standardise(self.best)
        form = before.form
        if form.features == "trees":
            trees = self._trees(self.fit(replace(form, features="linear"), before))
            form = form if trees is not None else replace(form, features="linear")
            self.given = replace(self.given, trees=np.zeros(0) if trees is None else trees)
        if form.coupling or form.popularity:
            self.given = multiplied(before, self.given)
        return self.fit(form, before)

    def _turn(self, name: str, sure: float = 0.0) -> None:
        """Change a part to its opposite if held-out clicks prefer that, by so many standard errors."""
        found = self.fit(self.best.form.with_part(name, not getattr(self.best.form, name)), self.best)
        better, error = gain(found, self.best)
        if better > max(sure * error, 0.0):
            self.best = found

    def _keep(self, name: str, found: Fit, *, sure: float = SURE, use: bool = True) -> None:
        better, error = gain(found, self.best)
        clear = better > sure * error and better > 0
        self.tried[name] = found
        self.parts.append(Part(name, better, error, used=clear and use, blocked=clear and not use))
        if clear and use:
            self.best = found

    def _standardise(self, fit: Fit) -> None:
        """Set the standardised features, those that matter most if there are many, and their means by query."""
        counts = self.counts
        if self.scaler is None:
            residual = counts.by_pair(counts.clicks) - fit.exposure * fit.problem.prior_mean(fit.theta)
            self.scaler = Scaler.of(counts.features, residual)
        own = self.scaler(counts.features)
        self.given = replace(self.given, own=own, features=with_query_means(own, counts.query))

    def _trees(self, fit: Fit) -> Float64 | None:
        """Return the log-odds that trees predict for each pair, from other queries only, [pairs]."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        counts, exposure = self.counts, fit.exposure
        clicks = counts.by_pair(counts.clicks)
        rate = fit.problem.strengths(fit.theta, fit.problem.prior_mean(fit.theta))[1]
        fold = np.random.default_rng([self.seed, 41]).integers(0, FOLDS, counts.queries)[counts.query]
        if len(np.unique(fold)) < FOLDS or np.count_nonzero(clicks) < 10 * FOLDS:
            return None
        x = finite(counts.features)
        x = _binned(np.concatenate([with_query_means(x, counts.query), counts.first[:, None]], axis=1))
        weight = exposure * rate / (exposure + rate)
        target = clicks / np.maximum(exposure, 1e-9)
        made = np.zeros(len(counts))
        for number in range(FOLDS):
            own = fold == number
            trees = HistGradientBoostingRegressor(
                loss="poisson", max_iter=150, learning_rate=0.06, max_leaf_nodes=15, min_samples_leaf=30,
                l2_regularization=1.0, random_state=self.seed,
            )  # fmt: skip
            trees.fit(x[~own], np.minimum(target, 3.0)[~own], sample_weight=weight[~own])
            made[own] = trees.predict(x[own])
        return log_odds(made)


def _binned(x: Float64) -> Float64:
    """Return each column as one of `BINS` quantiles: scikit-learn's own binning is slow with weights."""
    edges = np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    columns = [np.searchsorted(np.unique(edges[:, n]), x[:, n]) for n in range(x.shape[1])]
    return np.stack(columns, axis=1).astype(np.float64)


def _sampled(counts: LogCounts, seed: int) -> tuple[LogCounts, Int64]:
    """Return the counts of a random sample of queries with about `SAMPLE` cells, and which cells these are."""
    cells = len(counts.pair)
    if cells <= SAMPLE:
        return counts, np.arange(cells)
    drawn = np.random.default_rng([seed, 42]).random(counts.queries) < SAMPLE / cells
    if np.count_nonzero(drawn) < 2:
        return counts, np.arange(cells)
    return take_queries(counts, drawn)


def take_queries(counts: LogCounts, queries: object) -> tuple[LogCounts, Int64]:
    """Return the counts of these queries, [queries] of truth values, and which cells these are."""
    pairs = np.asarray(queries)[counts.query]
    cells = np.flatnonzero(pairs[counts.pair])

    def cut(values: object) -> object:
        return None if values is None else np.asarray(values)[cells]

    own = {name: cut(getattr(counts, name)) for name in ("last_click", "popularity", "seen", "randomised")}
    numbers = np.cumsum(pairs) - 1
    kept = np.unique(counts.query[pairs], return_inverse=True)[1].astype(np.int64)
    return (
        LogCounts(
            rows=counts.rows[pairs],
            query=kept,
            first=counts.first[pairs],
            average=counts.average[pairs],
            features=counts.features[pairs],
            placed=None if counts.placed is None else counts.placed[pairs],
            pair=numbers[counts.pair[cells]],
            position=counts.position[cells],
            impressions=counts.impressions[cells],
            clicks=counts.clicks[cells],
            context=counts.context[cells],
            contexts=counts.contexts,
            **own,  # type: ignore[arg-type]
        ),
        cells,
    )
