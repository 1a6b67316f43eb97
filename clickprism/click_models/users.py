"""Simulated users: what every user model takes (ranked lists) and returns (clicks, and the truth behind them)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol, TypeAlias, final, get_args, runtime_checkable

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Float32, Int64, JudgedLists, Lists

Gain: TypeAlias = Literal["exponential", "linear"]


@dataclass(frozen=True, eq=False)
class Shown:
    """Sessions as users see them: one ranked list each, best first; entry j of a list is at position j.

    Attributes:
        lists: documents that the rows point into.
        offsets: session i has the entries `offsets[i]` up to `offsets[i + 1]`, exclusive, [sessions + 1].
        rows: document row of each entry, [entries].
        attraction: probability of a click on each entry if it is observed, [entries].
        start: number of the first session. Random numbers depend on (seed, session number, position), so a log that is
            simulated in parts, each with its own start, equals the log simulated in one call.
    """

    lists: Lists
    offsets: Int64
    rows: Int64
    attraction: Float32
    start: int = 0

    def __post_init__(self) -> None:
        entries = len(self.rows)
        ends = self.offsets.ndim == 1 and self.offsets.size > 0 and self.offsets[0] == 0 and self.offsets[-1] == entries
        if not ends or bool((np.diff(self.offsets) < 0).any()):
            raise DataError(f"offsets of sessions must rise from 0 to {entries}")
        if self.attraction.shape != (entries,):
            raise DataError(f"{entries} rows but attraction of shape {self.attraction.shape}")
        if entries and not (self.attraction.min() >= 0 and self.attraction.max() <= 1):
            raise DataError("attraction must be a probability for every entry")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def session_of(self) -> Int64:
        """Return the session of each entry, [entries]."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.offsets))

    @cached_property
    def positions(self) -> Int64:
        """Return the position of each entry, from 1, [entries]."""
        return np.arange(1, len(self.rows) + 1, dtype=np.int64) - self.offsets[self.session_of]


@dataclass(frozen=True, eq=False)
class Response:
    """What the users did, by entry.

    Attributes:
        clicks: whether the entry was clicked: observed and attracted.
        observed: whether the user looked at it.
        attracted: whether the user clicks it if it is observed; also drawn for entries that are not observed.
    """

    clicks: Bool
    observed: Bool
    attracted: Bool


class User(Protocol):
    """A simulated user. Its settings are the fields of a frozen dataclass; the same seed gives the same clicks."""

    name: ClassVar[str]

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """A user with parameters that depend on the documents and are drawn first, such as `CoupledUser`."""

    def adapt(self, judged: JudgedLists, *, seed: int) -> User:
        """Return the user with parameters for these documents; itself if it has them already."""
        ...


def adapted(user: User, judged: JudgedLists, *, seed: int) -> User:
    """Return the user with parameters for these documents. If several logs must share one user, adapt it once."""
    return user.adapt(judged, seed=seed) if isinstance(user, Adaptive) else user


def attraction(
    judged: JudgedLists,
    *,
    noise: float = 0.1,
    max_grade: int | None = None,
    gain: Gain = "exponential",
) -> Float32:
    """Return the probability of a click on each observed document: noise + (1 - noise) gain(y) / gain(ymax).

    The exponential gain is 2^y - 1 (Chapelle et al. 2009), the linear gain is y. `max_grade` is the highest grade of
    the grading scale, by default the highest grade in the data.

    >>> lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 5]), np.array(["q"]))
    >>> judged = JudgedLists(lists, np.arange(5, dtype=np.int32))
    >>> attraction(judged).round(2).tolist()
    [0.10000000149011612, 0.1599999964237213, 0.2800000011920929, 0.5199999809265137, 1.0]
    >>> attraction(judged, noise=0, gain="linear").tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    check_probability("noise", noise)
    if gain not in get_args(Gain):
        raise SettingError("gain", gain, f"be one of {', '.join(get_args(Gain))}")
    top = highest_grade(judged, max_grade)
    scale = np.arange(top + 1, dtype=np.float64)
    gains = np.exp2(scale) - 1 if gain == "exponential" else scale
    by_grade = noise + (1 - noise) * gains / max(float(gains[-1]), 1.0)
    return np.minimum(by_grade, 1.0).astype(np.float32)[judged.grades]


def highest_grade(judged: JudgedLists, max_grade: int | None) -> int:
    """Return the highest grade of the grading scale, by default the highest grade in the data."""
    if max_grade is not None and max_grade < judged.max_grade:
        must = f"be at least {judged.max_grade}, the highest grade in the data (set it to the top of the grading scale)"
        raise SettingError("max_grade", max_grade, must)
    return judged.max_grade if max_grade is None else max_grade


def check_probability(field: str, *values: float) -> None:
    """Raise SettingError if a value is outside [0, 1]."""
    for value in values:
        if not 0 <= value <= 1:
            raise SettingError(field, value, "be a probability, between 0 and 1")


def check_curve(field: str, curve: Iterable[float]) -> None:
    """Raise SettingError if a curve over positions is empty or has a value outside [0, 1]."""
    values = tuple(curve)
    if not values:
        raise SettingError(field, values, "have a value for the first position at least")
    check_probability(field, *values)


@final
@dataclass(frozen=True)
class Chain:
    """How users read who go from the top down and stop somewhere: cascade, DCM, CCM, DBN and SDBN.

    P(observe k + 1 | observed k) = skip after no click at k, (low (1 - a_k) + high a_k) at_position_k after a click

    The first document is always observed.

    Attributes:
        skip: probability to continue after no click.
        low: probability to continue after a click on a document of attraction 0.
        high: the same for a document of attraction 1.
        at_position: factor to both for a click at position 1, 2, ...; the last value holds below.
    """

    skip: float
    low: float
    high: float
    at_position: tuple[float, ...] = (1.0,)


class ReadingUser:
    """A user who reads from the top down, as `chain` says."""

    @property
    def chain(self) -> Chain:
        """Return when the user continues."""
        raise NotImplementedError

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        from clickprism.click_models.kernels import by_chain, see

        chain = self.chain
        numbers = np.array([chain.skip, chain.low, chain.high], dtype=np.float32)
        return see(by_chain, shown, seed, (*numbers, np.array(chain.at_position, dtype=np.float32)))
