"""One run: a log, a method and a ranker; what it ranks like, how it moves documents, how its relevance depends."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import clickprism as cp
from clickprism.evaluation.independence import ConditionalLearner, learner_independence
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.simulation.clicks import ideal_clicks
from reproduce.common.files import key_of
from reproduce.common.training import RULES, Recorder, by_query, train
from reproduce.common.training import method as method_of
from reproduce.inforank.bias import moved
from reproduce.inforank.config import LEADING, Source, measures
from reproduce.inforank.worlds import World, learned_from, made_world, propensities

VERSION = 1  # of the results; increase it to repeat every run
PER_DOCUMENT = 1.2e-6  # seconds an epoch on one core
PER_WEIGHT = 3e-10
PER_TOKEN = 3.5e-6  # of the attention ranker, a document and token
PER_TREE = 1.3e-6  # a document and tree
LISTS = {"mq2008": 340, "mq2007": 880, "yahoo": 20_000, "adressa": 20_000}
PRINTED = 3.0  # times that of the attention: it is computed for o = 1, for o = 0 and without o
FACTORS = {"lbd": 2.0, "inforank": 2.0, "inforank_paper": 6.0, "regression_em": 1.5, "pal": 1.5}
START = 1.5  # seconds: what a run takes besides training


@dataclass(frozen=True)
class Run:
    """All that a result depends on; `key` names its file."""

    world: World
    ranker: dict[str, Any]
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    source: Source = "log"
    epochs: int = 60
    batch_size: int = 256

    @cached_property
    def key(self) -> str:
        """A hash of all settings.

        >>> world = World("embedded", 1, None, 100, "pbm", 1.0, 0)
        >>> Run(world, {"name": "mlp"}, "click").key == Run(world, {"name": "mlp"}, "click").key
        True
        """
        return key_of(asdict(self), version=VERSION)

    @property
    def log(self) -> World:
        """The log, of which the run may take a part."""
        return self.world.whole

    @property
    def kind(self) -> tuple[Any, ...]:
        """What takes alike long."""
        world = self.world
        return world.data, world.queries, world.share, str(self.ranker), self.method, str(self.settings), self.epochs

    def guess(self) -> float:
        """Seconds on one core of a recent machine, from constants measured once.

        >>> world = World("embedded", 1, (3000, 300, 1000), 100, "pbm", 1.0, 0)
        >>> round(Run(world, {"name": "mlp", "hidden": [64, 32]}, "click").guess(), 1)
        7.0
        """
        lists = self.world.queries[0] if self.world.queries else LISTS[self.world.data]
        documents = 10 * lists * self.world.share * (2 if self.method == "labels" else 1)
        if self.ranker["name"] == "lambdamart":
            return START + PER_TREE * documents * float(self.ranker.get("trees", 300))
        hidden = list(self.ranker.get("hidden", [512, 256, 128] if self.ranker["name"] == "mlp" else [64, 32]))
        weights = sum(one * other for one, other in pairwise([64, *hidden, 1]))
        a_document: float = FACTORS.get(self.method, 1.0) * (PER_DOCUMENT + PER_WEIGHT * weights)
        if self.ranker["name"] == "attention":
            times = PRINTED if self.method == "inforank_paper" else 1.0
            a_document += times * PER_TOKEN * float(self.ranker.get("tokens", 64))
        return START + self.epochs * documents * a_document

    def make(self, folder: Path | None) -> dict[str, Any]:
        """Simulate, train and evaluate."""
        return make(self, folder)


def make(run: Run, folder: Path | None) -> dict[str, Any]:
    """The result of a run, as its file holds it."""
    start, at_work = time.perf_counter(), time.process_time()
    dataset, log = made_world(run.world, folder)
    prepared = time.perf_counter()
    settings = dict(run.settings)
    if run.source == "shuffled":
        settings["propensities"] = propensities(run.world, folder)
    method = method_of(run.method, **settings)
    labels = run.method == "labels"
    clicks = ideal_clicks(dataset.train) if labels else learned_from(run.world, log, patterns=method.needs_patterns)
    trees = run.ranker["name"] == LambdaMART.name
    held_out = ideal_clicks(dataset.validation) if labels else log.held_out.merge()
    recorder = Recorder(dataset, held_out, measures(run.world.data))
    gaps: list[float] = []

    def watch(epoch: int, learner: Any) -> None:
        recorder.watch(epoch, learner)
        if isinstance(learner, ConditionalLearner):
            gaps.append(learner_independence(learner, held_out).mean)

    fitted = train(
        clicks,
        method=method,
        ranker=run.ranker,
        watch=None if trees else watch,
        epochs=run.epochs,
        seed=run.world.seed,
        batch_size=run.batch_size,
    )
    scores = fitted.model.score(dataset.test.lists) if trees else recorder.scores[recorder.point("clicks")]
    return {
        "run": asdict(run),
        **(_at_the_end(dataset, scores, run.world.data) if trees else recorder.plain()),
        "delta_ci": {rule: gaps[recorder.point(rule)] for rule in RULES} if gaps else None,
        "moved": moved(run.world, folder, dataset=dataset, log=log, scores=scores) if run.world.usual else None,
        "observation": None if fitted.observation is None else [float(value) for value in fitted.observation],
        "seconds": time.perf_counter() - prepared,
        "seconds_of_log": prepared - start,
        "cpu_seconds": time.process_time() - at_work,
    }


def _at_the_end(dataset: cp.Dataset, scores: Any, data: str) -> dict[str, Any]:
    """Return the result of trees: the last tree by every rule, since their scores are no click probabilities."""
    tested = cp.evaluate(dataset.test, scores, measures(data))
    return {
        **dict.fromkeys(RULES, tested.means),
        "queries": dict.fromkeys(RULES, by_query(tested)),
        "epochs": [],
        "curve": [],
        "test": [tested.mean(LEADING)],
    }
