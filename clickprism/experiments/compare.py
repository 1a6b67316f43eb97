"""Every method with every seed, in one process or several."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clickprism._util.files import make_folder
from clickprism._util.processes import side_by_side
from clickprism.evaluation.independence import Independence
from clickprism.evaluation.measures import Evaluation, evaluate
from clickprism.experiments.bend import Bend, bend_of
from clickprism.experiments.bias import Bias, Ground, find_items, ground_of, independence_of
from clickprism.experiments.codes import warn_of_codes
from clickprism.experiments.run_record import record
from clickprism.experiments.settings import ExperimentSettings
from clickprism.experiments.stages import (
    LEAST_OBSERVATION,
    Data,
    Log,
    corrects_trust,
    graded,
    load_data,
    make_method,
    simulate_log,
    told_names,
    train_method,
    true_trust,
)
from clickprism.rankers import RANKERS
from clickprism.settings import choose
from clickprism.training.distributed import alone
from clickprism.training.settings import Fitted
from clickprism.types import Float64

INITIAL = "initial"


@dataclass(frozen=True, eq=False)
class Run:
    """What one method reached with one seed.

    Attributes:
        label: of the method.
        seed: of the run.
        evaluation: on the test part, query by query.
        observation: by position relative to the first, as learned or given; None where there is none, and for a method
            that corrects trust, whose curve is alpha.
        truth: the same of the simulated users.
        steps: epochs (or trees) at which validation was measured.
        values: what was measured there.
        best: the epoch (or number of trees) that was chosen.
        stopped: why training ended.
        seconds: training took.
        bias: where its ranking puts what stood high and what is popular, on the test part.
        bend: how documents bend the observation; None for a method in which they cannot.
        independence: Delta-CI over the log; None for a method that does not say relevance given observation.
    """

    label: str
    seed: int
    evaluation: Evaluation
    observation: Float64 | None
    truth: Float64
    steps: Float64
    values: Float64
    best: int
    stopped: str
    seconds: float
    bias: Bias
    bend: Bend | None = None
    independence: Independence | None = None


def compare_methods(
    settings: ExperimentSettings,
    *,
    out: Path | None = None,
    jobs: int = 1,
    on_run: Callable[[Run], None] | None = None,
) -> list[Run]:
    """Run every method with every seed; the initial ranking comes last, as a run named "initial".

    Args:
        settings: of the experiment.
        out: a folder for the models, metrics and checkpoints, one folder a method and seed.
        jobs: how many processes; where fit.threads is 0 they share the cores.
        on_run: called after each run, in any order.
    """
    alone("a comparison", remedy="run it without torchrun; --jobs runs several at a time")
    choose(RANKERS, settings.ranker, path="ranker")
    for label in settings.methods:
        make_method(settings, label)
    if out is not None:
        make_folder(out)
    if jobs > 1 and settings.fit.threads == 0:
        settings = replace(settings, fit=replace(settings.fit, threads=max(1, (os.cpu_count() or 1) // jobs)))
    tasks = [(settings, seed, label, out) for seed in settings.seeds for label in [INITIAL, *settings.methods]]
    runs: list[Run] = []
    for run in _in_turn(tasks) if jobs == 1 else side_by_side([(_run, task) for task in tasks], jobs):
        runs.append(run)
        if on_run is not None:
            on_run(run)
        if run.stopped == "interrupted":
            raise KeyboardInterrupt
    order = {label: place for place, label in enumerate([*settings.methods, INITIAL])}
    return sorted(runs, key=lambda run: (order[run.label], run.seed))


Task = tuple[ExperimentSettings, int, str, Path | None]


def _in_turn(tasks: list[Task]) -> Iterator[Run]:
    for task in tasks:
        yield _run(*task)


_kept: dict[str, tuple[Any, Any]] = {}


def _run(settings: ExperimentSettings, seed: int, label: str, out: Path | None) -> Run:
    data = _keep("data", settings.data, lambda: load_data(settings.data))
    settings = told_names(settings, data.vocabulary)
    if label == INITIAL and seed == settings.seeds[0]:
        warn_of_codes(settings, data.vocabulary)
    log = _keep("log", (settings, seed), lambda: simulate_log(settings, graded(data), seed=seed))
    clicks, test, start = log.simulation.clicks, data.dataset.test, time.perf_counter()
    fitted: Fitted | None = None
    if label == INITIAL:
        scores = log.initial
    else:
        fitted = train_method(
            settings,
            data.dataset,
            label,
            clicks=clicks,
            truth=log.simulation.observation,
            trust=true_trust(settings),
            held_out=log.held_out,
            seed=seed,
            out=None if out is None else out / f"{label}-{seed}",
            show=False,
        )
        scores = fitted.model.score(test.lists)
    history = [(each.epoch, each.validation) for each in (fitted.history if fitted else ())]
    judged = [(epoch, value) for epoch, value in history if value is not None]
    observation = log.simulation.observation
    evaluation = evaluate(test, scores, settings.evaluation.measures, empty=settings.evaluation.empty)
    truth = observation / max(observation[0], LEAST_OBSERVATION)
    learned = None if fitted is None or corrects_trust(fitted.model.method) else fitted.observation
    if fitted is not None and out is not None:
        fitted.model.with_normaliser(data.normaliser).save(out / f"{label}-{seed}" / "model")
        metrics = {f"test {name}": value for name, value in evaluation.means.items()}
        kept = record(settings, data, label=label, seed=seed, metrics=metrics, observation=learned, truth=truth)
        kept.write(out / f"{label}-{seed}")
    return Run(
        label=label,
        seed=seed,
        evaluation=evaluation,
        observation=learned,
        truth=truth,
        steps=np.array([epoch for epoch, _ in judged], dtype=np.float64),
        values=np.array([value for _, value in judged], dtype=np.float64),
        best=0 if fitted is None else fitted.best_epoch,
        stopped="" if fitted is None else fitted.stopped,
        seconds=time.perf_counter() - start,
        bias=_ground(settings, data, log, seed).bias(scores),
        bend=None if fitted is None else bend_of(fitted.learner, clicks, log.user),
        independence=None if fitted is None else independence_of(fitted.learner, clicks),
    )


def _ground(settings: ExperimentSettings, data: Data, log: Log, seed: int) -> Ground:
    """What bias is measured on; the items once a data set, the rest once a log."""
    parts, by = (data.dataset.train.lists, data.dataset.test.lists), settings.evaluation.items
    items = _keep("items", (settings.data, by), lambda: find_items(*parts, by))
    clicks, length = log.simulation.clicks, settings.simulation.length
    ground: Ground = _keep(
        "ground",
        (settings, seed),
        lambda: ground_of(data.dataset, clicks, log.initial, length=length, items=items),
    )
    return ground


def _keep(name: str, key: Any, make: Callable[[], Any]) -> Any:
    """What was made for this key last, or anew; a process works on one data set and log at a time."""
    if name not in _kept or _kept[name][0] != key:
        _kept[name] = (key, make())
    return _kept[name][1]
