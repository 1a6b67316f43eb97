"""Fit the shared parameters, and choose by held-out likelihood which parts the model of a log has.

Every form is fitted by Newton's method on the marginal likelihood (`likelihood`), and valued by the log-likelihood of
each query under parameters that were fitted without it. One step gives these parameters: theta - H^-1 s_q, with the
score s_q of the query and the Hessian H, so that the held-out log-likelihood is L_q - s_q' H^-1 s_q and needs no refit.

The engine's own order is in the prior unless held-out clicks are predicted better without it: where no document was
shown at several positions, clicks alone cannot distinguish "less relevant" from "less observed", and most logs come
from engines that rank well.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol, final

import numpy as np
from scipy.special import digamma, logsumexp

from clickprism._util.tables import counted
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
LIKELY: Final = 1.0  # the same for features: relevance depends on nearly all that teams log
ROUNDS: Final = 30  # rounds of expectation maximisation for trust
CLOSE: Final = 1e-4  # change of every parameter at which these end
FEWEST: Final = 10  # clicks that a fit needs
SAMPLE: Final = 200_000  # cells from which the form is chosen; all are used for the fit
FOLDS: Final = 5
BINS: Final = 63  # bins of a feature, for trees
LEAST: Final = 3.0  # log-likelihood below which a difference decides nothing: steepness, first-shown position
SIZES: Final = (0.7, 1.0, 1.4)  # factors of the curve's scale, in the test of different steepness
SHARES: Final = (0.15, 0.3, 0.6, 1.0)  # shares of sigma, in the same test
TRUST_SHAPE: Final = 0.4  # gamma_k = 1 / (k - .4), as in the trust term that was published with the affine estimator


class Likelihood(Protocol):
    """A penalised likelihood that `solve` maximises."""

    @property
    def clicks(self) -> Float64:
        """Return the clicks of each cell, [cells]."""
        ...

    def evaluate(self, theta: Float64, *, second: bool = False) -> Value:
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
    """A fitted form.

    Attributes:
        form: Parts of the model.
        problem: Its likelihood.
        given: Covariates of its parts.
        theta: Parameters.
        value: Loss and derivatives at the parameters.
        steps: Newton steps that were taken.
        curve_covariance: Covariance of the curve if `shape.refine` found it, [positions - 1, positions - 1].
    """

    form: Form
    problem: Problem
    given: Covariates
    theta: Float64
    value: Value
    steps: int
    curve_covariance: Float64 | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return self.problem.names

    @cached_property
    def inverse(self) -> Float64:
        """Return the inverse Hessian, [parameters, parameters]."""
        return np.asarray(np.linalg.pinv(self.value.hessian, hermitian=True))

    @cached_property
    def held_out(self) -> Float64:
        """Return the held-out log-likelihood of each query, [queries]."""
        cost = np.einsum("qi,ij,qj->q", self.value.scores, self.inverse, self.value.scores, optimize=True)
        return np.asarray(self.value.by_query - cost)

    @property
    def conditional(self) -> Float64:
        """Return the log-likelihood of where the clicks of each pair fell, [queries]."""
        return conditional_likelihood(self.problem, self.problem.log_observation(self.theta))

    @cached_property
    def covariance(self) -> Float64:
        """Return the covariance of the parameters, clustered by query."""
        own = sandwich(self.value, self.problem.precision, self.inverse)
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
    def sigma(self) -> float:
        """Return the spread over queries, of log steepness or of the log-odds of relevance; 0 if they do not differ."""
        varies = self.form.steepness or self.form.level
        return float(np.exp(self.theta[self.problem.own + 1])) if varies else 0.0

    @property
    def log_curve(self) -> Float64:
        """Return the log observation at each position, for a form with a curve, [positions]."""
        return np.concatenate([[0.0], self.theta[: self.problem.counts.positions - 1]])

    @property
    def doubts_engine(self) -> bool:
        """Return whether a bent prior rises somewhere: it then explains what the curve should explain."""
        h = self.theta[[n for n, name in enumerate(self.names) if name.startswith("first shown at position")]]
        return self.form.bent and bool((np.diff(h, prepend=0.0) > 0).any())

    @cached_property
    def prior_mean(self) -> Float64:
        """Return m of each pair in an average query, [pairs]."""
        return self.problem.prior_mean(self.theta)

    @property
    def strengths(self) -> tuple[Float64, Float64]:
        """Return shape and rate of the Gamma prior of each pair in an average query, [pairs] each."""
        return self.problem.strengths(self.theta, self.prior_mean)

    @cached_property
    def seen(self) -> Float64:
        """Return the expected number of observed impressions of each cell, relative to the first position, [cells]."""
        counts, linear = self.problem.counts, self.problem.log_observation(self.theta)
        total = np.zeros(len(counts.pair))
        for step, weight in zip(self.problem.steps(self.theta), self.value.nodes, strict=True):
            total += weight[counts.query][counts.pair] * np.exp(np.clip(step * linear, LOWEST, HIGHEST))
        return np.asarray(counts.impressions * total)

    @cached_property
    def exposure(self) -> Float64:
        """Return the same for each pair, [pairs]."""
        return self.problem.counts.by_pair(self.seen)


def sandwich(value: Value, precision: Float64, inverse: Float64) -> Float64:
    """Return the covariance H^-1 (sum of s s' + P) H^-1 of parameters, clustered by query.

    P, the precision of the prior, accounts for the bias of parameters that are not at their prior mean. With few
    queries the sum underestimates how much the parameters vary, so H^-1 is added.
    """
    queries = len(value.scores)
    spread = value.scores.T @ value.scores * (queries / max(queries - 1, 1)) + precision
    few = inverse if queries < 2 * len(precision) else 0.0
    return np.asarray(inverse @ spread @ inverse + few)


def gain(better: Fit, worse: Fit) -> tuple[float, float]:
    """Return by how much one fit improves the held-out log-likelihood of another, and the standard error."""
    difference = better.held_out - worse.held_out
    return float(difference.sum()), float(difference.std() * np.sqrt(len(difference)))


def solve(problem: Likelihood, start: Float64, *, tolerance: float = TOLERANCE) -> tuple[Float64, Value, int]:
    """Minimise the loss by Newton's method; the Hessian's negative eigenvalues are turned around.

    `tolerance` is the largest entry of the gradient per click at which the method stops.
    """
    theta, clicks = start.copy(), max(float(problem.clicks.sum()), 1.0)
    value = problem.evaluate(theta, second=True)
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
            ahead = problem.evaluate(theta + share * move, second=True)  # most steps are taken, so this is used
            if ahead.loss <= value.loss + 1e-4 * share * float(move @ value.gradient) + 1e-12 * abs(value.loss):
                break
            share /= 2
        else:
            break
        theta, value = theta + share * move, ahead
        if np.abs(value.gradient).max() < tolerance * clicks:
            break
    return theta, value, steps


def fit_form(
    counts: LogCounts, form: Form, given: Covariates, *, start: Fit | None = None, offset: Float64 | None = None
) -> Fit:
    """Fit one form.

    Where nothing links the positions, the likelihood can have two optima: one with a curve that falls, and one with a
    curve that rises while the prior by first-shown position falls all the more. A curve above 1 is a reason to look for
    the first.

    Args:
        counts: Counts of the log.
        form: Parts of the model.
        given: Covariates that the parts need.
        start: A fit to start from; parameters of the same name are taken from it.
        offset: Fixed log observation of each cell, for given propensities.
    """
    if start is None and len(counts.pair) > 2 * SAMPLE:  # most steps are taken on a sample
        drawn = sampled_queries(counts, 0)
        small, cells = counts.take(drawn)
        own = given.take(drawn[counts.query])
        start = fit_form(small, form, own, offset=None if offset is None else offset[cells])
    problem = design(counts, form, given, offset)
    rate = problem.clicks.sum() / problem.impressions.sum()
    falling = {f"log o at position {k}": float(-0.5 * np.log(k)) for k in range(2, counts.positions + 1)}
    known = falling | {"constant": float(log_odds(np.array([min(1.5 * rate, 0.9)]))[0])}
    known |= {} if start is None else dict(zip(start.names, start.theta, strict=True))
    named = list(zip(problem.names, problem.centre, strict=True))
    theta = np.array([known.get(name, centre) for name, centre in named])
    if form.trust:
        return _fit_trust(problem, form, given, theta)
    theta, value, steps = solve(problem, theta)
    if any(theta[number] > 0 for number, name in enumerate(problem.names) if name in falling):
        again = theta.copy()
        for number, (name, centre) in enumerate(named):
            if name in falling or name.startswith("first shown at position"):
                again[number] = falling.get(name, centre)
        other = solve(problem, again)
        theta, value, steps = other if other[1].loss < value.loss else (theta, value, steps)
    return Fit(form, problem, given, theta, value, steps)


def conditional_likelihood(problem: Problem, log_observation: Float64) -> Float64:
    """Return the log-likelihood of where the clicks of each pair fell, given how many there were, [queries].

    They fall on the cells of a pair in proportion to n o, whatever its relevance: only documents shown at several
    positions matter.
    """
    counts, logs = problem.counts, np.clip(log_observation, LOWEST, HIGHEST)
    total = counts.by_pair(counts.impressions * np.exp(logs))
    value = counts.by_pair(counts.clicks * logs) - counts.by_pair(counts.clicks) * np.log(total)
    return np.asarray(problem.query_sums @ (problem.scale * value))


def moved_gain(fit: Fit, plain: Fit) -> tuple[float, float]:
    """Return how much documents shown at several positions favour different steepness by query; and a standard error.

    The gain is that of `conditional_likelihood` with the spread of `fit` against no spread, for the best scale of the
    curve. The marginal likelihood cannot distinguish steeper observation from relevance that falls faster.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    linear = plain.problem.log_observation(plain.theta)

    def value(size: float, sigma: float) -> Float64:
        values = [conditional_likelihood(plain.problem, np.exp(sigma * node) * size * linear) for node in nodes]
        return np.asarray(logsumexp(np.stack(values), axis=0, b=(weights / weights.sum())[:, None]))

    def best(spreads: list[float]) -> Float64:
        return max((value(size, sigma) for size in SIZES for sigma in spreads), key=lambda each: float(each.sum()))

    difference = best([share * fit.sigma for share in SHARES]) - best([0.0])
    return float(difference.sum()), float(difference.std() * np.sqrt(len(difference)))


def multiplied(fit: Fit, given: Covariates | None = None) -> Covariates:
    """Return covariates, those of the fit by default, with the curve of a fit: coupling and popularity multiply it."""
    return replace(fit.given if given is None else given, curve=fit.log_curve)


def trust_gamma(position: Int64) -> Float64:
    """Return gamma_k = 1 / (k - .4) relative to the first position, for positions from 0."""
    return np.asarray((1 - TRUST_SHAPE) / (position + 1 - TRUST_SHAPE))


def _fit_trust(problem: Problem, form: Form, given: Covariates, theta: Float64) -> Fit:
    """Fit a form with trust of a known size: its clicks are split from the others by expectation maximisation.

    kappa is not estimated by this: the bound of the likelihood prefers no trust, since it ignores that the relevance of
    a pair is uncertain. Documents shown at several positions identify kappa (`checks.estimate_trust`).
    """
    counts, kappa = problem.counts, given.kappa
    gamma = trust_gamma(counts.position)
    theta, value, steps = solve(problem, theta)
    for _ in range(ROUNDS):
        linear, log_mean = problem.log_observation(theta), np.zeros(len(counts))  # E[log g | clicks] of each pair
        nodes = zip(problem.steps(theta), problem.nodes(theta)[0], value.nodes, strict=True)
        for step, shift, weight in nodes:
            exposure = counts.by_pair(problem.impressions * np.exp(np.clip(step * linear, LOWEST, HIGHEST)))
            shape, rate = problem.strengths(theta, problem.prior_mean(theta, shift=shift))
            log_mean += weight[counts.query] * (digamma(problem.relevant_clicks + shape) - np.log(exposure + rate))
        clicks = counts.clicks * kappa * gamma / (np.exp(log_mean)[counts.pair] + kappa * gamma)
        problem, before = replace(problem, trust=Trust(kappa, gamma, clicks)), theta
        theta, value, more = solve(problem, theta)
        steps += more
        if np.abs(theta - before).max() < CLOSE:
            break
    return Fit(form, problem, given, theta, value, steps)


@final
@dataclass(frozen=True)
class Part:
    """A part that was tried: its gain of the held-out log-likelihood, and the standard error of that over queries.

    `blocked` parts are better but not used: an engine that reacts to clicks would leave the same trace, or documents
    shown at several positions do not confirm them.
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
    parts: tuple[Part, ...] = ()
    tried: dict[str, Fit] = field(default_factory=dict)
    scaler: Scaler | None = None

    def with_part(
        self, name: str, found: Fit, plain: Fit | None = None, *, sure: float = SURE + 1, use: bool = True
    ) -> Chosen:
        """Return the choice after one more part was tried against a fit without it, by default the one so far."""
        better, error = gain(found, plain or self.fit)
        clear = better > sure * error and better > 0
        return self.after(Part(name, better, error, used=use and clear, blocked=clear and not use), found)

    def after(self, part: Part, found: Fit) -> Chosen:
        """Return the choice after a part was tried."""
        fit = found if part.used else self.fit
        return replace(self, fit=fit, parts=(*self.parts, part), tried={**self.tried, part.name: found})


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
        try_parts: Parts beyond the prior and the steepness to try: context, coupling.
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
            f"the log has {counted(round(clicks), 'click')}, too few to fit a model",
            remedy=f"Collect at least {FEWEST} clicks; a useful estimate needs hundreds",
        )
    report_progress = progress or (lambda _: None)
    with one_thread():
        drawn = sampled_queries(counts, seed)
        small, cells = counts.take(drawn)
        known = None if imputation is None else imputation[drawn[counts.query]]
        given = known, None if offset is None else offset[cells]
        for may_bend in (True, False):
            search = _Search(small, *given, feedback=feedback, seed=seed, may_bend=may_bend)
            for name in ("prior", "queries", "features", *try_parts):
                report_progress(name)
                search.attempt(name)
            if not search.chosen.fit.doubts_engine:
                break
        if drawn.all():
            return search.chosen
        report_progress("all queries")
        whole = _Search(counts, imputation, offset, feedback=feedback, seed=seed, chosen=search.chosen)
        return replace(search.chosen, fit=whole.repeat())


def sampled_queries(counts: LogCounts, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a random sample of the queries with about `SAMPLE` cells; all queries of a small log, [queries]."""
    drawn = np.random.default_rng([seed, 42]).random(counts.queries) < SAMPLE / len(counts.pair)
    return drawn if np.count_nonzero(drawn) > 1 else np.ones(counts.queries, dtype=np.bool_)


class _Search:
    """Forward selection of parts; `chosen` is the best fit so far."""

    def __init__(
        self,
        counts: LogCounts,
        imputation: Float64 | None = None,
        offset: Float64 | None = None,
        *,
        feedback: Verdict = "absent",
        seed: int = 0,
        may_bend: bool = True,
        chosen: Chosen | None = None,
    ) -> None:
        self.counts, self.offset, self.seed, self.feedback = counts, offset, seed, feedback
        self.may_bend = may_bend
        self.given = Covariates(imputation=np.zeros(0) if imputation is None else log_odds(imputation))
        self.chosen = chosen or Chosen(self.fit(Form(imputation=imputation is not None, curve=offset is None)))

    def fit(self, form: Form, start: Fit | None = None) -> Fit:
        return fit_form(self.counts, form, self.given, start=start, offset=self.offset)

    def attempt(self, name: str) -> None:
        """Add a part if it improves the held-out log-likelihood."""
        counts, best = self.counts, self.chosen.fit
        lacking = {
            "features": not counts.features.shape[1],
            # without features in the prior, the observation would explain the relevance that they predict
            "coupling": not best.form.features,
            "context": len(counts.contexts) < 2,
            "queries": counts.queries < 2 or not best.form.curve,
        }
        if name == "prior":
            self._prior()
        elif lacking[name] or counts.positions < 2:
            return
        elif name == "queries":
            self._queries()
        elif name == "features":
            self._features()
        elif name == "context":
            self.chosen = self.chosen.with_part(name, self.fit(best.form.with_part(name), best), sure=SURE)
        else:  # coupling multiplies the curve of the fit before
            found = best
            for _ in range(2):
                self.given = multiplied(found, self.given)
                found = self.fit(best.form.with_part(name), found)
            difference = found.conditional - best.conditional
            moved, error = float(difference.sum()), float(difference.std() * np.sqrt(len(difference)))
            confirmed = moved > max(SURE * error, LEAST)
            self.chosen = self.chosen.with_part(name, found, use=self.feedback == "absent" and confirmed)

    def repeat(self) -> Fit:
        """Fit the form that was chosen on a sample to this log."""
        before = self.chosen.fit
        form = before.form
        if self.counts.features.shape[1]:
            self._standardise(before, self.chosen.scaler)
        if form.features == "trees":
            trees = self._trees(self.fit(replace(form, features="linear"), before))
            form = form if trees is not None else replace(form, features="linear")
            self.given = replace(self.given, trees=np.zeros(0) if trees is None else trees)
        if form.coupling:
            self.given = multiplied(before, self.given)
        found = self.fit(form, before)
        return self.fit(replace(form, bent=False), found) if found.doubts_engine else found

    def _prior(self) -> None:
        """Choose the unit of the prior strength, the roughness of the curve, and what the prior depends on.

        The first-shown position stays in the prior unless held-out clicks are predicted better without it.
        """
        self._turn("proportional")
        positions = self.counts.positions
        if self.chosen.fit.form.curve and positions > 2:
            self._turn("rough", sure=SURE)
        best = self.chosen.fit
        constant = self.fit(best.form.with_part("first", False), best)
        better, error = gain(best, constant)
        part = Part("first", better, error, used=positions > 1 and better > -max(SURE * error, LEAST))
        self.chosen = self.chosen.after(part, best)
        if not part.used:
            self.chosen = replace(self.chosen, fit=constant)
        elif positions > 2 and self.may_bend:
            self._turn("bent", sure=SURE)

    def _queries(self) -> None:
        """Try whether queries differ: in the level of relevance, or in how fast observation falls.

        The marginal likelihood cannot distinguish steeper observation from relevance that falls faster, so documents
        shown at several positions decide (`moved_gain`). If the engine reacts to clicks, they cannot, and steepness
        must be far more likely than level.
        """
        plain, reacts = self.chosen.fit, self.feedback == "present"
        level = self.fit(plain.form.with_part("level"), plain)
        self.chosen = self.chosen.with_part("level", level, sure=SURE)
        found = self.fit(plain.form.with_part("steepness"), plain)
        better, error = gain(found, plain)
        moved, moved_error = gain(found, level) if reacts else moved_gain(found, plain)
        clear = moved > max((SURE + 1 if reacts else SURE) * moved_error, LEAST)
        used = better > SURE * error and better > 0 and clear
        self.chosen = self.chosen.after(Part("steepness", moved, moved_error, used=used), found)

    def _features(self) -> None:
        """Try features in the prior: one by one, and by trees."""
        best = self.chosen.fit
        self._standardise(best)
        fits = [self.fit(best.form.with_part("features", "linear"), best)]
        trees = self._trees(fits[0])
        if trees is not None:
            self.given = replace(self.given, trees=trees)
            fits.append(self.fit(best.form.with_part("features", "trees"), fits[0]))
        found = max(fits, key=lambda each: float(each.held_out.sum()))
        self.chosen = self.chosen.with_part(f"features ({found.form.features})", found, sure=LIKELY)
        self._turn("proportional")

    def _turn(self, name: str, sure: float = 0.0) -> None:
        """Switch a part on or off if held-out clicks prefer that by `sure` standard errors."""
        best = self.chosen.fit
        found = self.fit(best.form.with_part(name, not getattr(best.form, name)), best)
        better, error = gain(found, best)
        if better > max(sure * error, 0.0):
            self.chosen = replace(self.chosen, fit=found)

    def _standardise(self, fit: Fit, scaler: Scaler | None = None) -> None:
        """Set the standardised features, those that matter most if there are many, and their means by query."""
        counts = self.counts
        if scaler is None:
            scaler = Scaler.of(counts.features, counts.by_pair(counts.clicks) - fit.exposure * fit.prior_mean)
        own = scaler(counts.features)
        self.chosen = replace(self.chosen, scaler=scaler)
        self.given = replace(self.given, own=own, features=with_query_means(own, counts.query))

    def _trees(self, fit: Fit) -> Float64 | None:
        """Return the log-odds that trees predict for each pair, from other queries only, [pairs]."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        counts, exposure = self.counts, fit.exposure
        clicks, rate = counts.by_pair(counts.clicks), fit.strengths[1]
        fold = np.random.default_rng([self.seed, 41]).integers(0, FOLDS, counts.queries)[counts.query]
        if len(np.unique(fold)) < FOLDS or np.count_nonzero(clicks) < 10 * FOLDS:
            return None
        x = with_query_means(finite(counts.features), counts.query)
        x = _binned(np.concatenate([x, counts.first[:, None]], axis=1))
        weight = exposure * rate / (exposure + rate)
        target = np.minimum(clicks / np.maximum(exposure, 1e-9), 3.0)
        made = np.zeros(len(counts))
        for number in range(FOLDS):
            own = fold == number
            trees = HistGradientBoostingRegressor(
                loss="poisson", max_iter=150, learning_rate=0.06, max_leaf_nodes=15, min_samples_leaf=30,
                l2_regularization=1.0, random_state=self.seed,
            )  # fmt: skip
            made[own] = trees.fit(x[~own], target[~own], sample_weight=weight[~own]).predict(x[own])
        return log_odds(made)


def _binned(x: Float64) -> Float64:
    """Return each column as one of `BINS` quantiles: scikit-learn's own binning is slow with weights."""
    edges = np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    columns = [np.searchsorted(np.unique(edges[:, n]), x[:, n]) for n in range(x.shape[1])]
    return np.stack(columns, axis=1).astype(np.float64)
