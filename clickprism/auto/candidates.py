"""The candidates of `auto`, and the choice between them without labels.

All candidates are compared by one number: how well they predict the clicks of held-out queries, after the correction
for position and with the engine's own knowledge held fixed (`Reference`). It needs no labels, and it does not favour a
ranker that unlearns what the engine knows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
from scipy.optimize import minimize_scalar

from clickprism.auto.learners import (
    FOLDS,
    Evidence,
    Network,
    Scorer,
    average,
    network_clicks,
    network_engine,
    tree_clicks,
    tree_model,
)
from clickprism.debias import METHODS
from clickprism.debias.anchor import SHOWN_SHARE, attenuation, centred, linear_clicks, linear_engine
from clickprism.settings import resolve
from clickprism.types import Bool, Clicks, Float64, Int64, Lists

if TYPE_CHECKING:
    from clickprism.log_model.model import LogModel
    from clickprism.model import Model

RIDGES: Final = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # penalties of linear rankers, chosen by held-out queries
WEAK_RIDGE: Final = 10.0  # penalty with which rho is estimated
ENGINE_RIDGE: Final = 10.0
SMALL: Final = 20_000  # pairs up to which networks are trained again on all of them
FREE: Final = 1e-2  # penalty of the weight of the engine's score
RAW_STRENGTH: Final = 50.0  # impressions from which those of a pair count less, for raw clicks
SURE: Final = 1.0  # standard errors
MATERIAL: Final = 0.1  # of what the safe candidate gains: what another one must gain beyond it
MANY_QUERIES: Final = 100  # from which a linear ranker is the safe candidate; with fewer, the blend
SHARES: Final = np.linspace(0.0, 1.0, 41)
UNIFORM: Final = np.ones_like(SHARES)
MOSTLY_CORRECTED: Final = (1 - SHARES) ** 3  # prior with many queries: raw clicks, which are biased, count one fifth
FINDINGS: Final = {"coupling": "document", "popularity": "document"}  # tests of the model, and the bias that they show
METHOD_EPOCHS: Final = 15
METHOD_BATCH: Final = 256  # ranked lists
MOST_LISTS: Final = 5_000  # distinct ranked lists that a method learns from while candidates are compared
Train: TypeAlias = "Callable[[Bool | None], Model]"
"""Trains a method of the registry without some lists of the log, [lists], or on all of them (None)."""
SUMMARIES: Final = {
    "linear": "a linear ranker",
    "networks": "an average of small neural networks",
    "blend": "a weighted average of a linear ranker and small neural networks",
    "trees": "gradient boosted trees",
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
        scorer: Scores of any document.
        held_out: Scores of the shown pairs by copies that did not learn from their query, centred, [pairs].
        explained: R^2 on held-out queries: the share of the engine's order that the features explain.
        attenuation: Share of the slope that was found, since only some candidates are shown.
    """

    scorer: Scorer
    held_out: Float64
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
    progress: Callable[[str], None] | None = None,
) -> Candidates:
    """Train every candidate on held-out parts and on all of the log, and choose one.

    Args:
        evidence: What rankers learn from.
        methods: Methods of the registry to try, too, by name.
        kinds: Kinds of rankers that may be chosen; None for all.
        seed: Random seed.
        progress: Called with the name of each step.
    """
    return _Search(evidence, seed, progress or (lambda _: None), methods or {}).run(kinds)


