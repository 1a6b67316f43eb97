"""Train one ranker: from clicks and a method to a folder with the model and a record of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import msgspec
import numpy as np

from clickprism._util.files import make_folder, sha256, write_file
from clickprism._util.tables import Table, by_position, to_json
from clickprism.click_models import USERS
from clickprism.click_models.trust import TrustUser
from clickprism.data.clicks import fingerprint, load_clicks, load_log
from clickprism.debias import METHODS
from clickprism.debias.loop import Stopped
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.independence import ConditionalLearner, learner_independence
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.experiments.data import Data, data_name, data_of, load_data, simulate_log, with_categories
from clickprism.experiments.settings import EvaluationSettings, ExperimentSettings, resolved
from clickprism.rankers import RANKERS
from clickprism.settings import choose, suggest, to_toml
from clickprism.simulation.clicks import ideal_clicks
from clickprism.training.settings import FitSettings, Fitted, Validation
from clickprism.types import Clicks, Dataset, Float64, JudgedLists, Simulation

if TYPE_CHECKING:
    from clickprism.debias.base import Learner

LEAST_OBSERVATION = 1e-3
SETTINGS, MODEL, RUN, CHECKPOINT = "settings.toml", "model", "run.json", "checkpoint.safetensors"
ENCODING = "encoding.json"  # how the columns of a table became the features
ENDS: Final = {"epochs": "all epochs", "patience": "no improvement", "interrupted": "interrupted"}


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of `train_ranker`.

    Attributes:
        method: Label of the method.
        ranker: Name of the ranker.
        seed: Random seed.
        log: File or folder of the clicks; None if they were simulated or come from the settings.
        model: Folder of the saved model, which takes raw features.
        best: Epoch (of trees: number of trees) that was chosen.
        epochs: Number of epochs (trees) that were trained.
        stopped: Why training ended.
        validation: What chose the epoch.
        value: Value of the validation at that epoch; None without one.
        observation: Observation by position, relative to the first, as the method learned it; None if it has none.
        truth: What that curve should be, if the clicks were simulated: the true observation relative to the first
            position, or the true alpha of a method that corrects trust bias.
        observation_model: What the method says about observation, see `observation_model`.
    """

    method: str
    ranker: str
    seed: int
    log: str | None
    model: Path
    best: int
    epochs: int
    stopped: Stopped
    validation: str
    value: float | None
    observation: Float64 | None
    truth: Float64 | None
    observation_model: str = ""

    def tables(self) -> list[Table]:
        """Return a summary, and the observation by position."""
        unit = "trees" if self.ranker == "lambdamart" else "epoch"
        rows = [[f"best {unit}", f"{self.best} of {self.epochs} (stopped: {ENDS[self.stopped]})"]]
        rows += [] if self.value is None else [[f"validation by {self.validation}", f"{self.value:.4f}"]]
        rows += [] if self.log is None else [["clicks", self.log]]
        rows.append(["model", str(self.model)])
        rows += [["observation model", self.observation_model]] if self.observation_model else []
        tables = [Table(f"{self.method}, {self.ranker}, seed {self.seed}", ["", ""], rows)]
        if self.observation is not None:
            truth = [None] * len(self.observation) if self.truth is None else self.truth
            curves = {"used": self.observation, "truth": truth}
            tables.append(by_position("Observation relative to position 1", curves))
        return tables


