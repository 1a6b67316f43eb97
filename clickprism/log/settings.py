"""The settings of a log, kept in its `log.toml`, and of the engine that runs queries over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from clickprism._util.files import write_file
from clickprism.errors import SettingError
from clickprism.log.features.schedule import WEEKDAYS, Weekday
from clickprism.settings import build, plain, read_toml, read_value, resolve, suggest, to_toml

T = TypeVar("T")
SchemaName: TypeAlias = Literal["auto", "clickprism", "ubi", "metarank", "yandex", "mapping"]
PARTS: Final = {
    "source": "clickprism.log.settings:SourceSettings",
    "robots": "clickprism.log.settings:RobotSettings",
    "sessions": "clickprism.log.settings:SessionSettings",
    "windows": "clickprism.log.settings:WindowSettings",
    "examination": "clickprism.examination.settings:ExaminationSettings",
}
TimeUnit: TypeAlias = Literal["auto", "iso", "s", "ms", "us", "ns"]
FormatName: TypeAlias = Literal["auto", "json", "csv", "parquet"]
FIELDS: Final = (
    "kind",
    "event_id",
    "time",
    "search_id",
    "query_id",
    "query",
    "document_id",
    "position",
    "documents",
    "clicked",
    "action",
    "click",
    "display_ms",
    "dwell_ms",
    "page_skipped",
    "user_id",
    "agent",
    "ranker",
    "randomised",
    "features",
)
"""The fields of an input row, as `schema.ROW` has them."""
SPARK: Final = re.compile(r"local(\[(\*|[1-9]\d*)\])?|spark://\S+")
MEMORY: Final = re.compile(r"[1-9]\d*(MB|GB)")
EDGES: Final = 7
SECONDS: Final = (1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 180_000)
AGENTS: Final = (
    "bot/",
    "bot;",
    "googlebot",
    "bingbot",
    "crawler",
    "spider",
    "slurp",
    "headless",
    "phantomjs",
    "selenium",
    "scrapy",
    "python-requests",
    "python-urllib",
    "aiohttp",
    "go-http-client",
    "libwww-perl",
    "curl/",
    "wget/",
)


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What runs the queries over a log.

    Attributes:
        engine: Engine that runs the queries: duckdb, local[*] (Spark on this machine) or spark://host:port.
        memory: Maximum memory of the engine, such as 500MB or 2GB.
    """

    engine: str = "duckdb"
    memory: str = "2GB"

    def __post_init__(self) -> None:
        if self.engine != "duckdb" and not SPARK.fullmatch(self.engine):
            raise SettingError("engine", self.engine, "be duckdb, local[*], local[N] or spark://host:port")
        if not MEMORY.fullmatch(self.memory):
            raise SettingError("memory", self.memory, "be such as 500MB or 2GB")


@dataclass(frozen=True)
class TimeMapping:
    """How times are written."""

    unit: TimeUnit = "auto"


@dataclass(frozen=True)
class ColumnMapping:
    """Which column of a foreign log holds which of our fields; docs/datamodel.md shows a file.

    Fields that are not named keep our names.

    >>> ColumnMapping(columns={"documentid": "sku"})
    Traceback (most recent call last):
    clickprism.errors.SettingError: columns.documentid must be a known field (did you mean 'document_id'?), got 'sku'
    """

    columns: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str | int | float | bool] = field(default_factory=dict)
    values: dict[str, dict[str, str | int | float | bool]] = field(default_factory=dict)
    times: TimeMapping = TimeMapping()
    header: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for table in ("columns", "constants", "values"):
            for name, value in getattr(self, table).items():
                if name not in FIELDS:
                    raise SettingError(f"{table}.{name}", value, f"be a known field ({suggest(name, FIELDS)})")
                if name in ("documents", "clicked") and table != "columns":
                    raise SettingError(f"{table}.{name}", value, "not be of a list")
        for name, value in self.constants.items():
            if name in self.columns:
                raise SettingError(f"constants.{name}", value, "not be a column as well")
        for name, value in self.columns.items():
            if not value:
                raise SettingError(f"columns.{name}", value, "name a column")
        if len(set(self.header)) < len(self.header):
            raise SettingError("header", self.header, "name each column once")

    def __bool__(self) -> bool:
        return self != ColumnMapping()


def read_mapping(path: Path | str) -> ColumnMapping:
    """The mapping in a TOML file; an unknown name or a wrong type is an error that says which."""
    return build(ColumnMapping, read_toml(Path(path)), path=str(path))


