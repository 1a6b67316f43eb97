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
from pathlib import Path
from typing import Final, Literal, TypeAlias

from clickprism.errors import SettingError
from clickprism.log.schema import ROW
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
