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
ROW_COLUMNS: Final = (
    "kind string!, event_id string, time timestamp!, search_id string!, query_id string, query string, "
    "document_id string, position int32, documents strings, clicked strings, action string, click bool, "
    "display_ms int64, dwell_ms int64, page_skipped bool, user_id string, agent string, ranker string, "
    "randomised bool, features string"
)
"""The fields of an input row with their types; `!` marks those that are never null. `schema.ROW` is made of it."""
FIELDS: Final = tuple(column.split()[0] for column in ROW_COLUMNS.split(", "))
SPARK: Final = re.compile(r"local(\[(\*|[1-9]\d*)\])?|spark://\S+")
MEMORY: Final = re.compile(r"[1-9]\d*(MB|GB)")
_ROBOTS: Final = (
    "bot/ bot; googlebot bingbot crawler spider slurp headless phantomjs selenium scrapy python-requests python-urllib "
    "aiohttp go-http-client libwww-perl curl/ wget/"
)
AGENTS: Final = tuple(_ROBOTS.split())


def _require(holds: bool, field: str, value: object, must: str) -> None:
    if not holds:
        raise SettingError(field, value, must)


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
        known = self.engine == "duckdb" or SPARK.fullmatch(self.engine) is not None
        _require(known, "engine", self.engine, "be duckdb, local[*], local[N] or spark://host:port")
        _require(MEMORY.fullmatch(self.memory) is not None, "memory", self.memory, "be such as 500MB or 2GB")


@dataclass(frozen=True)
class TimeMapping:
    """How times are written."""

    unit: TimeUnit = "auto"


@dataclass(frozen=True)
class ColumnMapping:
    """Which column of a foreign log holds which of our fields; docs/reference/datamodel.md shows a file.

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
                path = f"{table}.{name}"
                _require(name in FIELDS, path, value, f"be a known field ({suggest(name, FIELDS)})")
                is_list = name in ("documents", "clicked") and table != "columns"
                _require(not is_list, path, value, "not be of a list")
        for name, value in self.constants.items():
            _require(name not in self.columns, f"constants.{name}", value, "not be a column as well")
        for name, value in self.columns.items():
            _require(bool(value), f"columns.{name}", value, "name a column")
        _require(len(set(self.header)) == len(self.header), "header", self.header, "name each column once")

    def __bool__(self) -> bool:
        return self != ColumnMapping()


def read_mapping(path: Path | str) -> ColumnMapping:
    """Return the mapping in a TOML file; an error names an unknown name or a wrong type."""
    return build(ColumnMapping, read_toml(Path(path)), path=str(path))


@dataclass(frozen=True)
class SourceSettings:
    """How input files are read.

    Attributes:
        schema: Which product's fields the rows have; `auto` detects it from the first rows.
        format: `auto` detects it from the first bytes and the name.
        ordinal_base: what the first position of a list is called (0 or 1); UBI and mappings only.
        mapping: columns of a foreign log that hold the fields of ours.
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
        mapped, zone_free = bool(self.mapping), {"start", "earliest"} | ({"latest"} if self.latest else set())
        rules = {
            "ordinal_base": (self.ordinal_base in (None, 0, 1), "be 0 or 1"),
            "mapping": (mapped or self.schema != "mapping", "be given with the schema 'mapping'"),
            "schema": (
                not mapped or self.schema in ("auto", "mapping"),
                "be 'mapping' or 'auto' where a mapping is given",
            ),
            "delimiter": (
                len(self.delimiter.encode()) < 2 and self.delimiter not in ("\n", "\r", '"'),
                "be one ASCII character, no quote and no line end",
            ),
            "quote": (self.quote in ("", '"'), "be '\"', or empty for none"),
            "max_position": (1 <= self.max_position < 2**31, "be from 1 to 2147483647"),
            "max_duration_hours": (0 < self.max_duration_hours < 1e6, "be above 0, below a million"),
            "future_hours": (0 <= self.future_hours < 1e6, "be from 0 to a million"),
            "max_line_bytes": (1 <= self.max_line_bytes <= 1 << 28, "be from 1 to 268435456"),
        }
        for name, (holds, must) in rules.items():
            _require(holds, name, getattr(self, name), must)
        for name in sorted(zone_free):
            try:
                zone = datetime.fromisoformat(getattr(self, name)).tzinfo
            except ValueError:
                raise SettingError(name, getattr(self, name), "be a date or a time, such as 2000-01-02") from None
            _require(zone is None, name, getattr(self, name), "be UTC, without a zone")

    @property
    def last_time(self) -> datetime:
        """Return the latest allowed time, UTC without a zone.

        >>> SourceSettings(latest="2026-03-02").last_time
        datetime.datetime(2026, 3, 2, 0, 0)
        """
        if self.latest:
            return datetime.fromisoformat(self.latest)
        return datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=self.future_hours)

    @property
    def max_duration_ms(self) -> int:
        """Maximum display or dwell time."""
        return round(self.max_duration_hours * 3_600_000)

    @property
    def unit(self) -> TimeUnit:
        """Unit of times: that of the mapping, else the setting."""
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
            value = getattr(self, name)
            _require(value >= 0, f"robots.{name}", value, "be at least 1, or 0 to turn the rule off")
        _require(0 < self.click_through <= 1, "robots.click_through", self.click_through, "be above 0 and at most 1")
        least = self.click_through_impressions
        _require(least >= 1, "robots.click_through_impressions", least, "be at least 1")
        for word in self.agents:
            plain_word = bool(word) and word == word.lower() and word.isascii()
            _require(plain_word, "robots.agents", word, "hold words in lower case ASCII letters")


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
        _require(self.page_size >= 1, "sessions.page_size", self.page_size, "be at least 1")
        hours = self.click_window_hours
        _require(1 <= hours <= 24, "sessions.click_window_hours", hours, "be from 1 to 24")


@dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """How ranked lists with clicks become click features.

    Attributes:
        k: Minimum number of users of a query-document pair in a window (k-anonymity); 0 keeps all pairs. Rows without
            a user do not count.
        keep_hours: How long replaced files and earlier snapshots stay readable, in hours.
    """

    k: int = 5
    keep_hours: int = 168

    def __post_init__(self) -> None:
        for name in ("k", "keep_hours"):
            _require(getattr(self, name) >= 0, f"windows.{name}", getattr(self, name), "be 0 or more")


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
        _require(0 <= self.max_bad_ratio <= 1, "max_bad_ratio", self.max_bad_ratio, "be from 0 to 1")
        _require(self.threads >= 1, "threads", self.threads, "be at least 1")
        EngineSettings(memory=self.memory)

    def of_log(self, log: LogSettings) -> LogSettings:
        """Return the settings of a log with those that were given on top."""
        source: dict[str, Any] = {}
        for name, text in self.source.items():
            value = read_value(text)
            source[name.replace("-", "_")] = text if isinstance(value, date) else value  # dates are kept as text
        mapping = None if self.mapping is None else plain(read_mapping(self.mapping))
        own = {"schema": self.schema, "ordinal_base": self.ordinal_base, "mapping": mapping}
        source |= {name: value for name, value in own.items() if value is not None}
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
        _require(self.files >= 1, "files", self.files, "be at least 1")
        _require(self.keep_days >= 0, "keep_days", self.keep_days, "be at least 1, or 0 to keep everything")


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
        _require(self.min_users is None or self.min_users >= 0, "min_users", self.min_users, "be 0 or more")

    def windows(self, own: WindowSettings) -> WindowSettings:
        """Return the window settings of a log with the chosen number of users."""
        return own if self.min_users is None else replace(own, k=self.min_users)


@dataclass(frozen=True, kw_only=True)
class RowFilter:
    """Selects rows in quarantine.

    Attributes:
        file: Only rows of this input file: its path, its name, or a pattern such as "web-*.csv".
        reason: Only rows with this reason, such as not-json.
    """

    file: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            from clickprism.log.read.rows import REASONS

            must = f"be the code of a reason ({suggest(self.reason, REASONS)})"
            _require(self.reason in REASONS, "reason", self.reason, must)


@dataclass(frozen=True)
class LogSettings:
    """The content of `log.toml`: plain values by part, which `part` turns into a settings object.

    >>> LogSettings({"robot": {}})
    Traceback (most recent call last):
    clickprism.errors.SettingError: log.toml robot must be a known part (did you mean 'robots'?), got {}
    """

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            _require(name in PARTS, f"log.toml {name}", value, f"be a known part ({suggest(name, PARTS)})")

    def part(self, name: str) -> Any:
        """Return the settings of a part; missing values have their defaults."""
        return build(resolve(PARTS, name, path="log.toml"), self.values.get(name, {}), path=name)

    def beneath(self, name: str, given: T) -> T:
        """Return the settings of a part with every field of `given` that is not at its default.

        >>> LogSettings({"windows": {"k": 3}}).beneath("windows", WindowSettings()).k
        3
        """
        usual, names = type(given)(), [each.name for each in fields(given)]  # type: ignore[arg-type]
        changed = {name: getattr(given, name) for name in names if getattr(given, name) != getattr(usual, name)}
        merged: T = replace(self.part(name), **changed)
        return merged

    def with_part(self, name: str, settings: Any) -> LogSettings:
        """Return the settings with another object for one part."""
        return replace(self, values={**self.values, name: plain(settings)})

    @property
    def source(self) -> SourceSettings:
        """How input files are read."""
        return build(SourceSettings, self.values.get("source", {}), path="source")

    @property
    def robots(self) -> RobotSettings:
        """Rules that exclude the rows of robots."""
        return build(RobotSettings, self.values.get("robots", {}), path="robots")

    @property
    def sessions(self) -> SessionSettings:
        """How events become ranked lists with clicks."""
        return build(SessionSettings, self.values.get("sessions", {}), path="sessions")

    @property
    def windows(self) -> WindowSettings:
        """How ranked lists with clicks become click features."""
        return build(WindowSettings, self.values.get("windows", {}), path="windows")


_EDGES: Final = [1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 180_000]
FORMER: Final = {"week_start": "monday", "dwell_edges_ms": _EDGES, "display_edges_ms": _EDGES}
"""Settings of windows that a `log.toml` of an earlier version has, with the values that are the only ones now."""


def read_log_settings(path: Path) -> LogSettings:
    """Return the settings in a `log.toml`, or the defaults if there is none."""
    values = read_toml(path) if path.exists() else {}
    if isinstance(own := values.get("windows"), dict):
        values["windows"] = {name: value for name, value in own.items() if FORMER.get(name) != value}
    return LogSettings(values)


def write_log_settings(settings: LogSettings, path: Path) -> None:
    """Write a `log.toml` completely or not at all."""
    write_file(path, to_toml(settings.values))
