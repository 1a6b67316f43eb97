"""Settings and results of counterfactual evaluation: estimates with intervals, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import SettingError
from clickprism.log_model.results import Curve
from clickprism.settings import check_fields, suggest
from clickprism.types import Float64

Measure: TypeAlias = Literal["clicks", "dcg"]
Unit: TypeAlias = Literal["query", "search"]
Name: TypeAlias = Literal[
    "ips", "snips", "reward-interaction", "cascade-dr", "item-position", "item-position-dr", "position-based"
]
Verdict: TypeAlias = Literal["better", "worse", "no difference found", "unknown"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)
ASSUMPTIONS: Final[Mapping[Name, str]] = {
    "ips": "nothing about how users browse; what was never shown gets no clicks",
    "snips": "nothing about how users browse; queries whose list was never shown are like the others",
    "reward-interaction": "a click depends on the documents down to its position, not on those below",
    "cascade-dr": "a click depends on the documents down to its position, not on those below; the model of the log "
    "predicts what was not shown, corrected by how it errs on documents shown at several positions",
    "item-position": "a click depends on its document and its position only",
    "item-position-dr": "a click depends on its document and its position only; the model of the log predicts what was "
    "not shown, corrected by how it errs on documents shown at several positions",
    "position-based": "the model of the log is right: a click is observation times relevance",
}


@final
@dataclass(frozen=True, kw_only=True)
class CounterfactualSettings:
    """How the value of a ranker is estimated from a log, and when the estimate is refused.

    Attributes:
        measure: What is counted: "clicks" per search, or "dcg", in which a click at position k counts 1 / log2(1 + k).
        depth: Number of positions that count.
        estimator: Estimator to use: ips, snips, reward-interaction, cascade-dr, item-position, item-position-dr or
            position-based; may be repeated. By default all.
        unit: Whether intervals hold for other queries like these ("query"), or for other searches of the same queries
            ("search"), which gives narrower intervals.
        confidence: Confidence level of the intervals.
        clip: Largest weight of a session, that is, one over its propensity. The clipped part counts as not shown.
        most_missing: Refuse if a larger share of the affected clicks is on documents that the log never showed at the
            position where the ranker puts them.
        most_modelled: Refuse a doubly robust or position-based estimate if the model of the log predicts a larger share
            of the affected clicks.
        most_slack: Refuse a doubly robust or position-based estimate if the predictions of the model are uncertain by a
            larger share of the value.
        most_misfit: Refuse the position-based estimate if its error on documents shown at several positions is a
            larger share of the value.
        least_effective: Refuse if the effective number of sessions is smaller.
        least_queries: Refuse if the effective number of queries is smaller; only if the unit is "query".
        seed: Random seed.
    """

    measure: Measure = "clicks"
    depth: int = 10
    estimator: tuple[Name, ...] = NAMES
    unit: Unit = "query"
    confidence: float = 0.95
    clip: float = 1000.0
    most_missing: float = 0.05
    most_modelled: float = 0.6
    most_slack: float = 0.1
    most_misfit: float = 0.02
    least_effective: float = 100.0
    least_queries: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, measure=Measure, depth=(1, None), unit=Unit, clip=(1, None), least_effective=(1, None))
        check_fields(self, least_queries=(1, None), most_missing=(0, 1), most_modelled=(0, 1))
        check_fields(self, most_slack=(0, 1), most_misfit=(0, 1))
        for estimator in self.estimator:
            if estimator not in NAMES:
                raise SettingError("estimator", estimator, f"be a known estimator ({suggest(estimator, NAMES)})")
        if not 0 < self.confidence < 1:
            raise SettingError("confidence", self.confidence, "be between 0 and 1")


def discounts(measure: Measure, depth: int) -> Float64:
    """Return what a click at each position counts: 1, or 1 / log2(1 + position), [positions].

    >>> discounts("dcg", 3).round(3).tolist()
    [1.0, 0.631, 0.5]
    """
    return np.ones(depth) if measure == "clicks" else np.asarray(1 / np.log2(np.arange(2, depth + 2)))


@final
@dataclass(frozen=True)
class Range:
    """A number and its interval; nan if it was refused."""

    value: float = math.nan
    lower: float = math.nan
    upper: float = math.nan

    def __str__(self) -> str:
        return "-" if math.isnan(self.value) else f"{self.value:.4f} [{self.lower:.4f}, {self.upper:.4f}]"


@final
@dataclass(frozen=True)
class Estimate:
    """How many clicks per search the new ranker would get, by one estimator."""

    name: Name
    value: Range  # Clicks per search, or DCG of clicks; nan if refused
    difference: Range  # Difference to the log, paired by query; nan if refused
    refusal: str  # Why there is no value, and what to do; empty if there is one
    missing: float  # Share of the affected clicks on what was never shown as the ranker would, or was clipped
    clipped: float  # Share of the affected clicks whose weight was clipped
    effective: float  # Effective number of sessions that the value is based on
    assumption: str  # Assumption under which the estimate is unbiased
    verdict: Verdict = field(init=False)  # Whether the new ranker gets more clicks than the log

    def __post_init__(self) -> None:
        better, worse = self.difference.lower > 0, self.difference.upper < 0
        verdict = "better" if better else "worse" if worse else "no difference found"
        object.__setattr__(self, "verdict", "unknown" if self.refusal else verdict)


@final
@dataclass(frozen=True, eq=False)
class CounterfactualResult:
    """All estimates of one ranker."""

    logged: Range  # Clicks per search as logged
    estimates: Mapping[str, Estimate]  # by name, those with fewer assumptions first
    measure: Measure  # What is counted
    depth: int  # Number of positions that count
    sessions: int  # Number of sessions of the log
    queries: int  # Number of queries that were asked
    curve: Curve  # observation by position, from the model of the log
    best: str | None = field(init=False)  # Name of the estimate with the fewest assumptions; None if all were refused

    def __post_init__(self) -> None:
        best = next((name for name, each in self.estimates.items() if not each.refusal), None)
        object.__setattr__(self, "best", best)

    def table(self, ranker: str, *, confidence: float) -> Table:
        """Return one row for the log and one for each estimator that was not refused."""
        what = "clicks" if self.measure == "clicks" else "DCG of clicks"
        header = ["estimator", what, "gain over the log", "verdict", "effective sessions", "not shown", "clipped"]
        rows = [["as logged", str(self.logged), "", "", f"{self.sessions:,}", "", ""]]
        for each in self.estimates.values():
            if not each.refusal:
                shares = [f"{each.effective:,.0f}", f"{each.missing:.1%}", f"{each.clipped:.1%}"]
                rows.append([each.name, str(each.value), str(each.difference), each.verdict, *shares])
        caption = f"{ranker}: {what} per search at positions 1 to {self.depth}, {confidence:.0%} intervals"
        return Table(caption, header, rows)

    def remarks(self) -> Table:
        """Return what each estimator assumes, or why it was refused."""
        rows = [
            [each.name, f"refused: {each.refusal}" if each.refusal else f"assumes: {each.assumption}"]
            for each in self.estimates.values()
        ]
        return Table("", ["estimator", "remark"], rows)

    def observation(self) -> Table:
        """Return the curve in one line."""
        values = [f"{value:.2f}".removeprefix("0").replace("1.00", "1") for value in self.curve.values]
        return Table("", [f"Observation by position: {' '.join(values)}"], [])


@final
@dataclass(frozen=True)
class CounterfactualResults:
    """The estimates of several rankers on one log."""

    log: str  # Path of the log
    unit: str  # What the intervals hold for
    confidence: float  # Confidence level of the intervals
    rankers: Mapping[str, CounterfactualResult]  # The estimates of each ranker

    def tables(self) -> list[Table]:
        """Return the curve, and two tables for each ranker: the estimates, and their assumptions or refusals."""
        return [each.observation() for each in [*self.rankers.values()][:1]] + [
            table
            for name, each in self.rankers.items()
            for table in (each.table(name, confidence=self.confidence), each.remarks())
        ]
