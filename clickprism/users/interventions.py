"""What a search engine may do to its own ranking to learn about its users: swaps, shuffles, a random first result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final, get_args

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Bool, Float64, Int64
from clickprism.users.base import check_probability

Kind = Literal["none", "swap", "pivot", "shuffle", "first"]


@final
@dataclass(frozen=True)
class Intervention:
    """What is done to the ranked list of some sessions, before it is shown.

    - "none": nothing.
    - "swap": a random document and the one below it trade places (Craswell et al. 2008).
    - "pivot": the document at the pivot position and a random other one trade places (Joachims et al. 2017).
    - "shuffle": the top is put in random order.
    - "first": a random document of the top moves to the first place, those above it move one down.

    Lists too short for it stay as they are.

    Attributes:
        kind: which of these.
        share: the share of sessions it is done to.
        depth: for "shuffle" and "first", how many of the best documents take part, also below what is shown.
        pivot: for "pivot", the position to trade with.
    """

    kind: Kind = "none"
    share: float = 1.0
    depth: int = 10
    pivot: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise SettingError("kind", self.kind, f"be one of {', '.join(get_args(Kind))}")
        check_probability("share", self.share)
        for name in ("depth", "pivot"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")

    def reach(self, length: int) -> int:
        """How deep a ranking is needed to show `length` documents."""
        return max(length, self.depth) if self.kind in ("shuffle", "first") else length

    def apply(self, offsets: Int64, rows: Int64, *, who: np.random.Generator, where: np.random.Generator) -> Int64:
        """The rows as shown; every session takes as many numbers from each generator, whatever happens to it."""
        if self.kind == "none":
            return rows
        starts, lengths = offsets[:-1], np.diff(offsets)
        treated = who.random(len(starts)) < self.share
        if self.kind == "shuffle":
            return self._shuffle(starts, lengths, rows, treated, where)
        place = where.random(len(starts))
        if self.kind == "first":
            return self._first(starts, lengths, rows, treated, place)
        able = treated & (lengths >= max(2, self.pivot if self.kind == "pivot" else 2))
        starts, below = starts[able], (place * (lengths - 1)).astype(np.int64)[able]
        if self.kind == "swap":
            return _trade(rows, starts + below, starts + below + 1)
        return _trade(rows, starts + below + (below >= self.pivot - 1), starts + self.pivot - 1)

    def _shuffle(self, starts: Int64, lengths: Int64, rows: Int64, treated: Bool, where: np.random.Generator) -> Int64:
        keys = where.random((len(starts), self.depth))
        inside = np.arange(self.depth) < lengths[:, None]
        order = np.argsort(np.where(inside, keys, 2.0), axis=1)
        taken = inside & treated[:, None]
        result = rows.copy()
        result[(starts[:, None] + np.arange(self.depth))[taken]] = rows[(starts[:, None] + order)[taken]]
        return result

    def _first(self, starts: Int64, lengths: Int64, rows: Int64, treated: Bool, place: Float64) -> Int64:
        chosen = np.where(treated, place * np.minimum(lengths, self.depth), 0).astype(np.int64)
        within = np.arange(len(rows)) - np.repeat(starts, lengths)
        chosen = np.repeat(chosen, lengths)
        source = np.where(within == 0, chosen, within - (within <= chosen))
        return rows[np.repeat(starts, lengths) + source]


def _trade(rows: Int64, one: Int64, other: Int64) -> Int64:
    result = rows.copy()
    result[one], result[other] = rows[other], rows[one]
    return result
