"""What a counterfactual evaluation says of a ranker: values with intervals, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, final

from clickprism._util.tables import Table
from clickprism.evaluation.counterfactual_settings import Measure, Name

Verdict: TypeAlias = Literal["better", "worse", "no difference found", "unknown"]
ASSUMPTIONS: Final[Mapping[Name, str]] = {
    "ips": "none of how users look; what was never shown earns nothing",
    "snips": "none of how users look; queries whose list was never shown are as the others",
    "reward-interaction": "a click depends on the documents down to its position, not on those below",
    "cascade-dr": "a click depends on the documents down to its position, not on those below; what was not shown is "
    "filled in by a click model that is checked on what moved",
    "item-position": "a click depends on its document and position alone",
    "item-position-dr": "a click depends on its document and position alone; what never stood there is filled in by a "
    "click model that is checked on what moved",
    "position-based": "a click is observation by position times relevance, and nothing else",
}


@final
@dataclass(frozen=True)
class Range:
    """A number and its interval; nan where it was refused."""

    value: float = math.nan
    lower: float = math.nan
    upper: float = math.nan

    def __str__(self) -> str:
        return "-" if math.isnan(self.value) else f"{self.value:.4f} [{self.lower:.4f}, {self.upper:.4f}]"


@final
@dataclass(frozen=True)
class Estimate:
    """What the new ranker would earn a search, by one estimator.

    Attributes:
        name: of the estimator.
        value: with its interval; nan where it was refused.
        difference: to the log, paired by query; nan where it was refused.
        refusal: why there is no value, and what to randomise; empty where there is one.
        missing: of the clicks at stake, the share on what never stood where the ranker would put it, or was clipped.
        clipped: of the clicks at stake, the share whose weight was clipped.
        effective: sessions that the value rests on, in effect.
        assumption: under which it is unbiased.
        verdict: whether the new ranker earns more than the log did.
    """

    name: Name
    value: Range
    difference: Range
    refusal: str
    missing: float
    clipped: float
    effective: float
    assumption: str
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        better, worse = self.difference.lower > 0, self.difference.upper < 0
        verdict = "better" if better else "worse" if worse else "no difference found"
        object.__setattr__(self, "verdict", "unknown" if self.refusal else verdict)


@final
@dataclass(frozen=True, eq=False)
class CounterfactualResult:
    """All estimates of one ranker.

    Attributes:
        logged: what a search earned as it was logged.
        estimates: by name, those with fewer assumptions first.
        measure: what is earned.
        depth: positions that count.
        sessions: of the log.
        queries: that were asked.
        best: name of the estimate with the fewest assumptions; None if all were refused.
    """

    logged: Range
    estimates: Mapping[str, Estimate]
    measure: Measure
    depth: int
    sessions: int
    queries: int
    best: str | None = field(init=False)

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


@final
@dataclass(frozen=True)
class CounterfactualResults:
    """The estimates of several rankers on one log.

    Attributes:
        log: Path of the log.
        unit: What the intervals hold for.
        confidence: Confidence level of the intervals.
        rankers: The estimates of each ranker.
    """

    log: str
    unit: str
    confidence: float
    rankers: Mapping[str, CounterfactualResult]

    def tables(self) -> list[Table]:
        """Return two tables for each ranker: the estimates, and what they rest on."""
        return [
            table
            for name, each in self.rankers.items()
            for table in (each.table(name, confidence=self.confidence), each.remarks())
        ]
