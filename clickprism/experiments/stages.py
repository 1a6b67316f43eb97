"""The stages of an experiment, each a function of its settings: load, simulate, train, evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from clickprism.data.impression_parts import UNGRADED, ImpressionParts, load_impressions
from clickprism.data.normalise import Kind, Normaliser, normalised
from clickprism.data.recipes import RECIPES, load, load_parts
from clickprism.data.synthetic import synthetic
from clickprism.data.vocabulary import Vocabulary
from clickprism.debias import METHODS
from clickprism.errors import SettingError
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.experiments.settings import DataSettings, EvaluationSettings, ExperimentSettings
from clickprism.model import Model
from clickprism.rankers import RANKERS
from clickprism.settings import choose, resolve, suggest
from clickprism.simulation.clicks import ideal_clicks, simulate
from clickprism.training.settings import FitSettings, Fitted, Validation
from clickprism.types import Bool, Clicks, Dataset, Float64, JudgedLists, Simulation
from clickprism.users import USERS
from clickprism.users.base import User, adapted
from clickprism.users.trust import TrustUser

LEAST_OBSERVATION = 1e-3
WEIGHTED = ("ipw", "click_groups")  # methods that are told the true observation where nothing else is said
S = TypeVar("S", bound=ExperimentSettings)
Part = Literal["train", "validation", "test"]


@dataclass(frozen=True, eq=False)
class Data:
    """A data set as learners and users see it, and what made it so from the raw one.

    Attributes:
        dataset: with normalised features.
        normaliser: what made them.
        vocabulary: what each feature is, where some are codes of names; None where none is.
        log: the clicks on each part, where the data is a log of real users.
    """

    dataset: Dataset
    normaliser: Normaliser
    vocabulary: Vocabulary | None = None
    log: ImpressionParts | None = None


@dataclass(frozen=True, eq=False)
class Log:
    """A simulated log and what it came from.

    Attributes:
        simulation: clicks on the training part, and the truth.
        held_out: clicks on the validation part by the same users and the same initial ranking.
        initial: scores of the test part's documents by the initial ranker (the first, if there are several).
        user: who clicked, adapted to the training part.
    """

    simulation: Simulation
    held_out: Clicks
    initial: Float64
    user: User


def load_data(settings: DataSettings) -> Data:
    """Load or generate the judged lists and normalise them, by the statistics of the training part."""
    read = _read(settings)
    dataset, normaliser = normalised(read.dataset, read.kind, keep=read.keep)
    if read.log is not None:
        log = _kept_log(settings, read.log.over(dataset))
        return Data(log.dataset, normaliser, read.vocabulary, log)
    return Data(_kept(settings, dataset), normaliser, read.vocabulary)


def load_raw(settings: DataSettings) -> Dataset:
    """Load or generate the judged lists with the features as they are: what a model that normalises takes."""
    return load_named(settings)[0]


def load_named(settings: DataSettings) -> tuple[Dataset, tuple[str, ...] | None]:
    """The same, and what the features are called; None where they have numbers only."""
    read = _read(settings)
    return _kept(settings, read.dataset), read.names


def graded(data: Data) -> Dataset:
    """The data set, if it has grades for simulated users to click by."""
    if data.log is not None and not data.log.graded:
        must = "have a column of relevance where users are simulated, as they click by grades; train takes its clicks"
        raise SettingError("data.source", "impressions", must)
    return data.dataset


def simulate_log(settings: ExperimentSettings, dataset: Dataset, *, seed: int) -> Log:
    """Let users search the training part, and the validation part, in the ranking of the same initial rankers."""
    seeds = np.random.SeedSequence(seed).generate_state(settings.simulation.rankers + 2).tolist()
    rankers = [settings.simulation.initial.fit(dataset.train, seed=one) for one in seeds[2:]]
    user = adapted(choose(USERS, settings.user, path="user"), dataset.train, seed=seed)
    made = replace(settings.simulation, max_grade=settings.simulation.max_grade or top_grade(dataset))
    if made.merge == "list" and any(_needs_patterns(settings, label) for label in settings.methods):
        made = replace(made, merge="pattern")
    parts = [
        simulate(
            part,
            user,
            sessions=settings.sessions,
            seed=one,
            settings=made,
            scores=np.stack([ranker(part.lists.features) for ranker in rankers]),
        )
        for part, one in ((dataset.train, seeds[0]), (dataset.validation, seeds[1]))
    ]
    return Log(parts[0], parts[1].clicks, rankers[0](dataset.test.lists.features), user)


def top_grade(dataset: Dataset) -> int:
    """The top of the grading scale as users know it: of few queries one part may lack the highest grades."""
    return max(dataset.train.max_grade, dataset.validation.max_grade)


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
    """Train the ranker of the settings by one method.

    Args:
        settings: of the experiment.
        dataset: the labels are used by the method `labels` only, and by the validation.
        label: which of `settings.methods`.
        clicks: the log.
        truth: the true observation by position, for `ipw` and its like where no propensities are set.
        trust: of the simulated users, for `affine` where no alpha and beta are set (`true_trust`).
        held_out: clicks to validate by, where the settings say so.
        seed: of the training.
        out: a folder for metrics.jsonl and the checkpoint.
        resume: go on from the checkpoint.
        show: a progress bar.
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
    """The method of this label; what a simulation knows of its users goes to those that weigh by it, if not set."""
    if label not in settings.methods and label not in METHODS:
        raise SettingError("methods", label, f"be a known name ({suggest(label, [*METHODS, *settings.methods])})")
    values = dict(settings.methods.get(label, {}))
    told = _takes_truth(values, label)
    if told == "propensities" and truth is not None:
        values["propensities"] = np.maximum(truth, LEAST_OBSERVATION).tolist()
    if told == "trust" and truth is not None and trust is not None:
        plus, minus = trust[:, : len(truth)]
        values["alpha"] = np.maximum(truth * (plus - minus), LEAST_OBSERVATION).tolist()
        values["beta"] = (truth * minus).tolist()
    return choose(METHODS, values, path=f"methods.{label}", name=label)


