"""Interleaving: which of two rankers users prefer, by one list made of both (Radlinski, Kurup and Joachims 2008).

Each search sees one list in which both rankers have drafted documents in turns, as captains draft teams. A click counts
for the ranker that drafted the document; who has more clicks wins the search. Users compare the two within one list, so
far fewer searches are needed than when each user sees one ranker.

The test may be looked at after every search. An interval of 95% holds at one time only: whoever looks every day and
stops when 0 is outside is wrong far more often. A confidence sequence holds at all times together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.settings import check_fields
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

T = TypeVar("T", bound=Hashable)
Better: TypeAlias = Literal["first", "second", "none"]
RESAMPLES: Final = 10_000


@final
@dataclass(frozen=True)
class Draft(Generic[T]):
    """A list that two rankers have drafted."""

    documents: list[T]  # In the order in which they are shown
    teams: list[int]  # who drafted each document: 0 the first ranker, 1 the second


def team_draft(first: Sequence[T], second: Sequence[T], *, request_id: str, length: int | None = None) -> Draft[T]:
    """Interleave two rankings: in each round a coin says who drafts first, then each drafts its best document left.

    The coins are the bits of a hash of `request_id`: the same request always has the same list, and requests with other
    ids are independent. Documents are best first, each once; by default the list has all of them.

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
    """Return who won each search by the clicks on each team, [searches]: -1 the first ranker, 1 the second, 0 none.

    >>> winners(np.array([2, 0, 1]), np.array([0, 0, 2])).tolist()
    [-1, 0, 1]
    """
    return np.sign(np.asarray(second, np.int64) - np.asarray(first, np.int64))


def by_user(won: Int64, users: Int64) -> Int64:
    """Return which ranker won more searches of each user: -1, 0 or 1, users in the order of first search, [users].

    Searches of one user are similar, so users, not searches, are independent. `users` are numbers from 0, [searches].

    >>> by_user(np.array([1, -1, 1, 1]), np.array([0, 1, 0, 1])).tolist()
    [1, 0]
    """
    if len(users) and users.min() < 0:
        raise UnsupportedError("some searches have no user id", remedy="Compare searches: --unit search")
    names, first, which = np.unique(users, return_index=True, return_inverse=True)
    sums = np.bincount(which, won, minlength=len(names))
    return np.sign(sums[np.argsort(first)]).astype(np.int64)


@final
@dataclass(frozen=True)
class Preference:
    """Whether users prefer the second ranker to the first."""

    good: int  # Number of searches (or users) that the second ranker won
    same: int  # Number of those that neither won
    bad: int  # Number of those that the first ranker won
    delta_gsb: float  # (good - bad) / (good + same + bad), ΔGSB of the doubly robust paper (§7.2), from -1 to 1
    interval: tuple[float, float]  # Bootstrap interval of `delta_gsb`, valid if the data is looked at once
    p_value: float  # Two-sided sign test: the probability of wins at least this unequal if there is no preference
    better: Better  # The ranker that the sign test finds better: `second`, `first` or `none`
    # Interval that is valid however often the data is looked at; infinite for few searches
    sequential_interval: tuple[float, float]
    decided_after: int | None  # Number of searches after which the sequential interval excluded 0; None if it never did
    confidence: float  # Confidence level of the intervals and the test


