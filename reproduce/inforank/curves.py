"""The pictures of bias in InfoRank (Jin et al. 2024): where a ranking puts documents, and whom it exposes.

The paper shows the mean position after re-ranking by position before (Figure 3, right) and by item frequency (Figure 3,
left), and the share of exposure by popularity (Figure 5, left). Here each is a value, for any scores; the grades as
scores give the curves of the labels. Documents with equal scores share the mean worth of their positions, which is the
exact expectation over all orders of ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import check_scores, expected_value, tie_keys
from clickprism.types import Clicks, Float32, Float64, Int32, Int64, Lists

Axis: TypeAlias = Literal["position", "frequency", "popularity"]


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """The mean position after re-ranking, or the share of exposure, along an axis.

    Attributes:
        axis: "position" (before), "frequency" (of the item, relative to the most frequent) or "popularity" (likewise).
        at: Where on that axis, rising, [points]; the mean over the documents, or items, of a bin.
        value: The mean position after; by popularity, the share of all exposure, [points].
        weight: Number of documents at each point, each as often as it was shown; by popularity, the share of items.
    """

    axis: Axis
    at: Float64
    value: Float64
    weight: Float64

    def distance(self, other: Curve) -> float:
        """Return the distance of two curves over the same points.

        The mean absolute difference over documents, in positions: sum_i n_i |a_i - b_i| / sum_i n_i, NaN without
        documents. By popularity: the share of exposure that two rankings give to different groups.
        """
        if self.axis != other.axis or not np.array_equal(self.at, other.at):
            problem = f"a curve by {self.axis} over {len(self.at)} points and one by {other.axis} over {len(other.at)}"
            raise DataError(f"{problem} cannot be compared", remedy="Take both over the same lists, items and bins")
        apart = np.abs(self.value - other.value)
        if self.axis == "popularity":
            return float(apart.sum() / 2)
        total = float(self.weight.sum())
        return float(self.weight @ apart) / total if total else float("nan")


def initial_order(lists: Lists, scores: Float64 | Float32, *, length: int | None = None) -> Clicks:
    """Return each list as a ranker orders it, as a log without clicks that shows it once.

    Args:
        lists: The documents.
        scores: Of the initial ranker, [documents]; a fixed hash breaks ties.
        length: Number of documents shown; all by default.
    """
    if length is not None and length < 1:
        raise SettingError("length", length, "be at least 1")
    values = check_scores(scores, lists.documents)
    place = np.arange(lists.documents) - lists.offsets[lists.list_of]
    ties = tie_keys(lists.query_ids, int(lists.lengths.max(initial=0)))[lists.list_of, place]
    rows = np.lexsort((ties, -values, lists.list_of)).astype(np.int64)
    kept = slice(None) if length is None else place < length
    rows, positions = rows[kept], (place[kept] + 1).astype(np.int32)
    lengths = lists.lengths if length is None else np.minimum(lists.lengths, length)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Clicks(lists, offsets, rows, positions, np.zeros_like(rows), np.ones(len(lists), dtype=np.int64))


def by_position(shown: Clicks, scores: Float64 | Float32 | Int32) -> Curve:
    """Return the mean position after re-ranking by position before (Figure 3, right).

    Args:
        shown: The lists as they were shown, a log or `initial_order`; each counts as often as it was shown.
        scores: Of each document, [documents].

    >>> lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> shown = initial_order(lists, np.array([3.0, 2.0, 1.0]))
    >>> by_position(shown, np.array([0.0, 1.0, 1.0])).value.tolist()
    [3.0, 1.5, 1.5]
    """
    after, weight = _after(shown, scores), shown.list_impressions.astype(np.float64)
    places = np.asarray(shown.positions, dtype=np.int64)
    total = np.bincount(places, weights=weight).astype(np.float64)
    at = np.flatnonzero(total)
    value = np.bincount(places, weights=weight * after)[at] / total[at]
    return Curve("position", at.astype(np.float64), value, total[at])


def by_frequency(
    shown: Clicks, scores: Float64 | Float32 | Int32, items: Int64, frequency: Float64, *, bins: int = 10
) -> Curve:
    """Return the mean position after re-ranking by the frequency of the item (Figure 3, left).

    Args:
        shown: The lists as they were shown.
        scores: Of each document, [documents].
        items: The item of each document, [documents].
        frequency: Of each item, in the log that the ranker learned from, [items].
        bins: Largest number of points, each of about equally many documents.
    """
    known = _of_documents(shown, items, frequency)[shown.rows]
    weight = shown.list_impressions.astype(np.float64)
    bin_of = groups_of(known, bins, weights=weight)
    total = np.bincount(bin_of, weights=weight).astype(np.float64)
    value = np.bincount(bin_of, weights=weight * _after(shown, scores)) / total
    top = max(float(np.max(frequency, initial=0)), np.finfo(np.float64).tiny)
    return Curve("frequency", np.bincount(bin_of, weights=weight * known) / total / top, value, total)


def exposure_shares(
    shown: Clicks,
    scores: Float64 | Float32 | Int32,
    items: Int64,
    popularity: Float64,
    *,
    groups: int = 5,
    top: int | None = 10,
) -> Curve:
    """Return the share of exposure by how popular an item was in the log (Figure 5, left).

    Args:
        shown: The lists to re-rank.
        scores: Of each document, [documents].
        items: The item of each document, [documents].
        popularity: Of each item: its impressions or clicks in the log that the ranker learned from, [items].
        groups: Largest number of groups, each of about equally many items.
        top: A document is exposed if it is among so many; None for 1 / log2(1 + place), which weights all places.
    """
    if top is not None and top < 1:
        raise SettingError("top", top, "be at least 1")
    _of_documents(shown, items, popularity)
    values = check_scores(scores, shown.lists.documents)[shown.rows]
    place = np.arange(1, int(np.diff(shown.offsets).max(initial=0)) + 1)
    worth = 1 / np.log2(1 + place) if top is None else (place <= top).astype(np.float64)
    exposure = expected_value(shown.offsets, values, worth) * shown.list_impressions
    present = np.unique(items[shown.rows])
    group = np.zeros(len(popularity), dtype=np.int64)
    group[present] = groups_of(popularity[present], groups)
    share = np.bincount(group[items[shown.rows]], weights=exposure)
    count = np.bincount(group[present])
    most = max(float(np.max(popularity, initial=0)), np.finfo(np.float64).tiny)
    at = np.bincount(group[present], weights=popularity[present]) / np.maximum(count, 1) / most
    whole = max(float(share.sum()), np.finfo(np.float64).tiny)
    return Curve("popularity", at, share / whole, count / max(len(present), 1))


def groups_of(values: Float64, groups: int, *, weights: Float64 | None = None) -> Int64:
    """Return the group of each value, lowest first: about equal weight, equal values together, none empty.

    >>> groups_of(np.array([5.0, 0.0, 0.0, 0.0, 7.0, 9.0]), 2).tolist()
    [1, 0, 0, 0, 1, 1]
    """
    if groups < 1:
        raise SettingError("groups", groups, "be at least 1")
    _, level = np.unique(values, return_inverse=True)
    mass = np.bincount(level, weights=weights).astype(np.float64)
    middle = np.cumsum(mass) - mass / 2
    wanted = np.floor(groups * middle / max(float(mass.sum()), np.finfo(np.float64).tiny)).astype(np.int64)
    return np.unique(wanted, return_inverse=True)[1].astype(np.int64)[level]


def _after(shown: Clicks, scores: Float64 | Float32 | Int32) -> Float64:
    """Return the expected place of each entry when its list is re-ranked, from 1, [entries]."""
    values = check_scores(scores, shown.lists.documents)[shown.rows]
    longest = int(np.diff(shown.offsets).max(initial=0))
    return expected_value(shown.offsets, values, np.arange(1.0, longest + 1))


def _of_documents(shown: Clicks, items: Int64, values: Float64) -> Float64:
    documents = shown.lists.documents
    if items.shape != (documents,):
        raise DataError(f"{documents} documents need as many items, got an array of shape {items.shape}")
    if documents and not 0 <= int(items.min()) <= int(items.max()) < len(values):
        raise DataError(f"items must be from 0 to {len(values) - 1}", remedy="Count frequencies over all parts' items")
    return np.asarray(values, dtype=np.float64)[items]
