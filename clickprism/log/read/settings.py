"""A small TOML file that says where a foreign log keeps our fields.

    header = ["when", "session", "term", "sku", "rank", "hit"]   # only for CSV files without a header

    [columns]                      # our field = its column; in JSON, dots lead into objects
    search_id = "session"
    query = "term"
    document_id = "sku"
    position = "rank"
    click = "hit"
    time = "when"

    [constants]                    # our field = the same value in every row
    ranker = "v3"

    [values]                       # our field = what its words mean
    click = { yes = true, no = false }

    [times]
    unit = "ms"                    # auto, iso, s, ms, us or ns

Fields that are not named keep our names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

from clickprism.errors import SettingError
from clickprism.log.schema import ROW
from clickprism.log.settings import SchemaName
from clickprism.settings import build, read_toml, suggest

TimeUnit: TypeAlias = Literal["auto", "iso", "s", "ms", "us", "ns"]
FIELDS: Final = tuple(name for name in ROW.names if name != "line")


@dataclass(frozen=True)
class TimeMapping:
    """How times are written."""

    unit: TimeUnit = "auto"


@dataclass(frozen=True)
class ColumnMapping:
    """Where a foreign log keeps our fields; see the module for the file.

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


FormatName: TypeAlias = Literal["auto", "json", "csv", "parquet"]


@dataclass(frozen=True)
class SourceSettings:
    """How input files are read.

    Attributes:
        schema: whose fields the rows have; `auto` tells it from the first rows.
        format: `auto` tells it from the first bytes and the name.
        ordinal_base: what the first position of a list is called (0 or 1); UBI and mappings only.
        mapping: where a foreign log keeps our fields (see `clickprism.log.read.settings`).
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
