"""Checks without labels, before a ranker is used, and what the ranker may be used for.

1. The position curve: if estimated relevance rises with the logged position, beyond its error, the curve is too steep,
   since no engine puts its worst results first. The flattest curve within the interval is used then; if relevance still
   rises, raw clicks are. That curve is also used if relevance does not fall and only with it the model fits the clicks.
2. Agreement with the engine: where the engine's order carries relevance, the ranker must not oppose the imitation of
   the engine on held-out queries.
3. Goodness of fit of the model of the log, by position and first-shown position.
4. Size: with few queries, documents are held out instead.
5. Random order, if the log has searches whose results chance ordered: the ranker must put clicked results of these
   searches above the others. This check needs no model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias, final

import numpy as np

from clickprism.auto.candidates import Candidate, Candidates, method_candidates, train_candidates
from clickprism.auto.learners import FEW_QUERIES, Evidence
from clickprism.data.logged import Logged
from clickprism.data.normalise import Kind, Normaliser
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.log_model.model import LogModel
from clickprism.types import Float64, Lists

Verdict: TypeAlias = Literal["passed", "failed", "inconclusive"]
SURE: Final = 2.0  # standard errors
KINDS: Final[tuple[Kind, ...]] = ("standard", "quantile", "log1p")  # kinds of normalisation, in order of preference
LARGEST: Final = 15.0  # standard deviations: a feature with larger values is not only standardised
EXPLAINED: Final = 0.05  # R^2 of the imitation from which selection by the engine can be corrected
FEW_CLICKS: Final = 500
LEAST_RANDOM: Final = 10  # searches in random order with clicks, from which they check the ranker


@final
@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: Name of the check.
        verdict: Whether it passed.
        sentence: What was found, with numbers.
        numbers: The numbers, by name.
    """

    name: str
    verdict: Verdict
    sentence: str
    numbers: dict[str, float] = field(default_factory=dict)


@final
@dataclass(frozen=True, eq=False)
class Checked:
    """The candidates of a log after the checks, and which ranker to use.

    Attributes:
        model: The model of the log; fitted again with a flatter curve if a check requires it.
        normaliser: Normalises raw features.
        evidence: What rankers learned from.
        candidates: All candidates.
        checks: Results of the checks.
        use: "corrected" for the chosen candidate, or "raw clicks" if no correction passed the checks.
        rerank_depth: Number of documents, in the engine's order, that the ranker may re-rank; None for a full list.
        scope: Why, in one sentence.
        selection: How many candidates the log names and how many were shown, in one sentence.
    """

    model: LogModel
    normaliser: Normaliser
    evidence: Evidence
    candidates: Candidates
    checks: tuple[Check, ...]
    use: Literal["corrected", "raw clicks"]
    rerank_depth: int | None
    scope: str
    selection: str

    @property
    def used(self) -> Candidate:
        """Return the candidate to serve."""
        return self.candidates.found[self.candidates.chosen] if self.use == "corrected" else self.candidates.raw


