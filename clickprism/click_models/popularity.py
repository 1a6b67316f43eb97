"""Popularity: items with many past clicks are observed more often, at every position.

An item is identified by `Lists.document_ids` and may occur in several lists. Documents without ids are separate items,
identified by their query and their index in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.pbm import DocumentUser, PositionUser
from clickprism.click_models.users import check_probability
from clickprism.errors import SettingError
from clickprism.types import Float64, Int64, JudgedLists, Lists, Text

TYPICAL = 20.0  # median of the past clicks of an item, if they are drawn
SPREAD = 1.5  # standard deviation of the logarithm of past clicks, if they are drawn


@final
@dataclass(frozen=True)
class PopularityUser(DocumentUser):
    """P(click at k) = v_k^(1 - strength pop(d)) a, v as in `PositionUser`, pop(d) by the past clicks of the item.

    pop(d) is the share of items with fewer clicks (`percentiles`): 1 for the most clicked item, 0 for one that was
    never clicked or is not known. If no past clicks are given, `adapt`, which `simulate` calls, draws them for the
    items of the lists, independently of relevance (log-normal). `after` sets real ones, for instance after each round.

    Attributes:
        strength: effect of popularity; 0 is `PositionUser`, with 1 the most popular item is always observed.
        items: ids of the items with past clicks.
        past: past clicks, one number per item.
        base: v, the observation by position of an item without past clicks.

    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]), np.array(["a", "b"]))
    >>> user = PopularityUser(strength=0.5).after(np.array(["a", "b", "c"]), np.array([99.0, 9.0, 1.0]))
    >>> user.popularity(lists).tolist()
    [1.0, 0.5]
    >>> user.observation(lists, np.array([0, 1]), np.array([10, 10])).round(3).tolist()
    [0.245, 0.121]
    """

    name: ClassVar[str] = "popularity"

    strength: float = 0.5
    items: tuple[str, ...] = ()
    past: tuple[float, ...] = ()
    base: PositionUser = field(default_factory=PositionUser)

    def __post_init__(self) -> None:
        check_probability("strength", self.strength)
        if len(self.past) != len(self.items):
            raise SettingError("past", len(self.past), f"have one number for each of the {len(self.items)} items")
        if len(set(self.items)) < len(self.items):
            raise SettingError("items", len(self.items), "be all different")
        if not all(0 <= clicks < float("inf") for clicks in self.past):
            raise SettingError("past", min(self.past), "be finite and not negative")

    def adapt(self, judged: JudgedLists, *, seed: int) -> PopularityUser:
        """Return this user with past clicks drawn for these items; itself if it has some or needs none."""
        if self.items or self.strength == 0:
            return self
        items = np.unique(item_ids(judged.lists))
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        return self.after(items, np.floor(TYPICAL * np.exp(SPREAD * rng.standard_normal(len(items)))))

    def after(self, items: Text, clicks: Float64 | Int64) -> PopularityUser:
        """Return this user with these past clicks [items] of these items [items] instead of earlier ones."""
        return replace(self, items=tuple(items.tolist()), past=tuple(float(count) for count in clicks))

    def popularity(self, lists: Lists) -> Float64:
        """Return pop(d) of each document, from 0 to 1, [documents]."""
        if not self.items:
            return np.zeros(lists.documents)
        names, popularity = np.array(self.items), percentiles(np.array(self.past))
        order = np.argsort(names)
        wanted = item_ids(lists)
        index = order[np.minimum(np.searchsorted(names, wanted, sorter=order), len(names) - 1)]
        return np.where(names[index] == wanted, popularity[index], 0.0)

    def exponent(self, lists: Lists) -> Float64:
        """Return 1 - strength pop(d) of each document, [documents]."""
        return 1 - self.strength * self.popularity(lists)


def percentiles(clicks: Float64) -> Float64:
    """Return the share of other items with fewer clicks, ties counted half; 0 for items without clicks, [items].

    >>> percentiles(np.array([5.0, 0.0, 9.0, 5.0, 1.0])).tolist()
    [0.625, 0.0, 1.0, 0.625, 0.25]
    """
    if len(clicks) < 2:
        return np.where(clicks > 0, 1.0, 0.0)
    ordered = np.sort(clicks)
    less, upto = np.searchsorted(ordered, clicks, side="left"), np.searchsorted(ordered, clicks, side="right")
    result: Float64 = np.where(clicks > 0, (less + (upto - less - 1) / 2) / (len(clicks) - 1), 0.0)
    return result


def item_ids(lists: Lists) -> Text:
    """Return the id of each document's item, [documents]; without ids, its query's id and its index, from 1.

    >>> item_ids(Lists(np.zeros((3, 1), np.float32), np.array([0, 2, 3]), np.array(["q", "r"]))).tolist()
    ['q/1', 'q/2', 'r/1']
    """
    if lists.document_ids is not None:
        return lists.document_ids
    indices = np.arange(1, lists.documents + 1) - lists.offsets[lists.list_of]
    return np.char.add(np.char.add(lists.query_ids[lists.list_of], "/"), indices.astype(np.str_))
