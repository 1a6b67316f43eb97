"""The rankings that simulated users are shown: the initial ranker that orders the lists, and interventions on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from clickprism.click_models.users import check_probability
from clickprism.errors import DataError, SettingError
from clickprism.settings import check_fields
from clickprism.types import Bool, Float32, Float64, Int32, Int64, JudgedLists, Lists, slices

Kind = Literal["none", "swap", "pivot", "shuffle", "first"]

BLOCK = 65536  # rows of features read at a time, since they may be on disk


@final
@dataclass(frozen=True, kw_only=True)
class InitialRanker:
    """Settings of the initial ranker: a linear ranking SVM trained on a small share of the labels (Joachims 2002).

    Attributes:
        share: Share of the queries whose labels it uses; increased until one of them has two different grades.
        pairs: Maximum number of document pairs used for one query, sampled at random.
        cost: Weight of the mean squared hinge loss, relative to the squared norm of the weights.
    """

    share: float = 0.01
    pairs: int = 1000
    cost: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, pairs=(1, None))
        for name, most in (("share", 1.0), ("cost", 1e300)):
            if not 0 < getattr(self, name) <= most:
                raise SettingError(name, getattr(self, name), f"be above 0 and at most {most:g}")

    def fit(self, judged: JudgedLists, *, seed: int) -> LinearScorer:
        """Train on a random share of the queries. Features are standardised internally; the scorer takes raw ones."""
        from sklearn.svm import LinearSVC

        rng = np.random.default_rng(seed)
        better, worse = _pairs(judged, self._sample(judged, rng), self.pairs, rng)
        scale = _deviation(judged.lists.features)
        differences = (judged.lists.features[better].astype(np.float64) - judged.lists.features[worse]) / scale
        sign = np.where(np.arange(len(better)) % 2 == 0, 1.0, -1.0)
        if len(better) == 1:
            differences, sign = np.concatenate([differences, differences]), np.array([1.0, -1.0])
        machine = LinearSVC(C=self.cost / len(sign), loss="squared_hinge", dual=False, fit_intercept=False, tol=1e-5)
        machine.fit(differences * sign[:, None], sign)
        return LinearScorer(machine.coef_[0] / scale)

    def _sample(self, judged: JudgedLists, rng: np.random.Generator) -> Int64:
        lists = judged.lists
        low, high = np.full(len(lists), np.iinfo(np.int32).max), np.full(len(lists), -1)
        np.minimum.at(low, lists.list_of, judged.grades)
        np.maximum.at(high, lists.list_of, judged.grades)
        order = rng.permutation(len(lists)).astype(np.int64)
        useful = np.flatnonzero((high > low)[order])
        if len(useful) == 0:
            raise DataError(
                "no query has two different grades, which the initial ranker needs",
                remedy="Use other data, or pass scores for the initial ranking",
            )
        count = max(round(self.share * len(lists)), int(useful[0]) + 1)
        return np.sort(order[:count][(high > low)[order[:count]]])


@final
@dataclass(frozen=True, eq=False)
class LinearScorer:
    """Score documents by a weighted sum of features."""

    weights: Float64

    def __call__(self, features: Float32) -> Float64:
        """Return the scores, [documents], of features, [documents, features]; higher scores rank first."""
        scores = np.empty(len(features), dtype=np.float64)
        for start in range(0, len(features), BLOCK):
            scores[start : start + BLOCK] = features[start : start + BLOCK] @ self.weights
        return scores


def rank(lists: Lists, scores: Float64, *, length: int = 10, seed: int) -> tuple[Int64, Int64]:
    """Return the top of every list by descending score, ties in random order: (offsets, rows), as in `Clicks`.

    >>> lists = Lists(np.zeros((4, 1), np.float32), np.array([0, 3, 4]), np.array(["a", "b"]))
    >>> offsets, rows = rank(lists, np.array([0.1, 0.9, 0.5, 0.0]), length=2, seed=0)
    >>> offsets.tolist(), rows.tolist()
    ([0, 2, 3], [1, 2, 3])
    """
    if length < 1:
        raise SettingError("length", length, "be at least 1")
    if scores.shape != (lists.documents,):
        raise DataError(f"{lists.documents} documents but scores of shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise DataError("scores must be finite")
    order = np.lexsort((np.random.default_rng(seed).random(lists.documents), -scores, lists.list_of))
    lengths = np.minimum(lists.lengths, length)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    top = np.arange(offsets[-1]) + np.repeat(lists.offsets[:-1] - offsets[:-1], lengths)
    return offsets, order[top].astype(np.int64)


def _pairs(judged: JudgedLists, chosen: Int64, most: int, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Return the rows (better, worse) of pairs with different grades in the chosen lists, at most `most` per list."""
    better, worse = [], []
    for rows in np.split(*_split(judged.lists.offsets, chosen)):
        high, low = _list_pairs(judged.grades[rows], most, rng)
        better.append(rows[high])
        worse.append(rows[low])
    return np.concatenate(better), np.concatenate(worse)


