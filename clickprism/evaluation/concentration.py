"""How unequally a ranking shares its exposure among items, and how much it follows past clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import check_scores, expected_value, tie_keys
from clickprism.types import Float64, Int64, JudgedLists, Lists

TOP: Final = 0.2  # share of the items that count as the most exposed, or the most popular


@final
@dataclass(frozen=True)
class Concentration:
    """How a ranking shares exposure among items, some of which had more clicks before; NaN if no item had clicks."""

    gini: float  # Gini coefficient of the exposure of items: 0 if all have the same, near 1 if one has all
    top: float  # share of the exposure that the 20% most exposed items have
    popular: float  # the same of the 20% items with the most clicks before, averaged over the orders of ties
    mean: float  # mean popularity, each document weighted by its exposure
    correlation: float  # correlation of exposure with popularity within lists, given the grade (`given_grades`)


def concentration(
    judged: JudgedLists, exposure: Float64, *, items: Int64, popularity: Float64, share: float = TOP
) -> Concentration:
    """Measure how the exposure of documents is shared among their items.

    Args:
        judged: The lists that were ranked.
        exposure: Exposure of each document, such as by `position_exposure`, [documents].
        items: Item of each document, a number from 0, [documents].
        popularity: Popularity of each item; 0 if it was never clicked, [items].
        share: Share of the items that `top` and `popular` describe.
    """
    if items.shape != exposure.shape or exposure.shape != (judged.lists.documents,):
        raise DataError(f"{judged.lists.documents} documents, {items.shape} items, exposure of shape {exposure.shape}")
    if not 0 < share < 1:
        raise SettingError("share", share, "be above 0 and below 1")
    present = np.bincount(items, minlength=len(popularity)) > 0
    of_item = np.bincount(items, weights=exposure, minlength=len(popularity))[present].astype(np.float64)
    past = popularity[present]
    count, known = max(1, round(share * len(of_item))), bool((past > 0).any())
    popular = expected_value(np.array([0, len(past)]), past, (np.arange(len(past)) < count).astype(np.float64))
    total = of_item.sum()
    of_document = popularity[items]
    return Concentration(
        gini=gini(of_item),
        top=float(np.sort(of_item)[::-1][:count].sum() / total),
        popular=float((popular * of_item).sum() / total) if known else float("nan"),
        mean=float((exposure * of_document).sum() / total) if known else float("nan"),
        correlation=given_grades(judged, exposure, of_document) if known else float("nan"),
    )


def position_exposure(lists: Lists, scores: Float64, *, observation: Float64) -> Float64:
    """Return the probability that each document is observed if its list is ranked by score and cut, [documents].

    `observation` is that of each position; documents below the last one are not shown. Ties are ordered by a hash, as
    in `evaluate`.

    >>> lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> position_exposure(lists, np.array([0.1, 0.7, 0.3]), observation=np.array([0.7, 0.5])).tolist()
    [0.0, 0.7, 0.5]
    """
    values = check_scores(scores, lists.documents)
    places = np.arange(lists.documents) - lists.offsets[lists.list_of]
    ties = tie_keys(lists.query_ids, int(lists.lengths.max(initial=0)))[lists.list_of, places]
    exposure = np.zeros(lists.documents)
    exposure[np.lexsort((ties, -values, lists.list_of))] = np.append(observation, 0.0)[
        np.minimum(places, len(observation))
    ]
    return exposure


def gini(values: Float64) -> float:
    """Return the Gini coefficient, sum_ij |v_i - v_j| / (2 n sum v), of values that are not negative.

    >>> gini(np.array([1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 4.0]))
    (0.0, 0.75)
    """
    ordered, count = np.sort(values), len(values)
    if count == 0 or ordered[0] < 0 or ordered[-1] == 0:
        raise DataError("a Gini coefficient needs values that are not negative, and one above 0")
    return float(((2 * np.arange(1, count + 1) - count - 1) * ordered).sum() / (count * ordered.sum()))


def given_grades(judged: JudgedLists, exposure: Float64, popularity: Float64) -> float:
    """Return the correlation of exposure with popularity among documents of the same list and grade.

    Both are centred within list and grade. For any popularity, a ranking by the grades themselves with random ties has
    0 on average. A ranker that knows the grades in part has more, as far as it takes popular items to be good: compare
    it with one that was trained on labels. It is 0 if nothing varies.

    >>> lists = Lists(np.zeros((4, 1), np.float32), np.array([0, 4]), np.array(["q"]))
    >>> judged = JudgedLists(lists, np.array([1, 1, 0, 0], np.int32))
    >>> round(given_grades(judged, np.array([1.0, 0.5, 0.4, 0.3]), np.array([9.0, 7.0, 1.0, 1.0])), 3)
    0.981
    """
    key = judged.lists.list_of * (judged.max_grade + 1) + judged.grades
    cell = np.unique(key, return_inverse=True)[1].astype(np.int64)
    own, past = (_within(cell, values) for values in (exposure, popularity))
    spread = float(np.sqrt((own**2).sum() * (past**2).sum()))
    return float((own * past).sum() / spread) if spread > 1e-12 * len(cell) else 0.0


def _within(cell: Int64, values: Float64) -> Float64:
    """Return each value minus the mean of its cell, [documents]."""
    means = np.bincount(cell, weights=values) / np.maximum(np.bincount(cell), 1)
    return np.asarray(values - means[cell], dtype=np.float64)
