"""How unequally a ranking shares its exposure out over items, and how much of that popularity alone explains."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.ranking import check_scores, tie_keys
from clickprism.types import Float64, Int32, Int64, JudgedLists, Lists

TOP = 0.2


@final
@dataclass(frozen=True)
class Concentration:
    """What a ranking does with items, of which some were clicked more than others before.

    Attributes:
        gini: of the exposure of items, 0 if all have the same, near 1 if one has all.
        top: the share of exposure of the 20% most exposed items.
        popular: the share of exposure of the 20% items that were clicked most before; NaN where none was clicked.
        mean: the mean popularity of what is exposed, each document weighted by its exposure; NaN as above.
        correlation: of exposure with popularity within lists, given the grade (`given_grades`); NaN as above.
    """

    gini: float
    top: float
    popular: float
    mean: float
    correlation: float

    def plain(self) -> dict[str, float]:
        """All of it by name."""
        return asdict(self)


def concentration(
    judged: JudgedLists, exposure: Float64, *, items: Int64, popularity: Float64, share: float = TOP
) -> Concentration:
    """Measure the exposure of documents [documents], whose items are `items` [documents].

    Args:
        judged: the lists that were ranked.
        exposure: how much of it each document had, such as by `position_exposure`.
        items: of each document, numbered from 0 as `popularity` is.
        popularity: of each item, from 0 for never clicked, [items]; see `users.popularity.percentiles`.
        share: of the items that `top` and `popular` look at.
    """
    if items.shape != exposure.shape or exposure.shape != (judged.lists.documents,):
        raise DataError(f"{judged.lists.documents} documents, {items.shape} items, exposure of shape {exposure.shape}")
    if not 0 < share < 1:
        raise SettingError("share", share, "be above 0 and below 1")
    present = np.bincount(items, minlength=len(popularity)) > 0
    of_item = np.bincount(items, weights=exposure, minlength=len(popularity))[present].astype(np.float64)
    past = popularity[present]
    count, known = max(1, round(share * len(of_item))), bool((past > 0).any())
    popular = np.argsort(-past, kind="stable")[:count]
    total = of_item.sum()
    of_document = popularity[items]
    return Concentration(
        gini=gini(of_item),
        top=float(np.sort(of_item)[::-1][:count].sum() / total),
        popular=float(of_item[popular].sum() / total) if known else float("nan"),
        mean=float((exposure * of_document).sum() / total) if known else float("nan"),
        correlation=given_grades(judged, exposure, of_document) if known else float("nan"),
    )


def position_exposure(lists: Lists, scores: Float64, *, observation: Float64) -> Float64:
    """How probably each document is seen when its list is ranked by score and cut, [documents].

    Documents of equal score stand in the order of a hash, as in `evaluate`.

    Args:
        lists: what is ranked.
        scores: higher stands first, [documents].
        observation: by position, from 1; what stands below is not shown, [positions].

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
    """The Gini coefficient, sum_ij |v_i - v_j| / (2 n sum v), of values that are not negative.

    >>> gini(np.array([1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 4.0]))
    (0.0, 0.75)
    """
    ordered, count = np.sort(values), len(values)
    if count == 0 or ordered[0] < 0 or ordered[-1] == 0:
        raise DataError("a Gini coefficient needs values that are not negative, and one above 0")
    return float(((2 * np.arange(1, count + 1) - count - 1) * ordered).sum() / (count * ordered.sum()))


def given_grades(judged: JudgedLists, exposure: Float64, popularity: Float64) -> float:
    """The partial correlation of exposure with popularity over documents, given list and grade.

    The mean of the list and the effect of each grade are taken off both by least squares; what is left is correlated. A
    ranking by the grades themselves, ties at random, has 0. A ranker that knows grades in part only has more, as far as
    popular items are those it takes to be good: compare it with one that was trained on labels. 0 where nothing is
    left.
    """
    lists = judged.lists
    grades = np.unique(judged.grades)[1:]
    effects = np.stack([_within(lists, judged.grades == grade) for grade in grades], axis=1) if len(grades) else None
    left = []
    for values in (exposure, popularity):
        own = _within(lists, values)
        if effects is not None:
            own = own - effects @ np.linalg.lstsq(effects, own, rcond=None)[0]
        left.append(own)
    spread = float(np.sqrt((left[0] ** 2).sum() * (left[1] ** 2).sum()))
    return float((left[0] * left[1]).sum() / spread) if spread > 1e-12 * lists.documents else 0.0


def _within(lists: Lists, values: Float64 | Int32) -> Float64:
    """Values with the mean of their list taken off."""
    means = np.bincount(lists.list_of, weights=values, minlength=len(lists)) / np.maximum(lists.lengths, 1)
    return np.asarray(values - means[lists.list_of], dtype=np.float64)