def _list_pairs(grades: Int32, most: int, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Return pairs (better, worse) of indices into one list, without building all pairs in memory.

    Pairs are numbered by the better document, then by the worse one.
    """
    _, level, counts = np.unique(grades, return_inverse=True, return_counts=True)
    below = (np.cumsum(counts) - counts)[level]  # number of documents that each one is better than
    ends = np.cumsum(below)
    total = int(ends[-1])
    pairs = np.arange(total) if total <= most else np.sort(rng.choice(total, size=most, replace=False))
    high = np.searchsorted(ends, pairs, side="right")
    which = pairs - (ends - below)[high]
    low = np.empty_like(high)
    for grade in np.unique(grades[high]):
        at = grades[high] == grade
        low[at] = np.flatnonzero(grades < grade)[which[at]]
    return high, low


def _split(offsets: Int64, chosen: Int64) -> tuple[Int64, Int64]:
    rows, ends = slices(offsets, chosen)
    return rows, ends[1:-1]


def _deviation(features: Float32) -> Float64:
    """Return the standard deviation of each feature, 1 for constant features, computed block by block."""
    total, squares = np.zeros(features.shape[1]), np.zeros(features.shape[1])
    middle = features[0].astype(np.float64)
    for start in range(0, len(features), BLOCK):
        part = features[start : start + BLOCK] - middle
        total += part.sum(axis=0)
        squares += (part**2).sum(axis=0)
    if not np.isfinite(squares).all():
        raise DataError(
            "features must be finite to train the initial ranker",
            remedy="Normalise them (data.normalise), which replaces missing values",
        )
    variance = squares / len(features) - (total / len(features)) ** 2
    return np.sqrt(np.where(variance > 1e-12, variance, 1.0))


@final
@dataclass(frozen=True, kw_only=True)
class Intervention:
    """A change to the ranked lists of some sessions before users see them.

    - "none": no change.
    - "swap": a random document and the one below it trade positions (Craswell et al. 2008).
    - "pivot": the document at the pivot position and a random other one trade positions (Joachims et al. 2017).
    - "shuffle": the top documents are put in random order.
    - "first": a random document of the top moves to the first position, those above it move one down.

    Lists that are too short do not change.

    Attributes:
        kind: Kind of change.
        share: Share of the sessions that see the changed list.
        depth: Number of top documents that "shuffle" and "first" use; may be more than are shown.
        pivot: Position to trade with, for "pivot".
    """

    kind: Kind = "none"
    share: float = 1.0
    depth: int = 10
    pivot: int = 1

    def __post_init__(self) -> None:
        check_fields(self, kind=Kind, depth=(1, None), pivot=(1, None))
        check_probability("share", self.share)

    def required_depth(self, length: int) -> int:
        """Return how many documents must be ranked to show `length` of them."""
        return max(length, self.depth) if self.kind in ("shuffle", "first") else length

    def apply(self, offsets: Int64, rows: Int64, *, treat: np.random.Generator, choose: np.random.Generator) -> Int64:
        """Return the rows as shown.

        Every session draws the same number of random numbers from each generator, whether it is changed or not.

        Args:
            offsets: ranking i has the entries `offsets[i]` to `offsets[i + 1]`.
            rows: the document row of each entry.
            treat: decides which sessions are changed.
            choose: decides which documents move.
        """
        if self.kind == "none":
            return rows
        starts, lengths = offsets[:-1], np.diff(offsets)
        treated = treat.random(len(starts)) < self.share
        if self.kind == "shuffle":
            return self._shuffle(starts, lengths, rows, treated, choose)
        chance = choose.random(len(starts))
        if self.kind == "first":
            return self._first(starts, lengths, rows, treated, chance)
        changed = treated & (lengths >= max(2, self.pivot if self.kind == "pivot" else 2))
        starts, chosen = starts[changed], (chance * (lengths - 1)).astype(np.int64)[changed]
        if self.kind == "swap":
            return _swap(rows, starts + chosen, starts + chosen + 1)
        not_pivot = chosen + (chosen >= self.pivot - 1)
        return _swap(rows, starts + not_pivot, starts + self.pivot - 1)

    def _shuffle(self, starts: Int64, lengths: Int64, rows: Int64, treated: Bool, choose: np.random.Generator) -> Int64:
        keys = choose.random((len(starts), self.depth))
        inside = np.arange(self.depth) < lengths[:, None]
        order = np.argsort(np.where(inside, keys, 2.0), axis=1)
        taken = inside & treated[:, None]
        result = rows.copy()
        result[(starts[:, None] + np.arange(self.depth))[taken]] = rows[(starts[:, None] + order)[taken]]
        return result

    def _first(self, starts: Int64, lengths: Int64, rows: Int64, treated: Bool, chance: Float64) -> Int64:
        chosen = np.where(treated, chance * np.minimum(lengths, self.depth), 0).astype(np.int64)
        within = np.arange(len(rows)) - np.repeat(starts, lengths)
        chosen = np.repeat(chosen, lengths)
        source = np.where(within == 0, chosen, within - (within <= chosen))
        return rows[np.repeat(starts, lengths) + source]


def _swap(rows: Int64, one: Int64, other: Int64) -> Int64:
    result = rows.copy()
    result[one], result[other] = rows[other], rows[one]
    return result
