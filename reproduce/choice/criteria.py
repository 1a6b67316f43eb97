"""Criteria that need no labels: what each says of every candidate of a world, and which it would take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.choice.candidates import CHOSEN_FROM, Candidate
from clickprism.choice.criterion import Gain, estimated_ndcg
from clickprism.choice.material import Material
from clickprism.choice.rule import chosen_method, chosen_ranker
from clickprism.click_models.pbm import Counts, count
from clickprism.data.logged import Logged
from clickprism.evaluation.counterfactual.result import CounterfactualSettings, Name
from clickprism.evaluation.counterfactual.run import counterfactual
from clickprism.log_model.model import LogModel
from clickprism.types import Bool, Float64, Int64, Lists
from reproduce.choice.cache import Trained
from reproduce.choice.rankings import likelihoods

LEAST_PAIRS: Final = 100
LEAST_SHOWN: Final = 20.0  # impressions of a document in the first position
ESTIMATORS: Final[tuple[Name, ...]] = ("item-position", "item-position-dr", "position-based")
WITHOUT_REFUSALS: Final = CounterfactualSettings(
    measure="dcg",
    estimator=ESTIMATORS,
    clip=100.0,
    most_missing=1.0,
    most_modelled=1.0,
    most_slack=1.0,
    most_misfit=1.0,
    least_effective=1.0,
    least_queries=1.0,
)
FIXED: Final = {"always click": "click/blend", "always pooled-bend": "pooled-bend/blend"}
NAMES: Final = {
    "always click": "a fixed candidate, `click/blend`",
    "always pooled-bend": "a fixed candidate, `pooled-bend/blend`",
    "tune": "the rule of `tune`",
    "moved likelihood": "likelihood of where clicks on documents that moved fell, then as `own nDCG`",
    "other rankings": "held-out likelihood of clicks on rankings that the observation was not fitted to",
    "first slot, within queries": "agreement with click rates in the first position, pairs of a query",
    "first slot, overall": "rank correlation with click rates in the first position, all queries",
    "same position": "agreement with click rates at the same position, pairs of a query",
    "item-position": "counterfactual DCG by item-position weights, self-normalised",
    "item-position-dr": "counterfactual DCG, doubly robust by the model of the log",
    "position-based": "counterfactual DCG by the model of the log alone",
    "own nDCG": "estimated nDCG by the candidate's own targets",
    "pooled nDCG": "estimated nDCG by the targets of the method that `tune` takes",
}


@final
@dataclass(frozen=True)
class Told:
    """What a criterion says.

    Attributes:
        values: higher is better, by candidate; none where the log is silent.
        chosen: the candidate that it takes; empty where it takes none.
    """

    values: Mapping[str, float]
    chosen: str

    @classmethod
    def best(cls, values: Mapping[str, float]) -> Told:
        """That which takes the highest value; where there is none, NaN, the candidate is not valued."""
        known = {name: value for name, value in values.items() if not np.isnan(value)}
        return cls(known, max(known, key=lambda name: known[name], default=""))


def criteria(trained: Trained, logged: Logged) -> dict[str, Told]:
    """All of `NAMES`; no true grade is looked at."""
    lists, clicks = logged.clicks.lists, Material.of(logged).clicks
    counts, scores = count(clicks), trained.scores
    told = {name: Told({}, each if each in scores else "") for name, each in FIXED.items()}
    own = {name: estimated_ndcg(lists, each, trained.targets[_method(name)]) for name, each in scores.items()}
    told["tune"] = _tune(trained, own)
    told["moved likelihood"] = _moved(trained, own)
    told["other rankings"] = Told.best(likelihoods(clicks, scores))
    for name, kept in (
        ("first slot, within queries", counts.positions == 1),
        ("same position", counts.positions > 0),
    ):
        pairs = Pairs.of(counts, lists, kept)
        enough = len(pairs.weights) >= LEAST_PAIRS
        told[name] = Told.best({each: pairs.agreement(scores[each]) for each in scores} if enough else {})
    told["first slot, overall"] = Told.best(_overall(trained, counts, lists))
    found = _counterfactual(logged, scores) if trained.linked else {}
    for estimator in ESTIMATORS:
        told[estimator] = Told.best({name: values[estimator] for name, values in found.items()})
    told["own nDCG"] = Told.best({name: float(np.nanmean(each)) for name, each in own.items()})
    target = trained.targets[_method(told["tune"].chosen)]
    pooled = {name: float(np.nanmean(estimated_ndcg(lists, each, target))) for name, each in scores.items()}
    told["pooled nDCG"] = Told.best(pooled)
    return {name: told[name] for name in NAMES}


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """Documents of one query that stood at the same position, two by two.

    Attributes:
        ones: rows, [pairs].
        others: rows, [pairs].
        weights: n n' / (n + n') of their impressions there, times the difference of their click rates, [pairs].
    """

    ones: Int64
    others: Int64
    weights: Float64

    @classmethod
    def of(cls, counts: Counts, lists: Lists, kept: Bool) -> Pairs:
        """Those of some lines of the counts, [lines].

        >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
        >>> counts = Counts(np.array([0, 1]), np.array([1, 1]), np.array([3.0, 1.0]), np.array([4.0, 4.0]))
        >>> Pairs.of(counts, lists, counts.positions == 1).weights.tolist()
        [1.0]
        """
        lines = np.flatnonzero(kept)
        group = lists.list_of[counts.rows[lines]] * (counts.max_position + 1) + counts.positions[lines]
        order = np.argsort(group, kind="stable")
        lines, group = lines[order], group[order]
        index = np.arange(len(lines))
        later = np.searchsorted(group, group, side="right") - index - 1
        one = np.repeat(index, later)
        other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(later) - later, later)
        one, other = lines[one], lines[other]
        rates, shown = counts.clicks / counts.impressions, counts.impressions
        weights = shown[one] * shown[other] / (shown[one] + shown[other]) * (rates[one] - rates[other])
        return cls(counts.rows[one], counts.rows[other], weights)

    def agreement(self, scores: Float64) -> float:
        """How far scores order them as their click rates do, from -1 to 1."""
        order = np.sign(scores[self.ones] - scores[self.others])
        return float(self.weights @ order / max(np.abs(self.weights).sum(), 1e-12))


def _method(candidate: str) -> str:
    return Candidate.parse(candidate).method


def _ranked(first: Mapping[str, float], own: Mapping[str, Float64]) -> dict[str, float]:
    """Candidates by the value of their method, then by estimated nDCG: their places from the last."""
    names = [name for name in own if _method(name) in first]
    names.sort(key=lambda name: (first[_method(name)], float(np.nanmean(own[name]))))
    return {name: float(place) for place, name in enumerate(names)}


def _ranker(method: str, own: Mapping[str, Float64]) -> str:
    """The candidate that `tune` takes of this method."""
    values = {Candidate.parse(name).ranker: each for name, each in own.items() if _method(name) == method}
    return f"{method}/{chosen_ranker({name: each[~np.isnan(each)] for name, each in values.items()})[0]}"


def _tune(trained: Trained, own: Mapping[str, Float64]) -> Told:
    told = {name: each for name, each in trained.tried.items() if name in CHOSEN_FROM}
    verdict = chosen_method(told, linked=trained.linked)
    gains = {"click": 0.0} | {name: gain.value for name, gain in verdict.pooled.items()}
    return Told(_ranked(gains, own), _ranker(verdict.method, own))


def _moved(trained: Trained, own: Mapping[str, Float64]) -> Told:
    if not trained.tried["click"].moved.any():
        return Told({}, "")
    values = {name: Gain.total(each.moved).value for name, each in trained.tried.items()}
    return Told(_ranked(values, own), _ranker(max(values, key=lambda name: values[name]), own))


def _overall(trained: Trained, counts: Counts, lists: Lists) -> dict[str, float]:
    """The mean over both folds, as their scores are by different models."""
    from scipy.stats import spearmanr

    kept = (counts.positions == 1) & (counts.impressions >= LEAST_SHOWN)
    rows, rates = counts.rows[kept], (counts.clicks / counts.impressions)[kept]
    parts = [trained.fold[lists.list_of[rows]] == part for part in range(int(trained.fold.max()) + 1)]
    if min(np.count_nonzero(part) for part in parts) < LEAST_SHOWN:
        return {}
    return {
        name: float(np.mean([spearmanr(each[rows[part]], rates[part]).statistic for part in parts]))
        for name, each in trained.scores.items()
    }


def _counterfactual(logged: Logged, scores: Mapping[str, Float64]) -> dict[str, dict[str, float]]:
    """Return the estimates of each candidate, by estimator."""
    model, values = LogModel.fit(logged), {}
    for candidate, each in scores.items():
        found = counterfactual(logged, each, settings=WITHOUT_REFUSALS, model=model)
        values[candidate] = {name: estimate.value.value for name, estimate in found.estimates.items()}
    return values