def true_trust(settings: ExperimentSettings) -> Float64:
    """By position, how probably a relevant and an irrelevant document are clicked once seen, [2, positions].

    Only users who trust what stands high click what they do not find relevant.
    """
    user, positions = choose(USERS, settings.user, path="user"), np.arange(1, settings.simulation.length + 1)
    if isinstance(user, TrustUser):
        return np.stack(user.trust(positions))
    return np.stack([np.ones(len(positions)), np.zeros(len(positions))])


def corrects_trust(method: Mapping[str, Any]) -> bool:
    """Whether the curve of a method (as `Model.method` has it) is alpha, which trust makes another than observation."""
    return method.get("name") == "affine" or bool(method.get("trust", False))


def true_curve(method: Mapping[str, Any], truth: Float64 | None, trust: Float64 | None) -> Float64 | None:
    """What the curve of a method should be: the true observation, or alpha; None where it is not known."""
    if truth is None or not corrects_trust(method):
        return truth
    return None if trust is None else np.asarray(truth * (trust[0] - trust[1])[: len(truth)], dtype=np.float64)


def _needs_patterns(settings: ExperimentSettings, label: str) -> bool:
    name = settings.methods[label].get("name", label)
    return bool(resolve(METHODS, name, path=f"methods.{label}").needs_patterns)


def is_told(settings: ExperimentSettings, label: str) -> bool:
    """Whether a method is told what no log tells, the grades or the true observation: out of competition then."""
    values = settings.methods.get(label, {})
    return values.get("name", label) == "labels" or _takes_truth(values, label) is not None


def _takes_truth(values: Mapping[str, Any], label: str) -> Literal["propensities", "trust"] | None:
    """What a method is told of the true users: nothing if it is given or estimates it, or needs none."""
    name = values.get("name", label)
    if values.get("estimate", "none") != "none":
        return None
    if name in WEIGHTED and not values.get("propensities"):
        return "propensities"
    return "trust" if name == "affine" and not values.get("alpha") else None


def evaluate_models(
    settings: ExperimentSettings,
    models: Mapping[str, Path],
    *,
    part: Part = "test",
    confidence: float = 0.95,
    seeds: Sequence[int] = (),
) -> Comparison:
    """Measure saved models on the data of the settings, whose raw features each normalises by itself.

    With several models, the others are compared with the first; `seeds` are those of the models, for the reader.
    """
    read = _read(settings.data)
    judged: JudgedLists = getattr(_kept(settings.data, read.dataset), part)
    measures, empty = settings.evaluation.measures, settings.evaluation.empty
    evaluations = {
        label: evaluate(judged, Model.load(folder).score(judged.lists), measures, empty=empty)
        for label, folder in models.items()
    }
    baseline = next(iter(models)) if len(models) > 1 else None
    name = f"{data_name(settings.data)}, {part} part"
    remark = UNGRADED if read.log is not None and not read.log.graded else ""
    return compare(evaluations, baseline=baseline, confidence=confidence, data=name, seeds=seeds, remark=remark)


