"""How often the intervals held what was true, as CSV and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clickprism.evaluation.counterfactual_settings import NAMES
from reproduce.counterfactual.run import UNITS, Row

ANSWER: Final = "answer"  # the estimate with the fewest assumptions of those given: what `best` says
RANKERS: Final = ("all", "shown", "near", "click", "reversed")
REASONS: Final = {  # words of a refusal, and what it is called; the first that fits
    "queries in effect": "few queries",
    "sessions in effect": "few searches",
    "not linked": "positions not linked",
    "may be off by": "click model unsure",
    "earned other than": "click model wrong",
    "of the clicks at stake are on": "not shown",
}
COLUMNS: Final = (
    "unit,estimator,ranker,cases,given,worlds,covered,half_width,error,gain_covered,gain_half_width,told,wrong,"
    "given_where_assumed,covered_where_assumed"
)


@dataclass(frozen=True)
class Line:
    """What became of some cases, a case being a ranker in a world.

    Attributes:
        unit: of the intervals.
        estimator: its name, or "answer".
        ranker: that is valued, or "all".
        cases: how many.
        given: those that had a value.
        worlds: in which there was one.
        covered: of those given, the share whose interval holds what the ranker truly earns; nan where none is.
        half_width: of the intervals, on average, as a share of the truth.
        error: root mean square, as a share of the truth.
        gain_covered: of those given, the share whose interval holds the true gain over the log.
        gain_half_width: of those intervals, as a share of what the ranker truly earns.
        told: cases that were called better or worse.
        wrong: those that are not.
        assumed: cases given in worlds where the assumption holds.
        assumed_covered: of those, the share whose interval holds the truth.
        reasons: of refusals, and how many.
    """

    unit: str
    estimator: str
    ranker: str
    cases: int
    given: int
    worlds: int
    covered: float
    half_width: float
    error: float
    gain_covered: float
    gain_half_width: float
    told: int
    wrong: int
    assumed: int
    assumed_covered: float
    reasons: dict[str, int]


def lines(rows: Sequence[Row]) -> Iterator[Line]:
    """A line a unit, estimator and ranker."""
    every = [*answers(rows), *rows]
    for unit in UNITS:
        for name in (ANSWER, *NAMES):
            part = [row for row in every if row.unit == unit and row.estimator == name]
            for ranker in RANKERS:
                yield _line((unit, name, ranker), [row for row in part if ranker in ("all", row.ranker)])


def answers(rows: Sequence[Row]) -> Iterator[Row]:
    """Of each world, ranker and unit the estimate with the fewest assumptions; a refusal where all are refused."""
    cases: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.world, row.ranker, row.unit), []).append(row)
    for part in cases.values():
        ordered = sorted(part, key=lambda row: [*NAMES].index(row.estimator))  # type: ignore[arg-type]
        yield replace(next((row for row in ordered if not row.refusal), ordered[-1]), estimator=ANSWER)


def reason(refusal: str) -> str:
    """What a refusal is called.

    >>> reason("the log has 2.0 queries in effect, fewer than 10")
    'few queries'
    """
    return next(name for words, name in REASONS.items() if words in refusal)


def _line(key: tuple[str, str, str], part: Sequence[Row]) -> Line:
    given = [row for row in part if not row.refusal]
    assumed = [row for row in given if row.holds]
    truth, value, lower, upper, gain, below, above = (
        np.array([getattr(row, name) for row in given])
        for name in ("truth", "value", "lower", "upper", "gain", "below", "above")
    )
    reasons = [reason(row.refusal) for row in part if row.refusal]
    return Line(
        *key,
        len(part),
        len(given),
        len({row.world for row in given}),
        _mean((lower <= truth) & (truth <= upper)),
        _mean((upper - lower) / 2 / truth),
        float(np.sqrt(_mean(((value - truth) / truth) ** 2))),
        _mean((below <= gain) & (gain <= above)),
        _mean((above - below) / 2 / truth),
        sum(row.verdict != "no difference found" for row in given),
        sum((row.verdict == "better" and row.gain < 0) or (row.verdict == "worse" and row.gain > 0) for row in given),
        len(assumed),
        _mean(np.array([row.lower <= row.truth <= row.upper for row in assumed])),
        {name: reasons.count(name) for name in REASONS.values() if name in reasons},
    )


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def as_csv(made: Sequence[Line]) -> str:
    """Every line, and how often each reason was given."""
    header = f"{COLUMNS},{','.join(name.replace(' ', '_') for name in REASONS.values())}"
    return "\n".join([header, *(",".join(_cells(line)) for line in made), ""])


def _cells(line: Line) -> list[str]:
    whole = [line.unit, line.estimator, line.ranker, str(line.cases), str(line.given), str(line.worlds)]
    shares = [line.covered, line.half_width, line.error, line.gain_covered, line.gain_half_width]
    counts = [str(line.reasons.get(name, 0)) for name in REASONS.values()]
    last = [str(line.told), str(line.wrong), str(line.assumed), _share(line.assumed_covered)]
    return [*whole, *map(_share, shares), *last, *counts]


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def as_markdown(made: Sequence[Line]) -> str:
    """For the page: by estimator over all rankers, and the answer by ranker."""
    whole = [line for line in made if line.ranker == "all"]
    single = [line for line in made if line.estimator == ANSWER and line.ranker != "all"]
    return "\n".join([_table("estimator", whole), _table("ranker", single)])


def _table(by: str, some: Sequence[Line]) -> str:
    header = [by, "unit", "given", "worlds", "covered", "gain covered", "half width", "told", "wrong", "refused"]
    cells = [header, ["---"] * len(header)]
    for line in some:
        name = line.estimator if by == "estimator" else line.ranker
        why = ", ".join(f"{name} {count}" for name, count in line.reasons.items())
        shares = [line.covered, line.gain_covered, line.half_width]
        figures = ["" if np.isnan(each) else f"{each:.1%}" for each in shares]
        ends = [str(line.told), str(line.wrong), why]
        cells.append([f"`{name}`", line.unit, f"{line.given} of {line.cases}", str(line.worlds), *figures, *ends])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"
