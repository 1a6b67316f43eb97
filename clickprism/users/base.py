"""What a simulated user is: shown ranked lists, it answers with clicks and with the truth behind them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Float32, Float64, Int64, JudgedLists, Lists

Gain: TypeAlias = Literal["exponential", "linear"]


@dataclass(frozen=True, eq=False)
class Shown:
    """Sessions as users see them: one ranked list each, best first; entry j of a list stands at position j.

    Attributes:
        lists: the documents that the rows point into.
        offsets: session i owns the entries `offsets[i]` to `offsets[i + 1]`, [sessions + 1].
        rows: the document row of each entry.
        attraction: the probability of a click on each entry once it is seen.
        start: the number of the first session. A user's random numbers belong to (seed, session number, position), so
            a log simulated in parts, each with its own start, is the log simulated at once.
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
        """The session that each entry belongs to, [entries]."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.offsets))

    @cached_property
    def positions(self) -> Int64:
        """Where each entry stands, from 1, [entries]."""
        return np.arange(1, len(self.rows) + 1, dtype=np.int64) - self.offsets[self.session_of]


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


@runtime_checkable
class Adaptive(Protocol):
    """A user whose behaviour must first be drawn for the documents at hand, such as `CoupledUser`."""

    def adapt(self, judged: JudgedLists, *, seed: int) -> User:
        """The user for these documents; itself if that is settled already."""
        ...


def adapted(user: User, judged: JudgedLists, *, seed: int) -> User:
    """The user made ready for these documents: where several logs must share one user, adapt it once and keep it."""
    return user.adapt(judged, seed=seed) if isinstance(user, Adaptive) else user


def attraction(
    judged: JudgedLists,
    *,
    noise: float = 0.1,
    max_grade: int | None = None,
    gain: Gain = "exponential",
) -> Float32:
    """The probability that a seen document is clicked, by its grade: noise + (1 - noise) gain(y) / gain(ymax).

    The exponential gain is 2^y - 1 (Chapelle et al. 2009), the linear one is y. `max_grade` is the top of the grading
    scale, by default the highest grade in the data.

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
    """Refuse a setting with a value outside [0, 1]."""
    for value in values:
        if not 0 <= value <= 1:
            raise SettingError(field, value, "be a probability, between 0 and 1")


def check_curve(field: str, curve: Iterable[float]) -> None:
    """Refuse a curve over positions that is empty or holds a value outside [0, 1]."""
    values = tuple(curve)
    if not values:
        raise SettingError(field, values, "have a value for the first position at least")
    check_probability(field, *values)


def independent_log_likelihood(shown: Shown, clicks: Bool, probability: Float64) -> Float64:
    """Log-likelihood of sessions whose clicks are independent given `probability` [entries]: sum of log terms."""
    check_clicks(shown, clicks)
    with np.errstate(divide="ignore"):
        terms = np.log(np.where(clicks, probability, 1 - probability))
    return np.bincount(shown.session_of, weights=terms, minlength=len(shown)).astype(np.float64)


def check_clicks(shown: Shown, clicks: Bool) -> None:
    """Refuse clicks that are not one truth value for each entry shown."""
    if clicks.shape != shown.rows.shape or clicks.dtype != np.bool_:
        raise DataError(f"{len(shown.rows)} entries shown need as many booleans, got {clicks.dtype} {clicks.shape}")
