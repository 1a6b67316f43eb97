"""The data of an experiment: judged lists or a log, normalised, and simulated clicks on them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np

from clickprism._util.files import make_folder
from clickprism._util.tables import Table, by_position
from clickprism.click_models import USERS
from clickprism.click_models.users import adapted
from clickprism.data.click_table import Columns
from clickprism.data.clicks import save_clicks, saved_data
from clickprism.data.encoding import Encoding
from clickprism.data.logged import Logged
from clickprism.data.normalise import Kind, Normaliser, fit, normalised
from clickprism.data.recipes import RECIPES, load, load_parts
from clickprism.data.synthetic import synthetic
from clickprism.debias import METHODS
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.rankers import RANKERS
from clickprism.settings import build, choose, plain, resolve
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Bool, Clicks, Dataset, Float64, JudgedLists, Lists, Simulation, slices

log = logging.getLogger(__name__)
S = TypeVar("S", bound=ExperimentSettings)
Part = Literal["train", "validation", "test"]
PARTS: Final = ("train", "validation", "test")
SHARES: Final = (0.8, 0.1, 0.1)
UNGRADED: Final = "The log has no grades: measures use clicks as grades, which are biased"
SPLIT_SEED: Final = 0


@dataclass(frozen=True, eq=False)
class LogParts:
    """A log of real users as training, validation and test part.

    Attributes:
        dataset: The lists of each part; the grades are those of the log, or whether a document was ever clicked.
        clicks: The clicks on the lists of each part, by its name.
        names: Name of each feature.
        graded: Whether the log has grades.
        encoding: How the columns of a table became the features; None for other logs.
    """

    dataset: Dataset
    clicks: Mapping[str, Clicks]
    names: tuple[str, ...]
    graded: bool
    encoding: Encoding | None = None

    def over(self, dataset: Dataset) -> LogParts:
        """Return the same clicks on the same lists with other features, such as normalised ones."""
        clicks = {part: replace(self.clicks[part], lists=getattr(dataset, part).lists) for part in PARTS}
        return replace(self, dataset=dataset, clicks=clicks)

    def take(self, keep: Mapping[str, Bool]) -> LogParts:
        """Return these lists of each part only, and the clicks on them."""
        judged, clicks = {}, {}
        for part in PARTS:
            old: JudgedLists = getattr(self.dataset, part)
            judged[part] = old.take(keep[part])
            clicks[part] = _on_lists(self.clicks[part], keep[part], judged[part].lists)
        return replace(self, dataset=Dataset(self.dataset.name, **judged), clicks=clicks)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set.

    Attributes:
        dataset: The lists.
        normaliser: What normalised the features.
        kind: How the features are to be normalised.
        keep: Columns that are not normalised.
        log: The clicks on each part, if the data is a log of real users.
    """

    dataset: Dataset
    normaliser: Normaliser
    kind: Kind = "none"
    keep: tuple[int, ...] = ()
    log: LogParts | None = None

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of a table became the features; None for other data."""
        return None if self.log is None else self.log.encoding


@dataclass(frozen=True, eq=False)
class Log:
    """A simulated log.

    Attributes:
        simulation: Clicks on the training part, with the truth.
        held_out: Clicks on the validation part, by the same users and initial rankers.
        initial: Scores of the test documents by the (first) initial ranker.
    """

    simulation: Simulation
    held_out: Clicks
    initial: Float64


def load_data(settings: DataSettings) -> Data:
    """Return the data with features normalised by the statistics of the training part."""
    read = _read(settings)
    dataset, normaliser = normalised(read.dataset, read.kind, keep=read.keep)
    log = None if read.log is None else read.log.over(dataset)
    return _with_relevant(settings, replace(read, dataset=dataset, normaliser=normaliser, log=log))


def read_data(settings: DataSettings) -> Data:
    """Return the data with raw features (not normalised), which is what a saved model takes."""
    return _with_relevant(settings, _read(settings))


def data_name(settings: DataSettings, *, folders: bool = True) -> str:
    """Return the name of the data in tables and reports, with or without the folders of its files.

    >>> data_name(DataSettings(source="mq2008", folder="mq2008", fold=2))
    'mq2008/fold2'
    """
    if settings.source == "synthetic":
        made = settings.synthetic
        counts = f"{made.train_queries}, {made.validation_queries} and {made.test_queries} queries"
        return f"embedded data ({counts} to train, validate and test; seed {made.seed})"
    if settings.source in RECIPES:
        return f"{settings.source}/fold{settings.fold}" if RECIPES[settings.source].folds else settings.source
    files = [Path(file) for part in PARTS if (file := getattr(settings, part)) is not None]
    return ", ".join(str(file) if folders else file.name for file in files)


def data_of(source: Path, settings: DataSettings) -> DataSettings:
    """Return the settings by which `load_data` reads a log, or the data that a simulated log (.npz) is on."""
    if source.suffix == ".npz" and source.is_file():
        data = saved_data(source)
        return settings if data is None else build(DataSettings, data)
    return replace(settings, source="log", train=str(source))


def graded(data: Data) -> Dataset:
    """Return the data set; raise SettingError if it has no grades, by which simulated users click."""
    if data.log is not None and not data.log.graded:
        must = "have a relevance column, as simulated users click by grades; `clickprism train` uses the log's clicks"
        raise SettingError("data.source", "log", must)
    return data.dataset


def with_categories(settings: S, encoding: Encoding | None, *, warn: bool = True) -> S:
    """Return the settings in which a ranker that embeds categories knows which features are codes.

    A ranker that does not embed them would take the codes for numbers: a warning says so.
    """
    if encoding is None or not encoding.codes or settings.ranker.get("categorical"):
        return settings
    known = {each.name for each in fields(resolve(RANKERS, settings.ranker["name"], path="ranker"))}
    if "categorical" in known:
        return replace(settings, ranker={**settings.ranker, **encoding.for_ranker()})
    if warn:
        log.warning(
            "%s uses the codes of categories (%s) as numbers, which have no meaning. Use one feature per category "
            "(data.names=indicators), or a ranker that embeds them (ranker.name=attention)",
            settings.ranker["name"],
            ", ".join(encoding.codes),
        )
    return settings


def simulate_log(settings: ExperimentSettings, dataset: Dataset, *, seed: int) -> Log:
    """Return the clicks of simulated users on the training and the validation part, ranked by the same rankers."""
    seeds = np.random.SeedSequence(seed).generate_state(settings.simulation.rankers + 2).tolist()
    rankers = [settings.simulation.initial.fit(dataset.train, seed=one) for one in seeds[2:]]
    user = adapted(choose(USERS, settings.user, path="user"), dataset.train, seed=seed)
    made = simulation_settings(settings, dataset)
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
    return Log(parts[0], parts[1].clicks, rankers[0](dataset.test.lists.features))


@dataclass(frozen=True, eq=False)
class SimulatedClicks:
    """What a file of simulated clicks contains; `observation` is the share of impressions that users observed."""

    file: Path
    user: str
    seed: int
    sessions: int
    lists: int
    clicks: int
    click_rate: Float64
    observation: Float64

    def tables(self) -> list[Table]:
        """Return the click rate and the observation by position."""
        counts = f"{self.sessions:,} sessions, {self.lists:,} distinct ranked lists, {self.clicks:,} clicks"
        curves = {"clicked": self.click_rate, "observed": self.observation}
        return [by_position(f"{self.user}, seed {self.seed}: {counts}", curves)]


def simulate_file(settings: ExperimentSettings, out: Path, *, held_out: Path | None = None) -> SimulatedClicks:
    """Simulate users who click on the training part, and save their clicks with the truth and the data they are on.

    Args:
        settings: Settings of the experiment.
        out: File for the clicks (.npz).
        held_out: File for clicks on the validation part (.npz).
    """
    for file in (out, held_out or out):
        make_folder(file.parent)
        if file.is_dir():
            raise DataError("is a folder", file=file, remedy="Name a file to write, such as clicks.npz")
    simulated = simulate_log(settings, graded(load_data(settings.data)), seed=settings.seed)
    clicks, data = simulated.simulation.clicks, plain(settings.data)
    save_clicks(clicks, out, truth=simulated.simulation.truth, data=data)
    if held_out is not None:
        save_clicks(simulated.held_out, held_out, data=data)
    shown = np.bincount(clicks.positions, weights=clicks.list_impressions)[1:]
    return SimulatedClicks(
        file=out,
        user=settings.user["name"],
        seed=settings.seed,
        sessions=clicks.sessions,
        lists=len(clicks),
        clicks=int(clicks.clicks.sum()),
        click_rate=np.bincount(clicks.positions, weights=clicks.clicks)[1:] / np.maximum(shown, 1),
        observation=simulated.simulation.observation,
    )


def simulation_settings(settings: ExperimentSettings, dataset: Dataset) -> SimulationSettings:
    """Return how to simulate, with the highest grade of the data, merging sessions only as far as every method allows.

    With few queries one part may lack the highest grade.
    """
    made, top = settings.simulation, max(dataset.train.max_grade, dataset.validation.max_grade)
    methods = {label: values.get("name", label) for label, values in settings.methods.items()}
    patterns = any(resolve(METHODS, name, path=f"methods.{label}").needs_patterns for label, name in methods.items())
    merge = "pattern" if patterns and made.merge == "list" else made.merge
    return replace(made, max_grade=made.max_grade or top, merge=merge)


def _read(settings: DataSettings) -> Data:
    """Return the data with raw features."""
    kind: Kind = "none" if settings.normalise == "recipe" else settings.normalise
    keep: tuple[int, ...] = ()
    parts: LogParts | None = None
    if settings.source == "synthetic":
        dataset = synthetic(settings.synthetic)
    elif settings.source == "files":
        files = (getattr(settings, part) or "" for part in PARTS)
        dataset = load_parts(*files, missing="nan", on_error=settings.on_error)
    elif settings.source == "log":
        parts = _read_parts(settings)
        if not parts.graded and settings.drop_without_relevant:
            must = "be false for a log without grades, as it would choose lists by their clicks"
            raise SettingError("data.drop_without_relevant", settings.drop_without_relevant, must)
        dataset, kind = parts.dataset, "standard" if settings.normalise == "recipe" else kind
        keep = () if parts.encoding is None else parts.encoding.flags
    else:
        folder, recipe = settings.folder or "", RECIPES[settings.source]
        dataset = load(settings.source, folder, fold=settings.fold, normalise="none", on_error=settings.on_error)
        kind = recipe.normalise if settings.normalise == "recipe" else kind
    return Data(dataset, fit("none", dataset.train.lists), kind, keep, parts)


def _read_parts(settings: DataSettings) -> LogParts:
    """Return a log split by its queries into training, validation and test part, or the parts of three logs."""
    from clickprism.log.open_log import read_click_source

    first, *others = [_logged(settings, path) for path in map(settings.__getattribute__, PARTS) if path is not None]
    name = Path(settings.train or "").name
    if others and first.encoding is not None:
        paths = (settings.validation or "", settings.test or "")
        others = [read_click_source(path, _columns(settings), encoding=first.encoding) for path in paths]
    logs = [first, *others] if others else [first] * len(PARTS)
    if len({logged.grades is not None for logged in logs}) > 1:
        raise DataError("some parts have a column with grades, others none", remedy="Give all of them one, or none")
    lists = first.clicks.lists
    whole = LogParts(
        Dataset(name, *map(_judged, logs)),
        {part: logged.clicks for part, logged in zip(PARTS, logs, strict=True)},
        first.feature_names or tuple(f"feature_{place + 1}" for place in range(lists.features.shape[1])),
        first.grades is not None,
        first.encoding,
    )
    if others:
        return whole
    bounds = np.rint(np.cumsum([0, *SHARES]) * len(lists)).astype(int)
    if min(np.diff(bounds)) < 1:
        raise UnsupportedError(
            f"{len(lists)} queries are too few to train on", file=settings.train, remedy="Give a longer log"
        )
    place = np.random.default_rng(SPLIT_SEED).permutation(len(lists))
    ends = zip(PARTS, bounds[:-1], bounds[1:], strict=True)
    return whole.take({part: (place >= start) & (place < stop) for part, start, stop in ends})


def _logged(settings: DataSettings, path: str) -> Logged:
    """Return a log of any kind whose documents have features."""
    from clickprism.log.open_log import kind_of, read_click_source, read_log

    logged = read_click_source(path, _columns(settings)) if kind_of(path) == "table" else read_log(path)
    for sentence in logged.notes:
        log.info(sentence)
    if not logged.has_features:
        ignored = "" if logged.encoding is None else " ".join(logged.encoding.notes())
        remedy = ignored or "Ingest events with `features`, or train on a table with one row per result (CSV, Parquet)"
        raise UnsupportedError("the documents of this log have no features to train on", file=path, remedy=remedy)
    return logged


def _columns(settings: DataSettings) -> Columns:
    return replace(settings.table.columns(), codes=settings.names == "codes")


def _judged(logged: Logged) -> JudgedLists:
    """Return the lists with their grades; in a log without grades a clicked document has grade 1."""
    clicks = logged.clicks
    if logged.grades is not None:
        return JudgedLists(clicks.lists, logged.grades)
    clicked = np.bincount(clicks.rows, weights=clicks.clicks, minlength=clicks.lists.documents) > 0
    return JudgedLists(clicks.lists, clicked.astype(np.int32))


def _on_lists(clicks: Clicks, keep: Bool, lists: Lists) -> Clicks:
    """Return the clicks on these lists only, where `lists` is `clicks.lists.take(keep)`."""
    rows, _ = slices(clicks.lists.offsets, np.flatnonzero(keep))
    place = np.full(clicks.lists.documents, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    owner = np.full(len(clicks), -1, dtype=np.int64)
    filled = np.diff(clicks.offsets) > 0
    owner[filled] = place[clicks.rows[clicks.offsets[:-1][filled]]]
    kept = clicks.take(owner >= 0)
    return replace(kept, lists=lists, rows=place[kept.rows])


def _with_relevant(settings: DataSettings, read: Data) -> Data:
    """Return the lists that have a relevant document, if the settings say so, and the clicks on them."""
    if not settings.drop_without_relevant:
        return read
    if read.log is None:
        return replace(read, dataset=read.dataset.map(JudgedLists.with_relevant))
    keep: dict[str, Bool] = {}
    for part in PARTS:
        judged: JudgedLists = getattr(read.dataset, part)
        keep[part] = np.bincount(judged.lists.list_of, weights=judged.grades, minlength=len(judged)) > 0
    clicks = read.log.over(read.dataset).take(keep)
    return replace(read, dataset=clicks.dataset, log=clicks)
