"""The candidates of `auto`, and the choice between them without labels.

All candidates are compared by one number: how well they predict the clicks of held-out queries, after the correction
for position and with the engine's own knowledge held fixed (`Reference`). It needs no labels, and it does not favour a
ranker that unlearns what the engine knows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logit

from clickprism.auto.learners import (
    FOLDS,
    Evidence,
    Scorer,
    average,
    network_clicks,
    network_engine,
    tree_clicks,
)
from clickprism.debias import METHODS
from clickprism.debias.query_regression import SHOWN_SHARE, attenuation, centred, linear_clicks, linear_engine
from clickprism.settings import resolve
from clickprism.types import Clicks, Float64, Int64, Lists

if TYPE_CHECKING:
    from clickprism.log_model.model import LogModel
    from clickprism.model import Model

RIDGES: Final = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # penalties of linear rankers, chosen by held-out queries
WEAK_RIDGE: Final = 10.0  # penalty with which rho is estimated
REGRESSION_RIDGE: Final = 10.0
SMALL: Final = 20_000  # pairs up to which networks are trained again on all of them
PROBABLE: Final = (0.001, 0.99)  # least and largest relevance of which log-odds are taken
FREE: Final = 1e-2  # penalty of the weight of the engine's score
RAW_STRENGTH: Final = 50.0  # for raw clicks: impressions of a pair beyond which further ones count less
SURE: Final = 1.0  # standard errors
MATERIAL: Final = 0.1  # another candidate must gain more by this share of the safe candidate's gain
MANY_QUERIES: Final = 100  # from which held-out clicks choose weights, and a linear ranker is the safe candidate
STEP: Final = 0.05  # step size of the shares in an average
# The method that trained a candidate, for the model card
METHOD_NAMES: Final = {"raw clicks": "click", "imitation": "imitation"}
PARTS: Final = ("imitation", "prior")  # used in other candidates, and never chosen alone
FINDINGS: Final = {"coupling": "document", "popularity": "document"}  # tests of the model, and the bias that they show
METHOD_EPOCHS: Final = 15
METHOD_BATCH: Final = 256  # ranked lists
MOST_LISTS: Final = 5_000  # distinct ranked lists that a method learns from while candidates are compared
Train: TypeAlias = "Callable[[Int64], Model]"
"""Trains a ranker on some of the pairs, given by their numbers."""
SUMMARIES: Final = {
    "linear": "a linear ranker",
    "networks": "an average of small neural networks",
    "blend": "a weighted average of a linear ranker and small neural networks",
    "trees": "gradient boosted trees",
    "prior": "a linear ranker on the relevance that the model of the log expects before clicks",
    "imitation": "an imitation of the engine's own order",
    "raw clicks": "the same kind of ranker, trained on raw clicks",
}
KINDS: Final = {"networks": "mlp", "blend": "mlp", "trees": "lambdamart"}
"""The kind of ranker of a candidate; that of all others is linear."""


@final
@dataclass(frozen=True, eq=False)
class Imitation:
    """A ranker that imitates the engine.

    Attributes:
        scorer: Scores of any document; those of held-out pairs are centred within queries.
        explained: R^2 on held-out queries: the share of the engine's order that the features explain.
        attenuation: Share of the slope that was found, since only some candidates are shown.
    """

    scorer: Scorer
    explained: float
    attenuation: float


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A trained candidate.

    Attributes:
        name: Name in `SUMMARIES`.
        held_out: Scores of the shown pairs by copies that did not learn from their query, [pairs].
        likelihood: Held-out log-likelihood of each query, [queries].
        make: Returns the ranker, which takes normalised features.
    """

    name: str
    held_out: Float64
    likelihood: Float64
    make: Callable[[], Model]


