"""Drift: do click rates, the places of clicks, or the mix of queries change over the days of a log?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import by_query, evidence, of_entries, p_words, queries_of, shown
from clickprism.diagnosis.days import days_of
from clickprism.diagnosis.finding import Finding
from clickprism.errors import SettingError
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "drift"
EXPECTED: Final = 5.0  # searches in a cell of a chi-square test


@final
@dataclass(frozen=True)
class DriftSettings:
    """When a change over days counts.

    Attributes:
        level: of each test; a p value below it is a sign.
        click_rate: the least change of clicks a search on a day, as a share of the mean, that matters.
        place: the least change of the mean place of clicks on a day, in doublings of the position.
        mix: the least change of the mix of queries, in standard deviations of a query's share as a share of it.
    """

    level: float = 0.01
    click_rate: float = 0.1
    place: float = 0.1
    mix: float = 0.1

    def __post_init__(self) -> None:
        for name in ("level", "click_rate", "place", "mix"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "be above 0")


class Change(NamedTuple):
    """One thing that may change over days.

    Attributes:
        what: in words.
        size: the largest change on a day.
        p_value: of the test that nothing changes.
        material: whether it is both large and no chance.
        by_day: the value of each day, [days]; empty where there is no such number.
    """

    what: str
    size: float
    p_value: float
    material: bool
    by_day: Float64


def drift(logged: Logged, *, settings: DriftSettings | None = None) -> Finding:
    """Whether the days of a log are alike; unknown without days, or with one."""
    chosen, logged = settings or DriftSettings(), shown(logged)
    if logged.days is None or len(np.unique(logged.days)) < 2 or int(logged.clicks.clicks.sum()) == 0:
        why = "The log does not tell days." if logged.days is None else "The log has fewer than two days with clicks."
        return Finding(
            NAME, "unknown", f"It cannot be told whether anything changes over time. {why}", "Log the day of searches."
        )
    changes = [_click_rate(logged, chosen), _place(logged, chosen), _mix(logged, chosen)]
    there = [each for each in changes if each.material]
    largest = max(there or changes, key=lambda each: each.size)
    sentence = (
        f"It changes over the days: {'; '.join(f'{each.what} by {each.size:.2f}' for each in there)}."
        if there
        else "Nothing of weight changes over the days."
    )
    advice = (
        "Learn from the days that are like today's, or weigh them; compare rankers within days only."
        if there
        else "All days can be learned from together."
    )
    return Finding(
        NAME,
        "present" if there else "absent",
        sentence,
        advice,
        number=largest.size,
        unit=largest.what,
        p_value=min(1.0, len(changes) * min(each.p_value for each in changes)),
        details={"changes": [each._asdict() for each in changes]},
        table=(
            ["what", "largest change", "test", "matters"],
            [
                [each.what, f"{each.size:.3f}", p_words(each.p_value), "yes" if each.material else "no"]
                for each in changes
            ],
        ),
        figure=_picture(changes),
    )


def _click_rate(logged: Logged, settings: DriftSettings) -> Change:
    """Clicks a search by day; whether each day has its share, by queries."""
    clicks, day = logged.clicks, days_of(logged)
    query = queries_of(clicks)[clicks.offsets[:-1]]
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    clicked = np.bincount(owner, weights=clicks.clicks, minlength=len(clicks))
    mean = clicked.sum() / clicks.sessions
    p = evidence(by_query(query, _spread(day, clicked - mean * clicks.impressions))).p_value
    rate = np.bincount(day, weights=clicked) / np.bincount(day, weights=clicks.impressions)
    size = float(np.abs(rate / mean - 1).max())
    what = "clicks a search (as a share of the mean)"
    return Change(what, size, p, p < settings.level and size >= settings.click_rate, rate)


def _place(logged: Logged, settings: DriftSettings) -> Change:
    """The mean place of clicks by day, in doublings of the position."""
    clicks, day = logged.clicks, of_entries(logged.clicks, days_of(logged))
    place = np.log2(clicks.positions)
    mean = float(clicks.clicks @ place / clicks.clicks.sum())
    p = evidence(by_query(queries_of(clicks), _spread(day, clicks.clicks * (place - mean)))).p_value
    count = np.bincount(day, weights=clicks.clicks)
    by_day = np.divide(
        np.bincount(day, weights=clicks.clicks * place), count, out=np.full(len(count), mean), where=count > 0
    )
    size = float(np.abs(by_day - mean).max())
    return Change("the place of clicks (in doublings)", size, p, p < settings.level and size >= settings.place, by_day)


def _mix(logged: Logged, settings: DriftSettings) -> Change:
    """The mix of queries by day: chi-square, rare queries taken together; its size is free of sampling noise."""
    from scipy.stats import chi2

    clicks, day = logged.clicks, days_of(logged)
    days = int(day.max()) + 1
    query = queries_of(clicks)[clicks.offsets[:-1]]
    known, place = np.unique(query, return_inverse=True)
    table = np.bincount(place * days + day, weights=clicks.impressions, minlength=len(known) * days)
    table = table.reshape(len(known), days)
    total, by_day = table.sum(axis=1), table.sum(axis=0)
    often = total * by_day.min() / by_day.sum() >= EXPECTED
    table = np.concatenate([table[often], table[~often].sum(axis=0, keepdims=True)])
    table = table[table.sum(axis=1) > 0]
    expected = table.sum(axis=1, keepdims=True) * by_day / by_day.sum()
    value, freedom = float(((table - expected) ** 2 / expected).sum()), (len(table) - 1) * (days - 1)
    what = "the mix of queries (spread of their shares)"
    if freedom == 0:
        return Change(what, 0.0, 1.0, False, np.zeros(0))
    p = float(chi2.sf(value, freedom))
    size = float(np.sqrt(max(value - freedom, 0.0) / by_day.sum()))
    return Change(what, size, p, p < settings.level and size >= settings.mix, np.zeros(0))


def _spread(day: Int64, values: Float64) -> Float64:
    """A column for each day but the last: the values of that day, 0 elsewhere."""
    columns = np.arange(int(day.max()))
    return np.where(day[:, None] == columns, values[:, None], 0.0)


def _picture(changes: list[Change]) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import lines_by

        told: dict[str, Any] = {each.what: each.by_day for each in changes if len(each.by_day)}
        days = np.arange(1.0, len(changes[0].by_day) + 1)
        relative = {name.split(" (")[0]: values / max(values.mean(), 1e-12) for name, values in told.items()}
        return lines_by(days, relative, xlabel="day", ylabel="relative to the mean", low=None)

    return draw
