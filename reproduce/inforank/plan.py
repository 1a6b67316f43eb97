"""The runs that the tables and figures need, as a flat list without duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import clickprism as cp
from reproduce.inforank.config import (
    AMOUNTS,
    CANDIDATES,
    CURVES,
    DEPENDENCE,
    ETAS,
    FOLDS,
    FORMS,
    SEVERITY,
    TABLES,
    USUAL,
    Size,
)
from reproduce.inforank.runs import Run
from reproduce.inforank.worlds import World

Part: TypeAlias = Literal[
    "table 2", "table 3", "figure 3", "figure 4", "figure 5 left", "figure 5 right", "figure 6", "figure 7"
]
PARTS: tuple[Part, ...] = (
    "table 2",
    "table 3",
    "figure 3",
    "figure 4",
    "figure 5 left",
    "figure 5 right",
    "figure 6",
    "figure 7",
)


@dataclass(frozen=True)
class Case:
    """A candidate somewhere: what a row is the mean of.

    Attributes:
        label: of the candidate.
        ranker: by name.
        user: pbm, ubm or ccm.
        bias: tau or gamma_1.
        share: of the training queries.
        eta: the weight of the mutual information, where it is not the candidate's own.
    """

    label: str
    ranker: str
    user: str
    bias: float | None
    share: float = 1.0
    eta: float | None = None


@dataclass(frozen=True)
class Plan:
    """What was asked for.

    Attributes:
        data: embedded, mq2008, mq2007, yahoo or adressa.
        size: how much.
        parts: which tables and figures.
        folder: where the files of the data are, if it is not embedded.
        methods: which candidates; all if empty.
    """

    data: str
    size: Size
    parts: tuple[Part, ...] = PARTS
    folder: Path | None = None
    methods: tuple[str, ...] = ()

    @property
    def folds(self) -> int:
        """How many runs a seed has."""
        return len(FOLDS.get(self.data, (1,)))

    def cases(self, part: Part) -> list[Case]:
        """What a table or figure shows, each once."""
        return [case for case in dict.fromkeys(self._cases(part)) if not self.methods or case.label in self.methods]

    def _cases(self, part: Part) -> Iterator[Case]:
        size = self.size
        if part in TABLES:
            for user, ranker in product([user for user in TABLES[part] if user in size.users], size.rankers):
                yield from (case(label, ranker, user) for label, one in CANDIDATES.items() if ranker in one.rankers)
        elif part in ("figure 3", "figure 5 left", "figure 4"):
            networks = [name for name in size.rankers if name != "lambdamart"]
            labels = DEPENDENCE if part == "figure 4" else CURVES
            yield from (case(label, ranker, user) for user, ranker, label in product(size.users, networks, labels))
        elif size.figure_ranker in size.rankers:
            yield from self._varied(part)

    def _varied(self, part: Part) -> Iterator[Case]:
        """The cases of Figures 5 (right), 6 and 7, in which one thing varies."""
        size, users = self.size, [user for user in self.size.figure_users if user in self.size.users]
        if part == "figure 5 right":
            yield from (self.weighted(form, user, eta) for user, form, eta in product(users, FORMS, ETAS))
        elif part == "figure 6":
            several = [(user, bias) for user, biases in (("pbm", size.taus), ("ccm", size.gammas)) for bias in biases]
            for (user, bias), label in product(several, SEVERITY):
                if user in size.users:
                    yield replace(case(label, size.figure_ranker, user), bias=bias)
        else:
            for user, share, label in product(users, size.shares, AMOUNTS):
                yield replace(case(label, size.figure_ranker, user), share=share)

    def weighted(self, form: str, user: str, eta: float) -> Case:
        """A form of InfoRank with this eta; that of the tables where they have it."""
        made = case(form if eta else f"{form}-", self.size.figure_ranker, user)
        return made if eta in (0, eta_of(made)) else replace(made, eta=eta)

    def of(self, case: Case) -> list[Run]:
        """The runs of a case, seed by seed and in each fold by fold."""
        size, candidate = self.size, CANDIDATES[case.label]
        usual = case.bias == USUAL[case.user] and case.share == 1 and case.eta is None
        seeds = size.seeds if candidate.claimed and usual else size.seeds[: size.others]
        return [self._run(case, seed, fold) for seed in seeds for fold in FOLDS.get(self.data, (1,))]

    def _run(self, case: Case, seed: int, fold: int) -> Run:
        size, candidate, trained = self.size, CANDIDATES[case.label], self.size.rankers[case.ranker]
        queries = size.queries if self.data == "embedded" else None
        world = World(self.data, fold, queries, size.sessions, case.user, case.bias, seed, case.share)
        if candidate.method == "labels":
            world = replace(world, user="pbm", bias=USUAL["pbm"], share=1.0)
        settings: dict[str, Any] = dict(candidate.settings)
        if case.eta is not None:
            settings["eta"] = case.eta
        epochs = max(1, round(size.epochs * trained.passes * candidate.passes))
        return Run(world, trained.ranker, candidate.method, settings, candidate.source, epochs, size.batch_size)

    def runs(self) -> list[Run]:
        """Return all runs, each once: those of claims first, then by log."""
        found: dict[str, tuple[bool, Run]] = {}
        for part in self.parts:
            for one in self.cases(part):
                first = part in TABLES and CANDIDATES[one.label].claimed
                for run in self.of(one):
                    found[run.key] = first or (run.key in found and found[run.key][0]), run

        def place(claimed: bool, run: Run) -> tuple[Any, ...]:
            world = run.world
            return not claimed, world.seed, world.fold, world.user, world.bias or 0.0, world.share

        return [run for _, run in sorted(found.values(), key=lambda each: place(*each))]


def case(label: str, ranker: str, user: str) -> Case:
    """A candidate with the usual bias and all queries."""
    return Case(label, ranker, user, USUAL[user])


def eta_of(case: Case) -> float | None:
    """The weight of the mutual information; None for other methods.

    >>> eta_of(case("inforank-", "mlp", "pbm")), eta_of(case("click", "mlp", "pbm"))
    (0.0, None)
    """
    candidate = CANDIDATES[case.label]
    if candidate.method not in {"inforank", "inforank_paper"} or case.eta is not None:
        return case.eta
    return float(cp.method(candidate.method, **candidate.settings).eta)
