"""Judgement lists: estimates of relevance as grades, for the pairs that clicks know enough about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final, get_args

import numpy as np

from clickprism.errors import SettingError
from clickprism.relevance.estimates import Estimates
from clickprism.types import Bool, Float64, Int32, Int64, Text, check

Scale = Literal["quantile", "absolute", "relative"]
By = Literal["value", "lower"]


@final
@dataclass(frozen=True)
class JudgmentSettings:
    """How estimates become grades.

    Clicks do not tell the level of relevance: with trust in the first result, the click probability there of the worst
    document may be half that of the best, or a tenth. So a cut at a number, or at a share of the query's best, means
    something else for every search page, while the order of pairs does not depend on the level. By default grades are
    therefore cut at quantiles of all the pairs that are judged.

    Attributes:
        scale: what the cuts are: "quantile", shares of the judged pairs; "absolute", click probabilities in the first
            slot; "relative", shares of the highest estimate among the query's judged documents.
        cuts: where grade 1, 2, ... begins; as many as there are grades above 0.
        by: what is graded: the estimate, or the lower end of its interval, which asks for proof of relevance.
        least_weight: pairs whose clicks are worth fewer impressions in the first slot are not judged.
        widest: pairs with a wider interval are not judged; 1 leaves none out.
        imputed: whether pairs without any impression may be judged, by the imputation alone.
        least_documents: queries with fewer judged documents are left out.
    """

    scale: Scale = "quantile"
    cuts: tuple[float, ...] = (0.5, 0.75, 0.9, 0.97)
    by: By = "value"
    least_weight: float = 10.0
    widest: float = 1.0
    imputed: bool = False
    least_documents: int = 1

    def __post_init__(self) -> None:
        for name, kind in (("scale", Scale), ("by", By)):
            if getattr(self, name) not in get_args(kind):
                raise SettingError(name, getattr(self, name), f"be one of {', '.join(get_args(kind))}")
        rising = all(a < b for a, b in zip(self.cuts, self.cuts[1:], strict=False))
        if not self.cuts or not rising or not all(0 <= cut <= 1 for cut in self.cuts):
            raise SettingError("cuts", self.cuts, "be numbers from 0 to 1, each above the one before")
        if not self.least_weight >= 0:
            raise SettingError("least_weight", self.least_weight, "be 0 or more")
        if not 0 < self.widest <= 1:
            raise SettingError("widest", self.widest, "be above 0 and at most 1")
        if self.least_documents < 1:
            raise SettingError("least_documents", self.least_documents, "be at least 1")


@final
@dataclass(frozen=True, eq=False)
class Judgments:
    """Grades of the pairs that were judged, and why the others were not.

    Attributes:
        pairs: which of the pairs were judged, in their order, [judged].
        grades: from 0, [judged].
        cuts: where each grade begins, as c_1, or as a share of the query's best; nan where no pair got that far.
        left_out: how many pairs were not judged, by reason; a pair counts for the first that holds.
    """

    pairs: Int64
    grades: Int32
    cuts: Float64
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.pairs)

    def plain(self) -> dict[str, Any]:
        """The account of it as JSON takes it: how many of each grade, the cuts, what was left out."""
        by_grade = np.bincount(self.grades, minlength=len(self.cuts) + 1)
        return {
            "judged": len(self),
            "grades": {str(grade): int(number) for grade, number in enumerate(by_grade)},
            "cuts": [float(cut) for cut in self.cuts],
            "left_out": self.left_out,
        }


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
    >>> judge(made, np.array(["q", "q", "q"]), settings=JudgmentSettings("absolute", cuts=(0.3, 0.8))).plain()
    {'judged': 2, 'grades': {'0': 0, '1': 1, '2': 1}, 'cuts': [0.3, 0.8], 'left_out': {'too little evidence': 1}}
    """
    settings = JudgmentSettings() if settings is None else settings
    check(len(queries) == len(estimates), f"{len(estimates)} estimates but {len(queries)} queries")
    kept, left_out = _enough(estimates, settings)
    _, query = np.unique(queries, return_inverse=True)
    documents = np.bincount(query[kept], minlength=int(query.max(initial=-1)) + 1)
    few = kept & (documents[query] < settings.least_documents)
    kept &= ~few
    left_out["too few judged documents of the query"] = int(few.sum())
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
    return Judgments(pairs, grades, cuts, {reason: number for reason, number in left_out.items() if number})


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
        "too little evidence": ~imputed & (estimates.weight < settings.least_weight),
        "interval too wide": estimates.upper - estimates.lower > settings.widest,
    }
    kept = np.ones(len(estimates), dtype=np.bool_)
    left_out = {}
    for reason, holds in reasons.items():
        left_out[reason] = int((kept & holds).sum())
        kept &= ~holds
    return kept, left_out
