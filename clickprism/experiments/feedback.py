"""The feedback loop: what a ranker shows decides what is clicked, and what is clicked decides what is shown next.

One chain a method and seed. Round t shows the training lists in the order of the ranker before, logs clicks, adds them
to the past of the items, and trains the next ranker on the log, with the past as it was when the lists were shown.
`docs/popularity.md` has the equations and what came out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism._util.files import make_folder
from clickprism._util.processes import side_by_side
from clickprism.data.items import items_across
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.concentration import Concentration, concentration, position_exposure
from clickprism.evaluation.measures import Evaluation, evaluate
from clickprism.experiments.chains import (
    FOLDER,
    WARM,
    Chain,
    mark_of,
    path_of,
    read_chain,
    warm_settings,
    write_chain,
)
from clickprism.experiments.codes import warn_of_codes
from clickprism.experiments.settings import FeedbackSettings
from clickprism.experiments.stages import (
    Data,
    graded,
    load_data,
    make_method,
    told_names,
    top_grade,
    train_method,
    true_trust,
)
from clickprism.rankers import RANKERS
from clickprism.settings import choose
from clickprism.simulation.clicks import simulate
from clickprism.simulation.rankings import Intervention
from clickprism.training.distributed import alone
from clickprism.training.settings import Fitted
from clickprism.types import Clicks, Dataset, Float64, Int64, JudgedLists, Lists, Simulation, concatenate
from clickprism.users import USERS
from clickprism.users.base import User, adapted
from clickprism.users.pbm import PositionUser
from clickprism.users.popularity import PopularityUser, percentiles

PRIOR: Final = 10.0  # impressions at the mean rate that every item's rate begins with
PARTS: Final = ("train", "validation", "test")


def feedback_loop(
    settings: FeedbackSettings,
    *,
    out: Path | None = None,
    jobs: int = 1,
    on_chain: Callable[[Chain], None] | None = None,
) -> list[Chain]:
    """Run the loop for every method and seed; chains that `out` holds for the same settings are not run again.

    Args:
        settings: of the experiment; see `FeedbackSettings`.
        out: a folder; each chain is kept in it as soon as it is done.
        jobs: how many processes, a seed each.
        on_chain: called after each chain, in any order.
    """
    alone("a feedback loop", remedy="run it without torchrun; --jobs runs several seeds at a time")
    choose(RANKERS, settings.ranker, path="ranker")
    for label in settings.methods:
        make_method(settings, label)
    if not settings.methods:
        raise SettingError("methods", (), "name at least one method")
    if out is not None:
        make_folder(out / FOLDER)
    tasks = [(settings, seed, out) for seed in settings.seeds]
    chains: list[Chain] = []
    several = jobs > 1 and len(tasks) > 1
    made: Iterator[Any] = side_by_side([(_listed, task) for task in tasks], jobs) if several else _in_turn(tasks)
    for chain in made:
        for one in chain if isinstance(chain, list) else [chain]:
            chains.append(one)
            if on_chain is not None:
                on_chain(one)
    order = {label: place for place, label in enumerate(settings.methods)}
    return sorted(chains, key=lambda chain: (order[chain.label], chain.seed))


Task = tuple[FeedbackSettings, int, Path | None]


def _in_turn(tasks: list[Task]) -> Iterator[Chain]:
    for task in tasks:
        yield from _chains(*task)


def _listed(settings: FeedbackSettings, seed: int, out: Path | None) -> list[Chain]:
    return list(_chains(settings, seed, out))


def _chains(settings: FeedbackSettings, seed: int, out: Path | None) -> Iterator[Chain]:
    """The chains of one seed; the rounds before the methods part are run once."""
    loop: _Loop | None = None
    for label in settings.methods:
        mark, path = mark_of(settings, label, seed=seed), None if out is None else path_of(out, label, seed=seed)
        chain = None if path is None else read_chain(path, mark=mark)
        if chain is None:
            if loop is None:
                loop = _Loop(settings, seed)
                for _ in range(settings.warm):
                    loop.step(WARM, warm_settings(loop.settings))
            start, own = time.perf_counter(), loop.fork()
            while len(own.rounds) <= settings.rounds:
                own.step(label, loop.settings)
            chain = Chain(label, seed, tuple(own.rounds), own.evaluation, own.world.ideal, time.perf_counter() - start)
            if path is not None:
                write_chain(path, chain, mark=mark)
        yield chain


@dataclass(frozen=True, eq=False)
class _World:
    """The data of one seed, with items for ids, and what never changes in it."""

    settings: FeedbackSettings
    seed: int

    @cached_property
    def data(self) -> Data:
        data = self.settings.data
        if data.source == "synthetic" and self.settings.worlds:
            data = replace(data, synthetic=replace(data.synthetic, seed=data.synthetic.seed + self.seed))
        return load_data(data)

    @cached_property
    def dataset(self) -> Dataset:
        loaded = graded(self.data)
        if len(loaded.test) == 0 or len(loaded.train) == 0:
            raise DataError("the loop needs lists to train on and lists to test on")
        return loaded

    @cached_property
    def items(self) -> dict[str, Int64]:
        """The item of each document of each part, numbered alike."""
        lists = [getattr(self.dataset, part).lists for part in PARTS]
        return dict(zip(PARTS, items_across(lists, seed=self.seed), strict=True))

    @cached_property
    def count(self) -> int:
        return max(int(items.max(initial=-1)) for items in self.items.values()) + 1

    @cached_property
    def names(self) -> Any:
        return np.arange(self.count).astype(np.str_)

    @cached_property
    def user(self) -> User:
        user: User = choose(USERS, self.settings.user, path="user")
        return user if isinstance(user, PopularityUser) else adapted(user, self.dataset.train, seed=self.seed)

    @cached_property
    def observation(self) -> Float64:
        """By position, how probably a document is seen whatever it is: what exposure is measured by."""
        base = self.user if isinstance(self.user, PositionUser) else getattr(self.user, "base", PositionUser())
        return np.asarray(base.observation(np.arange(1, self.settings.simulation.length + 1)))

    @cached_property
    def ideal(self) -> dict[str, float]:
        test = self.dataset.test
        ranked = position_exposure(test.lists, test.grades.astype(np.float64), observation=self.observation)
        found = concentration(test, ranked, items=self.items["test"], popularity=np.zeros(self.count))
        return {"gini": found.gini, "top": found.top}

    def part(self, name: str, column: Float64 | None) -> JudgedLists:
        """A part with items for ids and, as a last feature, a value of each item."""
        judged: JudgedLists = getattr(self.dataset, name)
        lists, items = judged.lists, self.items[name]
        features = lists.features
        if column is not None:
            features = np.concatenate([features, column[items, None].astype(np.float32)], axis=1)
        ids = self.names[items] if self.count else None
        return JudgedLists(Lists(features, lists.offsets, lists.query_ids, ids), judged.grades)


@dataclass(eq=False)
class _Loop:
    """Where a chain stands.

    Attributes:
        settings: of the loop, with the ranker told which features are codes of names.
        clicks: of each item, in all rounds.
        exposure: of each item, in all rounds, as the method of each round takes it.
        scores: by part, what orders the next round.
        rounds: what was measured so far.
        logs: of the rounds, where all are learned from.
    """

    settings: FeedbackSettings
    seed: int
    world: _World = field(init=False)
    clicks: Float64 = field(init=False)
    exposure: Float64 = field(init=False)
    scores: dict[str, Float64] = field(init=False)
    evaluation: Evaluation = field(init=False)
    rounds: list[dict[str, float]] = field(default_factory=list)
    logs: list[Clicks] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = _World(self.settings, self.seed)
        self.settings = told_names(self.settings, self.world.data.vocabulary)
        if self.seed == self.settings.seeds[0]:
            warn_of_codes(self.settings, self.world.data.vocabulary)
        self.clicks, self.exposure = np.zeros(self.world.count), np.zeros(self.world.count)
        initial = self.settings.simulation.initial.fit(self.world.dataset.train, seed=self.seed)
        self.scores = {part: initial(getattr(self.world.dataset, part).lists.features) for part in PARTS}
        self._measure()

    def fork(self) -> _Loop:
        """A chain that goes on from here and leaves this one as it is."""
        other = object.__new__(_Loop)
        other.__dict__ |= self.__dict__
        other.rounds, other.logs = list(self.rounds), list(self.logs)
        return other

    def step(self, label: str, settings: FeedbackSettings) -> None:
        """Show, log, train by this method of these settings, and measure what will be shown next."""
        world = self.world
        seeds = np.random.SeedSequence([self.seed, len(self.rounds)]).generate_state(3).tolist()
        column, cold = self._column(), not self.clicks.any()
        parts = {part: world.part(part, column) for part in PARTS}
        simulation = self._log(parts["train"], "train", seeds[0])
        merges = settings.simulation.merge != "none" and not make_method(settings, label).needs_patterns
        clicks = simulation.clicks.merge() if merges else simulation.clicks
        held_out = None
        if settings.evaluation.validation == "clicks":
            held_out = self._log(parts["validation"], "validation", seeds[1]).clicks
            held_out = held_out.merge() if merges else held_out
        self.logs = [*self.logs, simulation.clicks] if settings.log == "all" else []
        fitted = train_method(
            settings,
            Dataset(world.dataset.name, *parts.values()),
            label,
            clicks=_joined(self.logs, same=column is None) if self.logs else clicks,
            truth=simulation.observation,
            trust=true_trust(settings),
            held_out=held_out,
            seed=seeds[2],
            show=False,
        )
        if fitted.stopped == "interrupted":
            raise KeyboardInterrupt
        self._remember(clicks, fitted)
        if not cold:
            column = self._column()
        self.scores = {part: self._boosted(part, fitted.model.score(world.part(part, column).lists)) for part in PARTS}
        self._measure()

    def _log(self, judged: JudgedLists, part: str, seed: int) -> Simulation:
        """Show a part; sessions stay as apart as any of the methods needs, as all learn from the first rounds."""
        settings, made = self.settings, self.settings.simulation
        made = replace(made, max_grade=made.max_grade or top_grade(self.world.dataset))
        if made.merge == "list" and any(make_method(settings, label).needs_patterns for label in settings.methods):
            made = replace(made, merge="pattern")
        if settings.exploration > 0:
            shuffle = Intervention(kind="shuffle", share=settings.exploration, depth=made.length)
            made = replace(made, intervention=shuffle)
        user = self.world.user
        if isinstance(user, PopularityUser):
            user = user.after(self.world.names, self.clicks)
        scores = self.scores[part]
        return simulate(judged, user, sessions=settings.sessions, seed=seed, settings=made, scores=scores)

    def _remember(self, log: Clicks, fitted: Fitted) -> None:
        """Add a log to the past of the items; exposure is what the method that was trained on it says."""
        exposure = log.list_impressions if fitted.learner is None else fitted.learner.exposure(log)
        items, size = self.world.items["train"][log.rows], self.world.count
        self.clicks = self.clicks + np.bincount(items, weights=log.clicks, minlength=size)
        self.exposure = self.exposure + np.bincount(items, weights=exposure, minlength=size)

    def _column(self) -> Float64 | None:
        """What rankers see of the past of each item, with about mean 0 and deviation 1; 0 before any click.

        A ranker that was trained before any click was seen has learned nothing about it, and is shown 0 again.
        """
        kind, past = self.settings.feature, self.clicks
        if kind == "none":
            return None
        if not past.any():
            return np.zeros(len(past))
        if kind == "rate":
            mean = self.clicks.sum() / self.exposure.sum()
            past = (self.clicks + PRIOR * mean) / (self.exposure + PRIOR)
        return np.asarray(math.sqrt(12) * (percentiles(past) - 0.5))

    def _boosted(self, part: str, scores: Float64) -> Float64:
        """The scores with what the system adds for popularity, both in deviations within lists."""
        boost = self.settings.boost
        if boost == 0:
            return scores
        lists, popularity = getattr(self.world.dataset, part).lists, percentiles(self.clicks)
        return _standard(lists, scores) + boost * _standard(lists, popularity[self.world.items[part]])

    def _measure(self) -> None:
        """What the order that is shown next is like, on the test part."""
        world, evaluation = self.world, self.settings.evaluation
        judged, scores = world.dataset.test, self.scores["test"]
        self.evaluation = evaluate(judged, scores, evaluation.measures, empty=evaluation.empty)
        if self.settings.worlds:
            ids = np.char.add(f"{self.seed}/", self.evaluation.query_ids)
            self.evaluation = replace(self.evaluation, query_ids=ids)
        exposure = position_exposure(judged.lists, scores, observation=world.observation)
        found: Concentration = concentration(
            judged, exposure, items=world.items["test"], popularity=percentiles(self.clicks)
        )
        self.rounds.append({**self.evaluation.means, **found.plain()})


def _standard(lists: Lists, values: Float64) -> Float64:
    """Values less the mean of their list, divided by the deviation of what is left; 0 where nothing is."""
    means = np.bincount(lists.list_of, weights=values, minlength=len(lists)) / np.maximum(lists.lengths, 1)
    own = values - means[lists.list_of]
    deviation = float(own.std()) if len(own) else 0.0
    return np.asarray(own / deviation if deviation > 0 else np.zeros(len(own)))


def _joined(logs: Sequence[Clicks], *, same: bool) -> Clicks:
    """The logs of several rounds as one.

    Where features tell the past, the documents of every round stand for themselves, with the past as it was when they
    were shown; else they are the `same` in all rounds.
    """
    if same:
        return concatenate([replace(log, lists=logs[0].lists) for log in logs])
    lists = [log.lists for log in logs]
    ids = [one.document_ids for one in lists if one.document_ids is not None]
    stacked = Lists(
        np.concatenate([one.features for one in lists]),
        np.concatenate([[0], np.cumsum(np.concatenate([one.lengths for one in lists]))]).astype(np.int64),
        np.concatenate([one.query_ids for one in lists]),
        np.concatenate(ids) if len(ids) == len(lists) else None,
    )
    starts = np.cumsum([0, *(one.documents for one in lists)])
    return concatenate(
        [replace(log, lists=stacked, rows=log.rows + start) for log, start in zip(logs, starts[:-1], strict=True)]
    )
