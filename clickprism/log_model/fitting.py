"""The stages of a fit: counts, the engine's reaction to clicks, the form of the model, relevance, checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast, final

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from clickprism.data.logged import Logged
from clickprism.errors import DataError, TrainingError
from clickprism.log_model.checks import QUIET, feedback, goodness_of_fit, part_test, position_test
from clickprism.log_model.counts import LogCounts, count, positions_without_reaction
from clickprism.log_model.fit import Chosen, Fit, choose, fit_form, multiplied, trust_gamma
from clickprism.log_model.likelihood import HIGHEST, LOWEST
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.parameters import NOT_LEVEL, ClickParameters
from clickprism.log_model.posterior import cold_prior, relevance
from clickprism.log_model.references import Links, agreement, allpairs, linkage, randomised_curve
from clickprism.log_model.results import Agreement, Curve, Feedback, Linkage, Relevance, Size, Test
from clickprism.log_model.shape import refine
from clickprism.log_model.terms import Covariates, Form, with_query_means
from clickprism.log_model.trust import trust_test
from clickprism.types import Float64, Int64, Text

REFITS: Final = 2  # of the model with popularity
NO_VIEW: Final = 1e-9  # views of a cell without any
COLD: Final = 5.0  # shown pairs that the mean of the log counts as, beside those of the query


@final
class Fitting:
    """One fit of the model to a log."""

    def __init__(
        self,
        logged: Logged,
        settings: LogModelSettings,
        *,
        context: Text | None,
        imputation: Float64 | None,
        propensities: Float64 | None,
        tell: Callable[[str], None],
    ) -> None:
        self.logged, self.settings, self.context, self.tell = logged, settings, context, tell
        self.imputation, self.propensities = imputation, propensities

    def run(self) -> LogModel:
        """Return the fitted model."""
        settings, logged = self.settings, self.logged
        self.tell("counts")
        counts = count(logged, context=self.context, by_chance=logged.randomised is not None)
        offset = self._offset(counts)
        known = None if self.imputation is None else _checked(self.imputation, logged)[counts.rows]
        reacts, counts = self._feedback(counts, offset)
        chosen = choose(
            counts,
            try_parts=("context", "coupling"),
            imputation=known,
            offset=offset,
            feedback=reacts.verdict,
            progress=self.tell,
            seed=settings.seed,
        )
        links = Links.of(counts, seed=settings.seed)
        chance = np.zeros(counts.positions, dtype=np.bool_)
        if counts.randomised is not None:
            chance = counts.by_position(counts.impressions * counts.randomised) > 0
        linked = linkage(
            counts, links, features=bool(chosen.fit.form.features), randomised=chance, views=self._by_views(counts)
        )
        chosen, trust = self._trust(chosen, linked, reacts)
        chosen = self._popularity(chosen, reacts)
        if reacts.verdict == "present":  # then the curve depends on the shape of the prior
            self.tell("curve")
            chosen = replace(chosen, fit=refine(chosen.fit, seed=settings.seed))
        fit, counts = chosen.fit, chosen.fit.problem.counts
        self.tell("relevance")
        found, rate = relevance(fit, confidence=settings.confidence)
        self.tell("checks")
        curve, covariance, contexts, by_query = self._curves(fit)
        references, unsupported = self._references(counts, links, curve, covariance)
        tests = {
            "position": position_test(curve, covariance, counts, linked),
            "trust": trust,
        }
        for name in ("coupling", "popularity", "steepness", "context"):
            test = part_test(name, chosen, linked, settings.confidence)
            if test is not None:
                tests[name] = test
        lists = logged.clicks.lists
        query_of = np.full(lists.documents, -1, dtype=np.int64)
        numbers = np.full(len(lists), -1, dtype=np.int64)
        numbers[lists.list_of[counts.rows]] = counts.query
        query_of[:] = numbers[lists.list_of]
        ids = lists.document_ids
        return LogModel(
            settings=settings,
            size=Size(
                logged.clicks.sessions,
                counts.queries,
                len(counts),
                int(counts.impressions.sum()),
                int(counts.clicks.sum()),
                counts.contexts if len(counts.contexts) > 1 else (),
            ),
            form=fit.form,
            curve=curve,
            covariance=covariance,
            contexts=contexts,
            parameters=self._parameters(fit, curve, trust),
            strength=float(np.median(rate)),
            steepness=fit.sigma if fit.form.steepness else 0.0,
            tests=tests,
            feedback=reacts,
            linkage=linked,
            fit_quality=goodness_of_fit(fit),
            references=references,
            unsupported=unsupported,
            relevance=found,
            gradient=fit.gradient_norm,
            steps=fit.steps,
            unshown=self._unshown(chosen, found),
            query_curves=by_query,
            query_of=query_of,
            query_ids=lists.query_ids[lists.list_of[counts.rows]],
            document_ids=np.full(len(counts), "", dtype=np.str_) if ids is None else ids[counts.rows],
        )

    def _by_views(self, counts: LogCounts) -> bool:
        """Return whether observation is what the log records, and not estimated from clicks."""
        return self.propensities is None and counts.records_views

    def _offset(self, counts: LogCounts) -> Float64 | None:
        """Return the log observation of each cell if it is known; None if it must be estimated, [cells].

        With recorded views, views ~ Binomial(n, o) and clicks ~ Binomial(views, g): a pair was observed as often as it
        was viewed, whatever the curve.
        """
        if self._by_views(counts):
            seen, rate = cast("Float64", counts.seen), _view_rates(counts)
            return np.asarray(np.log(np.maximum(seen, NO_VIEW) / counts.impressions) - np.log(rate[0]))
        if self.propensities is None:
            return None
        given = np.asarray(self.propensities, dtype=np.float64)
        sound = given.ndim == 1 and len(given) >= counts.positions
        if not sound or not ((given > 0) & np.isfinite(given)).all():
            raise DataError(
                f"propensities must be one positive number for each of the {counts.positions} positions",
                remedy="Give the observation probability of each position, position 1 first, or cut the log: --depth",
            )
        return np.asarray(np.log(given / given[0])[counts.position])

    def _feedback(self, counts: LogCounts, offset: Float64 | None) -> tuple[Feedback, LogCounts]:
        """Test whether the engine reacts to clicks; return counts whose first-shown positions suit the verdict."""
        self.tell("feedback")
        calm = replace(counts, first=counts.average)
        plain = fit_form(calm, Form(curve=offset is None), Covariates(), offset=offset)
        logs = np.zeros(counts.positions)
        if self._by_views(counts):
            logs = np.log(_view_rates(counts))
        else:
            logs[counts.position] = plain.problem.log_observation(plain.theta)
        found = feedback(self.logged, np.exp(logs), confidence=self.settings.confidence)
        if found.verdict == "absent":  # all positions are evidence: with the first ones only, the curve is too steep
            return found, calm
        own = positions_without_reaction(self.logged, np.exp(logs)) if found.verdict == "present" else None
        return found, counts if own is None else replace(counts, first=own[counts.rows])

    def _trust(self, chosen: Chosen, linked: Linkage, reacts: Feedback) -> tuple[Chosen, Test]:
        """Test for trust, and add it to the model if it is present.

        It is not added if queries differ in steepness, which leaves the same trace, nor if there are signs that the
        engine reacts to clicks.
        """
        fit, settings = chosen.fit, self.settings
        test = trust_test(fit, linked, reacts, confidence=settings.confidence, seed=settings.seed)
        usable = fit.form.curve and not fit.form.steepness and reacts.z > QUIET
        if test.verdict != "present" or not usable:
            return chosen, test
        self.tell("trust")
        found = fit_form(
            fit.problem.counts, fit.form.with_part("trust"), replace(fit.given, kappa=test.estimate), start=fit
        )
        return replace(chosen, fit=found), replace(test, used=True)

    def _popularity(self, chosen: Chosen, reacts: Feedback) -> Chosen:
        """Try whether observation depends on the clicks of earlier days, with counts that are split by them."""
        logged, fit = self.logged, chosen.fit
        if logged.days is None or len(np.unique(logged.days)) < 2 or self.propensities is not None or fit.form.trust:
            return chosen
        if self._by_views(fit.problem.counts):
            return chosen
        if fit.problem.counts.positions < 2:
            return chosen
        self.tell("popularity")
        counts = count(logged, context=self.context, by_popularity=True, by_chance=logged.randomised is not None)
        counts = replace(counts, first=fit.problem.counts.first)
        plain = fit_form(counts, fit.form, multiplied(fit), start=fit)
        found = fit_form(counts, fit.form.with_part("popularity"), plain.given, start=plain)
        for _ in range(REFITS):  # popularity multiplies the curve of the fit before
            found = fit_form(counts, found.form, multiplied(found), start=found)
        return chosen.with_part("popularity", found, plain, use=reacts.verdict == "absent")

    def _curves(self, fit: Fit) -> tuple[Curve, Float64, dict[str, Curve], Float64]:
        """Return the curve, the covariance of its log, curves by context, and observation by query and position."""
        problem, counts, settings = fit.problem, fit.problem.counts, self.settings
        positions = counts.positions
        if self.propensities is not None:
            given = np.asarray(self.propensities, dtype=np.float64)[:positions]
            values = given / given[0]
            curve = Curve("given", values, values, values, settings.confidence, note="given propensities")
            return curve, np.zeros((positions, positions)), {}, np.tile(values, (counts.queries, 1))
        if self._by_views(counts):
            curve, covariance = _view_curve(counts, settings.confidence)
            return curve, covariance, {}, np.tile(curve.values, (counts.queries, 1))
        steps = problem.steps(fit.theta)
        at = np.arange(1, positions)
        logs = np.concatenate([[0.0], fit.theta[: positions - 1]])
        shown = np.bincount(
            counts.query[counts.pair] * positions + counts.position,
            weights=counts.impressions,
            minlength=counts.queries * positions,
        ).reshape(counts.queries, positions)
        shown[:, shown.sum(axis=0) == 0] = 1.0  # positions that were never shown count all queries alike
        share = (fit.value.nodes @ shown) / shown.sum(axis=0)  # [nodes, positions]

        def averaged(logs: Float64, columns: Int64) -> tuple[Float64, Float64]:
            """Return the mean curve and the covariance of its log; `columns` are the parameters of each position."""
            each = np.exp(np.clip(np.outer(steps, logs), LOWEST, HIGHEST))
            mean = (share * each).sum(axis=0)
            slopes = np.zeros((positions, problem.size))
            for own in columns:
                slopes[at, own] = ((share * each * steps[:, None]).sum(axis=0) / mean)[at]
            if problem.steepness:
                sigma = np.log(steps)[:, None]
                slopes[at, problem.own + 1] = ((share * each * np.outer(steps, logs) * sigma).sum(axis=0) / mean)[at]
            mean[0] = 1.0
            return mean, slopes @ fit.covariance @ slopes.T

        documents, clicks = int(counts.several.sum()), float(counts.clicks.sum())

        def made(name: str, mean: Float64, covariance: Float64) -> Curve:
            reach = norm.isf((1 - settings.confidence) / 2) * np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
            lower, upper = mean * np.exp(-reach), mean * np.exp(reach)
            return Curve(name, mean, lower, upper, settings.confidence, documents, clicks)

        mean, covariance = averaged(logs, np.arange(positions - 1)[None, :])
        contexts: dict[str, Curve] = {}
        if fit.form.context:
            for number, name in enumerate(counts.contexts):
                own = np.arange(positions - 1) + (number + 1) * (positions - 1)
                moved = np.concatenate([[0.0], logs[1:] + fit.theta[own]])
                contexts[name] = made(name, *averaged(moved, np.stack([np.arange(positions - 1), own])))
        by_query = np.zeros((counts.queries, positions))
        for step, weight in zip(steps, fit.value.nodes, strict=True):
            by_query += weight[:, None] * np.exp(np.clip(step * logs, LOWEST, HIGHEST))
        return made("log model", mean, covariance), covariance, contexts, by_query

    def _references(
        self, counts: LogCounts, links: Links, curve: Curve, covariance: Float64
    ) -> tuple[dict[str, Agreement], dict[str, str]]:
        settings = self.settings
        found: dict[str, Agreement] = {}
        unsupported: dict[str, str] = {}
        options = {"resamples": settings.resamples, "confidence": settings.confidence, "seed": settings.seed}
        makers: dict[str, Callable[[], tuple[Curve, Float64]]] = {
            "allpairs": lambda: allpairs(links, **options),  # type: ignore[arg-type]
            "randomised": lambda: randomised_curve(counts, **options),  # type: ignore[arg-type]
        }
        for name, make in makers.items():
            try:
                reference, draws = make()
            except (DataError, TrainingError) as reason:
                unsupported[name] = str(reason)
                continue
            found[name] = agreement(np.log(curve.values), covariance, reference, draws)
        return found, unsupported

    def _parameters(self, fit: Fit, curve: Curve, test: Test) -> ClickParameters:
        """Return the curve and the intercepts of trust: P(click at k) = o_k c_1 + o_k kappa (gamma_k - gamma_1)."""
        trust, size = fit.problem.trust, len(curve)
        beta = np.zeros(size)
        lower = upper = beta
        if trust is not None:
            gamma = trust_gamma(np.arange(size, dtype=np.int64))
            beta = curve.values * trust.kappa * (gamma - 1)
            reach = test.upper / test.estimate - 1
            lower, upper = beta * (1 + reach), beta * (1 - reach)
        return ClickParameters(
            curve.values,
            beta,
            alpha_lower=curve.lower,
            alpha_upper=curve.upper,
            beta_lower=np.minimum(lower, upper),
            beta_upper=np.maximum(lower, upper),
            confidence=curve.confidence,
            source="log model" if self.propensities is None else "given",
            notes=(NOT_LEVEL,),
        )

    def _unshown(self, chosen: Chosen, found: Relevance) -> Float64:
        """Return the prior relevance of every document, without a first-shown position, [documents]."""
        lists, fit = self.logged.clicks.lists, chosen.fit
        counts = fit.problem.counts
        if fit.form.features and chosen.scaler is not None:
            coefficients, constant = cold_prior(fit, found)
            own = chosen.scaler(lists.features)
            return np.asarray(expit(constant + with_query_means(own, lists.list_of) @ coefficients))
        mean = float(found.value.mean())
        query = lists.list_of[counts.rows]
        total = np.bincount(query, weights=found.value, minlength=len(lists))
        size = np.bincount(query, minlength=len(lists))
        return np.asarray(((total + COLD * mean) / (size + COLD))[lists.list_of])


def _view_rates(counts: LogCounts) -> Float64:
    """Return the share of the impressions at each position that users observed, [positions]."""
    shown = counts.by_position(counts.impressions)
    rates = counts.by_position(cast("Float64", counts.seen)) / np.maximum(shown, 1.0)
    return np.where(shown > 0, rates, rates[0])


def _view_curve(counts: LogCounts, confidence: float) -> tuple[Curve, Float64]:
    """Return the curve of recorded views, and the covariance of its log, clustered by query."""
    rates, positions = _view_rates(counts), counts.positions
    seen = cast("Float64", counts.seen)
    beyond = np.bincount(
        counts.query[counts.pair] * positions + counts.position,
        weights=seen - counts.impressions * rates[counts.position],
        minlength=counts.queries * positions,
    ).reshape(counts.queries, positions)
    influence = beyond / np.maximum(counts.by_position(seen), 1.0)
    influence = influence - influence[:, :1]
    covariance, values = influence.T @ influence, rates / rates[0]
    reach = norm.isf((1 - confidence) / 2) * np.sqrt(np.diagonal(covariance))
    ends = values * np.exp(-reach), values * np.exp(reach)
    total = float(counts.clicks.sum())
    made = Curve("views", values, *ends, confidence, int(counts.several.sum()), total, note="views in the log")
    return made, np.asarray(covariance)


def _checked(imputation: Float64, logged: Logged) -> Float64:
    documents = logged.clicks.lists.documents
    if imputation.shape != (documents,) or not ((imputation >= 0) & (imputation <= 1)).all():
        raise DataError(f"an imputation must be one number from 0 to 1 for each of the {documents} documents")
    return imputation