def preference(
    won: Int64, *, confidence: float = 0.95, tightest: int = 5_000, resamples: int = RESAMPLES, seed: int = 0
) -> Preference:
    """Count wins, and test whether users prefer one ranker.

    Args:
        won: Result of `winners`, in the order of time, [searches].
        confidence: Confidence level of the intervals.
        tightest: Number of searches after which the sequential interval is narrowest; about as many as are planned.
        resamples: Number of bootstrap samples.
        seed: Random seed of the bootstrap.

    >>> found = preference(np.array([1, 1, 0, 1, -1, 1, 1, 1, 0, 1]))
    >>> found.good, found.same, found.bad, found.delta_gsb, round(found.p_value, 4)
    (7, 2, 1, 0.6, 0.0703)
    """
    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    values = np.asarray(won, np.int64)
    if values.ndim != 1 or not len(values) or not np.isin(values, (-1, 0, 1)).all():
        raise DataError("a preference needs at least one search, each won (1), lost (-1) or neither (0)")
    good, bad, count = int((values == 1).sum()), int((values == -1).sum()), len(values)
    shares = [good / count, bad / count, (count - good - bad) / count]
    drawn = np.random.default_rng(seed).multinomial(count, shares, resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / count, [tail, 1 - tail])
    always = confidence_sequence(values.astype(np.float64), confidence=confidence, tightest=tightest)
    p_value = sign_test(good, bad)
    better: Better = "second" if good > bad else "first"
    return Preference(
        good=good,
        same=count - good - bad,
        bad=bad,
        delta_gsb=(good - bad) / count,
        interval=(float(low), float(high)),
        p_value=p_value,
        better=better if good != bad and p_value <= 1 - confidence else "none",
        sequential_interval=(float(always.low[-1]), float(always.high[-1])),
        decided_after=always.decided,
        confidence=confidence,
    )


@final
@dataclass(frozen=True, kw_only=True)
class InterleavingSettings:
    """How interleaved searches are compared.

    Attributes:
        rankers: The two rankers to compare, the old one first, as the field `ranker` of the log names them. By default
            those with the most searches in common.
        days: First and last day, such as 2026-03-01..2026-03-14 (UTC). By default all days.
        unit: What is won or lost, and counts as independent: a search or a user.
        confidence: Confidence level of the intervals.
        planned_searches: Planned number of searches; the sequential interval is narrowest there.
        seed: Random seed of the bootstrap.
        memory: Maximum memory of the engine that updates the sessions, such as 500MB or 2GB.
    """

    rankers: tuple[str, str] | None = None
    days: str | None = None
    unit: Literal["search", "user"] = "search"
    confidence: float = 0.95
    planned_searches: int = 5_000
    seed: int = 0
    memory: str = "2GB"

    def __post_init__(self) -> None:
        if self.rankers is not None and self.rankers[0] == self.rankers[1]:
            raise SettingError("rankers", self.rankers, "be two different rankers")
        check_fields(self, confidence=(0.01, 0.9999), planned_searches=(1, None), seed=(0, None))


@final
@dataclass(frozen=True)
class Comparison:
    """Two rankers compared by the interleaved searches of a log."""

    rankers: tuple[str, str]  # The first and the second ranker
    searches: int  # Number of searches that show documents of these two rankers
    other_searches: int  # Number of interleaved searches of other pairs of rankers
    clicks: tuple[int, int]  # Clicks on documents of each ranker
    unit: Literal["search", "user"]  # What is won or lost: searches or users
    preference: Preference  # Which ranker users prefer

    def tables(self) -> list[Table]:
        """Return the counts, the intervals and the conclusion."""
        (first, second), it = self.rankers, self.preference
        units = "searches" if self.unit == "search" else "users"
        level = f"{it.confidence:.0%} interval"
        rows = [
            [f"{second} wins (good)", f"{it.good:,}"],
            ["neither wins (same)", f"{it.same:,}"],
            [f"{first} wins (bad)", f"{it.bad:,}"],
            ["delta GSB", f"{it.delta_gsb:+.4f}"],
            [f"{level}, for one look", "{:+.4f} to {:+.4f}".format(*it.interval)],
            ["p value of the sign test, for one look", f"{it.p_value:.3g}"],
            [f"{level}, for any number of looks", "{:+.4f} to {:+.4f}".format(*it.sequential_interval)],
        ]
        better = {"second": f"{second} is better.", "first": f"{first} is better."}
        after = f"Decided after {it.decided_after:,} {units}." if it.decided_after else "Not decided yet."
        once = better.get(it.better, "No significant difference.")
        conclusion = [["for one look", once], ["for any number of looks", after]]
        caption = f"{self.searches:,} interleaved searches of {first} and {second}"
        return [Table(caption, [units, ""], rows), Table("", ["conclusion", ""], conclusion)]


