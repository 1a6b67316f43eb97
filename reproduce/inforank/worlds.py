"""Data, users and their log: what all methods of a comparison share, made once in a process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.data.normalise import normalised
from clickprism.errors import DataError
from clickprism.experiments.data import Log, load_data
from clickprism.experiments.settings import DataSettings
from clickprism.simulation.rankings import Intervention
from clickprism.types import Bool, JudgedLists
from reproduce.common.training import embedded, keep, simulated
from reproduce.inforank.adressa import load_adressa
from reproduce.inforank.config import USUAL

LONGEST = 50  # documents of a list; the paper uses lists of at most so many (appendix B.1)
INFORMATIONAL = {"after_irrelevant": 0.40, "after_relevant": 0.27}  # readers of news, as in the paper


@dataclass(frozen=True)
class World:
    """A data set, its users and their log.

    Attributes:
        data: embedded, mq2008, mq2007, yahoo or adressa.
        fold: of mq2007 and mq2008, else 1.
        queries: of the embedded data.
        sessions: of each query.
        user: pbm, ubm or ccm.
        bias: tau of PBM, gamma_1 of CCM, None for UBM.
        seed: of the log, and of all that is trained on it.
        share: of the training queries whose sessions are learned from.
    """

    data: str
    fold: int
    queries: tuple[int, int, int] | None
    sessions: int
    user: str
    bias: float | None
    seed: int
    share: float = 1.0

    @property
    def whole(self) -> World:
        """The same with all its queries."""
        return replace(self, share=1.0)

    @property
    def usual(self) -> bool:
        """Whether it is one of the tables: the usual bias, all queries."""
        return self.bias == USUAL[self.user] and self.share == 1

    def user_settings(self) -> dict[str, Any]:
        """Of the user model.

        >>> World("embedded", 1, None, 100, "ccm", 0.3, 0).user_settings()
        {'name': 'ccm', 'after_skip': 0.3}
        """
        if self.user == "pbm":
            return {"name": "pbm", "severity": self.bias}
        if self.user == "ccm":
            return {"name": "ccm", "after_skip": self.bias, **(INFORMATIONAL if self.data == "adressa" else {})}
        return {"name": self.user}


def data_key(world: World, folder: Path | None) -> tuple[Any, ...]:
    """Return what determines the judged lists of a world."""
    return world.data, world.queries if world.data == "embedded" else str(folder), world.fold


def dataset_of(world: World, folder: Path | None) -> cp.Dataset:
    """Return the judged lists; features are quantiles in [-1, 1], public data has the lists that the paper uses."""
    dataset: cp.Dataset = keep(("data", *data_key(world, folder)), lambda: _load(world, folder))
    return dataset


def _load(world: World, folder: Path | None) -> cp.Dataset:
    if world.data == "embedded":
        return load_data(embedded(world.queries)).dataset
    if world.data == "adressa":
        read = load_adressa(folder or "")
        return filter_lists(normalised(read.dataset, "quantile", keep=read.indicators)[0])
    settings = DataSettings(source=world.data, folder=str(folder), fold=world.fold, normalise="quantile")
    return filter_lists(load_data(settings).dataset)


def made_world(world: World, folder: Path | None) -> tuple[cp.Dataset, Log]:
    """The judged lists, and the log of all training queries."""
    dataset = dataset_of(world, folder)
    log: Log = keep(("log", world.whole), lambda: _simulated(world, dataset, Intervention()))
    return dataset, log


def _simulated(world: World, dataset: cp.Dataset, intervention: Intervention) -> Log:
    about = {"sessions": world.sessions, "seed": world.seed}
    return simulated(dataset, world.user_settings(), **about, intervention=intervention)


def learned_from(world: World, log: Log, *, patterns: bool) -> cp.Clicks:
    """The clicks on this world's share of the queries, merged as far as the method allows.

    The queries of a smaller share are among those of a larger one. The initial ranker is that of all queries.
    """
    clicks = log.simulation.clicks
    if world.share < 1:
        lists = clicks.lists
        chosen = np.random.default_rng(world.seed).permutation(len(lists))[: max(1, round(world.share * len(lists)))]
        clicks = clicks.take(np.isin(lists.list_of[clicks.rows[clicks.offsets[:-1]]], chosen))
    return clicks if patterns else clicks.merge()


def propensities(world: World, folder: Path | None) -> list[float]:
    """The observation by position, relative to the first: click rates over as many sessions again, lists shuffled."""

    def made() -> list[float]:
        shuffled = _simulated(world, dataset_of(world, folder), Intervention(kind="shuffle")).simulation.clicks
        clicks, shown = (
            np.bincount(shuffled.positions - 1, weights=each) for each in (shuffled.clicks, shuffled.list_impressions)
        )
        rates = clicks / shown
        return [float(value) for value in rates / rates[0]]

    known: list[float] = keep(("propensities", world.whole), made)
    return known


def kept_lists(judged: JudgedLists) -> Bool:
    """Return which lists have at most 50 documents and at least one relevant document, [lists].

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((54, 1), np.float32), np.array([0, 51, 53, 54]), np.array(["a", "b", "c"]))
    >>> kept_lists(JudgedLists(lists, np.array([1] * 51 + [0, 2, 0], np.int32))).tolist()
    [False, True, False]
    """
    relevant = np.bincount(judged.lists.list_of, weights=judged.grades > 0, minlength=len(judged)) > 0
    return np.asarray((judged.lists.lengths <= LONGEST) & relevant)


def filter_lists(dataset: cp.Dataset) -> cp.Dataset:
    """Return the data set with the lists that the paper uses; raise DataError for a part in which none is left."""
    for name in ("train", "validation", "test"):
        judged: JudgedLists = getattr(dataset, name)
        if len(judged) and not kept_lists(judged).any():
            problem = f"no list of the {name} part of {dataset.name} has at most {LONGEST} documents and a relevant one"
            raise DataError(problem, remedy="Use other data")
    return dataset.map(lambda part: part.take(kept_lists(part)))
