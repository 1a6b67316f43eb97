"""One ranker from beginning to end: data, clicks, training, and a folder with all that came of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from clickprism._util.files import make_folder, sha256, write_file
from clickprism.data.clicks import load_clicks, load_log
from clickprism.errors import DataError
from clickprism.evaluation.independence import Independence
from clickprism.experiments.bend import Bend, bend_of
from clickprism.experiments.bias import independence_of
from clickprism.experiments.codes import warn_of_codes
from clickprism.experiments.run_record import record
from clickprism.experiments.settings import ExperimentSettings, resolved
from clickprism.experiments.stages import (
    Data,
    load_data,
    simulate_log,
    told_names,
    train_method,
    true_curve,
    true_trust,
)
from clickprism.settings import to_toml
from clickprism.training.distributed import place
from clickprism.training.settings import Fitted
from clickprism.types import Clicks, Float64, Simulation
from clickprism.users.base import User

SETTINGS = "settings.toml"
MODEL = "model"
CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True, eq=False)
class Trained:
    """What `train_ranker` did.

    Attributes:
        fitted: the model, its history, and why training ended.
        clicks: what it was trained on.
        truth: what the method's curve should be, where a simulation made the clicks: the true observation by position,
            or the true alpha of a method that corrects trust.
        model: the folder of the saved model, which takes raw features.
        bend: how documents bend the observation; None for a method in which they cannot, and but in the first of
            several processes.
        independence: Delta-CI over the log; None for a method that does not say relevance given observation, and but
            in the first of several processes.
    """

    fitted: Fitted
    clicks: Clicks
    truth: Float64 | None
    model: Path
    bend: Bend | None = None
    independence: Independence | None = None


def train_ranker(
    settings: ExperimentSettings,
    label: str,
    *,
    out: Path,
    clicks: Path | None = None,
    held_out: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Trained:
    """Train one method with the first seed of the settings, and save the model with its normaliser.

    The folder gets model/, metrics.jsonl, run.json, settings.toml (which `read_settings` takes back, and which names
    the file of clicks in a comment) and a checkpoint. Where several processes train together (`torchrun`), the first
    writes.

    Args:
        settings: of the experiment.
        label: which of its methods.
        out: the folder.
        clicks: a file of clicks on the training part; without one, an impression log has its own, and elsewhere users
            are simulated. A truth saved in it gives `ipw` its propensities.
        held_out: a file of clicks on the validation part, to validate by where evaluation.validation is "clicks".
        resume: go on from the checkpoint in `out`, if there is one.
        show: a progress bar; by default on a terminal only.
    """
    seed = settings.seeds[0]
    text = to_toml(resolved(replace(settings, runs=1), methods=[label]))
    first = place()[0] == 0
    if first:
        make_folder(out)
    data = load_data(settings.data)
    settings = told_names(settings, data.vocabulary)
    if first:
        warn_of_codes(settings, data.vocabulary)
    if not data.dataset.train.lists.features.shape[1]:
        remedy = 'Add columns to the log, or make the item one: data.impressions.categorical=["item_id"]'
        raise DataError("there is nothing to learn from: the documents have no features", remedy=remedy)
    log, truth, validation, user = _log(settings, label, data, clicks=clicks, held_out=held_out)
    if first:
        if not resume:
            (out / CHECKPOINT).unlink(missing_ok=True)
        write_file(out / SETTINGS, _made_from(clicks) + text)
    trust = true_trust(settings) if clicks is None and data.log is None else None
    fitted = train_method(
        settings,
        data.dataset,
        label,
        clicks=log,
        truth=truth,
        trust=trust,
        held_out=validation,
        seed=seed,
        out=out,
        resume=resume,
        show=show,
    )
    true = true_curve(fitted.model.method, truth, trust)
    if first:
        fitted.model.with_normaliser(data.normaliser).save(out / MODEL)
        metrics = {f"validation {settings.evaluation.validation}": fitted.best_value}
        kept = record(
            settings,
            data,
            label=label,
            seed=seed,
            metrics=metrics,
            observation=fitted.observation,
            truth=true,
            clicks=None if clicks is None else f"of the file {clicks.name}",
        )
        kept.write(out)
    bend = bend_of(fitted.learner, log, user) if first else None
    gap = independence_of(fitted.learner, log) if first else None
    return Trained(fitted, log, true, out / MODEL, bend, gap)


def _made_from(clicks: Path | None) -> str:
    """A comment that names the file of clicks, which the settings do not tell."""
    if clicks is None:
        return ""
    return f"# clicks: {json.dumps(str(clicks))}, sha256 {sha256(clicks)}\n"


def _log(
    settings: ExperimentSettings,
    label: str,
    data: Data,
    *,
    clicks: Path | None,
    held_out: Path | None,
) -> tuple[Clicks, Float64 | None, Clicks | None, User | None]:
    """The clicks, the true observation where it is known, the clicks to validate by, and who clicked if simulated."""
    seed, dataset = settings.seeds[0], data.dataset
    kept = None if held_out is None else load_clicks(held_out, dataset.validation.lists)
    if data.log is not None and kept is None:
        kept = data.log.clicks["validation"]
    if clicks is None and data.log is not None:
        return data.log.clicks["train"], None, kept, None
    if clicks is None:
        made = simulate_log(replace(settings, methods={label: settings.methods.get(label, {})}), dataset, seed=seed)
        chosen = made.held_out if kept is None else kept
        return made.simulation.clicks, made.simulation.observation, chosen, made.user
    log, truth = load_log(clicks, dataset.train.lists)
    return log, None if truth is None else Simulation(log, truth).observation, kept, None
