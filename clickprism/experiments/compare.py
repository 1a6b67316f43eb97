"""Compare methods over several runs of simulated users, and saved models on judged lists."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism._util.files import make_folder, write_errors
from clickprism._util.processes import process_count, side_by_side
from clickprism._util.progress import Progress, no_progress
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.measures import Evaluation, Measure, evaluate
from clickprism.experiments.bundle import model_folder, saved_settings
from clickprism.experiments.data import (
    UNGRADED,
    Part,
    data_name,
    graded,
    load_data,
    read_data,
    simulate_log,
    with_categories,
)
from clickprism.experiments.results import INITIAL, Results, Run, results_of
from clickprism.experiments.settings import DataSettings, ExperimentSettings, read_settings
from clickprism.experiments.train import (
    LEAST_OBSERVATION,
    MODEL,
    SETTINGS,
    corrects_trust,
    make_method,
    observation_model,
    save_run,
    train_method,
    true_trust,
)
from clickprism.model import Model
from clickprism.rankers import RANKERS
from clickprism.settings import choose, suggest
from clickprism.training.settings import Fitted
from clickprism.types import JudgedLists

Measured = tuple[Run, Evaluation]
PICTURES: Final = (".png", ".svg", ".pdf")


def compare_methods(
    settings: ExperimentSettings,
    *,
    baseline: str | None = None,
    out: Path | None = None,
    jobs: int = 1,
    progress: Progress = no_progress,
    on_run: Callable[[Run, Evaluation], None] | None = None,
) -> Results:
    """Train every method in every run on simulated clicks, and compare them on the test part.

    Args:
        settings: Settings of the experiment.
        baseline: Method to compare with; `click`, or else the first method, if not given.
        out: Folder for the models, metrics and checkpoints, one folder per method and run.
        jobs: Number of processes, 0 for one per core; with fit.threads = 0 they share the cores.
        progress: Called after each run.
        on_run: Called after each run with its values for each query, in any order.
    """
    check_methods(settings)
    known = [*settings.methods, INITIAL]
    if baseline is not None and baseline not in known:
        raise SettingError("baseline", baseline, f"be a method of the comparison ({suggest(baseline, known)})")
    if out is not None:
        make_folder(out)
    jobs = process_count(jobs)
    if jobs > 1 and settings.fit.threads == 0:
        settings = replace(settings, fit=replace(settings.fit, threads=max(1, (os.cpu_count() or 1) // jobs)))
    tasks = [(settings, seed, label, out) for seed in settings.seeds for label in [INITIAL, *settings.methods]]
    done: list[Measured] = []
    for run, evaluation in side_by_side([(_run, task) for task in tasks], jobs):
        done.append((run, evaluation))
        measure, mean = next(iter(run.means.items()))
        progress(len(done), len(tasks), f"{run.label}, seed {run.seed}: {measure} {mean:.4f}")
        if on_run is not None:
            on_run(run, evaluation)
        if run.stopped == "interrupted":
            raise KeyboardInterrupt
    done.sort(key=lambda each: (known.index(each[0].label), each[0].seed))
    return results_of(settings, done, baseline=baseline)


def check_methods(settings: ExperimentSettings) -> None:
    """Raise SettingError if the ranker or a method cannot be built."""
    choose(RANKERS, settings.ranker, path="ranker")
    for label in settings.methods:
        make_method(settings, label)


_cache: dict[str, tuple[Any, Any]] = {}


def _cached(name: str, key: Any, make: Callable[[], Any]) -> Any:
    """Return the last value of this name if its key is the same; a process works on one data set and log at a time."""
    if name not in _cache or _cache[name][0] != key:
        _cache[name] = (key, make())
    return _cache[name][1]


def _run(settings: ExperimentSettings, seed: int, label: str, out: Path | None) -> Measured:
    data = _cached("data", settings.data, lambda: load_data(settings.data))
    settings = with_categories(settings, data.encoding, warn=label == INITIAL and seed == settings.seed)
    log = _cached("log", (settings, seed), lambda: simulate_log(settings, graded(data), seed=seed))
    clicks, test, observation = log.simulation.clicks, data.dataset.test, log.simulation.observation
    start, folder = time.perf_counter(), None if out is None else out / f"{label}-{seed}"
    fitted: Fitted | None = None
    if label != INITIAL:
        fitted = train_method(
            settings,
            data.dataset,
            label,
            clicks=clicks,
            truth=observation,
            trust=true_trust(settings),
            held_out=log.held_out,
            seed=seed,
            out=folder,
            show=False,
        )
    scores = log.initial if fitted is None else fitted.model.score(test.lists)
    history = fitted.history if fitted else ()
    judged = [(each.epoch, each.validation) for each in history if each.validation is not None]
    evaluation = evaluate(test, scores, settings.evaluation.measures, empty=settings.evaluation.empty)
    truth = observation / max(observation[0], LEAST_OBSERVATION)
    learned = None if fitted is None or corrects_trust(fitted.model.method) else fitted.observation
    if fitted is not None and folder is not None:
        metrics = {f"test {name}": value for name, value in evaluation.means.items()}
        save_run(fitted, settings, data, folder, label=label, seed=seed, metrics=metrics, curve=learned, truth=truth)
    run = Run(
        label=label,
        seed=seed,
        means=evaluation.means,
        observation=learned,
        truth=truth,
        steps=np.array([epoch for epoch, _ in judged], dtype=np.float64),
        values=np.array([value for _, value in judged], dtype=np.float64),
        best=0 if fitted is None else fitted.best_epoch,
        stopped="" if fitted is None else fitted.stopped,
        seconds=round(time.perf_counter() - start, 2),
        observation_model="" if fitted is None else observation_model(fitted.learner, clicks),
    )
    return run, evaluation


@dataclass(frozen=True, kw_only=True)
class JudgedSettings:
    """On what models are measured, and by what.

    Attributes:
        measure: Measure, such as nDCG@10, MRR or ERR@10; may be repeated. By default those that the first model was
            trained with.
        part: Part of the data to measure on.
        data: Judged lists to measure on. By default those that the models were trained for.
    """

    measure: tuple[str, ...] = ()
    part: Part = "test"
    data: DataSettings | None = None

    def __post_init__(self) -> None:
        for name in self.measure:
            Measure.parse(name)


DEFAULT: Final = JudgedSettings()


def evaluate_judged(models: Sequence[Path], *, settings: JudgedSettings = DEFAULT) -> Comparison:
    """Measure saved models on judged lists; the others are compared with the first.

    Args:
        models: Folders of runs or models.
        settings: The lists and measures.
    """
    folders = [model_folder(path) for path in models]
    names = [folder.parent.name if folder.name == MODEL else folder.name for folder in folders]
    labels = names if len(set(names)) == len(names) else [str(path) for path in models]
    experiment = settings_of(folders, settings)
    data, measured = read_data(experiment.data), experiment.evaluation
    judged: JudgedLists = getattr(data.dataset, settings.part)
    return compare(
        {
            label: evaluate(judged, Model.load(folder).score(judged.lists), measured.measures, empty=measured.empty)
            for label, folder in zip(labels, folders, strict=True)
        },
        baseline=labels[0] if len(labels) > 1 else None,
        data=f"{data_name(experiment.data)}, {settings.part} part",
        seeds=_seeds(folders),
        remark=UNGRADED if data.log is not None and not data.log.graded else "",
    )


def settings_of(folders: Sequence[Path], settings: JudgedSettings = DEFAULT) -> ExperimentSettings:
    """Return the settings saved beside the models, which must agree on the data unless the data is given."""
    read = [each for folder in folders if (each := saved_settings(folder.parent))] or [ExperimentSettings()]
    if settings.data is None and any(each.data != read[0].data for each in read):
        raise SettingError("data", None, "name the data, as the models were trained on different data")
    measured = read[0].evaluation if not settings.measure else replace(read[0].evaluation, measures=settings.measure)
    return replace(read[0], data=settings.data or read[0].data, evaluation=measured)


def _seeds(folders: Sequence[Path]) -> list[int]:
    """Return the seeds of the models, if each was saved with settings of a single run."""
    files = [(folder.parent if folder.name == MODEL else folder) / SETTINGS for folder in folders]
    read = [read_settings(file) for file in files if file.is_file()]
    known = len(read) == len(folders) and all(each.runs == 1 for each in read)
    return sorted({each.seed for each in read}) if known else []


def draw_attention(model: Path, file: Path, *, settings: JudgedSettings = DEFAULT) -> None:
    """Write the heat map of which features an attention ranker attends to.

    Args:
        model: Folder of a run or model.
        file: Picture to write: .png, .svg or .pdf.
        settings: The lists on which attention is averaged.
    """
    from clickprism.evaluation.bias_plots import attention_heat_map, model_attention, save_picture

    if file.suffix.lower() not in PICTURES:
        raise SettingError("attention", str(file), f"end in {', '.join(PICTURES)}")
    if not file.absolute().parent.is_dir():
        raise DataError("cannot be written (there is no such folder)", file=file)
    folder = model_folder(model)
    data = read_data(settings_of([folder], settings).data)
    judged: JudgedLists = getattr(data.dataset, settings.part)
    names = None if data.log is None else data.log.names
    figure = attention_heat_map(model_attention(Model.load(folder), judged.lists), names=names)
    with write_errors(file):
        save_picture(figure, file)
