"""The data of an experiment: judged lists or a log, normalised, and simulated clicks on them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np

from clickprism._util.files import make_folder
from clickprism._util.tables import Table
from clickprism.click_models import USERS
from clickprism.click_models.users import adapted
from clickprism.data.clicks import save_clicks, saved_data
from clickprism.data.impression_parts import PARTS, SHARES, ImpressionParts, load_impressions
from clickprism.data.normalise import Kind, Normaliser, normalised
from clickprism.data.recipes import RECIPES, load, load_parts
from clickprism.data.synthetic import synthetic
from clickprism.data.vocabulary import Vocabulary
from clickprism.debias import METHODS
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.rankers import RANKERS
from clickprism.settings import build, choose, plain, resolve
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Bool, Clicks, Dataset, Float64, JudgedLists, Simulation

log = logging.getLogger(__name__)
S = TypeVar("S", bound=ExperimentSettings)
Part = Literal["train", "validation", "test"]
COMPRESSED: Final = (".gz", ".zst")
FRAMES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".txt")
SPLIT_SEED: Final = 0


@dataclass(frozen=True, eq=False)
class Data:
    """A data set with normalised features.

    Attributes:
        dataset: The lists.
        normaliser: What normalised the features.
        vocabulary: The columns, if some features are codes of categories.
        log: The clicks on each part, if the data is a log of real users.
    """

    dataset: Dataset
    normaliser: Normaliser
    vocabulary: Vocabulary | None = None
    log: ImpressionParts | None = None


@dataclass(frozen=True, eq=False)
class RawData:
    """Data with raw features."""

    dataset: Dataset
    kind: Kind  # how to normalise the features
    keep: tuple[int, ...] = ()  # columns that are not normalised
    vocabulary: Vocabulary | None = None
    log: ImpressionParts | None = None
    names: tuple[str, ...] | None = None  # names of the features


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
    read = _with_relevant(settings, replace(read, dataset=dataset, log=read.log and read.log.over(dataset)))
    return Data(read.dataset, normaliser, read.vocabulary, read.log)


def load_log_parts(settings: DataSettings) -> ImpressionParts:
    """Return the parts of an impression log or an ingested log, with normalised features."""
    parts = load_data(settings).log
    if parts is None:
        raise SettingError("data.source", settings.source, "be 'impressions' or 'log'")
    return parts


def load_raw(settings: DataSettings) -> Dataset:
    """Return the data with the features as they are, which is what a saved model takes."""
    return read_data(settings).dataset


def read_data(settings: DataSettings) -> RawData:
    """Return the raw data and what is known about it."""
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
    """Return the settings by which `load_data` reads a log, or the data that a simulated log (.npz) is on.

    Other logs are an ingested log (a folder) or a frame (CSV, TSV, JSON lines, Parquet). Raise DataError for a session
    file, which has no features.
    """
    if source.suffix == ".npz" and source.is_file():
        data = saved_data(source)
        return settings if data is None else build(DataSettings, data)
    if source.is_dir():
        return replace(settings, source="log", train=str(source))
    ending = next((each for each in reversed(source.suffixes) if each not in COMPRESSED), "")
    if not source.is_file():
        raise DataError("there is no such file or folder", file=source, remedy="Name an ingested log, or a file")
    if ending not in FRAMES:
        remedy = f"Name an ingested log, a simulated log (.npz), or a frame ({', '.join(FRAMES)})"
        raise DataError("is not a log that train can read", file=source, remedy=remedy)
    if ending in (".csv", ".tsv", ".txt") and "documents" in _header(source):
        remedy = (
            "Train on a frame with one row per result (columns request, item, position, clicked and the features). "
            f"Estimates need no features: clickprism log ingest {source.name} --into mylog; relevance estimate mylog"
        )
        raise UnsupportedError("is a session file, which has no features to train on", file=source, remedy=remedy)
    return replace(settings, source="impressions", train=str(source))


def graded(data: Data) -> Dataset:
    """Return the data set; raise SettingError if it has no grades, by which simulated users click."""
    if data.log is not None and not data.log.graded:
        must = "have a relevance column, as simulated users click by grades; `clickprism train` uses the log's clicks"
        raise SettingError("data.source", "impressions", must)
    return data.dataset


def with_categories(settings: S, vocabulary: Vocabulary | None, *, warn: bool = True) -> S:
    """Return the settings in which a ranker that embeds categories knows which features are codes.

    A ranker that does not embed them would take the codes for numbers: a warning says so.
    """
    if vocabulary is None or not vocabulary.places or settings.ranker.get("categorical"):
        return settings
    known = {each.name for each in fields(resolve(RANKERS, settings.ranker["name"], path="ranker"))}
    if "categorical" in known:
        return replace(settings, ranker={**settings.ranker, **vocabulary.for_ranker()})
    if warn:
        log.warning(
            "%s uses the codes of categories (%s) as numbers, which have no meaning. Use one feature per category "
            "(data.names=indicators), or a ranker that embeds them (ranker.name=attention)",
            settings.ranker["name"],
            ", ".join(vocabulary.places),
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
    """What a file of simulated clicks contains.

    Attributes:
        file: The file.
        user: Name of the user model.
        seed: Random seed.
        sessions: Number of sessions.
        lists: Number of distinct ranked lists.
        clicks: Number of clicks.
        click_rate: Clicks per impression at each position, position 1 first.
        observation: Share of the impressions that users observed at each position.
    """

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
        rows = [
            [str(position), f"{rate:.4f}", f"{observed:.4f}"]
            for position, (rate, observed) in enumerate(zip(self.click_rate, self.observation, strict=True), start=1)
        ]
        header = ["position", "clicked", "observed"]
        return [Table(f"{self.user}, seed {self.seed}: {counts}", header, rows)]


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


def _read(settings: DataSettings) -> RawData:
    kind: Kind = "none" if settings.normalise == "recipe" else settings.normalise
    if settings.source == "synthetic":
        return RawData(synthetic(settings.synthetic), kind)
    paths = (settings.train or "", settings.validation, settings.test)
    if settings.source == "files":
        train, validation, test = (path or "" for path in paths)
        return RawData(load_parts(train, validation, test, missing="nan", on_error=settings.on_error), kind)
    if settings.source == "log":
        return _encoded(settings, _ingested(Path(settings.train or "")))
    if settings.source == "impressions":
        parts = load_impressions(*paths, settings=settings.impressions, on_error=settings.on_error)
        if not parts.graded and settings.drop_without_relevant:
            must = "be false for a log without a relevance column, as it would choose lists by their clicks"
            raise SettingError("data.drop_without_relevant", settings.drop_without_relevant, must)
        return _encoded(settings, parts)
    dataset = load(
        settings.source, settings.folder or "", fold=settings.fold, normalise="none", on_error=settings.on_error
    )
    return RawData(dataset, RECIPES[settings.source].normalise if settings.normalise == "recipe" else kind)


def _encoded(settings: DataSettings, parts: ImpressionParts) -> RawData:
    """Return a log with its categories as codes or as indicators."""
    vocabulary, kind = parts.vocabulary, settings.normalise
    if kind == "recipe":
        kind = "standard"
    if settings.names == "codes":
        return RawData(parts.dataset, kind, vocabulary.categorical, vocabulary, parts, tuple(vocabulary.columns))
    dataset = parts.dataset.map(lambda part: part.with_features(vocabulary.indicators(part.lists.features)))
    return RawData(dataset, kind, vocabulary.indicator_places, None, parts, vocabulary.indicator_names)


def _ingested(folder: Path) -> ImpressionParts:
    """Return an ingested log split into training, validation and test queries; a clicked document has grade 1."""
    from clickprism.log.open_log import read_logged

    logged = read_logged(folder)
    clicks, lists = logged.clicks, logged.clicks.lists
    if not logged.has_features:
        remedy = "Ingest events with `features`, or train on a frame with one row per result (CSV, Parquet)"
        raise UnsupportedError("the documents of this log have no features to train on", file=folder, remedy=remedy)
    names = logged.feature_names or tuple(f"feature_{place + 1}" for place in range(lists.features.shape[1]))
    clicked = np.bincount(clicks.rows, weights=clicks.clicks, minlength=lists.documents) > 0
    judged = JudgedLists(lists, clicked.astype(np.int32))
    bounds = np.rint(np.cumsum([0, *SHARES]) * len(lists)).astype(int)
    if min(np.diff(bounds)) < 1:
        raise UnsupportedError(
            f"{len(lists)} queries are too few to train on", file=folder, remedy="Ingest more events"
        )
    place = np.random.default_rng(SPLIT_SEED).permutation(len(lists))
    whole = ImpressionParts(
        Dataset(folder.name, judged, judged, judged),
        dict.fromkeys(PARTS, clicks),
        Vocabulary(dict.fromkeys(names)),
        graded=False,
        accounts=(),
    )
    ends = zip(PARTS, bounds[:-1], bounds[1:], strict=True)
    return whole.take({part: (place >= start) & (place < stop) for part, start, stop in ends})


def _header(file: Path) -> list[str]:
    """Return the columns of a delimited file, or nothing if it cannot be read."""
    from clickprism.data.files import PADDING, expand, read_padded

    line = expand(read_padded(file), file=file)[:-PADDING].tobytes().split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return [name.strip().strip('"').lower() for name in line.replace("\t", ",").split(",")]


def _with_relevant(settings: DataSettings, read: RawData) -> RawData:
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