class _Search:
    """Trains the candidates one after the other."""

    def __init__(
        self, evidence: Evidence, seed: int, tell: Callable[[str], None], methods: Mapping[str, Train]
    ) -> None:
        self.evidence, self.seed, self.tell, self.methods = evidence, seed, tell, methods
        self.x, self.query = evidence.features, evidence.query
        self.offset = np.log(evidence.exposure)

    def run(self, kinds: Container[str] | None) -> Candidates:
        evidence = self.evidence
        self.tell("imitation of the engine")
        linear_e = self._imitate(self._linear_engine)
        weight, error = self._weight(linear_e)
        known = weight * evidence.engine
        self.tell("networks that imitate the engine")
        network_e = self._imitate(self._network_engine, beside=linear_e)
        best = max((linear_e, network_e), key=lambda each: each.explained)
        reference = known - weight / best.attenuation * best.held_out
        self.tell("linear ranker")
        prior = MOSTLY_CORRECTED if evidence.queries >= MANY_QUERIES else UNIFORM
        raw_linear = self._raw_linear(reference)
        corrected = self._linear(known - weight / linear_e.attenuation * linear_e.held_out)
        linear = self._average(corrected, raw_linear, reference, prior)
        self.tell("networks")
        raw_networks = self._raw_networks(reference)
        corrected = _sum(self._networks(network_e, self.offset + known, evidence.clicks), network_e, weight)
        networks = self._average(corrected, raw_networks, reference, prior)
        found = {
            name: self._candidate(name, held_out, reference, scorer.model)
            for name, (scorer, held_out) in (
                ("linear", linear),
                ("blend", self._average(linear, networks, reference)),
                ("networks", networks),
            )
        }
        self.tell("trees")
        found["trees"] = self._trees(reference)
        if not evidence.holds_out_documents:
            for name, train in self.methods.items():
                self.tell(name)
                found[name] = self._method(name, train, reference)
        imitate = partial(best.scorer.model, "imitation")
        found["imitation"] = self._candidate("imitation", best.held_out, reference, imitate, scale=True)
        allowed = {name: each for name, each in found.items() if kinds is None or KINDS.get(name, "linear") in kinds}
        chosen, reason = _choose(allowed, evidence.held_out_likelihood(reference))
        reason += "" if kinds is None else " Only rankers that the engine can hold were compared."
        simple = self._raw_candidate(chosen, reference, raw_linear, raw_networks)
        return Candidates(found, chosen, reason, weight, error, best, simple)

    def _candidate(
        self, name: str, held_out: Float64, reference: Float64, make: Callable[[], Model], *, scale: bool = False
    ) -> Candidate:
        factor = self._scale(held_out, reference) if scale else 1.0
        likelihood = self.evidence.held_out_likelihood(factor * held_out + reference)
        return Candidate(name, held_out, likelihood, make)

    def _average(
        self, one: tuple[Scorer, Float64], other: tuple[Scorer, Float64], reference: Float64, prior: Float64 = UNIFORM
    ) -> tuple[Scorer, Float64]:
        """Return the weighted average of two functions, and its held-out values.

        The weight is its posterior mean given the clicks of held-out queries: the better one counts alone if the log is
        large enough to tell, and the prior decides if it is not (both count the same if it is uniform).

        Args:
            one: First function, and its held-out values.
            other: Second function, and its held-out values.
            reference: What the engine knows beyond the features.
            prior: Density of the share of the second function at `SHARES`.
        """
        values = np.array(
            [
                self.evidence.held_out_likelihood((1 - share) * one[1] + share * other[1] + reference).sum()
                for share in SHARES
            ]
        )
        likely = prior * np.exp(values - values.max())
        share = float(likely @ SHARES / likely.sum())
        return _mean([one, other], [1 - share, share])

    def _scale(self, scores: Float64, reference: Float64) -> float:
        """Return the factor under which scores that are not log click rates predict clicks best."""
        spread = max(float(np.std(scores)), 1e-9)

        def misfit(factor: float) -> float:
            return -float(self.evidence.held_out_likelihood(factor / spread * scores + reference).sum())

        return float(minimize_scalar(misfit, bounds=(0.0, 5.0), method="bounded", options={"xatol": 0.01}).x) / spread

    def folds(self) -> list[tuple[Int64, Int64]]:
        """Return the pairs to learn from and those that are held out, for each fold."""
        fold = self.evidence.fold
        parts = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(FOLDS)]
        return [(own, rest) for own, rest in parts if len(own) and len(rest)]

    def _linear_engine(self, own: Int64, _: int) -> Scorer:
        return Scorer(linear_engine(self.x[own], self.evidence.engine[own], self.query[own], ridge=ENGINE_RIDGE))

    def _network_engine(self, own: Int64, seed: int) -> Scorer:
        made = network_engine(self.x[own], self.evidence.engine[own], self.query[own], seed=seed)
        return _one(made, self.x.shape[1])

    def _imitate(self, fit: Callable[[Int64, int], Scorer], beside: Imitation | None = None) -> Imitation:
        """Return an imitation of the engine with held-out scores; the average with another one if that is given."""
        evidence, members, predicted = self.evidence, [], np.zeros(len(self.evidence))
        for number, (own, rest) in enumerate(self.folds()):
            members.append(fit(own, self.seed + number))
            predicted[rest] = members[-1](self.x[rest])
        if not members[0].networks:
            members = [fit(np.arange(len(evidence)), self.seed)]
        elif len(evidence) <= SMALL:
            members = [fit(np.arange(len(evidence)), self.seed + 10 + number) for number in range(FOLDS)]
        scorer = average(members)
        if beside is not None:  # networks level off away from the shown documents; a linear function goes on
            predicted, scorer = (predicted + beside.held_out) / 2, average([scorer, beside.scorer])
        predicted, values = centred(predicted, self.query), evidence.engine
        spread = float(predicted @ predicted)
        # the factor by which held-out predictions must be multiplied: below 1 if they are too large
        slope = max(float(predicted @ values) / spread, 0.0) if spread > 0 else 0.0
        explained = max(1 - float(((values - slope * predicted) ** 2).sum()) / max(float(values @ values), 1e-12), 0.0)
        theta = attenuation(explained, evidence.shown_share or SHOWN_SHARE)
        return Imitation(scorer.times(slope), slope * predicted, explained, theta)

    def _weight(self, imitation: Imitation) -> tuple[float, float]:
        """Return rho and its standard error.

        The penalty is weak: with a strong one, what the features no longer explain would be in rho.
        """
        both = np.column_stack([self.x, imitation.held_out, self.evidence.engine])
        penalty = np.append(np.full(self.x.shape[1], WEAK_RIDGE), [FREE, FREE])
        found = linear_clicks(both, self.evidence.clicks, self.offset, self.query, ridge=penalty)
        return max(float(found[-1]), 0.0), self._weight_error(both, found, penalty)

    def _weight_error(self, both: Float64, found: Float64, penalty: Float64) -> float:
        """Return the standard error of rho, clustered by query."""
        evidence = self.evidence
        logits = both @ found + self.offset
        top = np.full(evidence.queries, -np.inf)
        np.maximum.at(top, self.query, logits)
        each = np.exp(logits - top[self.query])
        share = each / evidence.by_query(each)[self.query]
        total = evidence.by_query(evidence.clicks)[self.query]
        mean, scores = np.zeros((2, evidence.queries, both.shape[1]))
        np.add.at(mean, self.query, both * share[:, None])
        own = both - mean[self.query]
        hessian = (own * (total * share)[:, None]).T @ own + np.diag(penalty)
        np.add.at(scores, self.query, own * (evidence.clicks - total * share)[:, None])
        inverse = np.linalg.pinv(hessian, hermitian=True)
        return float(np.sqrt(max((inverse @ (scores.T @ scores) @ inverse)[-1, -1], 0.0)))

    def _linear(self, known: Float64) -> tuple[Scorer, Float64]:
        """Return the linear ranker, given what the engine knows, and its held-out values.

        Its penalty is the strongest one that is not clearly worse than the best on held-out queries: it carries
        further from the shown documents.
        """
        found = [self._ridge(ridge, self.offset + known, self.evidence.clicks) for ridge in RIDGES]
        values = [self.evidence.held_out_likelihood(held_out + known) for _, held_out in found]
        best = max(values, key=lambda each: float(each.sum()))
        return [part for part, value in zip(found, values, strict=True) if not clearly_better(best, value)][-1]

    def _ridge(self, ridge: float, offset: Float64, clicks: Float64) -> tuple[Scorer, Float64]:
        """Return the linear function under one penalty, and its held-out values."""
        scores, penalty = np.zeros(len(self.evidence)), np.full(self.x.shape[1], ridge)
        found = linear_clicks(self.x, clicks, offset, self.query, ridge=penalty)
        for own, rest in self.folds():
            scores[rest] = self.x[rest] @ linear_clicks(
                self.x[own], clicks[own], offset[own], self.query[own], ridge=penalty, start=found
            )
        return Scorer(found), scores

    def _raw_counts(self) -> tuple[Float64, Float64]:
        """Return clicks and the log of impressions, without any correction."""
        scale = RAW_STRENGTH / (self.evidence.impressions + RAW_STRENGTH)
        return self.evidence.raw_clicks * scale, np.log(self.evidence.impressions * scale)

    def _networks(self, imitation: Imitation | None, offset: Float64, clicks: Float64) -> tuple[Scorer, Float64]:
        """Return w as the average of networks plus a multiple of the imitation, and its held-out values."""
        x, query, columns, scores = self.x, self.query, self.x.shape[1], np.zeros(len(self.evidence))
        engine = np.zeros(len(x)) if imitation is None else imitation.held_out

        def fit(own: Int64, seed: int) -> tuple[Scorer, float]:
            share = 0.0
            if imitation is not None:
                only, free = engine[own][:, None], np.array([FREE])
                share = float(linear_clicks(only, clicks[own], offset[own], query[own], ridge=free)[0])
            made = network_clicks(x[own], clicks[own], offset[own] + share * engine[own], query[own], seed=seed)
            return _one(made, columns), share

        members = []
        for number, (own, rest) in enumerate(self.folds()):
            members.append(fit(own, self.seed + number))
            scores[rest] = members[-1][0](x[rest]) + members[-1][1] * engine[rest]
        if len(x) <= SMALL:
            members = [fit(np.arange(len(x)), self.seed + 10 + number) for number in range(FOLDS)]
        scorer = average([each for each, _ in members])
        if imitation is not None:
            scorer = scorer.plus(imitation.scorer, float(np.mean([share for _, share in members])))
        return scorer, scores

    def _trees(self, reference: Float64, *, raw: bool = False) -> Candidate:
        """Return trees; the engine's own knowledge is in their offset."""
        scores, columns = np.zeros(len(self.evidence)), self.x.shape[1]
        clicks, offset = self._raw_counts() if raw else (self.evidence.clicks, self.offset + reference)

        def fit(own: Int64) -> Any:
            return tree_clicks(self.x[own], clicks[own], offset[own], self.query[own], seed=self.seed)

        for own, rest in self.folds():
            scores[rest] = fit(own)(self.x[rest].astype(np.float32), threads=1)
        everything = np.arange(len(self.evidence))
        name, method = ("raw clicks", "click") if raw else ("trees", "log_model")
        return self._candidate(name, scores, reference, lambda: tree_model(fit(everything), columns, method))

    def _method(self, name: str, train: Train, reference: Float64) -> Candidate:
        """Return a method of the registry, trained without each part of the queries in turn."""
        evidence, scores = self.evidence, np.zeros(len(self.evidence))
        owner = evidence.lists.list_of[evidence.rows]
        for _, rest in self.folds():
            held_out = np.zeros(len(evidence.lists), dtype=np.bool_)
            held_out[owner[rest]] = True
            scores[rest] = train(held_out).score(evidence.lists)[evidence.rows[rest]]
        return self._candidate(name, scores, reference, lambda: train(None), scale=True)

    def _raw_networks(self, reference: Float64) -> tuple[Scorer, Float64]:
        """Return networks trained on raw clicks, in the units of log click rates, and their held-out values."""
        clicks, offset = self._raw_counts()
        return self._scaled(self._networks(None, offset, clicks), reference)

    def _raw_linear(self, reference: Float64) -> tuple[Scorer, Float64]:
        """Return a linear ranker trained on raw clicks, in the same units, and its held-out values."""
        clicks, offset = self._raw_counts()
        return self._scaled(self._ridge(RIDGES[0], offset, clicks), reference)

    def _scaled(self, part: tuple[Scorer, Float64], reference: Float64) -> tuple[Scorer, Float64]:
        factor = self._scale(part[1], reference)
        return part[0].times(factor), factor * part[1]

    def _raw_candidate(
        self, chosen: str, reference: Float64, linear: tuple[Scorer, Float64], networks: tuple[Scorer, Float64]
    ) -> Candidate:
        """Return the ranker of the chosen kind, trained on raw clicks."""
        if chosen == "trees":
            return self._trees(reference, raw=True)
        kinds = {"networks": [networks], "blend": [linear, networks]}
        scorer, held_out = _mean(kinds.get(chosen, [linear]))
        return self._candidate("raw clicks", held_out, reference, partial(scorer.model, "click"), scale=True)


