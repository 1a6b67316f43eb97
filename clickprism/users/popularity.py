"""Popularity: what was clicked often before catches the eye again, wherever it stands.

An item is what `Lists.document_ids` names, the same in every list that has it; where documents have no ids, each is an
item of its own, known by its query and its place in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Bool, Float64, Int32, Int64, JudgedLists, Lists, Text
from clickprism.users.base import Response, Shown, check_probability, independent_log_likelihood
from clickprism.users.pbm import PositionUser

TYPICAL = 20.0  # past clicks of an item, the median where a past is drawn
SPREAD = 1.5  # of the logarithm of past clicks where a past is drawn


@final
@dataclass(frozen=True)
class PopularityUser:
    """P(click at k) = v_k^(1 - strength pop(d)) a, v as in `PositionUser`, pop(d) by the past clicks of the item.

    pop(d) is the share of items that were clicked less (`percentiles`): 1 for the most clicked, 0 for one that was
    never clicked or is not known, which is seen as its position says. Without a past the user is a plan: `adapt`, which
    `simulate` calls, draws one for the items at hand that has nothing to do with relevance (log n_d normal). `after`
    gives it a real one, round after round.

    Attributes:
        strength: how much popularity counts; 0 is `PositionUser`, with 1 the most popular item is always seen.
        items: the names of the items with a past.
        past: their clicks so far, one an item.
        base: v, the observation by position of an item without a past.

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
        """This user with a past drawn for these items; itself if it has one or needs none."""
        if self.items or self.strength == 0:
            return self
        items = np.unique(item_ids(judged.lists))
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        return self.after(items, np.floor(TYPICAL * np.exp(SPREAD * rng.standard_normal(len(items)))))

    def after(self, items: Text, clicks: Float64 | Int64) -> PopularityUser:
        """This user when these items [items] have been clicked so often [items]; what was before is forgotten."""
        return replace(self, items=tuple(items.tolist()), past=tuple(float(count) for count in clicks))

    def popularity(self, lists: Lists) -> Float64:
        """pop(d) of each document, from 0 to 1, [documents]."""
        if not self.items:
            return np.zeros(lists.documents)
        names, popularity = np.array(self.items), percentiles(np.array(self.past))
        order = np.argsort(names)
        wanted = item_ids(lists)
        place = order[np.minimum(np.searchsorted(names, wanted, sorter=order), len(names) - 1)]
        return np.where(names[place] == wanted, popularity[place], 0.0)

    def observation(self, lists: Lists, rows: Int64, positions: Int64 | Int32) -> Float64:
        """The probability that each of these documents is seen at its position: the true propensities, [rows]."""
        exponent = 1 - self.strength * self.popularity(lists)
        observation: Float64 = self.base.observation(positions) ** exponent[rows]
        return observation

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_entry, see

        observation = self.observation(shown.lists, shown.rows, shown.positions)
        return see(by_entry, shown, seed, observation.astype(np.float32))

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]."""
        observation = self.observation(shown.lists, shown.rows, shown.positions)
        return independent_log_likelihood(shown, clicks, observation * shown.attraction)


def percentiles(clicks: Float64) -> Float64:
    """By item, the share of the other items that were clicked less, ties counted half; 0 for no click, [items].

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
    """The name of each document's item, [documents]: its id, or else its query's id and its place, from 1.

    >>> item_ids(Lists(np.zeros((3, 1), np.float32), np.array([0, 2, 3]), np.array(["q", "r"]))).tolist()
    ['q/1', 'q/2', 'r/1']
    """
    if lists.document_ids is not None:
        return lists.document_ids
    places = np.arange(1, lists.documents + 1) - lists.offsets[lists.list_of]
    return np.char.add(np.char.add(lists.query_ids[lists.list_of], "/"), places.astype(np.str_))
