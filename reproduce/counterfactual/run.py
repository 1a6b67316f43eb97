"""Value rankers in worlds, and compare with the truth."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism.evaluation.counterfactual import counterfactual
from clickprism.evaluation.counterfactual_result import Estimate
from clickprism.evaluation.counterfactual_settings import CounterfactualSettings, Unit
from clickprism.experiment.pool import side_by_side
from clickprism.experiment.worlds import WorldSettings, draw_settings, make_world
from reproduce.counterfactual.rankers import rankers
from reproduce.counterfactual.truth import Truth, truth_of

UNITS: Final[tuple[Unit, ...]] = ("query", "search")
DEPTH: Final = 10


@dataclass(frozen=True)
class Row:
    """One estimate in one world."""

    world: int
    browsing: str
    policy: str
    ranker: str
    unit: str
    estimator: str
    holds: bool
    refusal: str
    missing: float
    truth: float
    value: float
    lower: float
    upper: float
    gain: float
    difference: float
    below: float
    above: float
    verdict: str


def study(worlds: Sequence[int], *, processes: int, tell: Callable[[str], None]) -> list[Row]:
    """All rows, world by world."""
    rows: list[Row] = []
    tasks = [(world_rows, (seed,)) for seed in worlds]
    done = side_by_side(tasks, processes) if processes > 1 else (call(*given) for call, given in tasks)
    for number, part in enumerate(done, start=1):
        rows += part
        tell(f"{number} of {len(worlds)} worlds: {part[0].world}, {part[0].browsing}, {part[0].policy}")
    return sorted(rows, key=lambda row: row.world)


def world_rows(seed: int) -> list[Row]:
    """All estimates in one world."""
    world = make_world(draw_settings(seed))
    rows = []
    for ranker, scores in rankers(world.logged, seed).items():
        truth = truth_of(world, scores, depth=DEPTH)
        for unit in UNITS:
            made = counterfactual(world.logged, scores, depth=DEPTH, settings=CounterfactualSettings(unit=unit))
            rows += [_row(world.settings, ranker, unit, truth, each) for each in made.estimates.values()]
    return rows


def holds(name: str, world: WorldSettings) -> bool:
    """Whether the assumption of an estimator holds in a world."""
    still = world.attention == 0 or world.policy not in ("changing", "feedback")
    if name in ("item-position", "item-position-dr"):
        return still and world.browsing == "pbm"
    if name == "position-based":
        return world.browsing == "pbm" and world.trust == world.coupling == world.attention == 0
    return still


def _row(world: WorldSettings, ranker: str, unit: str, truth: Truth, made: Estimate) -> Row:
    return Row(
        world.seed,
        world.browsing,
        world.policy,
        ranker,
        unit,
        made.name,
        holds(made.name, world),
        made.refusal.split(",", maxsplit=1)[0],
        made.missing,
        truth.value,
        made.value.value,
        made.value.lower,
        made.value.upper,
        truth.difference,
        made.difference.value,
        made.difference.lower,
        made.difference.upper,
        made.verdict,
    )


def write_rows(rows: Sequence[Row], file: Path) -> None:
    """Every estimate as CSV."""
    _write(file, [field.name for field in fields(Row)], (astuple(row) for row in rows))


SUMMARY: Final = (
    "ranker,unit,estimator,assumption,worlds,given,coverage,half_width,rmse,gain_coverage,gain_half_width,told,wrong"
)


def summary(rows: Sequence[Row]) -> list[list[str]]:
    """A line a ranker, unit, estimator, and whether its assumption holds; widths and errors are shares of the truth."""
    keys = dict.fromkeys((row.ranker, row.unit, row.estimator, row.holds) for row in rows)
    found = {key: [row for row in rows if (row.ranker, row.unit, row.estimator, row.holds) == key] for key in keys}
    return [_line(key, part) for key, part in sorted(found.items(), key=_order)]


def _order(item: tuple[tuple[str, str, str, bool], list[Row]]) -> tuple[int, int, int]:
    ranker, unit, _, there = item[0]
    return ("shown", "near", "click", "reversed").index(ranker), UNITS.index(unit), 1 - there


def _line(key: tuple[str, str, str, bool], part: Sequence[Row]) -> list[str]:
    given = [row for row in part if not row.refusal]
    head = [key[0], key[1], key[2], "holds" if key[3] else "fails", str(len(part)), str(len(given))]
    if not given:
        return head + [""] * 7
    truth = np.array([row.truth for row in given])
    gain = np.array([row.gain for row in given])
    value, lower, upper = (np.array([getattr(row, name) for row in given]) for name in ("value", "lower", "upper"))
    below, above = (np.array([getattr(row, name) for row in given]) for name in ("below", "above"))
    wrong = [(row.verdict == "better" and row.gain < 0) or (row.verdict == "worse" and row.gain > 0) for row in given]
    numbers = [
        ((lower <= truth) & (truth <= upper)).mean(),
        ((upper - lower) / 2 / truth).mean(),
        np.sqrt((((value - truth) / truth) ** 2).mean()),
        ((below <= gain) & (gain <= above)).mean(),
        ((above - below) / 2 / truth).mean(),
    ]
    told = sum(row.verdict != "not told apart" for row in given)
    return [*head, *(f"{number:.3f}" for number in numbers), str(told), str(sum(wrong))]


def write_summary(lines: Sequence[Sequence[str]], file: Path) -> None:
    """The summary as CSV."""
    _write(file, SUMMARY.split(","), lines)


def _write(file: Path, header: Sequence[str], lines: Sequence[Any] | Iterator[Any]) -> None:
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