def compare_interleaved(store: LogStore, settings: InterleavingSettings) -> Comparison:
    """Compare two rankers by the clicks on the interleaved searches of a log; its sessions are updated first."""
    from clickprism.log.features.schedule import days_of
    from clickprism.log.interleaved import interleaved_searches
    from clickprism.log.sessions import update_sessions

    days = days_of(settings.days)
    with store.write(memory=settings.memory, exclusive=False) as writer:
        update_sessions(store, writer.engine, days)
    found = interleaved_searches(store, rankers=settings.rankers, days=days)
    won = winners(found.first, found.second)
    if settings.unit == "user":
        won = by_user(won, found.users)
    return Comparison(
        rankers=found.rankers,
        searches=len(found),
        other_searches=found.others,
        clicks=(int(found.first.sum()), int(found.second.sum())),
        unit=settings.unit,
        preference=preference(
            won, confidence=settings.confidence, tightest=settings.planned_searches, seed=settings.seed
        ),
    )


def sign_test(wins: int, losses: int) -> float:
    """Return the probability that a fair coin falls at least this unequally, in either direction; ties are ignored.

    >>> sign_test(9, 1)  # 2 (1 + 10) / 1024
    0.021484375
    """
    from scipy.special import bdtr

    return float(min(1.0, 2 * bdtr(min(wins, losses), wins + losses, 0.5)))


@final
@dataclass(frozen=True, eq=False)
class ConfidenceSequence:
    """The mean after each observation, with ends that contain the truth at all times together."""

    means: Float64  # means of the observations so far, [observations]
    low: Float64  # Lower ends; minus infinity before the first look
    high: Float64  # Upper ends

    def __len__(self) -> int:
        return len(self.means)

    @property
    def decided(self) -> int | None:
        """Return the number of observations after which 0 was outside for the first time; None if it never was."""
        outside = np.flatnonzero((self.low > 0) | (self.high < 0))
        return int(outside[0]) + 1 if len(outside) else None


def confidence_sequence(
    values: Float64, *, confidence: float = 0.95, tightest: int = 5_000, first_look: int = 100
) -> ConfidenceSequence:
    """Return a confidence sequence of the mean of independent observations, such as differences of pairs.

    mean_t +- sd_t sqrt(2 (t r + 1) / (t^2 r) log(sqrt(t r + 1) / (1 - confidence)))

    with r such that it is narrowest at observation `tightest`, half wider than the usual interval: Robbins' normal
    mixture with the deviation estimated from the observations so far. It holds for many observations of any
    distribution (Waudby-Smith et al. 2024, Theorem 2.2). It is infinite before `first_look`.

    >>> sequence = confidence_sequence(np.tile([0.0, 1.0], 500))
    >>> round(float(sequence.low[-1]), 3), round(float(sequence.high[-1]), 3), sequence.decided
    (0.447, 0.553, 100)
    """
    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    for name, least, count in (("tightest", 1, tightest), ("first_look", 2, first_look)):
        if count < least:
            raise SettingError(name, count, f"be at least {least}")
    observed = np.asarray(values, dtype=np.float64)
    if observed.ndim != 1 or not np.isfinite(observed).all():
        raise DataError("a confidence sequence needs a vector of finite numbers")
    times = np.arange(1, len(observed) + 1)
    means = np.cumsum(observed) / times
    deviation = np.sqrt(np.maximum(np.cumsum(observed**2) / times - means**2, 0.0))
    alpha = 1 - confidence
    r = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest
    reach = deviation * np.sqrt(2 * (times * r + 1) / (times**2 * r) * np.log(np.sqrt(times * r + 1) / alpha))
    reach[: first_look - 1] = np.inf
    return ConfidenceSequence(means, means - reach, means + reach)
