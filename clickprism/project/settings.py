"""`clickprism.toml`: the settings of a project, and the secrets that it may name but never contains."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from textwrap import wrap
from typing import Final, Literal, final

from clickprism.data.click_table import TableSettings
from clickprism.data.tables import is_database
from clickprism.errors import DataError, SettingError
from clickprism.log.settings import EngineSettings
from clickprism.settings import build, read_toml, toml_value

FILE: Final = "clickprism.toml"
FETCHED: Final = "state/fetched"
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
PASSWORD: Final = re.compile(r"^([A-Za-z0-9+.-]+://[^/@:]*):([^/@]+)@")
DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
PERIOD: Final = re.compile(r"([0-9.]+)([smhd])")
WIDTH: Final = 100  # width of a comment in the file
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
REMOTE: Final = ("s3://", "gs://", "file://")


def _check(settings: object, name: str, holds: object, must: str) -> None:
    if not holds:
        raise SettingError(name, getattr(settings, name), must)


@final
@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the log comes from.

    Attributes:
        path: File, folder, pattern of files, URL of a database, or remote folder (s3://, gs://). Relative paths start
            at the folder of the project. Write passwords as ${NAME}: the environment variable is read when it is used.
        read: "ingest" adds new files to the log of the project; "memory" reads the whole table again if it changed.
        table: Whether the rows are a table with one row for each result, not events.
        schema: Format of events: auto, clickprism, ubi, metarank or yandex.
        mapping: TOML file that says which field of the events holds what, for events in no known format.
        ordinal_base: Number of the first position in events, 0 or 1; -1 if the format says it.
        sql: Query to a database.
    """

    path: str
    read: Literal["ingest", "memory"] = "ingest"
    table: bool = False
    schema: Literal["auto", "clickprism", "ubi", "metarank", "yandex"] = "auto"
    mapping: str = ""
    ordinal_base: Literal[-1, 0, 1] = -1
    sql: str = ""

    def __post_init__(self) -> None:
        _check(self, "path", self.path, "name a file, a folder, a pattern or a URL")
        refuse_password("path", self.path)
        _check(self, "read", self.table or self.read == "ingest", "be ingest: events are not a table")

    @property
    def remote(self) -> bool:
        """Return whether the files are in a bucket, and are fetched first."""
        return self.path.startswith(REMOTE)

    @property
    def database(self) -> bool:
        """Return whether the source is read by a query."""
        return is_database(expand(self.path)) and not self.remote


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """When and how a ranker is trained.

    Attributes:
        outcome: What the ranker is trained for: click, another outcome, or a weighted sum (tables only).
        budget: Time for training, such as 10m.
        seed: Random seed.
        since: First day to use, such as 2026-03-01; empty for all days.
        refit: Fit the model of the log again if its rows have grown by this share; new clicks reach the click features
            in every run.
        new_clicks: Number of new clicks from which drift is tested.
        drift: Smallest change that counts as drift, as a share: .1 is a change of 10%.
        growth: Train again if the log has this many times the clicks of the last training.
    """

    outcome: str = "click"
    budget: str = "10m"
    seed: int = 0
    since: str = ""
    refit: float = 0.01
    new_clicks: int = 300
    drift: float = 0.1
    growth: float = 2.0

    def __post_init__(self) -> None:
        period("budget", self.budget)
        _check(self, "since", not self.since or DAY.fullmatch(self.since), "be a day such as 2026-03-01")
        _check(self, "seed", self.seed >= 0, "be 0 or more")
        _check(self, "new_clicks", self.new_clicks >= 1, "be at least 1")
        _check(self, "drift", 0 < self.drift < 1, "be between 0 and 1")
        _check(self, "refit", 0 <= self.refit < 1, "be at least 0 and below 1")
        _check(self, "growth", self.growth > 1, "be above 1")


@final
@dataclass(frozen=True, kw_only=True)
class Promotion:
    """When a new ranker replaces the current one.

    Attributes:
        automatic: Whether `run` promotes; otherwise a better ranker waits as shadow.
        rollout: Whether a better ranker is released gradually, and taken back if users prefer the current one. The
            events must name the `ranker` of each document, as the service answers it.
        max_loss: Largest share of clicks that the new ranker may lose, by the lower end of the interval.
        confidence: Confidence level of the intervals.
    """

    automatic: bool = True
    rollout: bool = False
    max_loss: float = 0.02
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _check(self, "max_loss", 0 <= self.max_loss < 1, "be at least 0 and below 1")
        _check(self, "confidence", 0.5 < self.confidence < 1, "be between 0.5 and 1")


@final
@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Who may be recognised in the results.

    Attributes:
        min_users: Exclude query-document pairs seen by fewer users; 0 excludes none. Tables without a user ignore it.
    """

    min_users: int = 5

    def __post_init__(self) -> None:
        _check(self, "min_users", self.min_users >= 0, "be 0 or more")


@final
@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where results go; relative paths start at the folder of the project.

    Attributes:
        deployment: Folder with the current ranker, which `clickprism serve` follows.
        store: Online store of features: a folder, or redis://host:port/0?prefix=name.
        judgments: File for the judgment list.
        metrics: File for the metrics of the last run in the text format of Prometheus.
    """

    deployment: str = "deployment"
    store: str = "store"
    judgments: str = "judgments.csv"
    metrics: str = "metrics.prom"

    def __post_init__(self) -> None:
        refuse_password("store", self.store)


