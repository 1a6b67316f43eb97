"""Which runs the tables and figures need: a flat list, in which what two of them share stands once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from reproduce.lbd.config import CANDIDATES, FOLDS, FORCED, PANELS, PUBLISHED, TABLE, TABLE_COUPLING, Candidate, Size
from reproduce.lbd.runs import Run, World

Setting: TypeAlias = tuple[float, float]  # lambda, t
PARTS = ("table 1", "table 3", "table 4", "figure 3a", "figure 3b", "figure 3c", "figure 4")
UNTUNED: Setting = (0.0, 0.0)


@dataclass(frozen=True)
class Plan:
    """What was asked for.

    Attributes:
        data: embedded, mq2008, yahoo or istella-s.
        size: how much.
        parts: which tables and figures.
        folder: where the files of the data are, if it is not embedded.
        tuned: lambda and t of LBD as printed, by ranker and coupling; empty before tuning.
        separately: those of LBD-Lips ("penalty") and LBD-Ber ("drop"), each tuned for itself, by kind, ranker and
            coupling; where there is none, its part of `tuned`.
        published: take lambda and t from the paper's Table 3 instead of tuning them.
        methods: which candidates; all if empty.
    """

    data: str
    size: Size
    parts: tuple[str, ...] = PARTS
    folder: Path | None = None
    tuned: Mapping[tuple[str, float], Setting] | None = None
    separately: Mapping[tuple[str, str, float], Setting] | None = None
    published: bool = False
    methods: tuple[str, ...] = ()

    @property
    def couplings(self) -> tuple[float, ...]:
        """Those of the tables and of Figure 3."""
        figures = any(part in PANELS for part in self.parts)
        tables = "table 1" in self.parts or "table 4" in self.parts
        wanted = (self.size.couplings if figures else ()) + ((TABLE_COUPLING,) if tables else ())
        return tuple(sorted(set(wanted)))

    @property
    def tuning(self) -> list[tuple[str, float]]:
        """Rankers and couplings to tune LBD for."""
        tuned = {label for label, one in CANDIDATES.items() if one.tuned in ("both", "penalty", "drop")}
        if self.published or (self.methods and not tuned.intersection(self.methods)):
            return []
        couplings = set(self.couplings)
        if "table 3" in self.parts:
            couplings |= {TABLE_COUPLING, *self.size.couplings}
        return [(ranker, coupling) for ranker in self.size.rankers for coupling in sorted(couplings)]

    def worlds(self, coupling: float, seeds: Iterable[int]) -> list[World]:
        """One a seed and fold."""
        queries = self.size.queries if self.data == "embedded" else None
        folds = FOLDS.get(self.data, (1,))
        return [World(self.data, fold, queries, self.size.sessions, coupling, seed) for seed in seeds for fold in folds]

    def run(self, world: World, ranker: str, candidate: Candidate, setting: Setting = UNTUNED) -> Run:
        """The run of a candidate in a world, with this lambda and t where it takes them."""
        penalty, drop = setting
        settings: dict[str, Any] = dict(candidate.settings)
        if candidate.tuned != "none":
            drop = drop if candidate.tuned in ("both", "drop") else 0.0
            penalised = candidate.tuned in ("both", "penalty") and drop < 1  # t = 1 learns no observation
            settings |= {"penalty": penalty if penalised else 0.0, "drop": drop}
        if candidate.method == "vectorization":
            settings["freeze"] = self.size.freeze
        if candidate.method == "labels":
            world = replace(world, coupling=0.0)
        return Run(
            world,
            self.size.rankers[ranker],
            candidate.method,
            settings,
            candidate.source,
            max(1, round(self.size.epochs * candidate.passes)),
            self.size.batch_size,
            self.size.optimisers.get(ranker, "adagrad"),
            candidate.learning_rate,
        )

    def of(self, label: str, ranker: str, coupling: float) -> list[Run]:
        """The runs of a candidate at a coupling, seed by seed and in each fold by fold."""
        candidate = CANDIDATES[label]
        setting = (PUBLISHED if self.published else self.tuned or {}).get((ranker, coupling), UNTUNED)
        setting = (self.separately or {}).get((candidate.tuned, ranker, coupling), setting)
        seeds = self.size.seeds if candidate.claimed else self.size.seeds[: self.size.others]
        return [self.run(world, ranker, candidate, setting) for world in self.worlds(coupling, seeds)]

    def cell(self, ranker: str, coupling: float, setting: Setting, *, seeds: int) -> list[Run]:
        """The runs of LBD as printed with this lambda and t: a cell of a heat map, a trial of a tuning."""
        worlds = self.worlds(coupling, self.size.seeds[:seeds])
        return [self.run(world, ranker, CANDIDATES["lbd_paper"], setting) for world in worlds]

    def grid(self, ranker: str) -> list[Setting]:
        """Every lambda and t."""
        return [(penalty, drop) for penalty in self.size.penalties[ranker] for drop in self.size.drops]

    @property
    def labels(self) -> list[str]:
        """The candidates that the parts need."""
        tables = TABLE if "table 1" in self.parts or "table 4" in self.parts else ()
        wanted = {*tables, *(label for part in self.parts for label in PANELS.get(part, ()))}
        wanted |= set(FORCED) if "lbd" in wanted and not self.methods else set()
        return [label for label in CANDIDATES if label in wanted and (not self.methods or label in self.methods)]

    def runs(self) -> list[Run]:
        """All runs but those of tuning, each once: what is claimed first, then in the order of their worlds."""
        first = [label for label in self.labels if CANDIDATES[label].claimed]
        wanted = [
            run
            for label in [*first, *(label for label in self.labels if label not in first)]
            for ranker in self.size.rankers
            for coupling in self.couplings_of(label)
            for run in self.of(label, ranker, coupling)
        ]
        if "figure 4" in self.parts:
            wanted += [
                run
                for ranker in self.size.map_rankers
                for coupling in self.size.maps
                for setting in self.grid(ranker)
                for run in self.cell(ranker, coupling, setting, seeds=self.size.map_seeds)
            ]
        once = {run.key: run for run in wanted}
        claimed = {
            run.key
            for label in first
            for ranker in self.size.rankers
            for coupling in self.couplings_of(label)
            for run in self.of(label, ranker, coupling)
        }

        def place(run: Run) -> tuple[Any, ...]:
            return run.key not in claimed, run.world.seed, run.world.fold, run.world.coupling

        return sorted(once.values(), key=place)

    def couplings_of(self, label: str) -> tuple[float, ...]:
        """Where a candidate is run: at .1 too if it is in the tables."""
        shown = "lbd" if label in FORCED else label
        panels = [part for part, labels in PANELS.items() if part in self.parts and shown in labels]
        tables = label in TABLE and ("table 1" in self.parts or "table 4" in self.parts)
        wanted = (self.size.couplings if panels else ()) + ((TABLE_COUPLING,) if tables else ())
        return tuple(sorted(set(wanted)))
