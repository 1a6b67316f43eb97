"""Evaluate rankers in worlds and compare with the truth; one file per world, so that a second run continues."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

from clickprism._util.files import write_file
from clickprism._util.processes import side_by_side
from clickprism.evaluation.counterfactual.result import CounterfactualSettings, Estimate, Unit
from clickprism.evaluation.counterfactual.run import counterfactual
from clickprism.log_model.model import LogModel
from reproduce.common.worlds import WorldSettings, draw_settings, make_world
from reproduce.counterfactual.rankers import rankers
from reproduce.counterfactual.truth import Truth, truth_of

UNITS: Final[tuple[Unit, ...]] = ("query", "search")
DEPTH: Final = 10


@dataclass(frozen=True)
class Row:
    """One estimate in one world.

    Attributes:
        world: Seed of the world.
        browsing: How its users browse.
        policy: What its engine showed.
        ranker: Name of the ranker.
        unit: What the interval holds for.
        estimator: Name of the estimator.
        holds: Whether its assumption holds in this world.
        refusal: Why there is no value; empty if there is one.
        missing: Share of the affected clicks on what was never shown.
        effective: Effective number of sessions.
        truth: Clicks per search that the ranker truly gets.
        value: Estimate.
        lower: Lower end of its interval.
        upper: Upper end of its interval.
        gain: Clicks per search that the ranker truly gets more than the log.
        difference: Estimate of the gain.
        below: Lower end of its interval.
        above: Upper end of its interval.
        verdict: "better", "worse", "no difference found" or "unknown".
    """

    world: int
    browsing: str
    policy: str
    ranker: str
    unit: str
    estimator: str
    holds: bool
    refusal: str
    missing: float
    effective: float
    truth: float
    value: float
    lower: float
    upper: float
    gain: float
    difference: float
    below: float
    above: float
    verdict: str


def study(worlds: Sequence[int], *, folder: Path, processes: int, note: Callable[[str], None]) -> list[Row]:
    """Return all rows; a world whose file exists is read from it."""
    tasks = [(keep_rows, (seed, folder)) for seed in worlds if not _file(folder, seed).exists()]
    for number, words in enumerate(side_by_side(tasks, processes), start=1):
        note(f"{number} of {len(tasks)} worlds: {words}")
    return [row for seed in worlds for row in read_rows(_file(folder, seed))]


def keep_rows(seed: int, folder: Path) -> str:
    """Write the rows of a world into its file and return a description of the world."""
    rows = world_rows(seed)
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([[field.name for field in fields(Row)], *map(astuple, rows)])
    write_file(_file(folder, seed), made.getvalue())
    return f"{seed}, {rows[0].browsing}, {rows[0].policy}"


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a file."""
    kinds: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": "True".__eq__, "str": str}
    with file.open(encoding="utf-8", newline="") as opened:
        return [Row(*(kinds[str(each.type)](row[each.name]) for each in fields(Row))) for row in csv.DictReader(opened)]


def _file(folder: Path, seed: int) -> Path:
    return folder / f"world-{seed}.csv"


def world_rows(seed: int) -> list[Row]:
    """Return all estimates in one world."""
    world = make_world(draw_settings(seed))
    rows = []
    model = LogModel.fit(world.logged)
    for ranker, scores in rankers(world.logged, seed).items():
        truth = truth_of(world, scores, depth=DEPTH)
        for unit in UNITS:
            settings = CounterfactualSettings(depth=DEPTH, unit=unit)
            made = counterfactual(world.logged, scores, settings=settings, model=model)
            rows += [_row(world.settings, ranker, unit, truth, each) for each in made.estimates.values()]
    return rows


def holds(name: str, world: WorldSettings) -> bool:
    """Return whether the assumption of an estimator holds in a world."""
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
        made.refusal,
        made.missing,
        made.effective,
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