@final
@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of a log, and which one to use.

    Attributes:
        found: Candidates by name.
        chosen: Name of the one to use, before the checks.
        reason: Why, in one sentence.
        weight: rho, how much relevance the engine's order carries, per unit of log position.
        weight_error: Its standard error, over queries.
        imitation: The imitation of the engine.
        raw: The ranker of the chosen kind on raw clicks.
    """

    found: dict[str, Candidate]
    chosen: str
    reason: str
    weight: float
    weight_error: float
    imitation: Imitation
    raw: Candidate


def train_candidates(
    evidence: Evidence,
    *,
    methods: Mapping[str, Train] | None = None,
    kinds: Container[str] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Candidates:
    """Train every candidate on held-out parts and on all of the log, and choose one.

    Args:
        evidence: What rankers learn from.
        methods: Methods of the registry to try, too, by name.
        kinds: Kinds of rankers that may be chosen; None for all.
        seed: Random seed.
        progress: Called with the name of each step.
    """
    search = _Search(evidence, seed)
    progress("imitation of the engine")
    linear_imitation, weight, error = search.linear_imitation()
    progress("networks that imitate the engine")
    network_imitation = search.network_imitation(beside=linear_imitation)
    imitation = max((linear_imitation, network_imitation), key=lambda each: each.explained)
    known = weight * evidence.engine
    search.reference = known - weight / imitation.attenuation * imitation.scorer.held_out
    progress("linear ranker")
    raw_linear = search.scaled(search.ridge(RIDGES[0], search.raw_offset, search.raw_clicks))
    from_prior = search.scaled(search.regression(_log_odds(evidence.prior)))
    corrected = search.linear(known - weight / linear_imitation.attenuation * linear_imitation.scorer.held_out)
    linear = search.average([corrected, from_prior, raw_linear])
    progress("networks")
    raw_networks = search.scaled(search.networks(search.raw_offset, search.raw_clicks))
    from_posterior = search.scaled(search.network_regression(_log_odds(evidence.posterior)))
    networks = search.average([search.corrected_networks(network_imitation, weight), from_posterior, raw_networks])
    blend = search.average([linear, networks], raw=False)
    scorers = {
        "linear": linear,
        "blend": blend,
        "networks": networks,
        "prior": from_prior,
        "imitation": search.scaled(imitation.scorer),
    }
    found = {name: search.of_scorer(name, scorer) for name, scorer in scorers.items()}
    progress("trees")
    found["trees"] = search.other("trees", search.trees)
    for name, train in (methods or {}).items():
        if not evidence.holds_out_documents:
            progress(name)
            found[name] = search.other(name, train, scale=True)
    allowed = {name: each for name, each in found.items() if kinds is None or KINDS.get(name, "linear") in kinds}
    chosen, reason = _choose(allowed, evidence.held_out_likelihood(search.reference))
    reason += "" if kinds is None else " Only rankers that the engine can hold were compared."
    if chosen == "trees":
        raw = search.other("raw clicks", search.raw_trees)
    else:
        same_kind = {"networks": raw_networks, "blend": average([raw_linear, raw_networks])}
        raw = search.of_scorer("raw clicks", search.scaled(same_kind.get(chosen, raw_linear)))
    return Candidates(found, chosen, reason, weight, error, imitation, raw)


class _Search:
    """Trains rankers on all of the log, and copies on parts of it, which score the pairs that they did not learn from.

    Attributes:
        evidence: What rankers learn from.
        seed: Random seed.
        reference: What the engine knows beyond the features: a fixed part when rankers are compared, [pairs].
    """

    def __init__(self, evidence: Evidence, seed: int) -> None:
        self.evidence, self.seed = evidence, seed
        self.x, self.query, self.offset = evidence.features, evidence.query, np.log(evidence.exposure)
        self.everything = np.arange(len(evidence))
        self.reference = np.zeros(len(evidence))
        scale = RAW_STRENGTH / (evidence.impressions + RAW_STRENGTH)
        self.raw_clicks, self.raw_offset = evidence.raw_clicks * scale, np.log(evidence.impressions * scale)

    def candidate(self, name: str, held_out: Float64, make: Callable[[], Model]) -> Candidate:
        return Candidate(name, held_out, self.evidence.held_out_likelihood(held_out + self.reference), make)

    def of_scorer(self, name: str, scorer: Scorer) -> Candidate:
        return self.candidate(name, scorer.held_out, partial(scorer.model, METHOD_NAMES.get(name, "log_model")))

    def average(self, scorers: Sequence[Scorer], *, raw: bool = True) -> Scorer:
        """Return the weighted average of functions.

        With few queries all functions count the same: held-out clicks of so few queries find differences that are
        chance. With many, the weights are their posterior mean given the held-out clicks: the best function counts
        alone if the log is large enough for that; otherwise the prior decides. In the prior the last function
        counts one fifth if it was trained on raw clicks, which are known to be biased.
        """
        if self.evidence.queries < MANY_QUERIES:
            return average(scorers)
        counts = np.ones(len(scorers))  # of the Dirichlet prior
        if raw:
            counts[:-1] = 4 / (len(scorers) - 1)
        held_out = np.stack([each.held_out for each in scorers])
        shares = _simplex(len(scorers))
        values = [self.evidence.held_out_likelihood(each @ held_out + self.reference).sum() for each in shares]
        density = np.array(values) + np.log(shares + STEP / 2) @ (counts - 1)
        likely = np.exp(density - density.max())
        return average(scorers, likely @ shares / likely.sum())

    def scaled(self, scorer: Scorer) -> Scorer:
        """Return a function in the units of log click rates."""
        return scorer.times(self._scale(scorer.held_out))

    def _scale(self, scores: Float64) -> float:
        """Return the factor under which scores that are not log click rates predict clicks best."""
        spread = max(float(np.std(scores)), 1e-9)

        def misfit(factor: float) -> float:
            return -float(self.evidence.held_out_likelihood(factor / spread * scores + self.reference).sum())

        return float(minimize_scalar(misfit, bounds=(0.0, 5.0), method="bounded", options={"xatol": 0.01}).x) / spread

    def folds(self) -> list[tuple[Int64, Int64]]:
        """Return the pairs to learn from and those that are held out, for each fold."""
        fold = self.evidence.fold
        parts = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(FOLDS)]
        return [(own, rest) for own, rest in parts if len(own) and len(rest)]

    def scorer(self, fit: Callable[[Int64, int], Scorer]) -> Scorer:
        """Return what `fit` makes of all pairs, with the held-out scores of copies without each fold.

        Args:
            fit: Takes the pairs to learn from and a random seed. Networks of a small log are trained again on all
                pairs, five times, and averaged; on a large log the copies themselves are averaged.
        """
        members, held_out = [], np.zeros(len(self.evidence))
        for number, (own, rest) in enumerate(self.folds()):
            members.append(fit(own, self.seed + number))
            held_out[rest] = members[-1](self.x[rest])
        if not members[0].networks:
            members = [fit(self.everything, self.seed)]
        elif len(self.evidence) <= SMALL:
            members = [fit(self.everything, self.seed + 10 + number) for number in range(FOLDS)]
        return replace(average(members), held_out=held_out)

    def linear_imitation(self) -> tuple[Imitation, float, float]:
        """Return the linear imitation of the engine, rho and its standard error.

        The penalty of rho's regression is weak: with a strong one, what the features no longer explain would be in rho.
        """
        score = self.evidence.engine
        imitation = self.imitation(self.regression(score))
        columns = np.column_stack([self.x, imitation.scorer.held_out, score])
        penalty = np.append(np.full(self.x.shape[1], WEAK_RIDGE), [FREE, FREE])
        weight, error = self.evidence.last_coefficient(columns, penalty)
        return imitation, max(weight, 0.0), error

    def network_imitation(self, beside: Imitation) -> Imitation:
        """Return the imitation by networks, averaged with the linear one.

        Networks level off away from the shown documents; a linear function goes on.
        """
        return self.imitation(average([self.network_regression(self.evidence.engine), beside.scorer]))

    def imitation(self, scorer: Scorer) -> Imitation:
        predicted, values = centred(scorer.held_out, self.query), self.evidence.engine
        spread = float(predicted @ predicted)
        # the factor by which held-out predictions must be multiplied: below 1 if they are too large
        slope = max(float(predicted @ values) / spread, 0.0) if spread > 0 else 0.0
        explained = max(1 - float(((values - slope * predicted) ** 2).sum()) / max(float(values @ values), 1e-12), 0.0)
        theta = attenuation(explained, self.evidence.shown_share or SHOWN_SHARE)
        return Imitation(replace(scorer, held_out=predicted).times(slope), explained, theta)

    def regression(self, target: Float64) -> Scorer:
        """Return a linear function of the features that predicts a target within queries."""

        def fit(own: Int64, _: int) -> Scorer:
            return Scorer(linear_engine(self.x[own], target[own], self.query[own], ridge=REGRESSION_RIDGE))

        return self.scorer(fit)

    def network_regression(self, target: Float64) -> Scorer:
        """Return networks that predict a target within queries."""

        def fit(own: Int64, seed: int) -> Scorer:
            return Scorer.of(network_engine(self.x[own], target[own], self.query[own], seed=seed))

        return self.scorer(fit)

    def linear(self, known: Float64) -> Scorer:
        """Return the linear ranker, given what the engine knows.

        Its penalty is the strongest one that is not clearly worse than the best on held-out queries: it carries
        further from the shown documents.
        """
        found = [self.ridge(ridge, self.offset + known, self.evidence.clicks) for ridge in RIDGES]
        values = [self.evidence.held_out_likelihood(each.held_out + known) for each in found]
        best = max(values, key=lambda each: float(each.sum()))
        return [each for each, value in zip(found, values, strict=True) if not clearly_better(best, value)][-1]

    def ridge(self, ridge: float, offset: Float64, clicks: Float64) -> Scorer:
        """Return the linear function of the features that predicts clicks within queries, under one penalty."""
        penalty = np.full(self.x.shape[1], ridge)
        start = linear_clicks(self.x, clicks, offset, self.query, ridge=penalty)

        def fit(own: Int64, _: int) -> Scorer:
            found = linear_clicks(self.x[own], clicks[own], offset[own], self.query[own], ridge=penalty, start=start)
            return Scorer(found)

        return self.scorer(fit)

    def corrected_networks(self, imitation: Imitation, weight: float) -> Scorer:
        """Return networks on corrected clicks, plus the part of the engine's score that features explain."""
        offset, engine = self.offset + weight * self.evidence.engine, imitation.scorer.held_out
        free = np.array([FREE])
        own = float(linear_clicks(engine[:, None], self.evidence.clicks, offset, self.query, ridge=free)[0])
        networks = self.networks(offset + own * engine, self.evidence.clicks)
        return networks.plus(imitation.scorer, own + weight / imitation.attenuation)

    def networks(self, offset: Float64, clicks: Float64) -> Scorer:
        """Return networks that predict clicks within queries."""

        def fit(own: Int64, seed: int) -> Scorer:
            return Scorer.of(network_clicks(self.x[own], clicks[own], offset[own], self.query[own], seed=seed))

        return self.scorer(fit)

    def trees(self, own: Int64) -> Model:
        """Return trees on corrected clicks; the engine's own knowledge is in their offset."""
        offset = self.offset + self.reference
        return tree_clicks(self.x[own], self.evidence.clicks[own], offset[own], self.query[own], seed=self.seed)

    def raw_trees(self, own: Int64) -> Model:
        clicks, offset = self.raw_clicks[own], self.raw_offset[own]
        return tree_clicks(self.x[own], clicks, offset, self.query[own], seed=self.seed, method="click")

    def other(self, name: str, train: Train, *, scale: bool = False) -> Candidate:
        """Return a candidate that is no `Scorer`: trees, or a method of the registry, whose scores need a scale."""
        evidence, scores = self.evidence, np.zeros(len(self.evidence))
        for own, rest in self.folds():
            scores[rest] = train(own).score(evidence.lists)[evidence.rows[rest]]
        factor = self._scale(scores) if scale else 1.0
        return self.candidate(name, factor * scores, lambda: train(self.everything))


