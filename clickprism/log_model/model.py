"""The fitted model of a log: the one place where clicks are separated into relevance and observation.

    E[clicks of pair d in cell j] = n_dj o_dj g_d,      g_d = c_1: the click probability of d at the first position

Every command reads the same object: the position curve, trust, coupling, popularity, which positions can be compared,
whether the model fits, and the relevance of each (query, document) pair with its interval. `docs/research/one_model.md`
derives it, and shows how LBD, InfoRank and the doubly robust estimate are parts of it.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast, final

import msgspec
import numpy as np
from scipy.special import expit
from scipy.stats import norm

from clickprism._util.manifest import Manifest
from clickprism._util.tables import Table, to_builtin
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError, TrainingError, UnsupportedError
from clickprism.log_model.checks import (
    QUIET,
    curve_error,
    feedback,
    goodness_of_fit,
    part_test,
    position_test,
    trust_test,
)
from clickprism.log_model.counts import (
    DEEPEST_BROWSING,
    LogCounts,
    as_logged,
    count,
    cut,
    positions_without_reaction,
)
from clickprism.log_model.fit import Chosen, Fit, choose, fit_form, gain, multiplied, one_thread, trust_gamma
from clickprism.log_model.likelihood import HIGHEST, LOWEST
from clickprism.log_model.posterior import cold_prior, relevance
from clickprism.log_model.references import Links, agreement, allpairs, linkage, randomised_curve
from clickprism.log_model.results import (
    NOT_LEVEL,
    Agreement,
    ClickParameters,
    Curve,
    Feedback,
    GoodnessOfFit,
    Linkage,
    Relevance,
    Size,
    Test,
    Verdict,
)
from clickprism.log_model.shape import refine
from clickprism.log_model.terms import Covariates, Form, with_query_means
from clickprism.types import Clicks, Float64, Int64, Text

FORMAT: Final = 3
MANIFEST: Final = Manifest(
    "log_model.json", re.compile(r"arrays-[0-9a-f]{16}\.npz"), "a manifest of the model of a log"
)
DEEPEST: Final = 200  # positions
MATERIAL_BROWSING: Final = 0.001  # gain of the log-likelihood per session from which clicks above matter
MATERIAL_ERROR: Final = 0.005  # mean relative error of the curve that is reported
REFITS: Final = 2  # refits of the model with popularity
SURE_TRUST: Final = 0.25  # least share of the clicks at position 1 for which the model includes trust
NO_VIEW: Final = 1e-9  # views of a cell without any
PARTS: Final = {
    "curve": "position curve",
    "rough": "curve that rises and falls",
    "first": "ranking of the engine",
    "imputation": "imputation",
    "steepness": "queries differ in steepness",
    "level": "queries differ in level",
    "context": "context",
    "coupling": "document-dependent observation",
    "popularity": "popularity",
    "trust": "trust",
}
COLD: Final = 5.0  # shown pairs that the mean of the log counts as, beside those of the query


@final
@dataclass(frozen=True, kw_only=True)
class LogModelSettings:
    """How the model of a log is fitted.

    Attributes:
        depth: Use only positions 1 to this one; by default all.
        confidence: Confidence level of the intervals.
        resamples: Number of resampled logs for the intervals of the model-free curves; 0 for no intervals.
        seed: Random seed.
    """

    depth: int | None = None
    confidence: float = 0.95
    resamples: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise SettingError("depth", self.depth, "be at least 1")
        if not 0 < self.confidence < 1:
            raise SettingError("confidence", self.confidence, "be between 0 and 1")
        if self.resamples < 0 or self.resamples == 1:
            raise SettingError("resamples", self.resamples, "be 0, or at least 2")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "not be negative")


@final
@dataclass(frozen=True, eq=False)
class LogModel:
    """The fitted model of a log; `LogModel.fit` makes one.

    Attributes:
        settings: How it was fitted.
        size: Size of the log.
        form: Parts of the model.
        curve: Observation at each position relative to position 1, on average over the queries.
        covariance: Covariance of the log curve, [positions, positions].
        contexts: Curves of contexts, such as devices, if they differ.
        parameters: Click probability at each position as a line in c_1: slope alpha (curve), intercept beta (trust).
        strength: Prior strength, in impressions at the first position of an average pair.
        steepness: Standard deviation of the log steepness of the curve over queries; 0 if queries do not differ.
        tests: Tests of the biases by name.
        feedback: Whether the engine reacts to clicks.
        linkage: Which positions can be compared, and by what.
        fit_quality: Observed against expected clicks.
        references: Model-free curves, and whether they agree with the model.
        unsupported: Why the other model-free curves are not available.
        relevance: Relevance of each shown pair.
        gradient: Largest entry of the gradient per click at the end of the fit.
        steps: Newton steps of the last fit.
        unshown: Prior relevance of each document of the log, used for those that were never shown, [documents].
        query_curves: Observation by query and position, [queries, positions].
        query_of: Query of each document of the log, by index in `query_curves`, -1 if never shown, [documents].
        query_ids: Id of the query of each pair, [pairs].
        document_ids: Id of the document of each pair, [pairs]; empty texts if the log has no ids.
    """

    settings: LogModelSettings
    size: Size
    form: Form
    curve: Curve
    covariance: Float64
    contexts: dict[str, Curve]
    parameters: ClickParameters
    strength: float
    steepness: float
    tests: dict[str, Test]
    feedback: Feedback
    linkage: Linkage
    fit_quality: GoodnessOfFit
    references: dict[str, Agreement]
    unsupported: dict[str, str]
    relevance: Relevance
    gradient: float
    steps: int
    unshown: Float64
    query_curves: Float64
    query_of: Int64
    query_ids: Text
    document_ids: Text

    def __post_init__(self) -> None:
        rows, documents = self.relevance.rows, len(self.unshown)
        inside = not len(rows) or (rows.min() >= 0 and rows.max() < documents == len(self.query_of))
        inside = inside and int(self.query_of.max(initial=-1)) < len(self.query_curves)
        if not inside or not len(self.curve) == len(self.covariance) == self.query_curves.shape[1]:
            raise DataError("the arrays of the model do not fit together")

    def __repr__(self) -> str:
        values = " ".join(f"{value:.2f}" for value in self.curve.values[:10])
        return f"LogModel({self.size.pairs:,} pairs, {self.size.clicks:,} clicks, observation {values})"

    @classmethod
    def fit(
        cls,
        log: Logged | Clicks,
        *,
        settings: LogModelSettings | None = None,
        context: Text | None = None,
        imputation: Float64 | None = None,
        propensities: Float64 | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> LogModel:
        """Fit the model to a log.

        Args:
            log: The log. Features of its documents, days and randomised positions are used if it has them.
            settings: Depth, confidence and seed.
            context: Value of a column for each ranked list, such as the device; each context gets its own curve if
                held-out clicks prefer that.
            imputation: Relevance of each document by another model, from 0 to 1, [documents]; it enters the prior.
            propensities: Known observation at each position, [positions]; it replaces the curve.
            progress: Called with the name of each stage.

        >>> import clickprism as cp
        >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=50, validation_queries=1, test_queries=1))
        >>> settings = cp.SimulationSettings(rankers=3)
        >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=30_000, seed=1, settings=settings)
        >>> model = LogModel.fit(log.clicks)
        >>> [bool(abs(model.curve.values[k] - log.observation[k] / log.observation[0]) < 0.1) for k in (1, 4, 9)]
        [True, True, True]
        """
        settings = settings or LogModelSettings()
        logged = as_logged(log)
        if settings.depth is not None:
            if context is not None:  # the top of a list may be empty; its context goes with it
                logged = replace(logged, columns={**logged.columns, "": context})
            logged = cut(logged, settings.depth)
            context = logged.columns.get("")
        if logged.clicks.max_position > DEEPEST:
            raise UnsupportedError(
                f"the log has positions down to {logged.clicks.max_position:,}; curves are estimated for {DEEPEST}",
                remedy=f"Use only the top of the lists: --depth {DEEPEST} or less",
            )
        with one_thread():
            report_progress = progress or (lambda _: None)
            return _Fitting(logged, settings, report_progress, context, imputation, propensities).run()

    def draws(self, number: int, seed: int = 0) -> Float64:
        """Return draws of the curve from its sampling distribution, [number, positions]."""
        rng = np.random.default_rng([seed, 9])
        roots, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(roots, 0.0))
        logs = np.log(self.curve.values) + rng.standard_normal((number, len(self.curve))) @ root.T
        return np.asarray(np.exp(np.clip(logs, LOWEST, HIGHEST)))

    def cold(self, documents: Int64 | None = None) -> Float64:
        """Return the relevance of documents of the log; those that were never shown have their prior.

        Args:
            documents: Rows of the documents; by default all, [documents].
        """
        values = self.relevance.by_document(len(self.unshown), cold=self.unshown)
        return values if documents is None else np.asarray(values[documents])

    def rates(self, rows: Int64, positions: Int64) -> Float64:
        """Return the predicted click probability of documents (rows of the log) at positions from 1, same shape."""
        at = np.minimum(positions, len(self.curve)) - 1
        query = self.query_of[rows]
        seen = np.where(query >= 0, self.query_curves[query, at], self.curve.values[at])
        relevance = self.unshown.copy()
        relevance[self.relevance.rows] = self.relevance.expected
        return np.asarray(np.clip(seen * relevance[rows] + self.parameters.beta[at], 0.0, 1.0))

    def browsing(self, log: Logged | Clicks) -> Test:
        """Test whether observation depends on the last click above, given the clicks above.

        This conditional likelihood predicts clicks better where users react to their clicks, but it ranks documents
        worse, so it is a finding only: the model itself does not condition on clicks.
        """
        logged = as_logged(log)
        unit = "gain of the log-likelihood per session"
        if not logged.clicks.are_patterns:
            return Test("browsing", "inconclusive", unit=unit, note="the log does not record sessions, only totals")
        logged = cut(logged, min(DEEPEST_BROWSING, len(self.curve)))
        with one_thread():
            counts = count(logged, by_last_click=True)
            plain = fit_form(counts, Form(), Covariates())
            better, error = gain(fit_form(counts, Form(browsing=True), Covariates(), start=plain), plain)
        sessions = max(logged.clicks.sessions, 1)
        reach = float(norm.isf((1 - self.settings.confidence) / 2)) * error
        p_value = float(norm.sf(better / error)) if error > 0 else 1.0
        verdict: Verdict = "present" if p_value < 0.01 and better / sessions > MATERIAL_BROWSING else "absent"
        ends = [(better + sign * reach) / sessions for sign in (-1, 1)]
        return Test("browsing", verdict, better / sessions, ends[0], ends[1], unit, p_value, better, error)

    def tables(self) -> list[Table]:
        """Return a table of the curve with the model-free curves, and a table of what the model contains."""
        others = list(self.references.values())
        header = ["position", "observation", "interval", *(each.curve.name for each in others), "identified by"]
        rows, given = [], self.curve.name == "given"
        for number, value in enumerate(self.curve.values):
            ends = f"{self.curve.lower[number]:.3f} to {self.curve.upper[number]:.3f}" if number and not given else ""
            rest = [f"{each.curve.values[number]:.3f}" if number < len(each.curve) else "" for each in others]
            rows.append([str(number + 1), f"{value:.3f}", ends, *rest, self.linkage.identified[number]])
        intervals = "" if given else f"; {self.curve.confidence:.0%} intervals"
        caption = f"Observation by position, relative to position 1{intervals}"
        parts = [text for name, text in PARTS.items() if getattr(self.form, name)]
        parts += [f"features ({self.form.features})"] if self.form.features else []
        facts = [
            ["sessions", f"{self.size.sessions:,}"],
            ["query-document pairs", f"{self.size.pairs:,}, {self.linkage.moved:,} of them shown at several positions"],
            ["clicks", f"{self.size.clicks:,}"],
            ["prior strength", f"{self.strength:.3g} impressions at position 1"],
            ["parts of the model", ", ".join(parts)],
            ["model fits", "yes" if self.fit_quality.fits else f"no: {self.fit_quality.largest_factor}"],
            ["engine reacts to clicks", {"present": "yes", "absent": "no"}.get(self.feedback.verdict, "inconclusive")],
        ]
        facts += [["error of the model", self.curve.note]] if self.curve.name == "log model" and self.curve.note else []
        facts += [[each.curve.name, "; ".join(filter(None, (each.words, each.curve.note)))] for each in others]
        facts += [[name, f"not available: {reason}"] for name, reason in self.unsupported.items()]
        return [Table(caption, header, rows), Table("", ["model of the log", ""], facts)]

    def save(self, folder: Path | str) -> None:
        """Write the model to a folder; an existing one is replaced in one step."""
        arrays: dict[str, Any] = {}

        def plain(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return to_builtin(value)
            arrays[f"array_{len(arrays)}"] = value
            return f"array_{len(arrays) - 1}"

        about, content = msgspec.to_builtins(self, enc_hook=plain), io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        MANIFEST.save(Path(folder), {"format": FORMAT, "model": about}, {"arrays.npz": content.getvalue()})

    @classmethod
    def load(cls, folder: Path | str) -> LogModel:
        """Read a model that `save` wrote; every file is checked against its hash, and no code from them is run."""

        def make(about: dict[str, Any], contents: dict[str, tuple[Path, bytes]]) -> LogModel:
            path, content = contents["arrays"]
            # uncompressed, so that the arrays are no larger than the file
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in packed.infolist()):
                    raise DataError(
                        "is compressed, unlike the files of a model", file=path, remedy="Save the model again"
                    )
            with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
                arrays = dict(loaded)
            try:
                return msgspec.convert(about["model"], cls, dec_hook=lambda _, name: arrays[name], strict=False)
            except (msgspec.ValidationError, DataError) as error:
                raise DataError(f"holds no model ({error})", file=path, remedy="Fit the model again") from None

        return MANIFEST.load(Path(folder), FORMAT, make)


@final
@dataclass(eq=False)
class _Fitting:
    """One fit of the model to a log."""

    logged: Logged
    settings: LogModelSettings
    report_progress: Callable[[str], None]
    context: Text | None
    imputation: Float64 | None
    propensities: Float64 | None

    def run(self) -> LogModel:
        """Return the fitted model."""
        settings, logged, lists = self.settings, self.logged, self.logged.clicks.lists
        self.report_progress("counts")
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
            progress=self.report_progress,
            seed=settings.seed,
        )
        links = Links.of(counts, seed=settings.seed)
        chance = np.zeros(counts.positions, dtype=np.bool_)
        if counts.randomised is not None:
            chance = counts.by_position(counts.impressions * counts.randomised) > 0
        linked = linkage(
            counts, links, features=bool(chosen.fit.form.features), randomised=chance, views=self._by_views(counts)
        )
        chosen, trust = self._trust(chosen, self._popularity(chosen, reacts), linked, reacts)
        if reacts.verdict == "present":  # then the curve depends on the shape of the prior
            self.report_progress("curve")
            chosen = replace(chosen, fit=refine(chosen.fit, seed=settings.seed))
        fit, counts = chosen.fit, chosen.fit.problem.counts
        self.report_progress("relevance")
        found, rate = relevance(fit, confidence=settings.confidence)
        self.report_progress("checks")
        curve, covariance, contexts, by_query = self._curves(fit, reacts)
        references, unsupported = self._references(counts, links, curve, covariance)
        tests = {"position": position_test(curve, covariance, counts, linked), "trust": trust}
        for name in ("coupling", "popularity", "steepness", "context"):
            test = part_test(name, chosen, linked, settings.confidence)
            tests |= {} if test is None else {name: test}
        numbers = np.full(len(lists), -1, dtype=np.int64)
        numbers[lists.list_of[counts.rows]] = counts.query
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
            query_of=numbers[lists.list_of],
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
        self.report_progress("feedback")
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

    def _trust(self, plain: Chosen, chosen: Chosen, linked: Linkage, reacts: Feedback) -> tuple[Chosen, Test]:
        """Test for trust, and add it to the model if it is present; `plain` is the choice without popularity.

        It is not added if it explains less than `SURE_TRUST` of the clicks at position 1: poor documents whose curve is
        a little steeper, as with users of different types, leave the same trace, and the correction would be wrong.
        Nor is it if queries differ in steepness, if popularity explains it, or if there are signs that the engine
        reacts to clicks.
        """
        fit, counts, settings = plain.fit, plain.fit.problem.counts, self.settings
        test = trust_test(fit, linked, reacts, confidence=settings.confidence, seed=settings.seed)
        if test.verdict == "present" and chosen.fit.form.popularity:
            rest = trust_test(chosen.fit, linked, reacts, confidence=settings.confidence, seed=settings.seed)
            if rest.verdict != "present":
                test = replace(test, verdict="inconclusive", note="popularity bias leaves the same trace")
        rate = counts.by_position(counts.clicks)[0] / max(counts.by_position(counts.impressions)[0], 1.0)
        usable = fit.form.curve and not fit.form.steepness and reacts.z > QUIET and test.lower >= SURE_TRUST * rate
        if test.verdict != "present" or not usable:
            return chosen, test
        self.report_progress("trust")
        found = fit_form(counts, fit.form.with_part("trust"), replace(fit.given, kappa=test.estimate), start=fit)
        return replace(chosen, fit=found), replace(test, used=True)

    def _popularity(self, chosen: Chosen, reacts: Feedback) -> Chosen:
        """Try whether observation depends on the clicks of earlier days, with counts that are split by them."""
        logged, fit = self.logged, chosen.fit
        days = 0 if logged.days is None else len(np.unique(logged.days))
        if days < 2 or not fit.form.curve or fit.problem.counts.positions < 2:
            return chosen
        self.report_progress("popularity")
        counts = count(logged, context=self.context, by_popularity=True, by_chance=logged.randomised is not None)
        counts = replace(counts, first=fit.problem.counts.first)
        plain = fit_form(counts, fit.form, multiplied(fit), start=fit)
        found = fit_form(counts, fit.form.with_part("popularity"), plain.given, start=plain)
        for _ in range(REFITS):  # popularity multiplies the curve of the fit before
            found = fit_form(counts, found.form, multiplied(found), start=found)
        return chosen.with_part("popularity", found, plain, use=reacts.verdict == "absent")

    def _curves(self, fit: Fit, reacts: Feedback) -> tuple[Curve, Float64, dict[str, Curve], Float64]:
        """Return the curve, the covariance of its log, curves by context, and observation by query and position."""
        problem, counts, confidence = fit.problem, fit.problem.counts, self.settings.confidence
        positions = counts.positions
        if self.propensities is not None:
            given = np.asarray(self.propensities, dtype=np.float64)[:positions]
            values = given / given[0]
            curve = Curve("given", values, values, values, confidence, note="given propensities")
            return curve, np.zeros((positions, positions)), {}, np.tile(values, (counts.queries, 1))
        documents, clicks = int(counts.several.sum()), float(counts.clicks.sum())
        if self._by_views(counts):
            values, covariance = _view_curve(counts)
            curve = Curve("views", values, values, values, confidence, documents, clicks, "views in the log")
            return curve.with_covariance(covariance), covariance, {}, np.tile(values, (counts.queries, 1))
        steps, logs = problem.steps(fit.theta), fit.log_curve
        # if the engine reacts to clicks, documents shown at several positions do not measure the error
        own_error = np.zeros((positions, positions)) if reacts.verdict == "present" else curve_error(fit)
        shown = counts.by_query_and_position(counts.impressions)
        shown[:, shown.sum(axis=0) == 0] = 1.0  # positions that were never shown count all queries alike
        share = (fit.value.nodes @ shown) / shown.sum(axis=0)  # [nodes, positions]
        below = np.arange(positions - 1)

        def averaged(name: str, logs: Float64, *columns: Int64) -> tuple[Curve, Float64]:
            """Return the mean curve and the covariance of its log; `columns` are the parameters of each position."""
            each = np.exp(np.clip(np.outer(steps, logs), LOWEST, HIGHEST))
            mean = (share * each).sum(axis=0)
            slopes = np.zeros((positions, problem.size))
            for own in columns:
                slopes[below + 1, own] = ((share * each * steps[:, None]).sum(axis=0) / mean)[1:]
            if problem.steepness:
                by_sigma = (share * each * np.outer(steps * np.log(steps), logs)).sum(axis=0) / mean
                slopes[1:, problem.own + 1] = by_sigma[1:]
            mean[0] = 1.0
            covariance = slopes @ fit.covariance @ slopes.T + own_error
            curve = Curve(name, mean, mean, mean, confidence, documents, clicks)
            return curve.with_covariance(covariance), covariance

        curve, covariance = averaged("log model", logs, below)
        contexts: dict[str, Curve] = {}
        for number, name in enumerate(counts.contexts if fit.form.context else ()):
            own = below + (number + 1) * (positions - 1)
            moved = np.concatenate([[0.0], logs[1:] + fit.theta[own]])
            contexts[name] = averaged(name, moved, below, own)[0]
        by_query = fit.value.nodes.T @ np.exp(np.clip(np.outer(steps, logs), LOWEST, HIGHEST))
        size = float(np.sqrt(np.diagonal(own_error)).mean() * positions / max(positions - 1, 1))
        note = f"intervals include an error of the model of {size:.1%} on average" if size >= MATERIAL_ERROR else ""
        return replace(curve, note=note), covariance, contexts, np.asarray(by_query)

    def _references(
        self, counts: LogCounts, links: Links, curve: Curve, covariance: Float64
    ) -> tuple[dict[str, Agreement], dict[str, str]]:
        """Return the model-free curves, and why others are not available."""
        settings, found, unsupported = self.settings, dict[str, Agreement](), dict[str, str]()
        options = settings.resamples, settings.confidence, settings.seed
        makers: dict[str, Callable[[], tuple[Curve, Float64]]] = {
            "allpairs": lambda: allpairs(links, *options),
            "randomised": lambda: randomised_curve(counts, *options),
        }
        for name, make in makers.items():
            try:
                found[name] = agreement(np.log(curve.values), covariance, *make())
            except (DataError, TrainingError) as reason:
                unsupported[name] = str(reason)
        return found, unsupported

    def _parameters(self, fit: Fit, curve: Curve, test: Test) -> ClickParameters:
        """Return the curve and the intercepts of trust: P(click at k) = o_k c_1 + o_k kappa (gamma_k - gamma_1)."""
        trust = fit.problem.trust
        beta = lower = upper = np.zeros(len(curve))
        if trust is not None:
            gamma = trust_gamma(np.arange(len(curve), dtype=np.int64))
            beta = curve.values * trust.kappa * (gamma - 1)
            reach = (test.upper / test.estimate - 1) * np.abs(beta)
            lower, upper = beta - reach, beta + reach
        return ClickParameters(
            curve.values,
            beta,
            alpha_lower=curve.lower,
            alpha_upper=curve.upper,
            beta_lower=lower,
            beta_upper=upper,
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


def _view_curve(counts: LogCounts) -> tuple[Float64, Float64]:
    """Return the curve of recorded views, and the covariance of its log, clustered by query."""
    rates, seen = _view_rates(counts), cast("Float64", counts.seen)
    beyond = counts.by_query_and_position(seen - counts.impressions * rates[counts.position])
    influence = beyond / np.maximum(counts.by_position(seen), 1.0)
    influence = influence - influence[:, :1]
    return rates / rates[0], np.asarray(influence.T @ influence)


def _checked(imputation: Float64, logged: Logged) -> Float64:
    documents = logged.clicks.lists.documents
    if imputation.shape != (documents,) or not ((imputation >= 0) & (imputation <= 1)).all():
        raise DataError(f"an imputation must be one number from 0 to 1 for each of the {documents} documents")
    return imputation