@final
@dataclass(frozen=True, kw_only=True)
class ProjectSettings:
    """Everything that `clickprism.toml` says.

    Attributes:
        source: Where the log comes from.
        columns: Which column of a table holds what. Columns that are known only after a click must be in `ignore`.
        engine: Engine of the steps that read all rows: duckdb, local[*] (Spark here) or spark://host:port.
        memory: Maximum memory of the engine.
        every: `clickprism run` repeats after this time, such as 1h; empty if a scheduler starts it.
        training: When and how a ranker is trained.
        promotion: When a new ranker replaces the current one; otherwise it is kept as shadow.
        privacy: Who may be recognised in the results.
        outputs: Where results go.
    """

    source: Source
    columns: TableSettings = field(default_factory=TableSettings)
    engine: str = "duckdb"
    memory: str = "2GB"
    every: str = ""
    training: Training = field(default_factory=Training)
    promotion: Promotion = field(default_factory=Promotion)
    privacy: Privacy = field(default_factory=Privacy)
    outputs: Outputs = field(default_factory=Outputs)

    def __post_init__(self) -> None:
        EngineSettings(engine=self.engine, memory=self.memory)
        if self.every:
            period("every", self.every)
        if self.promotion.rollout and self.source.read != "ingest":
            raise SettingError("promotion.rollout", True, 'be false unless source.read is "ingest"')
        if self.training.outcome != "click" and self.source.read != "memory":
            raise SettingError("training.outcome", self.training.outcome, 'be click unless source.read is "memory"')
        if self.columns.query is not None:
            raise SettingError("columns.query", self.columns.query, "be omitted: the query is source.sql")

    @property
    def table(self) -> TableSettings:
        """Return which column of a table holds what, with the query."""
        return replace(self.columns, query=expand(self.source.sql) or None)

    def path(self, folder: Path) -> str:
        """Return the source as other parts of clickprism take it: a path or the URL of a database, with secrets."""
        path = expand(self.source.path)
        if self.source.remote:
            return str(folder / FETCHED)
        return path if "://" in path else os.path.normpath(folder / path)

    def store(self, folder: Path) -> str:
        """Return the address of the online store."""
        store = expand(self.outputs.store)
        return store if "://" in store else str(folder / store)


def read_settings(folder: Path) -> ProjectSettings:
    """Return the settings of a project; an error names the file and the key."""
    file = folder / FILE
    if not file.is_file():
        remedy = f"Create it with: clickprism init {folder} --source 'logs/*.parquet'"
        raise DataError("is not a project: it has no clickprism.toml", file=folder, remedy=remedy)
    try:
        return build(ProjectSettings, read_toml(file))
    except SettingError as error:
        raise SettingError(f"{error.field} in {file}", error.value, error.must) from None


def period(name: str, text: str) -> timedelta:
    """Return a time such as 90s, 10m, 1.5h or 1d.

    >>> period("every", "1.5h")
    datetime.timedelta(seconds=5400)
    """
    found = PERIOD.fullmatch(text)
    try:
        value = timedelta(**{UNITS[found[2]]: float(found[1])}) if found else timedelta(0)
    except (ValueError, OverflowError):
        value = timedelta(0)
    if value <= timedelta(0):
        raise SettingError(name, text, "be a time such as 90s, 10m, 1.5h or 1d")
    return value


def refuse_password(name: str, text: str) -> None:
    """Refuse a URL with a password in it: the settings, the reports and the shell history would keep it."""
    found = PASSWORD.match(text)
    if found and not VARIABLE.fullmatch(found[2]):
        user, rest = found[1], text[found.end() :]
        must = f"name the password by a variable, such as '{user}:${{DB_PASSWORD}}@{rest}'"
        raise SettingError(name, f"{user}:***@{rest}", must)


def expand(text: str) -> str:
    """Return a text with each `${NAME}` replaced by the environment variable.

    >>> os.environ["SHOP_HOST"] = "db.example"
    >>> expand("postgresql://reader@${SHOP_HOST}/shop")
    'postgresql://reader@db.example/shop'
    """
    for name in VARIABLE.findall(text):
        if name not in os.environ:
            raise SettingError("source.path", text, f"name variables that are set. Set it with: export {name}=...")
    return VARIABLE.sub(lambda match: os.environ[match[1]], text)


def redact(text: str, settings: ProjectSettings) -> str:
    """Return a text in which the values of the variables that the settings name are their names again."""
    values = {
        name: os.environ.get(name, "")
        for part in (settings.source.path, settings.source.sql, settings.outputs.store)
        for name in VARIABLE.findall(part)
    }
    for name, value in sorted(values.items(), key=lambda each: -len(each[1])):
        text = text.replace(value, f"${{{name}}}") if value else text
    return text


def _comments(cls: type[object]) -> dict[str, str]:
    """Return what the docstring of a settings class says about each of its fields."""
    text = (cls.__doc__ or "").partition("Attributes:\n")[2]
    return {
        each[1]: " ".join(each[2].split()) for each in re.finditer(r"^ {8}(\w+): ((?:.|\n {9,})*)", text, re.MULTILINE)
    }


def as_toml(settings: ProjectSettings) -> str:
    """Return the settings as TOML with a comment for each part, as `init` writes them."""
    lines = ["# A project of clickprism. Run: clickprism run . (docs/start/tutorial.md)"]

    def add(settings: object) -> None:
        for name, value in vars(settings).items():
            if value is not None and not is_dataclass(value):
                comment = wrap(_comments(type(settings))[name], WIDTH)
                lines.extend([*(f"# {each}" for each in comment), f"{name} = {toml_value(value)}"])

    add(settings)
    for name, part in vars(settings).items():
        if is_dataclass(part) and (name != "columns" or settings.source.table):
            lines.extend(["", f"# {_comments(ProjectSettings)[name]}", f"[{name}]"])
            add(part)
    return "\n".join(lines) + "\n"
