"""Examples of a run for the page of its bundle: the log that its users made, ranked by two of its models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clickprism.errors import DataError
from clickprism.experiments.bundle import model_folder
from clickprism.experiments.run_record import RunRecord
from clickprism.experiments.settings import ExperimentSettings, read_settings
from clickprism.experiments.stages import graded, load_data, load_raw, simulate_log
from clickprism.model import Model
from clickprism.serve.examples import MOST, Examples, examples_of
from clickprism.types import Float64


def run_examples(
    settings: ExperimentSettings,
    debiased: Model,
    naive: Model | None = None,
    *,
    seed: int,
    observation: Float64 | None = None,
    most: int = MOST,
) -> Examples:
    """Examples of the training part of a run.

    Args:
        settings: of the experiment.
        debiased: a model of it that takes raw features, as runs save them.
        naive: one that took clicks for relevance.
        seed: of the run.
        observation: by position, relative to the first, as the debiased method has it.
        most: queries.
    """
    data = load_data(settings.data)
    log = data.log.clicks["train"] if data.log is not None else None
    clicks = simulate_log(settings, graded(data), seed=seed).simulation.clicks if log is None else log
    raw = load_raw(settings.data).train.lists
    by = "real users" if log is not None else f"simulated users ({settings.user['name']})"
    shown = np.asarray(debiased.score(raw)), None if naive is None else np.asarray(naive.score(raw))
    return examples_of(clicks, *shown, observation=observation, source=f"{by}, training part", most=most)


def examples_of_run(run: Path, *, naive: Path | None = None, most: int = MOST) -> Examples:
    """Examples of the folder of a run, whose log is simulated again, or read again where the data is a log.

    Args:
        run: with run.json, settings.toml and model/, as `clickprism train` and `compare` write them.
        naive: a run or model that took clicks for relevance.
        most: queries.
    """
    known = RunRecord.read(run)
    settings = next((file for file in (run / "settings.toml", run.parent / "settings.toml") if file.is_file()), None)
    if known is None or settings is None or str(known.data.get("clicks", "")).startswith("of the file"):
        problem = "does not say what its clicks were, so that there are no examples of them"
        raise DataError(
            problem, file=run, remedy="Make them by clickprism.serve.examples.examples_of, or leave them out"
        )
    return run_examples(
        read_settings(settings, ()),
        Model.load(run / "model"),
        None if naive is None else Model.load(model_folder(naive)),
        seed=known.seed,
        observation=np.array(known.observation) if known.observation else None,
        most=most,
    )