def _log_odds(relevance: Float64) -> Float64:
    return np.asarray(logit(np.clip(relevance, *PROBABLE)))


def _simplex(parts: int) -> Float64:
    """Return all shares in multiples of `STEP` that add up to one, [points, parts]."""
    steps = round(1 / STEP)
    points = [each for each in product(range(steps + 1), repeat=parts - 1) if sum(each) <= steps]
    return np.array([(*each, steps - sum(each)) for each in points]) * STEP


def summary_of(name: str) -> str:
    """Return a short description of a candidate."""
    return SUMMARIES.get(name, f"a ranker trained by {name}")


def clearly_better(one: Float64, other: Float64) -> bool:
    """Return whether one held-out log-likelihood is above another by more than its standard error, [queries] each."""
    lead = one - other
    return float(lead.sum()) > SURE * float(lead.std() * np.sqrt(len(lead)))


def _choose(found: dict[str, Candidate], nothing: Float64) -> tuple[str, str]:
    """Return the candidate to use and why: the safe one, unless another one is better by a material amount.

    With many clicks a small gain on shown documents is certain, but says little about those that were never shown,
    where a linear ranker is steadier. With few queries every ranker varies by chance, and the blend varies least.

    Args:
        found: The candidates that may be chosen.
        nothing: Held-out log-likelihood if features say nothing, [queries].
    """
    simple = len(nothing) >= MANY_QUERIES or "blend" not in found
    safe, why = ("linear", "is simpler") if simple else ("blend", "varies less by chance")
    compared = (name for name in found if name not in PARTS)
    best = max(compared, key=lambda name: float(found[name].likelihood.sum()))
    name = summary_of(best).capitalize()
    if best == safe or safe not in found:
        return best, f"{name} predicts the corrected clicks of held-out queries best."
    known = found[safe].likelihood
    lead, gain = float((found[best].likelihood - known).sum()), float((known - nothing).sum())
    if not clearly_better(found[best].likelihood, known):
        return safe, (
            f"{SUMMARIES[safe].capitalize()} predicts the corrected clicks of held-out queries as well as "
            f"{summary_of(best)}, within chance, and {why}."
        )
    if lead < MATERIAL * gain:
        return safe, (
            f"{name} gains only {lead / gain:.0%} more than {SUMMARIES[safe]} on the corrected clicks of held-out "
            "queries, which are on documents that were shown; the difference on others is not known."
        )
    return best, f"{name} predicts the corrected clicks of held-out queries best."


