"""Which runs the tables and figures need: a flat list, in which shared runs occur once; and what tuning chose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from reproduce.common.files import read
from reproduce.lbd.config import CANDIDATES, FOLDS, FORCED, PANELS, PUBLISHED, TABLE, TABLE_COUPLING, Candidate, Size
from reproduce.lbd.runs import Run, World

Setting: TypeAlias = tuple[float, float]  # lambda, t
Study: TypeAlias = tuple[str, float]  # ranker, coupling
PARTS = ("table 1", "table 3", "table 4", "figure 3a", "figure 3b", "figure 3c", "figure 4")
UNTUNED: Setting = (0.0, 0.0)
KINDS = {"both": (True, True), "penalty": (True, False), "drop": (False, True)}  # lambda > 0, t > 0


@dataclass(frozen=True)
class Trial:
    """What one lambda and t came to: validation nDCG@10 and the log-likelihood of held-out clicks, means over seeds."""

    setting: Setting
    validation: float
    likelihood: float


@dataclass(frozen=True)
class Plan:
    """What was asked for.

    Attributes:
        data: embedded, mq2008, yahoo or istella-s.
        size: How much.
        parts: Which tables and figures.
        folder: Where the files of the data are, if it is not embedded.
        trials: The whole grid of lambda and t of LBD as printed, for each ranker and coupling; empty before tuning.
        published: Take lambda and t from the paper's Table 3 instead of tuning them.
        methods: Which candidates; all if empty.
    """

    data: str
    size: Size
    parts: tuple[str, ...] = PARTS
    folder: Path | None = None
    trials: Mapping[Study, tuple[Trial, ...]] = field(default_factory=dict)
    published: bool = False
    methods: tuple[str, ...] = ()

    @property
    def _tables(self) -> bool:
        return "table 1" in self.parts or "table 4" in self.parts

    @property
    def couplings(self) -> tuple[float, ...]:
        """Return those of the tables and of Figure 3."""
        wanted = self.size.couplings if any(part in PANELS for part in self.parts) else ()
        return tuple(sorted({*wanted, *((TABLE_COUPLING,) if self._tables else ())}))

    @property
    def studies(self) -> list[Study]:
        """Return the rankers and couplings to tune LBD for."""
        tuned = {label for label, one in CANDIDATES.items() if one.tuned in KINDS}
        if self.published or (self.methods and not tuned.intersection(self.methods)):
            return []
        couplings = {*self.couplings, *((TABLE_COUPLING, *self.size.couplings) if "table 3" in self.parts else ())}
        return [(ranker, coupling) for ranker in self.size.rankers for coupling in sorted(couplings)]

    def tuning(self) -> list[Run]:
        """Return the runs of tuning: every cell of the grid."""
        return [
            run
            for study in self.studies
            for setting in self.grid(study[0])
            for run in self.cell(*study, setting, seeds=self.size.tuning_seeds)
        ]

    def tuned(self, out: Path) -> Plan:
        """Return the plan with what tuning came to, of the studies whose runs are all done."""
        found: dict[Study, tuple[Trial, ...]] = {}
        for study in self.studies:
            trials = []
            for setting in self.grid(study[0]):
                results = [read(run, out) for run in self.cell(*study, setting, seeds=self.size.tuning_seeds)]
                known = [result for result in results if result is not None]
                if len(known) == len(results):
                    validation = fmean(result["validation"]["clicks"] for result in known)
                    trials.append(Trial(setting, validation, fmean(result["likelihood"] for result in known)))
            if len(trials) == len(self.grid(study[0])):
                found[study] = tuple(trials)
        return replace(self, trials=found)

    def chosen(self, kind: str, ranker: str, coupling: float, *, by: str = "validation") -> Trial | None:
        """Return the best trial of LBD ("both"), of LBD-Lips ("penalty", t = 0) or of LBD-Ber ("drop", lambda = 0)."""
        trials = self.trials.get((ranker, coupling), ())
        mine = [trial for trial in trials if (trial.setting[0] > 0, trial.setting[1] > 0) == KINDS.get(kind)]
        return max(mine, key=lambda trial: float(getattr(trial, by)), default=None)

    def worlds(self, coupling: float, seeds: Iterable[int]) -> list[World]:
        """Return one for each seed and fold."""
        queries = self.size.queries if self.data == "embedded" else None
        folds = FOLDS.get(self.data, (1,))
        return [World(self.data, fold, queries, self.size.sessions, coupling, seed) for seed in seeds for fold in folds]

    def run(self, world: World, ranker: str, candidate: Candidate, setting: Setting = UNTUNED) -> Run:
        """Return the run of a candidate in a world, with this lambda and t where it takes them."""
        settings: dict[str, Any] = dict(candidate.settings)
        if candidate.tuned != "none":
            drop = setting[1] if candidate.tuned in ("both", "drop") else 0.0
            penalised = candidate.tuned in ("both", "penalty") and drop < 1  # t = 1 learns no observation
            settings |= {"penalty": setting[0] if penalised else 0.0, "drop": drop}
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
        """Return the runs of a candidate at a coupling, seed by seed and in each fold by fold."""
        candidate = CANDIDATES[label]
        setting = PUBLISHED.get((ranker, coupling), UNTUNED) if self.published else UNTUNED
        if trial := self.chosen(candidate.tuned, ranker, coupling):
            setting = trial.setting
        seeds = self.size.seeds if candidate.claimed else self.size.seeds[: self.size.others]
        return [self.run(world, ranker, candidate, setting) for world in self.worlds(coupling, seeds)]

    def cell(self, ranker: str, coupling: float, setting: Setting, *, seeds: int) -> list[Run]:
        """Return the runs of LBD as printed with this lambda and t: a cell of a heat map, a trial of a tuning."""
        worlds = self.worlds(coupling, self.size.seeds[:seeds])
        return [self.run(world, ranker, CANDIDATES["lbd_paper"], setting) for world in worlds]

    def grid(self, ranker: str) -> list[Setting]:
        """Return every lambda and t."""
        return [(penalty, drop) for penalty in self.size.penalties[ranker] for drop in self.size.drops]

    @property
    def labels(self) -> list[str]:
        """Return the candidates that the parts need."""
        wanted = {*(TABLE if self._tables else ()), *(label for part in self.parts for label in PANELS.get(part, ()))}
        wanted |= set(FORCED) if "lbd" in wanted and not self.methods else set()
        return [label for label in CANDIDATES if label in wanted and (not self.methods or label in self.methods)]

    def runs(self) -> list[Run]:
        """Return all runs but those of tuning, each once: what is claimed first, then in the order of their worlds."""
        groups: dict[bool, list[Run]] = {True: [], False: []}
        for label in self.labels:
            for ranker in self.size.rankers:
                for coupling in self.couplings_of(label):
                    groups[CANDIDATES[label].claimed] += self.of(label, ranker, coupling)
        if "figure 4" in self.parts:
            for ranker in self.size.map_rankers:
                for coupling in self.size.maps:
                    for setting in self.grid(ranker):
                        groups[False] += self.cell(ranker, coupling, setting, seeds=self.size.map_seeds)
        claimed = {run.key for run in groups[True]}
        once = {run.key: run for run in [*groups[True], *groups[False]]}

        def place(run: Run) -> tuple[Any, ...]:
            return run.key not in claimed, run.world.seed, run.world.fold, run.world.coupling

        return sorted(once.values(), key=place)

    def couplings_of(self, label: str) -> tuple[float, ...]:
        """Return where a candidate is run: at .1 too if it is in the tables."""
        shown = "lbd" if label in FORCED else label
        panels = any(shown in labels for part, labels in PANELS.items() if part in self.parts)
        tables = label in TABLE and self._tables
        return tuple(sorted({*(self.size.couplings if panels else ()), *((TABLE_COUPLING,) if tables else ())}))