def _one(network: Network, columns: int) -> Scorer:
    return Scorer(np.zeros(columns), ((1.0, network),))


def _sum(part: tuple[Scorer, Float64], imitation: Imitation, weight: float) -> tuple[Scorer, Float64]:
    """Return w + rho / theta e, and its held-out values."""
    share = weight / imitation.attenuation
    return part[0].plus(imitation.scorer, share), part[1] + share * imitation.held_out


def _mean(parts: Sequence[tuple[Scorer, Float64]], weights: Sequence[float] | None = None) -> tuple[Scorer, Float64]:
    """Return the weighted average of functions, and its held-out values."""
    shares = [1 / len(parts)] * len(parts) if weights is None else list(weights)
    scorer, held_out = parts[0][0].times(shares[0]), shares[0] * parts[0][1]
    for (other, scores), share in zip(parts[1:], shares[1:], strict=True):
        scorer, held_out = scorer.plus(other, share), held_out + share * scores
    return scorer, held_out


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
    compared = (name for name in found if name != "imitation")
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

    Args:
        clicks: The log.
        lists: Its documents with normalised features.
        model: The fitted model of the log.
        seed: Random seed.
    """
    found = {bias for test, bias in FINDINGS.items() if test in model.tests and model.tests[test].verdict == "present"}
    if not found:
        return {}
    log = replace(clicks, lists=lists).merge()
    methods = {name: resolve(METHODS, name, path="method") for name in METHODS}
    fitting = {name: cls for name, cls in methods.items() if found & set(cls.corrects)}
    return {
        name: partial(_train_method, cls, log, seed)
        for name, cls in fitting.items()
        if not getattr(cls, "published", False)
    }


def _train_method(method: Any, clicks: Clicks, seed: int, held_out: Bool | None) -> Model:
    """Train a linear ranker by a method, without some queries."""
    from clickprism.rankers.linear import Linear
    from clickprism.training.fit import fit
    from clickprism.training.settings import FitSettings

    if held_out is not None:
        query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
        own = np.flatnonzero(~held_out[query])
        rng = np.random.default_rng([seed, 57])
        clicks = clicks.take(np.sort(rng.permutation(own)[:MOST_LISTS]))
    settings = FitSettings(epochs=METHOD_EPOCHS, batch_size=METHOD_BATCH, threads=1, seed=seed)
    return fit(clicks, method=method(), ranker=Linear(), settings=settings, show=False).model
