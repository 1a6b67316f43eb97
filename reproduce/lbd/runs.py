"""One run: a pure function of its settings, whose result is a file, so that no run is done twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import clickprism as cp
from clickprism.click_models.coupled import CoupledUser
from clickprism.experiments.data import Log, load_data
from clickprism.experiments.settings import DataSettings
from clickprism.simulation.clicks import ideal_clicks
from clickprism.simulation.rankings import Intervention
from reproduce.common.files import key_of
from reproduce.common.pool import LOG_SECONDS
from reproduce.common.training import Recorder, embedded, keep, simulated, train
from reproduce.common.training import method as method_of
from reproduce.lbd.config import MEASURES, Source
from reproduce.lbd.effect import Effect, LinearEffect, TrueEffect, corrected, coupling, estimate_effect

VERSION = 3  # of the results; increase it to repeat every run
PER_DOCUMENT = 1.2e-6  # seconds an epoch on one core
PER_WEIGHT = 3e-10
LISTS = {"mq2008": 470, "yahoo": 20_000, "istella-s": 19_000}
FACTORS = {"lbd": 1.3, "lbd_paper": 8.0, "lbd_code": 3.0, "pair_debias": 30.0, "labels": 1.5}
OBSERVATION = 4e-3  # seconds a list in which `lbd` learns its observation


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
    optimiser: str = "adagrad"
    learning_rate: float = 0.05

    @cached_property
    def key(self) -> str:
        """A hash of all settings.

        >>> world = World("embedded", 1, None, 100, 0.1, 0)
        >>> Run(world, {"name": "linear"}, "click").key == Run(world, {"name": "linear"}, "click").key
        True
        """
        return key_of(asdict(self), version=VERSION)

    @property
    def log(self) -> World:
        """The log."""
        return self.world

    @property
    def kind(self) -> tuple[Any, ...]:
        """What takes alike long."""
        world = self.world
        return world.data, world.queries, world.sessions, str(self.ranker), self.method, self.epochs

    def guess(self) -> float:
        """Seconds that a run takes on one core of a recent machine, from constants measured once.

        >>> world = World("embedded", 1, (3000, 300, 1000), 100, 0.1, 0)
        >>> round(Run(world, {"name": "linear"}, "click").guess(), 1)
        3.6
        """
        lists = self.world.queries[0] if self.world.queries else LISTS.get(self.world.data, 3000)
        hidden = self.ranker.get("hidden", [])
        widths = [64, *hidden, 1]
        weights = sum(one * other for one, other in pairwise(widths)) if hidden else 0
        a_document = PER_DOCUMENT + PER_WEIGHT * weights
        free = self.method in ("lbd_paper", "lbd_code") and not self.settings.get("penalty")  # one pass, no second one
        factor = 1.3 if free else FACTORS.get(self.method, 1.0)
        seconds = factor * self.epochs * 10 * lists * a_document
        if self.source == "effect":
            return float(seconds + LOG_SECONDS)
        return float(seconds + (OBSERVATION * lists if self.method == "lbd" else 0.0))

    def make(self, folder: Path | None) -> dict[str, Any]:
        """Simulate, train and evaluate."""
        return make(self, folder)


def make(run: Run, folder: Path | None) -> dict[str, Any]:
    """Simulate, train and evaluate."""
    start, at_work = time.perf_counter(), time.process_time()
    made = _world(run.world, folder)
    dataset, log, user = made.dataset, made.log, made.user
    prepared = time.perf_counter()
    method = method_of(run.method, **run.settings)
    clicks = clicks_of(
        run.source, method, dataset=dataset, log=log, user=user, effect=lambda: _effect(run.world, folder)
    )
    held_out = ideal_clicks(dataset.validation) if run.method == "labels" else log.held_out.merge()
    recorder = Recorder(dataset, held_out, MEASURES)
    fitted = train(
        clicks,
        method=method,
        ranker=run.ranker,
        watch=recorder.watch,
        epochs=run.epochs,
        seed=run.world.seed,
        batch_size=run.batch_size,
        optimiser=run.optimiser,
        learning_rate=run.learning_rate,
    )
    return {
        "run": asdict(run),
        "coupling": asdict(coupling(user, dataset.train)),
        **recorder.plain(),
        "observation": None if fitted.observation is None else [float(value) for value in fitted.observation],
        "chosen": chosen(fitted),
        "seconds": time.perf_counter() - prepared,
        "seconds_of_log": prepared - start,
        "cpu_seconds": time.process_time() - at_work,
    }


def chosen(fitted: Any) -> list[dict[str, Any]]:
    """Return the penalties that a method tried, the chosen one first; most methods try none."""
    tried = [asdict(choice) for choice in getattr(fitted.learner, "choices", ())]
    return [{name: value if math.isfinite(value) else str(value) for name, value in one.items()} for one in tried]


@dataclass(frozen=True, eq=False)
class Made:
    """A world as it came out."""

    dataset: cp.Dataset
    user: CoupledUser
    log: Log


def data_settings(world: World, folder: Path | None) -> DataSettings:
    """Features by quantile into [-1, 1] everywhere, so that a coupling means the same on all data."""
    if world.data == "embedded":
        return embedded(world.queries)
    return DataSettings(source=world.data, folder=str(folder), fold=world.fold, normalise="quantile")


def _dataset(world: World, folder: Path | None) -> cp.Dataset:
    settings = data_settings(world, folder)
    dataset: cp.Dataset = keep(("data", repr(settings)), lambda: load_data(settings).dataset)
    return dataset


def _user(world: World, folder: Path | None) -> CoupledUser:
    """The user of a world; eta stretches the weights, which with their features are the same at every coupling."""
    dataset = _dataset(world, folder)
    one: CoupledUser = keep(
        ("user", replace(world, coupling=1.0, sessions=1)),
        lambda: CoupledUser(eta=1.0).adapt(dataset.train, seed=world.seed),
    )
    if world.coupling == 0:
        return CoupledUser(eta=0.0)
    return replace(one, eta=world.coupling, weights=tuple(world.coupling * weight for weight in one.weights))


def _simulated(world: World, folder: Path | None, intervention: Intervention) -> Log:
    user = _user(world, folder)
    settings = {"name": "coupled", "eta": user.eta, "columns": list(user.columns), "weights": list(user.weights)}
    dataset, about = _dataset(world, folder), {"sessions": world.sessions, "seed": world.seed}
    return simulated(dataset, settings, **about, intervention=intervention)


def _world(world: World, folder: Path | None) -> Made:
    log = keep(("log", world), lambda: _simulated(world, folder, Intervention()))
    return Made(_dataset(world, folder), _user(world, folder), log)


def _effect(world: World, folder: Path | None) -> LinearEffect:
    """From as many sessions again, in which the first document trades places with a random other one."""

    def made() -> LinearEffect:
        swaps = _simulated(world, folder, Intervention(kind="pivot", pivot=1)).simulation.clicks
        return estimate_effect(swaps, seed=world.seed)

    effect: LinearEffect = keep(("effect", world), made)
    return effect


def clicks_of(
    source: Source,
    method: Any,
    *,
    dataset: cp.Dataset,
    log: Log,
    user: CoupledUser,
    effect: Callable[[], Effect],
) -> cp.Clicks:
    """The clicks for a method, merged as far as it allows; `effect` estimates that of positions, on swaps."""
    if method.name == "labels":
        return cp.ideal_clicks(dataset.train)
    clicks = log.simulation.clicks if method.needs_patterns else log.simulation.clicks.merge()
    if source == "log":
        return clicks
    known = effect() if source == "effect" else TrueEffect(user, relative=source == "true effect")
    return corrected(clicks, known)
