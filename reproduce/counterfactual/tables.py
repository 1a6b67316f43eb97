"""How often the intervals contain the truth, as CSV and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clickprism.evaluation.counterfactual.result import NAMES
from reproduce.counterfactual.run import UNITS, Row

ANSWER: Final = "answer"  # the estimate with the fewest assumptions that is not refused: `best`
RANKERS: Final = ("all", "shown", "near", "click", "reversed")
REASONS: Final = {  # words of a refusal, and its short name; the first that matches
    "effective number of queries": "few queries",
    "effective number of sessions": "few searches",
    "cannot be compared": "positions not linked",
    "does not fit": "model does not fit",
    "may be off by": "model uncertain",
    "got other clicks": "model wrong",
    "of the affected clicks are on": "not shown",
}
COLUMNS: Final = (
    "unit,estimator,ranker,cases,given,worlds,covered,half_width,error,gain_covered,gain_half_width,decided,wrong,"
    "given_where_assumed,covered_where_assumed"
)


@dataclass(frozen=True)
class Line:
    """Results of some cases; a case is a ranker in a world.

    Attributes:
        unit: What the intervals hold for.
        estimator: Name of the estimator, or "answer".
        ranker: Name of the ranker, or "all".
        cases: Number of cases.
        given: Number of cases with an estimate.
        worlds: Number of worlds with an estimate.
        covered: Share of the intervals that contain the clicks that the ranker truly gets; nan if there are none.
        half_width: Mean half width of the intervals, as a share of the truth.
        error: Root mean square error, as a share of the truth.
        gain_covered: Share of the intervals of the gain over the log that contain the true gain.
        gain_half_width: Mean half width of those intervals, as a share of the clicks that the ranker truly gets.
        decided: Number of cases with the verdict better or worse.
        wrong: Number of these verdicts that are wrong.
        assumed: Number of estimates in worlds where the assumption holds.
        assumed_covered: Share of their intervals that contain the truth.
        reasons: Number of refusals for each reason.
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
    decided: int
    wrong: int
    assumed: int
    assumed_covered: float
    reasons: dict[str, int]


def lines(rows: Sequence[Row]) -> Iterator[Line]:
    """Return one line per unit, estimator and ranker."""
    every = [*answers(rows), *rows]
    for unit in UNITS:
        for name in (ANSWER, *NAMES):
            part = [row for row in every if row.unit == unit and row.estimator == name]
            for ranker in RANKERS:
                yield _line((unit, name, ranker), [row for row in part if ranker in ("all", row.ranker)])


def answers(rows: Sequence[Row]) -> Iterator[Row]:
    """Return the estimate with the fewest assumptions for each world, ranker and unit; a refusal if all are."""
    cases: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.world, row.ranker, row.unit), []).append(row)
    for part in cases.values():
        ordered = sorted(part, key=lambda row: [*NAMES].index(row.estimator))  # type: ignore[arg-type]
        yield replace(next((row for row in ordered if not row.refusal), ordered[-1]), estimator=ANSWER)


def reason(refusal: str) -> str:
    """Return the short name of a refusal.

    >>> reason("the effective number of queries is 2.0, fewer than 10")
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
    """Return every line with the number of refusals for each reason."""
    header = f"{COLUMNS},{','.join(name.replace(' ', '_') for name in REASONS.values())}"
    return "\n".join([header, *(",".join(_cells(line)) for line in made), ""])


def _cells(line: Line) -> list[str]:
    whole = [line.unit, line.estimator, line.ranker, str(line.cases), str(line.given), str(line.worlds)]
    shares = [line.covered, line.half_width, line.error, line.gain_covered, line.gain_half_width]
    counts = [str(line.reasons.get(name, 0)) for name in REASONS.values()]
    last = [str(line.decided), str(line.wrong), str(line.assumed), _share(line.assumed_covered)]
    return [*whole, *map(_share, shares), *last, *counts]


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def as_markdown(made: Sequence[Line]) -> str:
    """Return the tables of the docs: by estimator over all rankers, and the answer by ranker."""
    whole = [line for line in made if line.ranker == "all"]
    single = [line for line in made if line.estimator == ANSWER and line.ranker != "all"]
    return "\n".join([_table("estimator", whole), _table("ranker", single)])


def _table(by: str, some: Sequence[Line]) -> str:
    header = [by, "unit", "given", "worlds", "covered", "gain covered", "half width", "decided", "wrong", "refused"]
    cells = [header, ["---"] * len(header)]
    for line in some:
        name = line.estimator if by == "estimator" else line.ranker
        why = ", ".join(f"{name} {count}" for name, count in line.reasons.items())
        shares = [line.covered, line.gain_covered, line.half_width]
        figures = ["" if np.isnan(each) else f"{each:.1%}" for each in shares]
        ends = [str(line.decided), str(line.wrong), why]
        cells.append([f"`{name}`", line.unit, f"{line.given} of {line.cases}", str(line.worlds), *figures, *ends])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"
