"""Drift: do click rates, the positions of clicks, or the mix of queries change over the days of a log?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Finding, inconclusive
from clickprism.evaluation.plots import COLOURS, add_legend, new_figure, styled
from clickprism.log_model.results import p_text
from clickprism.types import Clicks, Float64, Int64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL: Final = 0.01  # significance level of each test
MATERIAL: Final = 0.1  # smallest change that matters, in the unit of each change
FEWEST: Final = 10  # queries that a test needs
EXPECTED: Final = 5.0  # searches in a cell of a chi-square test


@final
@dataclass(frozen=True, eq=False)
class Change:
    """One quantity that may change over days."""

    name: str
    words: str  # the change as part of a sentence
    unit: str  # of the size
    size: float  # largest change on one day
    p_value: float  # of the hypothesis that nothing changes
    by_day: Float64  # value on each day, [days]; empty if there is no such number

    @property
    def material(self) -> bool:
        """Return whether the change is both significant and large enough to matter."""
        return self.p_value < LEVEL and self.size >= MATERIAL


def drift(log: Logged) -> Finding:
    """Return whether the days of a log differ; inconclusive if it has fewer than two days."""
    if log.days is None or len(np.unique(log.days)) < 2 or int(log.clicks.clicks.sum()) == 0:
        why = "The log does not record days." if log.days is None else "The log has fewer than two days with clicks."
        return inconclusive("drift", f"{why} Changes over time cannot be tested.", "Log the time of each search.")
    day = np.unique(log.days, return_inverse=True)[1].astype(np.int64)  # of each ranked list, from 0 without gaps
    changes = [_click_rate(log.clicks, day), _click_position(log.clicks, day), _query_mix(log.clicks, day)]
    material = [change for change in changes if change.material]
    largest = max(material or changes, key=lambda change: change.size)
    found = "; ".join(change.words for change in material)
    return Finding(
        "drift",
        "present" if material else "absent",
        f"The days differ: {found}." if material else "The days of the log do not differ in a way that matters.",
        "Train on days that are like today, and compare rankers only within the same days."
        if material
        else "Nothing to do: all days can be used together.",
        estimate=largest.size,
        unit=f"{largest.unit} ({largest.name})",
        p_value=min(1.0, len(changes) * min(change.p_value for change in changes)),
        details={"changes": [asdict(change) for change in changes]},
        table=Table(
            "",
            ["what", "largest change on one day", "test", "matters"],
            [
                [each.name, f"{each.size:.3f} {each.unit}", p_text(each.p_value), "yes" if each.material else "no"]
                for each in changes
            ],
        ),
        figure=_figure(changes),
    )


def _click_rate(clicks: Clicks, day: Int64) -> Change:
    """Return the change of clicks per search."""
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    clicked = np.bincount(owner, weights=clicks.clicks, minlength=len(clicks))
    mean = clicked.sum() / clicks.sessions
    p_value = sums_p_value(query, _by_day(day, clicked - mean * clicks.impressions))
    rate = np.bincount(day, weights=clicked) / np.bincount(day, weights=clicks.impressions)
    size = float(np.abs(rate / mean - 1).max())
    words = f"clicks per search differ from their mean by up to {size:.0%} on one day"
    return Change("clicks per search", words, "of the mean", size, p_value, rate)


def _click_position(clicks: Clicks, day_of_list: Int64) -> Change:
    """Return the change of the mean log2 position of clicks."""
    day = np.repeat(day_of_list, np.diff(clicks.offsets))
    depth = np.log2(clicks.positions)
    mean = float(clicks.clicks @ depth / clicks.clicks.sum())
    p_value = sums_p_value(clicks.lists.list_of[clicks.rows], _by_day(day, clicks.clicks * (depth - mean)))
    count = np.bincount(day, weights=clicks.clicks)
    total = np.bincount(day, weights=clicks.clicks * depth)
    by_day = np.divide(total, count, out=np.full(len(count), mean), where=count > 0)
    size = float(np.abs(by_day - mean).max())
    words = f"the mean position of clicks changes by a factor of up to {2**size:.2f} on one day"
    return Change("position of clicks", words, "doublings", size, p_value, by_day)


def _query_mix(clicks: Clicks, day: Int64) -> Change:
    """Return the change of the mix of queries: a chi-square test, with rare queries taken together."""
    from scipy.stats import chi2

    days = int(day.max()) + 1
    queries, query = np.unique(clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]], return_inverse=True)
    table = np.bincount(query * days + day, weights=clicks.impressions, minlength=len(queries) * days)
    table = table.reshape(len(queries), days)
    by_day = table.sum(axis=0)
    frequent = table.sum(axis=1) * by_day.min() / by_day.sum() >= EXPECTED
    table = np.concatenate([table[frequent], table[~frequent].sum(axis=0, keepdims=True)])
    table = table[table.sum(axis=1) > 0]
    expected = table.sum(axis=1, keepdims=True) * by_day / by_day.sum()
    value, freedom = float(((table - expected) ** 2 / expected).sum()), (len(table) - 1) * (days - 1)
    p_value = float(chi2.sf(value, freedom)) if freedom else 1.0
    size = float(np.sqrt(max(value - freedom, 0.0) / by_day.sum()))  # without the part that is sampling noise
    words = f"the share of a query in the searches of a day typically differs from its average by {size:.0%}"
    return Change("mix of queries", words, "of a query's share", size, p_value, np.zeros(0))


def sums_p_value(query: Int64, values: Float64) -> float:
    """Return the p value of the hypothesis that the columns of `values` [entries, k] all have mean 0.

    Entries of one query may depend on each other; queries are independent. Under the hypothesis the square of each
    query's sum estimates its variance. The p value is 1 if fewer than `FEWEST` queries contribute.
    """
    from scipy.stats import chi2

    _, number = np.unique(query, return_inverse=True)
    size = int(number.max(initial=-1)) + 1
    scores = np.stack([np.bincount(number, weights=column, minlength=size) for column in values.T], axis=1)
    spread = scores.T @ scores
    used = np.diagonal(spread) > 0
    if np.count_nonzero((scores != 0).any(axis=1)) < FEWEST or not used.any():
        return 1.0
    scale = np.sqrt(np.diagonal(spread)[used])
    unit = scores.sum(axis=0)[used] / scale
    statistic = float(unit @ np.linalg.pinv(spread[np.ix_(used, used)] / np.outer(scale, scale), rcond=1e-9) @ unit)
    return float(chi2.sf(statistic, np.count_nonzero(used)))


def _by_day(day: Int64, values: Float64) -> Float64:
    """Return a column for each day but the last: the values of that day, 0 elsewhere, [entries, days - 1]."""
    return np.where(day[:, None] == np.arange(int(day.max())), values[:, None], 0.0)


def _figure(changes: list[Change]) -> Callable[[], Figure]:
    @styled
    def draw() -> Figure:
        from matplotlib.ticker import MaxNLocator

        figure, axes = new_figure(height=3.0)
        drawn = [change for change in changes if len(change.by_day)]
        for change, colour in zip(drawn, COLOURS, strict=False):
            days, relative = np.arange(1, len(change.by_day) + 1), change.by_day / max(change.by_day.mean(), 1e-12)
            axes.plot(days, relative, color=colour, marker="o", markersize=4, linewidth=1.6, label=change.name)
        axes.set_xlabel("day")
        axes.set_ylabel("relative to the mean")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        add_legend(axes)
        return figure

    return draw
