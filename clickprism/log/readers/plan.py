"""What a source says about its rows: where each of our fields is, which kind a row is, what it must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clickprism.log.readers.places import NOTHING, Places, literal
from clickprism.log.readers.settings import SourceSettings

TEXTS: Final = ("event_id", "search_id", "query_id", "query", "document_id", "action", "user_id", "agent", "ranker")
LISTS: Final = ("documents", "clicked")
IGNORED: Final = "ignored"
"""The kind of a row that a click log has no use for."""


@dataclass(frozen=True)
class Field:
    """One of our fields in a source: its name there, its SQL as text, and whether an object stands in its place.

    Of a list, `listed` is the SQL of the list, and `sql` says whether there is anything at all.
    """

    path: str
    sql: str
    nested: str = "false"
    listed: str = ""


@dataclass(frozen=True)
class Reading:
    """What a source may ask: for the places of fields, the settings, and the file."""

    places: Places
    settings: SourceSettings
    file: Path


@dataclass(frozen=True)
class Plan:
    """How rows of a source become ours.

    Attributes:
        reading: what it was made for.
        fields: those that the source has, by our names; their SQL is over the table of the places.
        kind: the SQL of what a row is, over the texts of the fields (`t_<name>`); null if that cannot be told.
        required: by kind, the fields that a row must have.
        names: the source's names of fields that it does not have, for messages.
        shift: what is added to positions, so that they start from 1.
        based: whether it is known how positions are counted.
    """

    reading: Reading
    fields: Mapping[str, Field]
    kind: str = ""
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    shift: int = 0
    based: bool = True

    def text(self, name: str) -> str:
        """The SQL of a field as text, after it was taken out."""
        return f"t_{name}" if name in self.fields else NOTHING

    def name(self, field: str) -> str:
        """What the source calls one of our fields."""
        known = self.fields.get(field)
        return known.path if known else self.names.get(field, field)


def find(places: Places, paths: Mapping[str, str | tuple[str, ...]]) -> dict[str, Field]:
    """The fields that the source has, at their first path that there is something at."""
    found: dict[str, Field] = {}
    for name, ways in paths.items():
        for path in (ways,) if isinstance(ways, str) else ways:
            if name in LISTS:
                if (pair := places.list(path)) is not None:
                    found[name] = _listed(found.get(name), path, *pair)
            elif (sql := places.text(path)) is not None:
                kept = found.get(name)
                nested = places.nested(path) if name in TEXTS else "false"
                found[name] = Field(path, sql, nested) if kept is None else _either(kept, sql, nested)
    return found


def constant(value: str | float | bool, name: str) -> Field:
    """A field that is the same in every row."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Field(name, literal(text))


def _either(kept: Field, sql: str, nested: str) -> Field:
    both = " or ".join(each for each in dict.fromkeys((kept.nested, nested)) if each != "false")
    return Field(kept.path, f"coalesce(nullif({kept.sql}, ''), {sql})", both or "false")


def _listed(kept: Field | None, path: str, listed: str, sql: str) -> Field:
    if kept is None:
        return Field(path, sql, listed=listed)
    return Field(kept.path, f"coalesce({kept.sql}, {sql})", listed=f"coalesce({kept.listed}, {listed})")
