"""One run: a pure function of its settings, whose result is a file, so that no run is done twice."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism.evaluation.measures import Evaluation
from clickprism.evaluation.report import write_whole
from clickprism.experiment import DataSettings, ExperimentSettings, Log, load_data, simulate_log
from clickprism.model import network_scores
from clickprism.observation.effect import EffectSettings, LinearEffect, estimate_effect
from clickprism.rankers import RANKERS
from clickprism.settings import choose
from clickprism.users.coupled import CoupledUser, coupling
from clickprism.users.ideal import ideal_clicks
from clickprism.users.interventions import Intervention
from reproduce.lbd.config import LEADING, MEASURES, RULES, Source

VERSION = 2  # of the results: a change of it makes every run anew
POINTS = 15  # of a training curve


@dataclass(frozen=True)
class World:
    """A data set, its users and their log: what all methods of a comparison share.

    Attributes:
        data: embedded, mq2008, yahoo or istella-s.
        fold: of mq2008, else 1.
        queries: of the embedded data.
        sessions: of each query.
        coupling: eta.
        seed: of the log, and of all that is trained on it.
    """

    data: str
    fold: int
    queries: tuple[int, int, int] | None
    sessions: int
    coupling: float
    seed: int


@dataclass(frozen=True)
class Run:
    """All that a result depends on; `key` names its file."""

    world: World
    ranker: dict[str, Any]
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    source: Source = "log"
    epochs: int = 100
    batch_size: int = 256

    @property
    def key(self) -> str:
        """A hash of all settings.

        >>> world = World("embedded", 1, None, 100, 0.1, 0)
        >>> Run(world, {"name": "linear"}, "click").key == Run(world, {"name": "linear"}, "click").key
        True
        """
        text = json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def path_of(run: Run, out: Path) -> Path:
    """Where the result of a run is, or will be."""
    return out / "runs" / f"{run.key}.json"


def read(run: Run, out: Path) -> dict[str, Any] | None:
    """The result of a run, if there is one; a broken file is none."""
    try:
        result = json.loads(path_of(run, out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def done(run: Run, out: Path) -> bool:
    """Whether a run has its file, and it can be read."""
    return path_of(run, out).exists() and read(run, out) is not None


def perform(run: Run, out: Path, folder: Path | None) -> dict[str, Any]:
    """The result of a run, from its file or made now; the file appears whole or not at all."""
    before = read(run, out)
    if before is not None:
        return before
    result = make(run, folder)
    write_whole(path_of(run, out), json.dumps(result, separators=(",", ":"), allow_nan=False))
    return result


def make(run: Run, folder: Path | None) -> dict[str, Any]:
    """Simulate, train and evaluate."""
    from reproduce.lbd.clicks import clicks_of

    start, at_work = time.perf_counter(), time.process_time()
    made = _world(run.world, folder)
    dataset, log, user = made.dataset, made.log, made.user
    prepared = time.perf_counter()
    method = cp.method(run.method, **run.settings)
    clicks = clicks_of(
        run.source, method, dataset=dataset, log=log, user=user, effect=lambda: _effect(run.world, folder)
    )
    every = max(1, run.epochs // POINTS)
    held_out = ideal_clicks(dataset.validation) if run.method == "labels" else log.held_out.merge()
    recorder = Recorder(dataset, held_out)
    fitted = cp.fit(
        clicks,
        method=method,
        ranker=choose(RANKERS, run.ranker, path="ranker"),
        settings=cp.FitSettings(
            epochs=run.epochs,
            batch_size=run.batch_size,
            evaluate_every=every,
            patience=0,
            threads=1,
            seed=run.world.seed,
        ),
        watch=recorder.watch,
        show=False,
    )
    if fitted.stopped == "interrupted":
        raise KeyboardInterrupt
    by_rule = {rule: recorder.tested[recorder.point(rule)] for rule in RULES}
    return {
        "run": asdict(run),
        "coupling": asdict(coupling(user, dataset.train)),
        **{rule: evaluation.means for rule, evaluation in by_rule.items()},
        "queries": {rule: _by_query(evaluation) for rule, evaluation in by_rule.items()},
        "epochs": recorder.epochs,
        "chosen_epoch": {rule: recorder.epochs[recorder.point(rule)] for rule in RULES},
        "curve": recorder.validated,
        "test": [evaluation.mean(LEADING) for evaluation in recorder.tested],
        "validation": {rule: recorder.validated[recorder.point(rule)] for rule in RULES},
        "likelihood": max(recorder.likelihoods),
        "observation": None if fitted.observation is None else [float(value) for value in fitted.observation],
        "chosen": chosen(fitted),
        "seconds": time.perf_counter() - prepared,
        "seconds_of_log": prepared - start,
        "cpu_seconds": time.process_time() - at_work,
    }


class Recorder:
    """Validates and tests as training goes on, so that the epoch can be chosen afterwards, and the plateau be seen."""

    def __init__(self, dataset: cp.Dataset, held_out: cp.Clicks) -> None:
        self.dataset, self.held_out = dataset, held_out
        self.epochs: list[int] = []
        self.validated: list[float] = []
        self.likelihoods: list[float] = []
        self.tested: list[Evaluation] = []

    def watch(self, epoch: int, learner: Any) -> None:
        """Measure the learner as it stands."""

        def scores(lists: cp.Lists) -> Any:
            return network_scores(learner.ranker, lists.features)

        judged = self.dataset.validation
        self.epochs.append(epoch)
        self.validated.append(cp.evaluate(judged, scores(judged.lists), LEADING).mean(LEADING))
        self.likelihoods.append(held_out_likelihood(learner, self.held_out))
        self.tested.append(_evaluate(self.dataset.test, scores(self.dataset.test.lists)))

    def point(self, rule: str) -> int:
        """The validation that a rule takes."""
        if rule == "last":
            return len(self.epochs) - 1
        return int(np.argmax(self.likelihoods if rule == "clicks" else self.validated))


def held_out_likelihood(learner: Any, clicks: cp.Clicks) -> float:
    """Mean log-likelihood of a held-out list's clicks under the learner's softmax: needs no label, knows no gauge."""
    import torch

    from clickprism.batches import batches
    from clickprism.debias.listwise import softmax_loss

    total, lists = 0.0, 0
    with torch.no_grad():
        for batch in batches(clicks, 1024):
            loss = softmax_loss(learner.click_logits(batch), batch.clicks, mask=batch.mask)
            total, lists = total - float(loss) * len(batch.clicks), lists + len(batch.clicks)
    return total / max(lists, 1)


def chosen(fitted: Any) -> list[dict[str, Any]]:
    """The penalties that a method tried by itself, the chosen one first; none for most."""
    tried = [asdict(choice) for choice in getattr(fitted.learner, "choices", ())]
    return [{name: value if math.isfinite(value) else str(value) for name, value in one.items()} for one in tried]


@dataclass(frozen=True, eq=False)
class Made:
    """A world as it came out."""

    dataset: cp.Dataset
    user: CoupledUser
    log: Log


_kept: dict[Any, Any] = {}
KEPT = 4  # logs (and data sets) that a process holds


def _keep(key: Any, make: Any) -> Any:
    """What was made for this key before, or now; the oldest of its kind is let go."""
    if key not in _kept:
        alike = [other for other in _kept if other[0] == key[0]]
        if len(alike) >= KEPT:
            del _kept[alike[0]]
        _kept[key] = make()
    return _kept[key]


def data_settings(world: World, folder: Path | None) -> DataSettings:
    """Features by quantile into [-1, 1] everywhere, so that a coupling means the same on all data."""
    if world.data == "embedded":
        train, validation, test = world.queries or (3000, 300, 1000)
        made = cp.SyntheticSettings(train_queries=train, validation_queries=validation, test_queries=test)
        return DataSettings(normalise="quantile", synthetic=made)
    return DataSettings(source=world.data, folder=str(folder), fold=world.fold, normalise="quantile")


def _dataset(world: World, folder: Path | None) -> cp.Dataset:
    settings = data_settings(world, folder)
    dataset: cp.Dataset = _keep(("data", repr(settings)), lambda: load_data(settings).dataset)
    return dataset


def _user(world: World, folder: Path | None) -> CoupledUser:
    """The user of a world; eta stretches the weights, which with their features are the same at every coupling."""
    dataset = _dataset(world, folder)
    one: CoupledUser = _keep(
        ("user", replace(world, coupling=1.0, sessions=1)),
        lambda: CoupledUser(eta=1.0).adapt(dataset.train, seed=world.seed),
    )
    if world.coupling == 0:
        return CoupledUser(eta=0.0)
    return replace(one, eta=world.coupling, weights=tuple(world.coupling * weight for weight in one.weights))


def _simulated(world: World, folder: Path | None, intervention: Intervention) -> Log:
    user = _user(world, folder)
    settings = ExperimentSettings(
        user={"name": "coupled", "eta": user.eta, "columns": list(user.columns), "weights": list(user.weights)},
        sessions=world.sessions,
        simulation=cp.SimulationSettings(frequency="each", merge="pattern", intervention=intervention),
        methods={"click": {}},
    )
    return simulate_log(settings, _dataset(world, folder), seed=world.seed)


def _world(world: World, folder: Path | None) -> Made:
    log = _keep(("log", world), lambda: _simulated(world, folder, Intervention()))
    return Made(_dataset(world, folder), _user(world, folder), log)


def _effect(world: World, folder: Path | None) -> LinearEffect:
    """From as many sessions again, in which the first document trades places with a random other one."""

    def made() -> LinearEffect:
        swaps = _simulated(world, folder, Intervention(kind="pivot", pivot=1)).simulation.clicks
        return estimate_effect(swaps, settings=EffectSettings(seed=world.seed))

    effect: LinearEffect = _keep(("effect", world), made)
    return effect


def _evaluate(judged: cp.JudgedLists, scores: Any) -> Evaluation:
    return cp.evaluate(judged, scores, MEASURES)


def _by_query(evaluation: Evaluation) -> dict[str, list[float | None]]:
    """Four decimals a query, enough for a test of the mean; None where a query does not count."""
    rows = zip(evaluation.measures, evaluation.values, strict=True)
    return {str(name): [None if np.isnan(value) else round(value, 4) for value in row.tolist()] for name, row in rows}
