"""Every setting of an experiment in one place, and how a TOML file and `key=value` words become it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from clickprism.data.adressa import AdressaSettings
from clickprism.data.filters import FILTERS, FilterName
from clickprism.data.normalise import Kind
from clickprism.data.recipes import RECIPES
from clickprism.data.roles import ImpressionSettings
from clickprism.data.synthetic import SyntheticSettings
from clickprism.debias import METHODS
from clickprism.errors import SettingError
from clickprism.evaluation.measures import Empty, Measure
from clickprism.rankers import RANKERS
from clickprism.settings import build, choose, override, plain, read_toml, suggest
from clickprism.simulation.clicks import SimulationSettings
from clickprism.training.settings import FitSettings
from clickprism.users import USERS

DEFAULT_METHODS = ("labels", "click", "ipw", "dla")
Items: TypeAlias = Literal["auto", "ids", "features", "none"]
SOURCES = ("synthetic", "files", "impressions", "adressa", *RECIPES)


@dataclass(frozen=True)
class DataSettings:
    """Where judged lists come from.

    Attributes:
        source: "synthetic" for the embedded data, the name of a recipe or "adressa" (with `folder`), "files" (LETOR
            text, with `train`, `validation` and `test`), or "impressions" (logs with clicks, with all three, or with
            `train` alone, which is then split).
        folder: where the files of a recipe are.
        train: file of the training part.
        validation: file of the validation part.
        test: file of the test part.
        fold: of a recipe with folds.
        normalise: what to do to the features; "recipe" is what the papers on that data do, "standard" for impressions
            and Adressa, and nothing elsewhere. Codes of names are left as they are.
        drop_without_relevant: leave out lists without a relevant document, from every part.
        filter: which lists a paper leaves out, from every part: "inforank" those of more than 50 documents and those
            without a relevant one; "none" none.
        names: of impressions and Adressa: "codes" for a ranker that embeds them (attention), or "indicators", a feature
            for each name, for one that does not (mlp, linear).
        on_error: "raise", or "quarantine" to leave broken lines out.
        synthetic: of the embedded data.
        impressions: which column of an impression log is what.
        adressa: how lists are made of Adressa's events.
    """

    source: str = "synthetic"
    folder: str | None = None
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    fold: int = 1
    normalise: Kind | Literal["recipe"] = "recipe"
    drop_without_relevant: bool = False
    filter: FilterName = "none"
    names: Literal["codes", "indicators"] = "codes"
    on_error: Literal["raise", "quarantine"] = "raise"
    synthetic: SyntheticSettings = field(default_factory=SyntheticSettings)
    impressions: ImpressionSettings = field(default_factory=ImpressionSettings)
    adressa: AdressaSettings = field(default_factory=AdressaSettings)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise SettingError("source", self.source, f"be a known source ({suggest(self.source, SOURCES)})")
        if (self.source in RECIPES or self.source == "adressa") and self.folder is None:
            raise SettingError("folder", None, f"say where the files of {self.source} are")
        for part in ("train", "validation", "test"):
            if self.source == "files" and getattr(self, part) is None:
                raise SettingError(part, None, "name a file when data.source is 'files'")
        if self.source == "impressions" and self.train is None:
            raise SettingError("train", None, "name a log when data.source is 'impressions'")
        if self.filter not in ("none", *FILTERS):
            raise SettingError("filter", self.filter, f"be a known filter ({suggest(self.filter, ['none', *FILTERS])})")


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured, and what chooses the best epoch.

    Attributes:
        measures: on the test part; the first is the one that tables lead with.
        empty: what queries without a relevant document count: "drop" (not at all), "zero" or "one".
        validation: a measure on the judged validation part; or "clicks", the likelihood of clicks on the validation
            part, for which no label is needed; or "none", to take the last epoch.
        items: what an item is where a comparison looks at popularity: "ids" what has the same document id, "features"
            a cluster of alike documents, "none" to leave popularity out; "auto" by ids where training and test part
            share a quarter of them, else by clusters where that takes a second.
    """

    measures: tuple[str, ...] = ("nDCG(exp)@10",)
    empty: Empty = "drop"
    validation: str = "nDCG(exp)@10"
    items: Items = "auto"

    def __post_init__(self) -> None:
        if not self.measures:
            raise SettingError("measures", self.measures, "name at least one measure")
        for name in self.measures:
            Measure.parse(name)
        if self.validation not in {"clicks", "none"}:
            Measure.parse(self.validation)


