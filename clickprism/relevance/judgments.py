"""Judgement lists: estimates of relevance as grades, for the pairs that clicks know enough about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final, get_args

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import SettingError
from clickprism.relevance.estimates import Estimates
from clickprism.types import Bool, Float64, Int32, Int64, Text, check

Scale = Literal["quantile", "absolute", "relative"]
By = Literal["value", "lower"]


@final
@dataclass(frozen=True, kw_only=True)
class JudgmentSettings:
    """How estimates become grades.

    Clicks do not identify the level of relevance: with trust in the first result, the click probability of the worst
    document there may be half that of the best, or a tenth. So a cut at a number, or at a share of the query's best,
    means something else on every search page, while the order of pairs does not depend on the level. By default grades
    are therefore cut at quantiles of all judged pairs.

    Attributes:
        scale: What the cuts are: shares of the judged pairs (quantile), click probabilities at position 1 (absolute),
            or shares of the highest estimate of the query (relative).
        cuts: Start of grade 1, 2, ...; repeat the option, once for each grade above 0.
        by: What is graded: the estimate (value), or the lower end of its interval (lower), which requires evidence.
        min_weight: Do not judge pairs whose clicks are equivalent to fewer impressions at position 1.
        max_width: Do not judge pairs with a wider interval; 1 for no limit.
        imputed: Also judge pairs without impressions, by the imputation alone.
        min_documents: Exclude queries with fewer judged documents.
    """

    scale: Scale = "quantile"
    cuts: tuple[float, ...] = (0.5, 0.75, 0.9, 0.97)
    by: By = "value"
    min_weight: float = 10.0
    max_width: float = 1.0
    imputed: bool = False
    min_documents: int = 1

    def __post_init__(self) -> None:
        for name, kind in (("scale", Scale), ("by", By)):
            if getattr(self, name) not in get_args(kind):
                raise SettingError(name, getattr(self, name), f"be one of {', '.join(get_args(kind))}")
        rising = all(a < b for a, b in zip(self.cuts, self.cuts[1:], strict=False))
        if not self.cuts or not rising or not all(0 <= cut <= 1 for cut in self.cuts):
            raise SettingError("cuts", self.cuts, "be numbers from 0 to 1, each above the one before")
        if not self.min_weight >= 0:
            raise SettingError("min_weight", self.min_weight, "be 0 or more")
        if not 0 < self.max_width <= 1:
            raise SettingError("max_width", self.max_width, "be above 0 and at most 1")
        if self.min_documents < 1:
            raise SettingError("min_documents", self.min_documents, "be at least 1")


@final
@dataclass(frozen=True, eq=False)
class Judgments:
    """Grades of the pairs that were judged, and why the others were not.

    Attributes:
        pairs: which of the pairs were judged, in their order, [judged].
        grades: from 0, [judged].
        cuts: where each grade begins, as c_1, or as a share of the query's best; nan where no pair got that far.
        excluded: how many pairs were not judged, by reason; a pair counts for the first that holds.
    """

    pairs: Int64
    grades: Int32
    cuts: Float64
    excluded: dict[str, int]

    def __len__(self) -> int:
        return len(self.pairs)

    def summary(self, file: Path | None = None) -> JudgmentSummary:
        """Return how many pairs got each grade, the cuts, and what was excluded; `file` is where they were written."""
        by_grade = np.bincount(self.grades, minlength=len(self.cuts) + 1)
        grades = {str(grade): int(number) for grade, number in enumerate(by_grade)}
        return JudgmentSummary(len(self), grades, self.cuts, self.excluded, file)


@final
@dataclass(frozen=True, eq=False)
class JudgmentSummary:
    """What a judgment list contains.

    Attributes:
        judged: Number of judged pairs.
        grades: Number of pairs of each grade.
        cuts: Estimate, or share of the query's best, at which each grade above 0 starts; nan for grades without pairs.
        excluded: Number of pairs that were not judged, by reason.
        file: The file that was written.
    """

    judged: int
    grades: dict[str, int]
    cuts: Float64
    excluded: dict[str, int]
    file: Path | None = None

    def tables(self) -> list[Table]:
        """Return the grades, and the pairs that were not judged."""
        starts = ["", *("-" if np.isnan(cut) else f"{cut:.4f}" for cut in self.cuts)]
        rows = [[grade, start, f"{self.grades[grade]:,}"] for grade, start in zip(self.grades, starts, strict=True)]
        tables = [Table("", ["grade", "from", "pairs"], rows)]
        if self.excluded:
            rows = [[reason, f"{number:,}"] for reason, number in self.excluded.items()]
            tables.append(Table("", ["not judged", "pairs"], rows))
        return tables


def judge(
    estimates: Estimates,
    queries: Text | Int64,
    *,
    settings: JudgmentSettings | None = None,
    cuts: Float64 | None = None,
) -> Judgments:
    """Grade the pairs that clicks know enough about.

    Args:
        estimates: of the pairs, in the gauge of the first slot.
        queries: the query of each pair, [pairs].
        settings: the least evidence, and where grades begin.
        cuts: the `cuts` of other judgements on the same scale, to grade a log in parts, or a later log alike; None
            takes those of the settings, and quantiles of these pairs.

    >>> made = Estimates(np.array([0.9, 0.5, 0.1]), np.zeros(3), np.ones(3), np.ones(3), np.array([50.0, 20.0, 2.0]),
    ...     np.zeros(3, np.bool_))
    >>> judge(made, np.array(["q", "q", "q"]), settings=JudgmentSettings(scale="absolute", cuts=(0.3, 0.8))).grades
    array([2, 1], dtype=int32)
    """
    settings = JudgmentSettings() if settings is None else settings
    check(len(queries) == len(estimates), f"{len(estimates)} estimates but {len(queries)} queries")
    kept, excluded = _enough(estimates, settings)
    _, query = np.unique(queries, return_inverse=True)
    documents = np.bincount(query[kept], minlength=int(query.max(initial=-1)) + 1)
    few = kept & (documents[query] < settings.min_documents)
    kept &= ~few
    excluded["too few judged documents of the query"] = int(few.sum())
    pairs = np.flatnonzero(kept)
    values = (estimates.values if settings.by == "value" else estimates.lower)[pairs]
    if settings.scale == "relative":
        best = np.zeros(len(documents))
        np.maximum.at(best, query[pairs], values)
        top = best[query[pairs]]
        values = np.divide(values, top, out=np.zeros(len(values)), where=top > 0)
    if cuts is None:
        cuts = np.array(settings.cuts)
        if settings.scale == "quantile":
            cuts = _quantiles(values, cuts)
    check(len(cuts) == len(settings.cuts), f"{len(settings.cuts)} cuts in the settings but {len(cuts)} given")
    grades = np.searchsorted(cuts, values, side="right").astype(np.int32)
    return Judgments(pairs, grades, cuts, {reason: number for reason, number in excluded.items() if number})


def _quantiles(values: Float64, shares: Float64) -> Float64:
    """The least value of each grade; nan where no pair is that high.

    Many pairs may have the very same value, such as all that were never clicked. They get the grade of the middle one
    among them: with that of the highest, four in five pairs that are worth nothing would be graded 2.

    >>> _quantiles(np.array([0.0, 0.0, 0.0, 0.0, 0.2, 0.3]), np.array([0.5, 0.9])).tolist()
    [0.2, 0.3]
    """
    distinct, times = np.unique(values, return_counts=True)
    middle = (np.cumsum(times) - times / 2 - 0.5) / max(len(values) - 1, 1)
    return np.append(distinct, np.nan)[np.searchsorted(middle, shares)]


def _enough(estimates: Estimates, settings: JudgmentSettings) -> tuple[Bool, dict[str, int]]:
    """The pairs with enough evidence, and how many have not, by reason."""
    imputed = estimates.imputed_only
    reasons = {
        "nothing known": np.isnan(estimates.values),
        "imputed only": imputed & (not settings.imputed),
        "too little evidence": ~imputed & (estimates.weight < settings.min_weight),
        "interval too wide": estimates.upper - estimates.lower > settings.max_width,
    }
    kept = np.ones(len(estimates), dtype=np.bool_)
    excluded = {}
    for reason, holds in reasons.items():
        excluded[reason] = int((kept & holds).sum())
        kept &= ~holds
    return kept, excluded
