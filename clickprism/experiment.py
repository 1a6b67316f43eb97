"""Whole experiments in one call: data, simulated users, methods, measures.

One `ExperimentSettings` holds every setting there is; a TOML file has the same names. The stages are functions of it,
so that a command can run one (`load_data`, `simulate_log`, `train_method`) or all (`compare_methods`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clickprism.data.normalise import Kind, Normaliser, normalised
from clickprism.data.recipes import RECIPES, load, load_parts
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias import METHODS
from clickprism.errors import SettingError
from clickprism.evaluation.measures import Empty, Evaluation, Measure, evaluate
from clickprism.evaluation.ranking import position_shift
from clickprism.rankers import RANKERS
from clickprism.settings import choose, suggest
from clickprism.training.settings import FitSettings, Fitted, Validation
from clickprism.types import Clicks, Dataset, Float64, JudgedLists, Simulation
from clickprism.users import USERS
from clickprism.users.base import adapted
from clickprism.users.ideal import ideal_clicks
from clickprism.users.logs import SimulationSettings, simulate

LEAST_OBSERVATION = 1e-3
SOURCES = ("synthetic", "files", *RECIPES)


@dataclass(frozen=True)
class DataSettings:
    """Where judged lists come from.

    Attributes:
        source: "synthetic" for the embedded data, the name of a recipe (with `folder`), or "files" (with `train`,
            `validation` and `test`).
        folder: where the files of a recipe are.
        train: LETOR file of the training part.
        validation: LETOR file of the validation part.
        test: LETOR file of the test part.
        fold: of a recipe with folds.
        normalise: what to do to the features; "recipe" is what the papers on that data do, and nothing elsewhere.
        drop_without_relevant: leave out lists without a relevant document, from every part.
        on_error: "raise", or "quarantine" to leave broken lines out.
        synthetic: of the embedded data.
    """

    source: str = "synthetic"
    folder: str | None = None
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    fold: int = 1
    normalise: Kind | Literal["recipe"] = "recipe"
    drop_without_relevant: bool = False
    on_error: Literal["raise", "quarantine"] = "raise"
    synthetic: SyntheticSettings = field(default_factory=SyntheticSettings)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise SettingError("source", self.source, f"be a known source ({suggest(self.source, SOURCES)})")
        if self.source in RECIPES and self.folder is None:
            raise SettingError("folder", None, f"say where the files of {self.source} are")
        for part in ("train", "validation", "test"):
            if self.source == "files" and getattr(self, part) is None:
                raise SettingError(part, None, "name a file when data.source is 'files'")


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured, and what chooses the best epoch.

    Attributes:
        measures: on the test part; the first is the one that tables lead with.
        empty: what queries without a relevant document count: "drop" (not at all), "zero" or "one".
        validation: a measure on the judged validation part; or "clicks", the likelihood of clicks on the validation
            part, for which no label is needed; or "none", to take the last epoch.
    """

    measures: tuple[str, ...] = ("nDCG(exp)@10",)
    empty: Empty = "drop"
    validation: str = "nDCG(exp)@10"

    def __post_init__(self) -> None:
        if not self.measures:
            raise SettingError("measures", self.measures, "name at least one measure")
        for name in self.measures:
            Measure.parse(name)
        if self.validation not in {"clicks", "none"}:
            Measure.parse(self.validation)


