"""Settings of experiments: frozen dataclasses that Python, TOML files and the command line share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from clickprism.click_models import USERS
from clickprism.data.click_table import TableSettings
from clickprism.data.normalise import Kind
from clickprism.data.recipes import RECIPES
from clickprism.data.synthetic import SyntheticSettings
from clickprism.debias import METHODS
from clickprism.errors import SettingError
from clickprism.evaluation.measures import Empty, Measure
from clickprism.rankers import RANKERS
from clickprism.settings import build, check_fields, choose, plain, read_toml, read_values, suggest
from clickprism.simulation.clicks import SimulationSettings
from clickprism.training.settings import TrainingSettings

DEFAULT_METHODS = ("labels", "click", "ipw", "dla")
SOURCES = ("synthetic", "files", "log", *RECIPES)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the lists come from.

    Attributes:
        source: Kind of data: "synthetic" (generated), "files" (LETOR text, with `train`, `validation` and `test`),
            "log" (any log in `train`, such as a table with one row per result or an ingested log; without `validation`
            and `test` it is split by queries), or the name of a public data set, such as "mq2008" (with `folder`).
        folder: Folder of the public data set.
        train: File of the training part.
        validation: File of the validation part.
        test: File of the test part.
        fold: Fold of a public data set that has folds.
        normalise: Normalisation of the features; "recipe" is what papers on that data set do, "standard" for
            logs, and none for other data. Categories are not normalised.
        drop_without_relevant: Whether to exclude lists without a relevant document, in all parts.
        names: Encoding of the categories of a table: "codes" for a ranker that embeds them (attention), or
            "indicators", one feature per value, for other rankers (mlp, linear).
        on_error: What to do with broken lines: stop with an error ("raise") or skip them ("quarantine").
        synthetic: Settings of the generated data.
        table: Columns of a log that is a table.
    """

    source: str = "synthetic"
    folder: str | None = None
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    fold: int = 1
    normalise: Kind | Literal["recipe"] = "recipe"
    drop_without_relevant: bool = False
    names: Literal["codes", "indicators"] = "codes"
    on_error: Literal["raise", "quarantine"] = "raise"
    synthetic: SyntheticSettings = field(default_factory=SyntheticSettings)
    table: TableSettings = field(default_factory=TableSettings)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise SettingError("source", self.source, f"be a known source ({suggest(self.source, SOURCES)})")
        if self.source in RECIPES and self.folder is None:
            raise SettingError("folder", None, f"say where the files of {self.source} are")
        for part in ("train", "validation", "test"):
            if self.source == "files" and getattr(self, part) is None:
                raise SettingError(part, None, "name a file when data.source is 'files'")
        if self.source == "log" and self.train is None:
            raise SettingError("train", None, "name a log when data.source is 'log'")
        if self.source == "log" and (self.validation is None) != (self.test is None):
            part = "validation" if self.validation is None else "test"
            raise SettingError(part, None, "be given with the other, or neither")


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What is measured, and what chooses the best epoch.

    Attributes:
        measures: Measures on the test part; tables are sorted by the first one.
        empty: Value of queries without a relevant document: "drop" excludes them, "zero" counts 0, "one" counts 1.
        validation: What chooses the best epoch: a measure on the judged validation part, "clicks" (the likelihood of
            held-out clicks, which needs no labels), or "none" (the last epoch).
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


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Settings of an experiment: data, simulated users, methods, training and evaluation.

    Attributes:
        data: Where the lists come from.
        user: Simulated users: the name of a user model (pbm, ubm, cascade, dcm, ccm, dbn, sdbn, trust, coupled or
            popularity), and its settings, such as --user.severity 2. By default pbm.
        sessions: Number of sessions; per query if simulation.frequency is "each", else in total.
        simulation: How the log is simulated.
        ranker: The model that is trained: its name (linear, mlp, attention or lambdamart) and its settings, such as
            --ranker.hidden "[64, 32]". By default mlp, and linear in feedback loops.
        methods: Settings of each method, by its name (or by any label, with the method as `name`).
        fit: How the ranker is trained.
        evaluation: What is measured.
        seed: Random seed of the first run.
        runs: Number of runs. Run i uses seed + i for the initial ranker, the clicks and the initial weights.
    """

    defaults: ClassVar[dict[str, str]] = {"user": "pbm", "ranker": "mlp"}  # names where none is given

    data: DataSettings = field(default_factory=DataSettings)
    user: dict[str, Any] = field(default_factory=dict)
    sessions: int = 100
    simulation: SimulationSettings = field(default_factory=lambda: SimulationSettings(frequency="each"))
    ranker: dict[str, Any] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in DEFAULT_METHODS})
    fit: TrainingSettings = field(default_factory=TrainingSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    seed: int = 0
    runs: int = 1

    def __post_init__(self) -> None:
        for name, default in self.defaults.items():
            object.__setattr__(self, name, {"name": default, **read_values(getattr(self, name))})
        object.__setattr__(self, "methods", read_values(self.methods))
        check_fields(self, sessions=(1, None), seed=(0, None), runs=(1, None))
        for label in self.methods:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", label) or label == "initial":
                must = "consist of letters, digits, dots, dashes and underscores, as it names a folder, not 'initial'"
                raise SettingError("methods", label, must)
        if getattr(self.fit, "seed", 0):
            raise SettingError("fit.seed", getattr(self.fit, "seed", 0), "not be given in an experiment; set `seed`")
        choose(USERS, self.user, path="user")

    @property
    def seeds(self) -> tuple[int, ...]:
        """The random seed of each run."""
        return tuple(range(self.seed, self.seed + self.runs))


@dataclass(frozen=True, kw_only=True)
class FeedbackSettings(ExperimentSettings):
    """Settings of a feedback loop: show, log, retrain, show again.

    The defaults are generated data in which 400 items appear in many lists, and a linear ranker.

    Attributes:
        rounds: Number of rounds; the ranker is retrained in each.
        warm: Number of first rounds in which every method learns from raw clicks (`click`), as in a system in which
            debiasing is switched on later.
        boost: Weight of popularity that the system adds to the scores of every ranker, in standard deviations of both
            within lists; with 0 the system shows the ranker's order.
        feature: What the ranker knows about the past clicks of an item, as a feature that is updated every round: the
            "count" of clicks, the "rate" of clicks per exposure as the last method estimates exposure, or "none".
        exploration: Share of the sessions that see a shuffled list.
        worlds: Whether generated data is different for every run (data.synthetic.seed plus the seed of the run).
    """

    defaults: ClassVar[dict[str, str]] = {"user": "pbm", "ranker": "linear"}

    data: DataSettings = field(
        default_factory=lambda: DataSettings(
            synthetic=SyntheticSettings(
                train_queries=500, validation_queries=100, test_queries=500, features=32, items=400, item_exponent=0.7
            )
        )
    )
    sessions: int = 50
    methods: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {name: {} for name in ("click", "dla", "pal", "inforank", "labels")}
    )
    fit: TrainingSettings = field(default_factory=lambda: TrainingSettings(epochs=15, threads=1))
    evaluation: EvaluationSettings = field(default_factory=lambda: EvaluationSettings(validation="none"))
    runs: int = 3
    rounds: int = 6
    warm: int = 3
    boost: float = 0.3
    feature: Literal["count", "rate", "none"] = "count"
    exploration: float = 0.0
    worlds: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, rounds=(1, None), warm=(0, self.rounds - 1), boost=(0, 1e9), exploration=(0, 1))


def read_settings(file: Path) -> ExperimentSettings:
    """Return the settings in a TOML file; those that it does not name have their defaults."""
    values = read_toml(file)
    if isinstance(values.get("evaluation"), dict):
        values["evaluation"].pop("items", None)  # of earlier versions
    return build(ExperimentSettings, values)


def resolved(settings: ExperimentSettings, *, methods: Sequence[str] | None = None) -> dict[str, Any]:
    """Return all settings as a mapping, with the defaults of the user, the ranker and the methods (or of `methods`).

    `read_settings` reads the mapping back from a TOML file.
    """
    values = plain(settings)
    values["fit"].pop("seed", None)
    values["user"] = _full(choose(USERS, settings.user, path="user"))
    values["ranker"] = _full(choose(RANKERS, settings.ranker, path="ranker"))
    values["methods"] = {
        label: _full(choose(METHODS, settings.methods.get(label, {}), path=f"methods.{label}", name=label))
        for label in (settings.methods if methods is None else methods)
    }
    return values


def _full(chosen: Any) -> dict[str, Any]:
    return {"name": chosen.name, **plain(chosen)}
