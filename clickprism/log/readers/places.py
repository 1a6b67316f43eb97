"""Where a field of a source is found, as SQL: in a JSON text, or in columns. Every value is given as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from clickprism.log.readers.lines import Lines

NOTHING: Final = "cast(null as varchar)"
SCANNED: Final = (
    1 << 21
)  # in a text up to this size, looking for a name costs less than reading a field that is not there


class Places(Protocol):
    """What a source asks for its fields; paths go into objects by dots."""

    def text(self, path: str) -> str | None:
        """The SQL of a field as text; None if no row of this chunk has it."""

    def list(self, path: str) -> tuple[str, str] | None:
        """The SQL of a field as a list of texts, and as text (to see whether there was something else)."""

    def nested(self, path: str) -> str:
        """The SQL of whether the field is an object or a list where it should be a text or a number."""

    def has(self, name: str) -> bool:
        """Whether a row of this chunk may have this field, or one within."""

    def features(self) -> str | None:
        """The SQL of all fields that start with feature_, as the text of one JSON object."""

    def table(self) -> str:
        """The SQL of the table that all of these are columns of; it has `line` and `fault` too."""


def quoted(name: str) -> str:
    """A name as SQL has it.

    >>> print(quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def select(columns: Sequence[str], source: str) -> str:
    """A query.

    >>> select(["a", "b c"], "d")
    'select a, b c from d'
    """
    return " ".join(["select", ", ".join(columns), "from", source])


def list_of(text: str) -> str:
    """The SQL of a list from the text of a JSON list; null from any other text."""
    valid = f"starts_with({text}, '[') and json_valid({text})"
    return f"case when {valid} then from_json({text}, '[\"VARCHAR\"]') end"


class JsonPlaces:
    """Fields of JSON lines: all that are asked for are taken out of each line at once."""

    def __init__(self, lines: Lines) -> None:
        self._data = data = lines.data
        braces = np.frombuffer(data, np.uint8) == ord("{")
        flat = b"[" not in data and np.count_nonzero(braces) == np.count_nonzero(braces[lines.starts])
        self._flat = flat  # no line has an object or a list in it
        self._escaped = b"\\" in data and (b"\\u" in data or b"\\/" in data)  # names may be written in other ways
        self._quoting = b"\\" in data and (b'\\"' in data or b"\\u0022" in data)  # a text may hold an object
        self._all = len(data) > SCANNED or self._escaped
        self._shape: dict[str, Any] = {}
        self._texts: dict[str, str | None] = {}

    def text(self, path: str) -> str | None:
        """See `Places`."""
        if path not in self._texts:
            ways = [way for way in dict.fromkeys([tuple(path.split(".")), (path,)]) if all(map(self._seen, way))]
            found = [self._add(way) for way in ways]
            if self._quoting and "." in path and self._seen(path.partition(".")[0]):
                found.append(_within(*path.split(".", 1)))
            first = [f"nullif({each}, '')" for each in found[:-1]]
            self._texts[path] = f"coalesce({', '.join([*first, found[-1]])})" if first else found[0] if found else None
        return self._texts[path]

    def list(self, path: str) -> tuple[str, str] | None:
        """See `Places`."""
        name = json.dumps(path.rpartition(".")[2], ensure_ascii=False)[1:].encode()
        if name not in self._data and not self._escaped:
            return None
        text = self.text(path)
        return None if text is None else (list_of(text), text)

    def nested(self, path: str) -> str:
        """See `Places`."""
        if self._flat:
            return "false"
        text, pointer = self.text(path), _pointer(path.split("."))
        looks = f"starts_with({text}, '{{') or starts_with({text}, '[')"
        return f"case when {looks} then json_type(text, {pointer}) in ('OBJECT', 'ARRAY') else false end"

    def has(self, name: str) -> bool:
        """See `Places`."""
        return self._escaped or json.dumps(name, ensure_ascii=False).encode() in self._data

    def features(self) -> str | None:
        """See `Places`."""
        if b'"feature_' not in self._data and not (self._escaped and b"\\u00" in self._data):
            return None
        names = "list_sort(list_filter(json_keys(text), lambda k: starts_with(k, 'feature_')))"
        pointer = "'/' || replace(replace(k, '~', '~0'), '/', '~1')"
        pairs = f"list_transform({names}, lambda k: to_json(k[9:]) || ':' || json_extract(text, {pointer}))"
        valid = "j is not null and starts_with(ltrim(text), '{')"
        return f"case when {valid} then nullif('{{' || array_to_string({pairs}, ',') || '}}', '{{}}') end"

    def table(self) -> str:
        """See `Places`."""
        shape = literal(json.dumps(self._shape or {"search_id": "VARCHAR"}))
        fault = (
            "case when j is not null and starts_with(ltrim(text, ' \t'), '{') then null"
            " when j is not null then 'not-object' when trim(text, ' \t\r\n') = '' then 'blank' else 'not-json' end"
        )
        parsed = select(
            ["line", "text", f"case when json_valid(text) then json_transform(text, {shape}) end j"], "input"
        )
        return f"({select(['*', f'{fault} fault'], f'({parsed})')})"

    def _seen(self, name: str) -> bool:
        return self._all or self.has(name)

    def _add(self, way: Sequence[str]) -> str:
        inner = self._shape
        for place, part in enumerate(way):
            kind: Any = "VARCHAR" if place == len(way) - 1 else {}
            like = next((name for name in inner if name.lower() == part.lower()), part)
            if like != part or type(inner.setdefault(part, kind)) is not type(kind):  # the shape has no room for it
                return f"case when j is not null then json_extract_string(text, {_pointer(way)}) end"
            inner = inner[part]
        return "j." + ".".join(map(quoted, way))


def _number(column: str, kind: pa.DataType) -> str:
    """The SQL of the text of a number; of a whole one without a point, also if it was kept as a float."""
    text = f"cast({column} as varchar)"
    if not pa.types.is_floating(kind):
        return text
    whole = f"{column} = trunc({column}) and abs({column}) < 9007199254740992"
    return f"case when {whole} then cast(cast({column} as bigint) as varchar) else {text} end"


def _pointer(way: Sequence[str]) -> str:
    """The SQL of a JSON pointer."""
    return literal("".join("/" + part.replace("~", "~0").replace("/", "~1") for part in way))


def _within(name: str, path: str) -> str:
    """The SQL of a field of an object that is the text of another field."""
    inner = f"json_extract_string(text, {_pointer([name])})"
    value = f"case when json_valid({inner}) then json_extract_string({inner}, {_pointer(path.split('.'))}) end"
    return f"case when j is not null and (contains(text, '\\\"') or contains(text, '\\u0022')) then {value} end"


class ColumnPlaces:
    """Fields of CSV and Parquet: columns, or JSON texts in them. The table's columns are c0, c1, ... in their order."""

    def __init__(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self._columns = {name: (place, kind) for place, (name, kind) in enumerate(zip(names, types, strict=True))}
        self.used: set[int] = set()
        """The places of the columns that were asked for and are there."""

    def text(self, path: str) -> str | None:
        """See `Places`."""
        if path in self._columns:
            column, kind = self._column(path)
            if pa.types.is_nested(kind):
                return f"cast(to_json({column}) as varchar)"
            return column if pa.types.is_string(kind) else _number(column, kind)
        before = path
        while "." in before:
            before = before.rpartition(".")[0]
            if before in self._columns and pa.types.is_string(self._columns[before][1]):
                column, pointer = self._column(before)[0], _pointer(path[len(before) + 1 :].split("."))
                return f"case when json_valid({column}) then json_extract_string({column}, {pointer}) end"
        return None

    def list(self, path: str) -> tuple[str, str] | None:
        """See `Places`."""
        kind = self._columns.get(path, (0, pa.null()))[1]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            column, kind = self._column(path)[0], kind.value_type
            value = "to_json(x)::varchar" if pa.types.is_nested(kind) else _number("x", kind)
            listed = f"list_transform({column}, lambda x: {value})"
            if pa.types.is_string(kind):
                listed = column
            return listed, f"case when {column} is not null then '[' end"
        text = self.text(path)
        return None if text is None else (list_of(text), text)

    def nested(self, path: str) -> str:
        """See `Places`."""
        place, kind = self._columns.get(path, (0, pa.string()))
        return f"c{place} is not null" if pa.types.is_nested(kind) else "false"

    def has(self, name: str) -> bool:
        """See `Places`."""
        return any(column == name or column.startswith(f"{name}.") for column in self._columns)

    def features(self) -> str | None:
        """See `Places`."""
        pairs = [self._pair(name) for name in sorted(self._columns) if name.startswith("feature_")]
        return f"nullif('{{' || array_to_string([{', '.join(pairs)}], ',') || '}}', '{{}}')" if pairs else None

    def table(self) -> str:
        """See `Places`."""
        return "(select *, cast(null as varchar) fault from input)"

    def _column(self, name: str) -> tuple[str, pa.DataType]:
        place, kind = self._columns[name]
        self.used.add(place)
        return f"c{place}", kind

    def _pair(self, name: str) -> str:
        column, kind = self._column(name)
        value = f"to_json({column})"
        if pa.types.is_string(kind):
            number = f"try_cast({column} as double)"
            value = f"case when isfinite({number}) then to_json({number}) else to_json(nullif({column}, '')) end"
        return f"{literal(json.dumps(name[len('feature_') :]) + ':')} || cast({value} as varchar)"