def method_candidates(clicks: Clicks, lists: Lists, model: LogModel, *, seed: int = 0) -> dict[str, Train]:
    """Return the methods of the registry that correct a bias which the tests of the model found present, by name.

    LBD and InfoRank learn an observation that depends on the document. Their ranker is linear: away from the shown
    documents it is steadier than InfoRank's attention (nDCG .71 to .79 against .59 to .73 in five simulated worlds).
    """
    found = {bias for test, bias in FINDINGS.items() if test in model.tests and model.tests[test].verdict == "present"}
    if not found:
        return {}
    log, query = replace(clicks, lists=lists).merge(), lists.list_of[model.relevance.rows]
    methods = {name: resolve(METHODS, name, path="method") for name in METHODS}
    return {
        name: partial(_train_method, cls, log, query, seed)
        for name, cls in methods.items()
        if found & set(cls.corrects) and not getattr(cls, "published", False)
    }


def _train_method(method: Any, clicks: Clicks, query: Int64, seed: int, own: Int64) -> Model:
    """Train a linear ranker by a method on the queries of some pairs; `query` is that of each pair."""
    from clickprism.rankers.linear import Linear
    from clickprism.training.fit import fit
    from clickprism.training.settings import FitSettings

    if len(own) < len(query):
        used = np.flatnonzero(np.isin(clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]], query[own]))
        rng = np.random.default_rng([seed, 57])
        clicks = clicks.take(np.sort(rng.permutation(used)[:MOST_LISTS]))
    settings = FitSettings(epochs=METHOD_EPOCHS, batch_size=METHOD_BATCH, threads=1, seed=seed)
    return fit(clicks, method=method(), ranker=Linear(), settings=settings, show=False).model