def choose_ranker(
    logged: Logged,
    model: LogModel,
    *,
    held: Mapping[str, Collection[str]] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Train the candidates of a log and check the chosen one.

    Args:
        logged: The log; its documents have features.
        model: The fitted model of the log.
        held: The kinds of rankers to choose from, each with the normalisers that go with it; None for all.
        seed: Random seed.
        progress: Called with the name of each step.
    """
    progress("features")
    kinds = [kind for kind in KINDS if held is None or all(kind in known for known in held.values())]
    normaliser, lists = _normalised(logged, kinds)
    curve, model, evidence = _checked_curve(logged, model, lists, seed)
    methods = method_candidates(logged.clicks, lists, model, seed=seed)
    candidates = train_candidates(evidence, methods=methods, kinds=held, seed=seed, progress=progress)
    checks = [curve, _agreement(evidence, candidates), _fit(model), _size(evidence)]
    failed = any(check.verdict == "failed" for check in checks)
    used = candidates.raw if failed else candidates.found[candidates.chosen]
    checks += _random_order(logged, evidence, used.held_out)
    depth, scope = _scope(logged, evidence, candidates)
    use: Literal["corrected", "raw clicks"] = "raw clicks" if failed else "corrected"
    return Checked(model, normaliser, evidence, candidates, tuple(checks), use, depth, scope, _selection(evidence))


def _normalised(logged: Logged, kinds: Sequence[Kind]) -> tuple[Normaliser, Lists]:
    """Return the normaliser of the features and the normalised documents: quantiles if a feature has a long tail.

    A ranker that extrapolates along a feature with a long tail ranks never-shown documents by their outliers; a
    quantile is bounded. Held-out clicks do not choose: on small logs they find differences that are chance, which
    costs up to .03 of nDCG.
    """
    raw = logged.clicks.lists
    for kind in kinds:
        normaliser = fit_normaliser(kind, raw)
        lists = raw.with_features(normaliser(raw).features)
        if float(np.abs(lists.features).max(initial=0.0)) <= LARGEST:
            break
    return normaliser, lists


def engine_slope(evidence: Evidence) -> tuple[float, float]:
    """Return how estimated relevance rises with the engine's score, per unit of log position, and the standard error.

    It is the slope of the log click rate, corrected for position, by minus the log of the first-shown position.
    """
    return evidence.last_coefficient(evidence.engine[:, None], np.array([1e-6]))


def _checked_curve(logged: Logged, model: LogModel, lists: Lists, seed: int) -> tuple[Check, LogModel, Evidence]:
    """Check that the position curve is not too steep, and flatten it if it is.

    It is too steep if relevance rises with the logged position, or if relevance does not fall and the model does not
    fit the clicks, but fits them with the flattest curve within the interval, with which relevance falls.
    """
    evidence = Evidence.of(logged, model, lists, seed=seed)
    slope, error = engine_slope(evidence)
    rises, falls = slope < -SURE * error, slope > SURE * error
    word = "rises" if rises else "falls" if falls else "does not change clearly"
    found = f"Estimated relevance {word} with the logged position ({_by_doubling(slope, error)})"
    numbers = {"slope": slope, "standard error": error}
    passed = Check("curve", "passed", f"{found}{', as it should' if falls else ''}.", numbers)
    if rises and evidence.holds_out_documents:
        sentence = f"{found}, but the log has too few queries to conclude that the position curve is wrong."
        return replace(passed, verdict="inconclusive", sentence=sentence), model, evidence
    if rises and model.linkage.linked and any(each.agrees for each in model.references.values()):
        sentence = f"{found}. Documents shown at several positions confirm the position curve: the engine is poor."
        return replace(passed, sentence=sentence), model, evidence
    if not rises and (falls or model.fit_quality.fits or evidence.holds_out_documents):
        return passed, model, evidence
    flat = LogModel.fit(logged, settings=model.settings, propensities=np.minimum(model.curve.upper, 1.0))
    again = Evidence.of(logged, flat, lists, seed=seed)
    slope, error = engine_slope(again)
    numbers |= {"slope with the flattest curve": slope, "its standard error": error}
    if rises and slope < -SURE * error:
        sentence = (
            f"{found}, even with the flattest curve within the interval. The position curve of this log cannot be "
            "trusted, so no correction is used and position bias remains."
        )
        return replace(passed, verdict="failed", sentence=sentence), model, evidence
    if not rises and not (slope > SURE * error and flat.fit_quality.fits):
        return passed, model, evidence
    why = "so the position curve was too steep" if rises else "and the model of the log fits only with a flatter curve"
    sentence = f"{found}, {why}. The flattest curve within its interval is used."
    return replace(passed, sentence=sentence), flat, again


def _by_doubling(slope: float, error: float) -> str:
    """Return the change of relevance each time the position doubles, with its interval.

    >>> _by_doubling(0.25, 0.07)
    '-16% each time the position doubles, 95% interval -24% to -7%'
    """
    change, lower, upper = (f"{2.0**-each - 1:+.0%}" for each in (slope, slope + SURE * error, slope - SURE * error))
    return f"{change} each time the position doubles, 95% interval {lower} to {upper}"


def _agreement(evidence: Evidence, candidates: Candidates) -> Check:
    """Check that the chosen candidate does not oppose an engine whose order carries relevance."""
    scores = candidates.found[candidates.chosen].held_out
    value, error = correlation(evidence, scores, candidates.imitation.scorer.held_out)
    numbers = {"agreement": value, "standard error": error, "rho": candidates.weight}
    good = candidates.weight > SURE * candidates.weight_error
    sentence = (
        f"On held-out queries the correlation of the ranker with an imitation of the engine's order is {value:.2f} ± "
        f"{error:.2f}."
    )
    if not good:
        return Check(
            "agreement",
            "passed",
            f"{sentence} Beyond the features, the engine's order says little about relevance.",
            numbers,
        )
    if value < -SURE * error:
        sentence += " The engine's order carries relevance, so a ranker that opposes it is not used."
        return Check("agreement", "failed", sentence, numbers)
    return Check("agreement", "passed", sentence, numbers)


def correlation(evidence: Evidence, one: Float64, other: Float64) -> tuple[float, float]:
    """Return the mean correlation of two scores of the shown documents within queries, and its standard error."""
    size = np.maximum(evidence.by_query(np.ones(len(evidence))), 1.0)
    a, b = (each - (evidence.by_query(each) / size)[evidence.query] for each in (one, other))
    spread = np.sqrt(evidence.by_query(a * a) * evidence.by_query(b * b))
    known = spread > 1e-12
    if not known.any():
        return 0.0, 0.0
    values = evidence.by_query(a * b)[known] / spread[known]
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def _fit(model: LogModel) -> Check:
    quality = model.fit_quality
    if quality.fits:
        sentence = "The model of the log predicts the clicks by position and first-shown position."
        return Check("fit", "passed", sentence, {"largest error": quality.largest})
    sentence = (
        f"The clicks that the model of the log expects are {quality.largest_factor} at some positions: users behave "
        "differently from the model there, and intervals may be too narrow."
    )
    return Check("fit", "inconclusive", sentence, {"largest error": quality.largest})


def _size(evidence: Evidence) -> Check:
    clicks, queries = int(evidence.raw_clicks.sum()), evidence.queries
    numbers = {"clicks": float(clicks), "queries": float(queries)}
    if queries < FEW_QUERIES:
        sentence = (
            f"The log has {queries} quer{'y' if queries == 1 else 'ies'}, too few to hold some of them out. Documents "
            "are held out instead, so it is not known how the ranker does on other queries."
        )
        return Check("size", "inconclusive", sentence, numbers)
    if clicks < FEW_CLICKS:
        sentence = f"The log has {clicks:,} clicks. Differences between candidates may be chance."
        return Check("size", "inconclusive", sentence, numbers)
    return Check("size", "passed", f"The log has {clicks:,} clicks on {queries:,} queries.", numbers)


def _random_order(logged: Logged, evidence: Evidence, held_out: Float64) -> list[Check]:
    """Check the ranker on the searches in random order, if the log has some with clicks.

    Chance chose the position of each result, so position bias does not favour any score there: the share of pairs of a
    clicked and another result in which the clicked one scores higher is one half for a ranker that knows nothing.
    """
    clicks, chance = logged.clicks, logged.randomised
    if chance is None:
        return []
    scores = np.zeros(clicks.lists.documents)
    scores[evidence.rows] = held_out
    shares = []
    for start, end in pairwise(clicks.offsets):
        rows, clicked = clicks.rows[start:end], clicks.clicks[start:end] > 0
        if chance[start:end].all() and clicked.any() and not clicked.all():
            lead = scores[rows[clicked]][:, None] - scores[rows[~clicked]]
            shares.append(float(((lead > 0) + 0.5 * (lead == 0)).mean()))
    if len(shares) < LEAST_RANDOM:
        return []
    value, error = float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))
    numbers = {"share": value, "standard error": error, "searches": float(len(shares))}
    sentence = (
        f"In {len(shares):,} searches in random order, the ranker puts a clicked result above another one in "
        f"{value:.0%} ± {error:.0%} of the pairs; an order by chance has 50%."
    )
    if value > 0.5 + SURE * error:
        return [Check("random order", "passed", sentence, numbers)]
    verdict: Verdict = "failed" if value < 0.5 - SURE * error else "inconclusive"
    return [Check("random order", verdict, f"{sentence} It is not shown to be better than that.", numbers)]


def _selection(evidence: Evidence) -> str:
    shown, unshown = len(evidence), len(evidence.unshown)
    if not evidence.names_candidates:
        return (
            f"The log names only documents that were shown ({shown:,} pairs of query and document). Which other "
            "candidates the engine had is not known."
        )
    share = shown / (shown + unshown)
    return f"The log names {shown + unshown:,} candidates, of which {shown:,} ({share:.0%}) were shown."


def _scope(logged: Logged, evidence: Evidence, candidates: Candidates) -> tuple[int | None, str]:
    """Return how deep the ranker may re-rank, None for a full list, and why."""
    if evidence.names_candidates:
        return None, "The ranker may rank full candidate lists: the log names candidates that were not shown."
    explained = candidates.imitation.explained
    if explained >= EXPLAINED:
        return None, (
            f"The ranker may rank full candidate lists: features explain {explained:.0%} of the engine's order, so its "
            "choice of what to show is taken into account."
        )
    depth = int(np.percentile(np.diff(logged.clicks.offsets), 90))
    return depth, (
        f"Use the ranker to re-rank the first {depth} results as the engine orders them: features explain only "
        f"{explained:.0%} of the engine's order, so how it does on documents that were not shown is not known."
    )