@dataclass(frozen=True)
class ExperimentSettings:
    """Every setting of an experiment.

    Attributes:
        data: where judged lists come from.
        user: who clicks: `name` of a user model, and its settings.
        sessions: how many; of each query where simulation.frequency is "each", else in all.
        simulation: how the log is made.
        ranker: what is trained: `name`, and its settings.
        methods: by what: the settings of each method by its name (or by any label, with `name` among the settings).
        fit: how to train.
        evaluation: what is measured.
        seeds: one run each: another initial ranker, other clicks, other weights at the start.
    """

    data: DataSettings = field(default_factory=DataSettings)
    user: dict[str, Any] = field(default_factory=lambda: {"name": "pbm"})
    sessions: int = 100
    simulation: SimulationSettings = field(default_factory=lambda: SimulationSettings(frequency="each"))
    ranker: dict[str, Any] = field(default_factory=lambda: {"name": "mlp"})
    methods: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in METHODS})
    fit: FitSettings = field(default_factory=FitSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise SettingError("sessions", self.sessions, "be at least 1")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise SettingError("seeds", self.seeds, "be at least one, all different, none negative")
        choose(USERS, self.user, path="user")


@dataclass(frozen=True, eq=False)
class Data:
    """A data set as learners and users see it, and what made it so from the raw one."""

    dataset: Dataset
    normaliser: Normaliser


@dataclass(frozen=True, eq=False)
class Log:
    """A simulated log and what it came from.

    Attributes:
        simulation: clicks on the training part, and the truth.
        held_out: clicks on the validation part by the same users and the same initial ranking.
        initial: scores of the test part's documents by the initial ranker (the first, if there are several).
    """

    simulation: Simulation
    held_out: Clicks
    initial: Float64


@dataclass(frozen=True, eq=False)
class Run:
    """What one method reached with one seed.

    Attributes:
        label: of the method.
        seed: of the run.
        evaluation: on the test part, query by query.
        observation: by position relative to the first, as learned or given; None where there is none.
        truth: the same of the simulated users.
        steps: epochs (or trees) at which validation was measured.
        values: what was measured there.
        best: the epoch (or number of trees) that was chosen.
        stopped: why training ended.
        shift: mean position of the documents of the training lists after re-ranking, by position before.
        ideal: the same if the true grades ranked.
        seconds: training took.
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
    shift: Float64
    ideal: Float64
    seconds: float


def load_data(settings: DataSettings) -> Data:
    """Load or generate the judged lists and normalise them, by the statistics of the training part."""
    kind: Kind = "none" if settings.normalise == "recipe" else settings.normalise
    if settings.source == "synthetic":
        dataset = synthetic(settings.synthetic)
    elif settings.source == "files":
        paths = (settings.train or "", settings.validation or "", settings.test or "")
        dataset = load_parts(*paths, missing="nan", on_error=settings.on_error)
    else:
        folder = settings.folder or ""
        dataset = load(settings.source, folder, fold=settings.fold, normalise="none", on_error=settings.on_error)
        if settings.normalise == "recipe":
            kind = RECIPES[settings.source].normalise
    dataset, normaliser = normalised(dataset, kind)
    return Data(dataset.map(JudgedLists.with_relevant) if settings.drop_without_relevant else dataset, normaliser)


def simulate_log(settings: ExperimentSettings, dataset: Dataset, *, seed: int) -> Log:
    """Let users search the training part, and the validation part, in the ranking of the same initial rankers."""
    seeds = np.random.SeedSequence(seed).generate_state(settings.simulation.rankers + 2).tolist()
    rankers = [settings.simulation.initial.fit(dataset.train, seed=one) for one in seeds[2:]]
    user = adapted(choose(USERS, settings.user, path="user"), dataset.train, seed=seed)
    parts = [
        simulate(
            part,
            user,
            sessions=settings.sessions,
            seed=one,
            settings=replace(settings.simulation, max_grade=settings.simulation.max_grade or dataset.train.max_grade),
            scores=np.stack([ranker(part.lists.features) for ranker in rankers]),
        )
        for part, one in ((dataset.train, seeds[0]), (dataset.validation, seeds[1]))
    ]
    return Log(parts[0], parts[1].clicks, rankers[0](dataset.test.lists.features))


def train_method(
    settings: ExperimentSettings,
    dataset: Dataset,
    label: str,
    *,
    clicks: Clicks,
    truth: Float64 | None = None,
    held_out: Clicks | None = None,
    seed: int,
    out: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Fitted:
    """Train the ranker of the settings by one method.

    Args:
        settings: of the experiment.
        dataset: the labels are used by the method `labels` only, and by the validation.
        label: which of `settings.methods`.
        clicks: the log.
        truth: the true observation by position, for `ipw` where no propensities are set.
        held_out: clicks to validate by, where the settings say so.
        seed: of the training.
        out: a folder for metrics.jsonl and the checkpoint.
        resume: go on from the checkpoint.
        show: a progress bar.
    """
    from clickprism.training.fit import fit

    method = make_method(settings, label, truth=truth)
    return fit(
        ideal_clicks(dataset.train) if method.name == "labels" else clicks,
        method=method,
        ranker=choose(RANKERS, settings.ranker, path="ranker"),
        settings=replace(settings.fit, seed=seed),
        validation=_validation(settings.evaluation, dataset, held_out, labels=method.name == "labels"),
        out=out,
        resume=resume,
        show=show,
    )


def make_method(settings: ExperimentSettings, label: str, *, truth: Float64 | None = None) -> Any:
    """The method of this label; an `ipw` without propensities gets the true ones, where a simulation knows them."""
    if label not in settings.methods and label not in METHODS:
        raise SettingError("methods", label, f"be a known name ({suggest(label, [*METHODS, *settings.methods])})")
    values = dict(settings.methods.get(label, {}))
    if values.get("name", label) == "ipw" and not values.get("propensities") and truth is not None:
        values["propensities"] = np.maximum(truth, LEAST_OBSERVATION).tolist()
    return choose(METHODS, values, path=f"methods.{label}", name=label)


def compare_methods(
    settings: ExperimentSettings,
    *,
    out: Path | None = None,
    jobs: int = 1,
    on_run: Callable[[Run], None] | None = None,
) -> list[Run]:
    """Run every method with every seed; the initial ranking comes as a run named "initial".

    Args:
        settings: of the experiment.
        out: a folder for the models, metrics and checkpoints, one folder a method and seed.
        jobs: how many processes; seeds are shared out among them.
        on_run: called after each run, in any order.
    """
    choose(RANKERS, settings.ranker, path="ranker")
    for label in settings.methods:
        make_method(settings, label)
    runs: list[Run] = []

    def collect(run: Run) -> None:
        runs.append(run)
        if on_run is not None:
            on_run(run)

    tasks = [(settings, seed, label, out) for seed in settings.seeds for label in ["initial", *settings.methods]]
    if jobs == 1:
        for task in tasks:
            collect(_run(*task))
    else:
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for done in as_completed([pool.submit(_run, *task) for task in tasks]):
                collect(done.result())
    order = {label: place for place, label in enumerate(["initial", *settings.methods])}
    return sorted(runs, key=lambda run: (order[run.label], run.seed))


_kept: dict[str, tuple[Any, Any]] = {}


def _run(settings: ExperimentSettings, seed: int, label: str, out: Path | None) -> Run:
    data = _keep("data", settings.data, lambda: load_data(settings.data))
    log = _keep("log", (settings, seed), lambda: simulate_log(settings, data.dataset, seed=seed))
    clicks, test, start = log.simulation.clicks, data.dataset.test, time.perf_counter()
    fitted: Fitted | None = None
    if label == "initial":
        scores, before = log.initial, -_places(clicks)
    else:
        folder = None if out is None else out / f"{label}-{seed}"
        fitted = train_method(
            settings,
            data.dataset,
            label,
            clicks=clicks,
            truth=log.simulation.observation,
            held_out=log.held_out,
            seed=seed,
            out=folder,
            show=False,
        )
        if folder is not None:
            fitted.model.with_normaliser(data.normaliser).save(folder / "model")
        scores, before = fitted.model.score(test.lists), fitted.model.score(clicks.lists)
    history = [(record.epoch, record.validation) for record in (fitted.history if fitted else ())]
    judged = [(epoch, value) for epoch, value in history if value is not None]
    observation = log.simulation.observation
    return Run(
        label=label,
        seed=seed,
        evaluation=evaluate(test, scores, settings.evaluation.measures, empty=settings.evaluation.empty),
        observation=None if fitted is None else fitted.observation,
        truth=observation / max(observation[0], LEAST_OBSERVATION),
        steps=np.array([epoch for epoch, _ in judged], dtype=np.float64),
        values=np.array([value for _, value in judged], dtype=np.float64),
        best=0 if fitted is None else fitted.best_epoch,
        stopped="" if fitted is None else fitted.stopped,
        shift=position_shift(clicks.offsets, clicks.rows, before, weights=clicks.impressions),
        ideal=position_shift(
            clicks.offsets, clicks.rows, data.dataset.train.grades.astype(np.float64), weights=clicks.impressions
        ),
        seconds=time.perf_counter() - start,
    )


def _places(clicks: Clicks) -> Float64:
    """The last position that each document was shown at, [documents]."""
    places = np.zeros(clicks.lists.documents)
    places[clicks.rows] = clicks.positions
    return places


def _keep(name: str, key: Any, make: Callable[[], Any]) -> Any:
    """What was made for this key last, or anew; a process works on one data set and log at a time."""
    if name not in _kept or _kept[name][0] != key:
        _kept[name] = (key, make())
    return _kept[name][1]


def _validation(
    settings: EvaluationSettings, dataset: Dataset, held_out: Clicks | None, *, labels: bool
) -> Validation | Clicks | None:
    if settings.validation == "none":
        return None
    if settings.validation == "clicks":
        if labels:
            return ideal_clicks(dataset.validation)
        if held_out is None:
            raise SettingError("evaluation.validation", "clicks", "be a measure where no clicks were held out")
        return held_out
    return judged_validation(dataset.validation, settings.validation)


def judged_validation(judged: JudgedLists, measure: str) -> Validation:
    """A validation by a measure on judged lists."""
    parsed = Measure.parse(measure)
    return Validation(
        str(parsed),
        lambda score: evaluate(judged, score(judged.lists), parsed).mean(parsed),
        higher_is_better=parsed.higher_is_better,
    )