@dataclass(frozen=True)
class SourceSettings:
    """How input files are read.

    Attributes:
        schema: whose fields the rows have; `auto` tells it from the first rows.
        format: `auto` tells it from the first bytes and the name.
        ordinal_base: what the first position of a list is called (0 or 1); UBI and mappings only.
        mapping: where a foreign log keeps our fields .
        time_unit: how times are written; `auto` reads ISO 8601, and numbers by their size.
        delimiter: of CSV; by default a tab in .tsv and .tab files, else what parts the names of the first line.
        quote: of CSV; empty if quotes are ordinary characters.
        start: the time of every session of a source without times (yandex).
        max_position: positions beyond are quarantined.
        max_duration_hours: longer display and dwell times are quarantined.
        earliest: times before are quarantined.
        future_hours: times further ahead of the clock are quarantined.
        latest: times after are quarantined, whatever the clock says; empty: `future_hours` from now.
        max_line_bytes: longer lines are quarantined, with their first bytes.

    >>> SourceSettings(ordinal_base=2)
    Traceback (most recent call last):
    clickprism.errors.SettingError: ordinal_base must be 0 or 1, got 2
    """

    schema: SchemaName = "auto"
    format: FormatName = "auto"
    ordinal_base: int | None = None
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    time_unit: TimeUnit = "auto"
    delimiter: str = ""
    quote: str = '"'
    start: str = "2000-01-02"
    max_position: int = 10_000
    max_duration_hours: float = 24.0
    earliest: str = "2000-01-01"
    future_hours: float = 24.0
    latest: str = ""
    max_line_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if self.ordinal_base not in (None, 0, 1):
            raise SettingError("ordinal_base", self.ordinal_base, "be 0 or 1")
        if self.schema == "mapping" and not self.mapping:
            raise SettingError("mapping", self.mapping, "be given with the schema 'mapping'")
        if self.mapping and self.schema not in ("auto", "mapping"):
            raise SettingError("schema", self.schema, "be 'mapping' or 'auto' where a mapping is given")
        if len(self.delimiter.encode()) > 1 or self.delimiter in ("\n", "\r", '"'):
            raise SettingError("delimiter", self.delimiter, "be one ASCII character, no quote and no line end")
        if self.quote not in ("", '"'):
            raise SettingError("quote", self.quote, "be '\"', or empty for none")
        for name in ("start", "earliest", *(["latest"] if self.latest else [])):
            try:
                zone = datetime.fromisoformat(getattr(self, name)).tzinfo
            except ValueError:
                zone = None
                raise SettingError(name, getattr(self, name), "be a date or a time, such as 2000-01-02") from None
            if zone is not None:
                raise SettingError(name, getattr(self, name), "be UTC, without a zone")
        if not 1 <= self.max_position < 2**31:
            raise SettingError("max_position", self.max_position, "be from 1 to 2147483647")
        if not 0 < self.max_duration_hours < 1e6:
            raise SettingError("max_duration_hours", self.max_duration_hours, "be above 0, below a million")
        if not 0 <= self.future_hours < 1e6:
            raise SettingError("future_hours", self.future_hours, "be from 0 to a million")
        if not 1 <= self.max_line_bytes <= 1 << 28:
            raise SettingError("max_line_bytes", self.max_line_bytes, "be from 1 to 268435456")

    @property
    def last_time(self) -> datetime:
        """The last time that is not too late, UTC without a zone.

        >>> SourceSettings(latest="2026-03-02").last_time
        datetime.datetime(2026, 3, 2, 0, 0)
        """
        if self.latest:
            return datetime.fromisoformat(self.latest)
        return datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=self.future_hours)

    @property
    def max_duration_ms(self) -> int:
        """The longest display or dwell time that is believed."""
        return round(self.max_duration_hours * 3_600_000)

    @property
    def unit(self) -> TimeUnit:
        """How times are written: what the mapping says, else the setting."""
        return self.mapping.times.unit if self.mapping.times.unit != "auto" else self.time_unit