def data_name(settings: DataSettings) -> str:
    """What the data is called in tables and reports.

    >>> data_name(DataSettings(source="mq2008", folder="mq2008", fold=2))
    'mq2008/fold2'
    """
    if settings.source == "synthetic":
        made = settings.synthetic
        counts = f"{made.train_queries}, {made.validation_queries} and {made.test_queries} queries"
        return f"embedded data ({counts} to train, validate and test; seed {made.seed})"
    if settings.source in ("files", "impressions"):
        files = [getattr(settings, part) for part in ("train", "validation", "test")]
        return ", ".join(str(file) for file in files if file is not None)
    return f"{settings.source}/fold{settings.fold}" if RECIPES[settings.source].folds else settings.source


@dataclass(frozen=True, eq=False)
class _Read:
    """The data as it is, what to do to its features and to which not, what they are and are called, clicks of a log."""

    dataset: Dataset
    kind: Kind
    keep: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None
    log: ImpressionParts | None = None
    names: tuple[str, ...] | None = None


def _read(settings: DataSettings) -> _Read:
    kind: Kind = "none" if settings.normalise == "recipe" else settings.normalise
    if settings.source == "synthetic":
        return _Read(synthetic(settings.synthetic), kind)
    paths = (settings.train or "", settings.validation, settings.test)
    if settings.source == "files":
        train, validation, test = (path or "" for path in paths)
        return _Read(load_parts(train, validation, test, missing="nan", on_error=settings.on_error), kind)
    if settings.source == "impressions":
        log = load_impressions(*paths, settings=settings.impressions, on_error=settings.on_error)
        if not log.graded and settings.drop_without_relevant:
            must = "be false for a log without a column of relevance: it would choose lists by clicks"
            raise SettingError("data.drop_without_relevant", settings.drop_without_relevant, must)
        return _named(settings, log)
    dataset = load(
        settings.source, settings.folder or "", fold=settings.fold, normalise="none", on_error=settings.on_error
    )
    return _Read(dataset, RECIPES[settings.source].normalise if settings.normalise == "recipe" else kind)


def _named(settings: DataSettings, log: ImpressionParts) -> _Read:
    """Data with names among its features, as codes or as indicators."""
    dataset, vocabulary = log.dataset, log.vocabulary
    kind: Kind = "standard" if settings.normalise == "recipe" else settings.normalise
    if settings.names == "codes":
        return _Read(dataset, kind, vocabulary.categorical, vocabulary, log, tuple(vocabulary.columns))
    dataset = dataset.map(lambda part: part.with_features(vocabulary.indicators(part.lists.features)))
    return _Read(dataset, kind, vocabulary.indicator_places, None, log, vocabulary.indicator_names)


def told_names(settings: S, vocabulary: Vocabulary | None) -> S:
    """The settings with the ranker told which features are codes, where it can embed them and was not told itself."""
    known = {field.name for field in fields(resolve(RANKERS, settings.ranker["name"], path="ranker"))}
    if vocabulary is None or "categorical" not in known or settings.ranker.get("categorical"):
        return settings
    return replace(settings, ranker={**settings.ranker, **vocabulary.for_ranker()})


def _kept(settings: DataSettings, dataset: Dataset) -> Dataset:
    return dataset.map(JudgedLists.with_relevant) if settings.drop_without_relevant else dataset


def _kept_log(settings: DataSettings, log: ImpressionParts) -> ImpressionParts:
    """The lists that stay, and the clicks on them."""
    if not settings.drop_without_relevant:
        return log
    keep: dict[str, Bool] = {}
    for part in ("train", "validation", "test"):
        judged: JudgedLists = getattr(log.dataset, part)
        keep[part] = np.bincount(judged.lists.list_of, weights=judged.grades, minlength=len(judged)) > 0
    return log if all(mask.all() for mask in keep.values()) else log.take(keep)


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