def train_ranker(
    settings: ExperimentSettings,
    *,
    method: str,
    out: Path,
    source: Path | None = None,
    held_out: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Trained:
    """Train one method with the first seed of the settings, and save the model with its normaliser.

    The folder gets model/, metrics.jsonl, run.json, settings.toml (which names a file of simulated clicks in a
    comment), encoding.json (how the columns of a table became the features) and a checkpoint. In a log without grades
    the epoch is chosen by held-out clicks.

    Args:
        settings: Settings of the experiment.
        method: Name or label of the method.
        out: Folder of the run.
        source: The log: an ingested log, a frame with one row per result (CSV, TSV, JSON lines, Parquet), or a
            simulated log (.npz) on the training part of the data that it records, or else of settings.data. Without
            one, the clicks are those of settings.data if that is a log, else users are simulated.
        held_out: A simulated log on the validation part, for evaluation.validation = "clicks".
        resume: Whether to continue from the checkpoint in `out`, if there is one.
        show: Whether to show a progress bar; by default only on a terminal.
    """
    clicks = source if source is not None and source.suffix == ".npz" else None
    if source is not None:
        settings = replace(settings, data=data_of(source, settings.data))
    make_folder(out)
    data = load_data(settings.data)
    settings = _without_grades(settings, data)
    text = to_toml(resolved(replace(settings, runs=1), methods=[method]))
    settings = with_categories(settings, data.encoding)
    if not data.dataset.train.lists.features.shape[1]:
        remedy = "Add columns with features, or use the item as one: --data.table.features item_id"
        raise DataError("there is nothing to learn from: the documents have no features", remedy=remedy)
    log = _log(settings, method, data, clicks=clicks, held_out=held_out)
    if not resume:
        (out / CHECKPOINT).unlink(missing_ok=True)
    comment = "" if clicks is None else f"# clicks: {json.dumps(str(clicks))}, sha256 {sha256(clicks)}\n"
    write_file(out / SETTINGS, comment + text)
    trust = true_trust(settings) if clicks is None and data.log is None else None
    fitted = train_method(
        settings,
        data.dataset,
        method,
        clicks=log.clicks,
        truth=log.observation,
        trust=trust,
        held_out=log.held_out,
        seed=settings.seed,
        out=out,
        resume=resume,
        show=show,
    )
    truth = true_curve(fitted.model.method, log.observation, trust)
    save_run(
        fitted,
        settings,
        data,
        out,
        label=method,
        seed=settings.seed,
        metrics={f"validation {settings.evaluation.validation}": fitted.best_value},
        curve=fitted.observation,
        truth=truth,
        clicks=None if clicks is None else f"of the file {clicks.name}",
    )
    return Trained(
        method=method,
        ranker=settings.ranker["name"],
        seed=settings.seed,
        log=None if source is None else str(source),
        model=out / MODEL,
        best=fitted.best_epoch,
        epochs=fitted.history[-1].epoch if fitted.history else 0,
        stopped=fitted.stopped,
        validation=settings.evaluation.validation,
        value=fitted.best_value,
        observation=fitted.observation,
        truth=None if truth is None else truth / truth[0],
        observation_model=observation_model(fitted.learner, log.clicks),
    )


def observation_model(learner: Learner | None, clicks: Clicks) -> str:
    """Return what a trained method says about observation: Delta-CI over its log, or the form that it chose."""
    if isinstance(learner, ConditionalLearner):
        return str(learner_independence(learner, clicks.merge()))
    return "" if learner is None else learner.observation_model


@dataclass(frozen=True, eq=False)
class _Clicks:
    """Clicks to train on and to validate by; the observation if they were simulated."""

    clicks: Clicks
    held_out: Clicks | None
    observation: Float64 | None = None


def _log(
    settings: ExperimentSettings, label: str, data: Data, *, clicks: Path | None, held_out: Path | None
) -> _Clicks:
    dataset = data.dataset
    kept = None if held_out is None else load_clicks(held_out, dataset.validation.lists)
    if data.log is not None and kept is None:
        kept = data.log.clicks["validation"]
    if clicks is not None:
        log, truth = load_log(clicks, dataset.train.lists)
        return _Clicks(log, kept, None if truth is None else Simulation(log, truth).observation)
    if data.log is not None:
        return _Clicks(data.log.clicks["train"], kept)
    only = replace(settings, methods={label: settings.methods.get(label, {})})
    made = simulate_log(only, dataset, seed=settings.seed)
    return _Clicks(made.simulation.clicks, made.held_out if kept is None else kept, made.simulation.observation)


def _without_grades(settings: ExperimentSettings, data: Data) -> ExperimentSettings:
    """Return the settings with validation by clicks if the data has no grades, or without one if it has no clicks."""
    if data.log is None or data.log.graded or settings.evaluation.validation == "none":
        return settings
    by = "clicks" if data.log.clicks["validation"].clicks.any() else "none"
    return replace(settings, evaluation=replace(settings.evaluation, validation=by))


def train_method(
    settings: ExperimentSettings,
    dataset: Dataset,
    label: str,
    *,
    clicks: Clicks,
    truth: Float64 | None = None,
    trust: Float64 | None = None,
    held_out: Clicks | None = None,
    seed: int,
    out: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Fitted:
    """Train the ranker of the settings on clicks by one method.

    The labels of the data set are used by the method `labels` and by validation only. The true observation (`truth`) is
    for `ipw` and similar methods if no propensities are set, `true_trust` for `affine` if no alpha and beta are set.
    """
    from clickprism.training.fit import fit

    method = make_method(settings, label, truth=truth, trust=trust)
    if method.name == "labels":
        clicks = ideal_clicks(dataset.train)
    elif not method.needs_patterns and settings.simulation.merge != "none":
        clicks = clicks.merge()
    return fit(
        clicks,
        method=method,
        ranker=choose(RANKERS, settings.ranker, path="ranker"),
        settings=FitSettings(**{**asdict(settings.fit), "seed": seed}),
        validation=_validation(settings.evaluation, dataset, held_out, labels=method.name == "labels"),
        out=out,
        resume=resume,
        show=show,
    )


def make_method(
    settings: ExperimentSettings, label: str, *, truth: Float64 | None = None, trust: Float64 | None = None
) -> Any:
    """Return the method of this label; methods that weight clicks get the truth if they are not given weights."""
    if label not in settings.methods and label not in METHODS:
        raise SettingError("methods", label, f"be a known name ({suggest(label, [*METHODS, *settings.methods])})")
    values = dict(settings.methods.get(label, {}))
    taken = _takes_truth(values, label)
    if taken == "propensities" and truth is not None:
        values["propensities"] = np.maximum(truth, LEAST_OBSERVATION).tolist()
    if taken == "trust" and truth is not None and trust is not None:
        plus, minus = trust[:, : len(truth)]
        values["alpha"] = np.maximum(truth * (plus - minus), LEAST_OBSERVATION).tolist()
        values["beta"] = (truth * minus).tolist()
    return choose(METHODS, values, path=f"methods.{label}", name=label)


def true_trust(settings: ExperimentSettings) -> Float64:
    """Return, by position, the probability that a relevant and an irrelevant observed document is clicked.

    Only users with trust bias click documents that they do not find relevant. The shape is [2, positions].
    """
    user, positions = choose(USERS, settings.user, path="user"), np.arange(1, settings.simulation.length + 1)
    if isinstance(user, TrustUser):
        return np.stack(user.trust(positions))
    return np.stack([np.ones(len(positions)), np.zeros(len(positions))])


def corrects_trust(method: Mapping[str, Any]) -> bool:
    """Return whether the curve of a method (see `Model.method`) is alpha, which differs from observation by trust."""
    return method.get("name") == "affine" or bool(method.get("trust", False))


def true_curve(method: Mapping[str, Any], truth: Float64 | None, trust: Float64 | None) -> Float64 | None:
    """Return the true curve that a method estimates: the observation, or alpha; None if it is not known."""
    if truth is None or not corrects_trust(method):
        return truth
    return None if trust is None else np.asarray(truth * (trust[0] - trust[1])[: len(truth)], dtype=np.float64)


def uses_truth(settings: ExperimentSettings, label: str) -> bool:
    """Return whether a method uses the grades or the true observation, which no log contains."""
    values = settings.methods.get(label, {})
    return values.get("name", label) == "labels" or _takes_truth(values, label) is not None


def _takes_truth(values: Mapping[str, Any], label: str) -> Literal["propensities", "trust"] | None:
    """Return which truth about simulated users a method takes; None if it is given, estimated or not needed."""
    name = values.get("name", label)
    if values.get("estimate", "none") != "none":
        return None
    if name == "ipw" and not values.get("propensities"):
        return "propensities"
    return "trust" if name == "affine" and not values.get("alpha") else None


def _validation(
    settings: EvaluationSettings, dataset: Dataset, held_out: Clicks | None, *, labels: bool
) -> Validation | Clicks | None:
    if settings.validation == "none":
        return None
    if settings.validation == "clicks":
        if labels:
            return ideal_clicks(dataset.validation)
        if held_out is None:
            raise SettingError("evaluation.validation", "clicks", "be a measure if no clicks were held out")
        return held_out
    return judged_validation(dataset.validation, settings.validation)


def judged_validation(judged: JudgedLists, measure: str) -> Validation:
    """Return a validation by a measure on judged lists."""
    parsed = Measure.parse(measure)
    return Validation(
        str(parsed),
        lambda score: evaluate(judged, score(judged.lists), parsed).mean(parsed),
        higher_is_better=parsed.higher_is_better,
    )


@final
@dataclass(frozen=True)
class RunRecord:
    """run.json: what a run was, beside its model, for bundles.

    Attributes:
        label: Label of the method.
        seed: Random seed.
        data: Name, fingerprint and size of the data.
        metrics: Values by part and measure.
        observation: Observation by position, relative to the first; empty if there is none.
        truth: The same of the simulated users; empty if it is not known.
        feature_names: Names of the features, in order; empty if they have none.
    """

    label: str
    seed: int
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    observation: tuple[float, ...] = ()
    truth: tuple[float, ...] = ()
    feature_names: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> RunRecord | None:
        """Return the record of a folder; None if there is none."""
        try:
            return msgspec.json.decode((folder / RUN).read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except (ValueError, msgspec.MsgspecError) as error:
            raise DataError(f"is not the record of a run ({error})", file=folder / RUN) from None


def save_run(
    fitted: Fitted,
    settings: ExperimentSettings,
    data: Data,
    folder: Path,
    *,
    label: str,
    seed: int,
    metrics: Mapping[str, float | None],
    curve: Float64 | None,
    truth: Float64 | None,
    clicks: str | None = None,
) -> None:
    """Write the model, the encoding of a table, and run.json; `clicks` says where they come from if `data` does not."""
    fitted.model.with_normaliser(data.normaliser).save(folder / MODEL)
    if data.encoding is not None:
        data.encoding.save(folder / ENCODING)
    lists = data.dataset.train.lists
    about = {
        "name": data_name(settings.data, folders=False),
        "fingerprint": fingerprint(lists),
        "queries": len(lists),
        "documents": lists.documents,
        "clicks": clicks or ("of real users" if data.log is not None else f"simulated: {settings.user['name']}"),
    }
    observation, true = (() if each is None else tuple(map(float, each)) for each in (curve, truth))
    known = {name: float(value) for name, value in metrics.items() if value is not None and np.isfinite(value)}
    names = () if data.log is None else data.log.names
    write_file(folder / RUN, to_json(RunRecord(label, seed, about, known, observation, true, names)) + "\n")