@dataclass(frozen=True, kw_only=True)
class RobotSettings:
    """Rules that exclude the events of robots and of click spam; each looks at the events of one day.

    Attributes:
        searches_per_day: Exclude users with more searches per day; 0 turns the rule off.
        searches_per_minute: Exclude users with more searches in one minute; 0 turns the rule off.
        click_through: Exclude users who clicked more than this share of the documents shown to them; 1 turns the rule
            off.
        click_through_impressions: Minimum number of documents shown to a user for the rule click_through.
        repeat_clicks: Exclude the clicks of a user on one document of one query if there are more; 0 turns the rule
            off.
        agents: Exclude events whose user agent contains one of these words (lower case).

    >>> RobotSettings(click_through=1.5)
    Traceback (most recent call last):
    clickprism.errors.SettingError: robots.click_through must be above 0 and at most 1, got 1.5
    """

    searches_per_day: int = 1000
    searches_per_minute: int = 30
    click_through: float = 0.8
    click_through_impressions: int = 100
    repeat_clicks: int = 20
    agents: tuple[str, ...] = AGENTS

    def __post_init__(self) -> None:
        for name in ("searches_per_day", "searches_per_minute", "repeat_clicks"):
            if getattr(self, name) < 0:
                raise SettingError(f"robots.{name}", getattr(self, name), "be at least 1, or 0 to turn the rule off")
        if not 0 < self.click_through <= 1:
            raise SettingError("robots.click_through", self.click_through, "be above 0 and at most 1")
        if self.click_through_impressions < 1:
            raise SettingError("robots.click_through_impressions", self.click_through_impressions, "be at least 1")
        for word in self.agents:
            if not word or word != word.lower() or not word.isascii():
                raise SettingError("robots.agents", word, "hold words in lower case ASCII letters")


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How events become ranked lists with clicks.

    Attributes:
        page_size: Number of documents on a page of results.
        click_window_hours: Maximum time from the display of a document to a click on it, in hours (1 to 24).
    """

    page_size: int = 10
    click_window_hours: int = 24

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise SettingError("sessions.page_size", self.page_size, "be at least 1")
        if not 1 <= self.click_window_hours <= 24:
            raise SettingError("sessions.click_window_hours", self.click_window_hours, "be from 1 to 24")


@dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """How ranked lists with clicks become click features.

    Attributes:
        k: Minimum number of users of a query-document pair in a window (k-anonymity); 0 keeps all pairs. Rows without
            a user do not count.
        week_start: Day of the week on which the window of a month moves on.
        dwell_edges_ms: Limits of the bins of the dwell time histogram, 7 numbers in ms.
        display_edges_ms: Limits of the bins of the display time histogram, 7 numbers in ms.
        keep_hours: How long replaced files and earlier snapshots stay readable, in hours.
    """

    k: int = 5
    week_start: Weekday = "monday"
    dwell_edges_ms: tuple[int, ...] = SECONDS
    display_edges_ms: tuple[int, ...] = SECONDS
    keep_hours: int = 168

    def __post_init__(self) -> None:
        if self.k < 0:
            raise SettingError("windows.k", self.k, "be 0 or more")
        if self.week_start not in WEEKDAYS:
            raise SettingError("windows.week_start", self.week_start, f"be one of {', '.join(WEEKDAYS)}")
        for name in ("dwell_edges_ms", "display_edges_ms"):
            edges = getattr(self, name)
            if len(edges) != EDGES or sorted({*edges}) != list(edges) or edges[0] <= 0:
                raise SettingError(f"windows.{name}", edges, f"be {EDGES} numbers above 0, each above the one before")
        if self.keep_hours < 0:
            raise SettingError("windows.keep_hours", self.keep_hours, "be 0 or more")


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    """How raw events are added to a log.

    A log keeps the settings `schema`, `ordinal_base`, `mapping`, `source`, `robots`, `sessions` and `windows` of its
    first ingest in its `log.toml`; None means those of the log, or the defaults for a new one.

    Attributes:
        schema: Format of the rows; auto detects it. By default that of the log, and auto for a new log.
        ordinal_base: Number of the first position in the rows, 0 or 1 (schemas ubi and mapping).
        mapping: TOML file that says which of your columns holds which field.
        watermark: Column of the query (--query) that grows, such as an id or a time. A later ingest of the same query
            reads only the rows above the last value.
        max_bad_ratio: Maximum share of broken rows. A file that exceeds it is not ingested, and the command fails; 1
            puts all broken rows into quarantine.
        dry_run: Read and count everything, but write nothing.
        threads: Number of threads.
        memory: Maximum memory of the engine, such as 500MB or 2GB.
        source: Further settings of the input files, such as --source.time-unit ms or --source.delimiter ";".
        robots: Rules that exclude the events of robots.
        sessions: How events become ranked lists with clicks.
        windows: How ranked lists with clicks become click features.
    """

    schema: SchemaName | None = None
    ordinal_base: Literal[0, 1] | None = None
    mapping: Path | None = None
    watermark: str | None = None
    max_bad_ratio: float = 0.01
    dry_run: bool = False
    threads: int = 2
    memory: str = "2GB"
    source: dict[str, str] = field(default_factory=dict)
    robots: RobotSettings | None = None
    sessions: SessionSettings | None = None
    windows: WindowSettings | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_bad_ratio <= 1:
            raise SettingError("max_bad_ratio", self.max_bad_ratio, "be from 0 to 1")
        if self.threads < 1:
            raise SettingError("threads", self.threads, "be at least 1")
        EngineSettings(memory=self.memory)

    def of_log(self, log: LogSettings) -> LogSettings:
        """Return the settings of a log with those that were given on top."""
        source: dict[str, Any] = {}
        for name, text in self.source.items():
            value = read_value(text)
            source[name.replace("-", "_")] = text if isinstance(value, date) else value  # dates are kept as text
        source |= {} if self.schema is None else {"schema": self.schema}
        source |= {} if self.ordinal_base is None else {"ordinal_base": self.ordinal_base}
        source |= {} if self.mapping is None else {"mapping": plain(read_mapping(self.mapping))}
        parts = {name: getattr(self, name) for name in ("robots", "sessions", "windows")}
        given = {name: plain(part) for name, part in parts.items() if part is not None}
        if source:
            given["source"] = {**log.values.get("source", {}), **source}
        return LogSettings({**log.values, **given})


@dataclass(frozen=True, kw_only=True)
class CompactSettings:
    """When the files of a day are merged, and when old data is deleted.

    Attributes:
        files: Maximum number of files per day; the files of a day with more are merged into one.
        keep_days: Delete events, sessions, click features and the content of rows in quarantine that are older than
            this number of days; 0 keeps everything.
    """

    files: int = 8
    keep_days: int = 0

    def __post_init__(self) -> None:
        if self.files < 1:
            raise SettingError("files", self.files, "be at least 1")
        if self.keep_days < 0:
            raise SettingError("keep_days", self.keep_days, "be at least 1, or 0 to keep everything")


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """Which click features are computed.

    Attributes:
        min_users: Minimum number of users of a query-document pair in a window (k-anonymity); 0 keeps all pairs. By
            default the setting windows.k of the log, 5 unless changed.
        examination: JSON file of an examination model, or none. By default the current model of the log, if it has one.
    """

    min_users: int | None = None
    examination: str | None = None

    def __post_init__(self) -> None:
        if self.min_users is not None and self.min_users < 0:
            raise SettingError("min_users", self.min_users, "be 0 or more")

    def windows(self, own: WindowSettings) -> WindowSettings:
        """Return the window settings of a log with the chosen number of users."""
        return own if self.min_users is None else replace(own, k=self.min_users)


@dataclass(frozen=True, kw_only=True)
class RowFilter:
    """Which rows in quarantine are meant.

    Attributes:
        file: Only rows of this input file: its path, its name, or a pattern such as "web-*.csv".
        reason: Only rows with this reason, such as not-json.
    """

    file: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            from clickprism.log.read.validate import REASONS

            if self.reason not in REASONS:
                raise SettingError("reason", self.reason, f"be the code of a reason ({suggest(self.reason, REASONS)})")


@dataclass(frozen=True)
class LogSettings:
    """What `log.toml` says: plain values by part; each part becomes an object of its class when it is asked for.

    >>> LogSettings({"robot": {}})
    Traceback (most recent call last):
    clickprism.errors.SettingError: log.toml robot must be a known part (did you mean 'robots'?), got {}
    """

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if name not in PARTS:
                raise SettingError(f"log.toml {name}", value, f"be a known part ({suggest(name, PARTS)})")

    def part(self, name: str) -> Any:
        """The settings object of a part; what is not said has its default."""
        return build(resolve(PARTS, name, path="log.toml"), self.values.get(name, {}), path=name)

    def beneath(self, name: str, given: T) -> T:
        """Return the settings of a part with every field of `given` that is not at its default.

        >>> LogSettings({"windows": {"k": 3}}).beneath("windows", WindowSettings()).k
        3
        """
        usual = type(given)()
        changed = {
            each.name: getattr(given, each.name)
            for each in fields(given)  # type: ignore[arg-type]
            if getattr(given, each.name) != getattr(usual, each.name)
        }
        merged: T = replace(self.part(name), **changed)
        return merged

    def with_part(self, name: str, settings: Any) -> LogSettings:
        """The same with another settings object for one part."""
        return replace(self, values={**self.values, name: plain(settings)})

    @property
    def source(self) -> SourceSettings:
        """How input files are read."""
        made: SourceSettings = self.part("source")
        return made

    @property
    def robots(self) -> RobotSettings:
        """Which rows the robot rules leave out."""
        made: RobotSettings = self.part("robots")
        return made

    @property
    def sessions(self) -> SessionSettings:
        """How events become lists with clicks."""
        made: SessionSettings = self.part("sessions")
        return made

    @property
    def windows(self) -> WindowSettings:
        """How lists become click features."""
        made: WindowSettings = self.part("windows")
        return made


def read_log_settings(path: Path) -> LogSettings:
    """The settings in a `log.toml`; the defaults if there is none."""
    return LogSettings(read_toml(path)) if path.exists() else LogSettings()


def write_log_settings(settings: LogSettings, path: Path) -> None:
    """Write a `log.toml`, whole or not at all."""
    write_file(path, to_toml(settings.values))