@dataclass(frozen=True)
class FeedbackSettings:
    """The loop of `clickprism feedback`: show, log, retrain, show again.

    Attributes:
        rounds: how often to retrain.
        warm: the first so many rounds learn from raw clicks (`click`) whatever the method: the state of a system in
            which debiasing is then switched on.
        boost: what the system adds to every ranker's score for popularity, in standard deviations of both within lists;
            0 shows the ranker's own order.
        feature: what the ranker sees of an item's past clicks, as a last feature that is refreshed every round: "count"
            of clicks, "rate" of clicks per exposure, where the method that was last trained says what that is, "none".
        exploration: the share of sessions that see their list shuffled.
        log: train on the log of the last "round", or of "all" since the first, each with the past as it was then.
        worlds: with embedded data, generate it anew for every seed: data.synthetic.seed plus the seed.
    """

    rounds: int = 6
    warm: int = 3
    boost: float = 0.3
    feature: Literal["count", "rate", "none"] = "count"
    exploration: float = 0.0
    log: Literal["round", "all"] = "round"
    worlds: bool = True

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SettingError("rounds", self.rounds, "be at least 1")
        if not 0 <= self.warm < self.rounds:
            raise SettingError("warm", self.warm, f"be from 0 to {self.rounds - 1}, below rounds")
        if not 0 <= self.boost < float("inf"):
            raise SettingError("boost", self.boost, "be 0 or more")
        if not 0 <= self.exploration <= 1:
            raise SettingError("exploration", self.exploration, "be from 0 to 1")


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
        feedback: how rounds follow each other, in `clickprism feedback` only.
        seeds: one run each: another initial ranker, other clicks, other weights at the start.
    """

    data: DataSettings = field(default_factory=DataSettings)
    user: dict[str, Any] = field(default_factory=lambda: {"name": "pbm"})
    sessions: int = 100
    simulation: SimulationSettings = field(default_factory=lambda: SimulationSettings(frequency="each"))
    ranker: dict[str, Any] = field(default_factory=lambda: {"name": "mlp"})
    methods: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in DEFAULT_METHODS})
    fit: FitSettings = field(default_factory=FitSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    feedback: FeedbackSettings = field(default_factory=FeedbackSettings)
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise SettingError("sessions", self.sessions, "be at least 1")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise SettingError("seeds", self.seeds, "be at least one, all different, none negative")
        for label in self.methods:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", label) or label == "initial":
                must = "be letters, digits, dots, dashes and lines below, as it names a folder, and not 'initial'"
                raise SettingError("methods", label, must)
        if self.fit.seed:
            raise SettingError("fit.seed", self.fit.seed, "not be given in an experiment, where `seeds` decides")
        choose(USERS, self.user, path="user")


def read_settings(
    config: Path | None = None,
    assignments: Sequence[str] = (),
    *,
    base: ExperimentSettings | None = None,
    flags: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
) -> ExperimentSettings:
    """The settings of a TOML file, and on top of it single ones; what neither names is as in `base`.

    Args:
        config: the file; its keys are those of `ExperimentSettings`.
        assignments: words such as "fit.epochs=5".
        base: what holds where nothing else is said; the defaults if None.
        flags: single settings by dotted name, between the file and the assignments; None is no setting. A `user.name`
            or `ranker.name` that is another than before drops the settings of the one before.
        methods: labels to choose among those there are; the name of a method that is not there adds it.

    >>> read_settings(None, ["simulation.length=5", "user.severity=2"]).user
    {'name': 'pbm', 'severity': 2}
    >>> read_settings(flags={"user.name": "ubm"}, methods=["dla"]).methods
    {'dla': {}}
    """
    values = plain(base or ExperimentSettings())
    if config is not None:
        values = _merged(values, read_toml(config))
    for key, value in (flags or {}).items():
        if value is not None:
            values = _merged(values, _nested(key, value))
    if methods is not None:
        values["methods"] = {label: values["methods"].get(label, {}) for label in methods}
    return build(ExperimentSettings, override(values, assignments))


def resolved(settings: ExperimentSettings, *, methods: Sequence[str] | None = None) -> dict[str, Any]:
    """All settings as a mapping, those of user, ranker and methods that were left at their defaults too.

    `methods` limits it to these labels. `read_settings` takes the mapping back from a TOML file.
    """
    values = plain(settings)
    del values["fit"]["seed"]
    values["user"] = _full(choose(USERS, settings.user, path="user"))
    values["ranker"] = _full(choose(RANKERS, settings.ranker, path="ranker"))
    values["methods"] = {
        label: _full(choose(METHODS, settings.methods.get(label, {}), path=f"methods.{label}", name=label))
        for label in (settings.methods if methods is None else methods)
    }
    return values


def _full(chosen: Any) -> dict[str, Any]:
    return {"name": chosen.name, **plain(chosen)}


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others, key by key; methods, and what has another `name`, are replaced whole."""
    result = dict(under)
    for key, value in over.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and _same(key, before, value):
            result[key] = _merged(before, value)
        else:
            result[key] = value
    return result


def _same(key: str, before: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return key != "methods" and value.get("name", before.get("name")) == before.get("name")
