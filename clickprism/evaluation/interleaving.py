"""Interleaving: which of two rankers users prefer, by one list made of both (Radlinski, Kurup and Joachims 2008).

Each search sees one list in which both rankers have drafted documents in turns, as captains draft teams. A click counts
for the ranker that drafted the document; who has more clicks wins the search. Users compare the two within one list, so
far fewer searches are needed than when each user sees one ranker.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.sequential import confidence_sequence
from clickprism.types import Int64

T = TypeVar("T", bound=Hashable)
RESAMPLES: Final = 10_000


@final
@dataclass(frozen=True)
class Draft(Generic[T]):
    """A list that two rankers have drafted.

    Attributes:
        documents: as they are shown.
        teams: of each, who drafted it: 0 the first ranker, 1 the second.
    """

    documents: list[T]
    teams: list[int]


def team_draft(first: Sequence[T], second: Sequence[T], *, request_id: str, length: int | None = None) -> Draft[T]:
    """Interleave two rankings: in each round a coin says who drafts first, then each drafts its best document left.

    The coins are a function of `request_id` alone: the same request has the same list, wherever and whenever it is
    made, and requests with other ids are independent.

    Args:
        first: documents, best first; each once.
        second: documents of the other ranker.
        request_id: whose bits are the coins.
        length: of the list; by default all documents.

    >>> draft = team_draft(["a", "b", "c"], ["c", "a", "b"], request_id="r1")
    >>> draft.documents, draft.teams
    (['c', 'a', 'b'], [1, 0, 0])
    """
    if length is not None and length < 0:
        raise SettingError("length", length, "be 0 or more")
    rankings, places = (first, second), [0, 0]
    documents: list[T] = []
    teams: list[int] = []
    taken: set[T] = set()
    coins, block = 0, 0
    most = len(first) + len(second) if length is None else length
    while len(documents) < most:
        if coins <= 1:
            bits = blake2b(f"{block}:{request_id}".encode("utf-8", "surrogatepass"), digest_size=32).digest()
            coins, block = int.from_bytes(bits, "little") | 1 << 256, block + 1
        starts, coins = coins & 1, coins >> 1
        before = len(documents)
        for team in (starts, 1 - starts):
            ranking, place = rankings[team], places[team]
            while place < len(ranking) and ranking[place] in taken:
                place += 1
            if place < len(ranking) and len(documents) < most:
                documents.append(ranking[place])
                taken.add(ranking[place])
                teams.append(team)
                place += 1
            places[team] = place
        if len(documents) == before:
            break
    return Draft(documents, teams)


def winners(first: Int64, second: Int64) -> Int64:
    """Who won each search: -1 the first ranker, 1 the second, 0 none.

    Args:
        first: clicks on documents of the first team, [searches].
        second: those of the second.

    >>> winners(np.array([2, 0, 1]), np.array([0, 0, 2])).tolist()
    [-1, 0, 1]
    """
    return np.sign(np.asarray(second, np.int64) - np.asarray(first, np.int64))


def by_user(won: Int64, users: Int64) -> Int64:
    """Who won each user, by more won searches: users in the order of their first search, [users].

    Searches of one user are alike, so users, not searches, are independent.

    Args:
        won: of `winners`, [searches].
        users: a number for each, from 0, [searches].

    >>> by_user(np.array([1, -1, 1, 1]), np.array([0, 1, 0, 1])).tolist()
    [1, 0]
    """
    if len(users) and users.min() < 0:
        raise DataError("some searches have no user", remedy="Take searches as the unit")
    names, first, which = np.unique(users, return_index=True, return_inverse=True)
    sums = np.bincount(which, won, minlength=len(names))
    return np.sign(sums[np.argsort(first)]).astype(np.int64)


@final
@dataclass(frozen=True)
class Preference:
    """Whether users prefer the second ranker to the first.

    Attributes:
        good: searches (or users) that the second won.
        same: those that neither won.
        bad: those that the first won.
        low: lower end of the bootstrap interval of `delta_gsb`.
        high: upper end.
        p_value: of the two-sided sign test: how likely wins this unequal are if there is no preference, looked at once.
        always_low: lower end of an interval that is right at all times together; minus infinity before the first look.
        always_high: upper end.
        decided: after how many searches that interval was free of 0 for the first time; None if it never was.
        confidence: of the intervals.
    """

    good: int
    same: int
    bad: int
    low: float
    high: float
    p_value: float
    always_low: float
    always_high: float
    decided: int | None
    confidence: float

    @property
    def count(self) -> int:
        """All searches, or users."""
        return self.good + self.same + self.bad

    @property
    def delta_gsb(self) -> float:
        """(good - bad) / (good + same + bad), ΔGSB of the doubly robust paper (§7.2), from -1 to 1."""
        return (self.good - self.bad) / self.count

    @property
    def better(self) -> str:
        """`second`, `first` or `none`, by the sign test at one look."""
        if self.p_value > 1 - self.confidence or self.good == self.bad:
            return "none"
        return "second" if self.good > self.bad else "first"

    def plain(self) -> dict[str, Any]:
        """As JSON has it; an end that is infinite is null."""
        ends = [round(end, 6) if np.isfinite(end) else None for end in (self.always_low, self.always_high)]
        return {
            "good": self.good,
            "same": self.same,
            "bad": self.bad,
            "delta_gsb": round(self.delta_gsb, 6),
            "interval": [round(self.low, 6), round(self.high, 6)],
            "p_value": float(f"{self.p_value:.4g}"),
            "better": self.better,
            "sequential_interval": ends,
            "sequential_decided_after": self.decided,
            "confidence": self.confidence,
        }


def preference(
    won: Int64, *, confidence: float = 0.95, tightest: int = 5_000, resamples: int = RESAMPLES, seed: int = 0
) -> Preference:
    """Count wins, and say how sure they are.

    Args:
        won: of `winners`, in the order of time, [searches].
        confidence: of the intervals.
        tightest: after how many searches the sequential interval is tightest; about as many as are planned.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    >>> found = preference(np.array([1, 1, 0, 1, -1, 1, 1, 1, 0, 1]))
    >>> found.good, found.same, found.bad, found.delta_gsb, round(found.p_value, 4)
    (7, 2, 1, 0.6, 0.0703)
    """
    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    if resamples < 2:
        raise SettingError("resamples", resamples, "be at least 2")
    values = np.asarray(won, np.int64)
    if values.ndim != 1 or not len(values) or not np.isin(values, (-1, 0, 1)).all():
        raise DataError("a preference needs at least one search, each won (1), lost (-1) or neither (0)")
    good, bad, count = int((values == 1).sum()), int((values == -1).sum()), len(values)
    shares = [good / count, bad / count, (count - good - bad) / count]
    drawn = np.random.default_rng(seed).multinomial(count, shares, resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / count, [tail, 1 - tail])
    always = confidence_sequence(values.astype(np.float64), confidence=confidence, tightest=tightest)
    return Preference(
        good=good,
        same=count - good - bad,
        bad=bad,
        low=float(low),
        high=float(high),
        p_value=sign_test(good, bad),
        always_low=float(always.low[-1]),
        always_high=float(always.high[-1]),
        decided=always.decided,
        confidence=confidence,
    )


def sign_test(wins: int, losses: int) -> float:
    """How likely a fair coin falls this unequally or more so, in either direction; ties are left out.

    >>> sign_test(9, 1)  # 2 (1 + 10) / 1024
    0.021484375
    """
    from scipy.special import bdtr

    return float(min(1.0, 2 * bdtr(min(wins, losses), wins + losses, 0.5)))
