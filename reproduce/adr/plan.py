"""Which runs the tables and figures need, in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from reproduce.adr.config import CANDIDATES, COSTS, ONLINE, TABLE_3, Size
from reproduce.adr.examination import ExaminationRun
from reproduce.adr.online import OnlineRun
from reproduce.adr.runs import Run
from reproduce.adr.worlds import RANDOMISED, Exploration, World

Part: TypeAlias = Literal["table 2", "table 3", "table 4", "figure 4", "costs"]
PARTS: tuple[Part, ...] = ("table 2", "table 3", "table 4", "figure 4", "costs")
EXPLORATIONS: tuple[Exploration, ...] = ("uniform", "thompson")


@dataclass(frozen=True)
class Plan:
    """What was asked for.

    Attributes:
        data: embedded, nfcorpus or nfcorpus_tuned.
        size: how much.
        out: where results lie.
        parts: which tables and figures.
        folder: where the files of NFCorpus are.
        methods: which candidates; all if empty.
    """

    data: str
    size: Size
    out: Path = Path("out")
    parts: tuple[Part, ...] = PARTS
    folder: Path | None = None
    methods: tuple[str, ...] = ()

    @property
    def candidates(self) -> list[str]:
        """Those of the comparison, in order."""
        return [name for name in CANDIDATES if not self.methods or name in self.methods]

    def world(self, seed: int, share: float = RANDOMISED, exploration: Exploration = "uniform") -> World:
        """The world of a seed, explored so."""
        uniform: Exploration = "uniform" if share == 0 else exploration
        return World(self.data, self.size.queries, seed, randomised=share, exploration=uniform)

    def run(self, world: World, method: str) -> Run:
        """A method somewhere."""
        settings = CANDIDATES[method].settings if method in CANDIDATES else {}
        return Run(world, method, settings, self.size.epochs, self.out)

    def compared(self, method: str) -> list[Run]:
        """The runs of a method in the comparison, seed by seed."""
        return [self.run(self.world(seed), method) for seed in self.size.seeds]

    def explored(self, method: str, share: float, exploration: Exploration) -> list[Run]:
        """The runs of a method where so much is explored, seed by seed."""
        seeds = self.size.seeds[: self.size.cost_seeds]
        return [self.run(self.world(seed, share, exploration), method) for seed in seeds]

    def costs(self) -> Iterator[tuple[float, Exploration, str]]:
        """Share, exploration and method of the report on exploration."""
        for share in self.size.shares:
            for exploration in EXPLORATIONS[: 1 if share == 0 else 2]:
                yield from ((share, exploration, method) for method in COSTS if method in self.candidates)

    def tests(self) -> dict[str, list[OnlineRun]]:
        """The A/B tests of each method of Table 3 that there are scores for."""
        known = [method for method in TABLE_3 if {method, ONLINE} <= set(self.candidates)]
        return {
            method: [
                OnlineRun(new, old, self.size.visits)
                for new, old in zip(self.compared(method), self.compared(ONLINE), strict=True)
            ]
            for method in known
            if "table 3" in self.parts
        }

    def examinations(self) -> list[ExaminationRun]:
        """Of §7.8."""
        return [ExaminationRun(self.size.searches, seed) for seed in self.size.seeds if "figure 4" in self.parts]

    def methods_run(self) -> list[Run]:
        """Every run of a method, each once."""
        runs = []
        if {"table 2", "table 3", "table 4"} & set(self.parts):
            runs += [run for method in self.candidates for run in self.compared(method)]
        if "costs" in self.parts:
            runs += [run for share, how, method in self.costs() for run in self.explored(method, share, how)]
        found = {run.key: run for run in runs}
        return sorted(found.values(), key=lambda run: (run.world.seed, run.world.randomised, run.world.exploration))

    def phases(self) -> dict[str, list[Run] | list[ExaminationRun] | list[OnlineRun]]:
        """All runs, those first that others need."""
        methods = self.methods_run()
        needed = {run.needs.key: run.needs for run in methods}
        return {
            "imputations": list(needed.values()),
            "methods": methods,
            "A/B tests": [run for runs in self.tests().values() for run in runs],
            "examination": self.examinations(),
        }
