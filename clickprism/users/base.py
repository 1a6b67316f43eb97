"""What a simulated user is: shown ranked lists, it answers with clicks and with the truth behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from clickprism.types import Bool, Float32, Float64, Int64, JudgedLists, Lists


@dataclass(frozen=True, eq=False)
class Shown:
    """Sessions as users see them: one ranked list each, best first; entry j of a list stands at position j.

    Attributes:
        lists: the documents that the rows point into.
        offsets: session i owns the entries `offsets[i]` to `offsets[i + 1]`, [sessions + 1].
        rows: the document row of each entry.
        attraction: the probability of a click on each entry once it is seen.
    """

    lists: Lists
    offsets: Int64
    rows: Int64
    attraction: Float32

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False)
class Response:
    """What the users did, entry by entry: `clicks`, and the truth: `observed`, `attracted` (would click if seen)."""

    clicks: Bool
    observed: Bool
    attracted: Bool


class User(Protocol):
    """A click model. Its settings are the fields of a frozen dataclass; the same seed gives the same clicks."""

    name: ClassVar[str]

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        ...

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Return log P(clicks of the session | what was shown) under this model, [sessions]."""
        ...


def attraction(judged: JudgedLists, *, noise: float = 0.1, max_grade: int | None = None) -> Float32:
    """The probability that a seen document is clicked, by its grade: noise + (1 - noise)(2^y - 1)/(2^ymax - 1).

    `max_grade` is the top of the grading scale, by default the highest grade in the data.

    >>> lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 5]), np.array(["q"]))
    >>> attraction(JudgedLists(lists, np.arange(5, dtype=np.int32))).round(2).tolist()
    [0.10000000149011612, 0.1599999964237213, 0.2800000011920929, 0.5199999809265137, 1.0]
    """
    top = judged.max_grade if max_grade is None else max_grade
    gain = np.exp2(judged.grades.astype(np.float64)) - 1
    return (noise + (1 - noise) * gain / max(2.0**top - 1, 1)).astype(np.float32)
