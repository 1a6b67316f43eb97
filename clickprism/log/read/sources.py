"""Where a field of a source is found, as SQL: in a JSON text, or in columns. Every value is given as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from clickprism._util.files import sha256
from clickprism.log.read.settings import FIELDS, SourceSettings

if TYPE_CHECKING:
    from clickprism.log.read.lines import Lines


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


def _pointer(way: Sequence[str]) -> str:
    """The SQL of a JSON pointer."""
    return literal("".join("/" + part.replace("~", "~0").replace("/", "~1") for part in way))


def _within(name: str, path: str) -> str:
    """The SQL of a field of an object that is the text of another field."""
    inner = f"json_extract_string(text, {_pointer([name])})"
    value = f"case when json_valid({inner}) then json_extract_string({inner}, {_pointer(path.split('.'))}) end"
    return f"case when j is not null and (contains(text, '\\\"') or contains(text, '\\u0022')) then {value} end"


class ColumnPlaces:
    """Fields of CSV: columns, or JSON texts in them. The table's columns are c0, c1, ... in their order, all texts."""

    def __init__(self, names: Sequence[str]) -> None:
        self._columns = {name: f"c{place}" for place, name in enumerate(names)}

    def text(self, path: str) -> str | None:
        """See `Places`."""
        if path in self._columns:
            return self._columns[path]
        before = path
        while "." in before:
            before = before.rpartition(".")[0]
            if before in self._columns:
                column, pointer = self._columns[before], _pointer(path[len(before) + 1 :].split("."))
                return f"case when json_valid({column}) then json_extract_string({column}, {pointer}) end"
        return None

    def list(self, path: str) -> tuple[str, str] | None:
        """See `Places`."""
        text = self.text(path)
        return None if text is None else (list_of(text), text)

    def nested(self, _path: str) -> str:
        """See `Places`."""
        return "false"

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

    def _pair(self, name: str) -> str:
        column = self._columns[name]
        number = f"try_cast({column} as double)"
        value = f"case when isfinite({number}) then to_json({number}) else to_json(nullif({column}, '')) end"
        return f"{literal(json.dumps(name[len('feature_') :]) + ':')} || cast({value} as varchar)"


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


Source: TypeAlias = Callable[[Reading], Plan]

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "time": ("time", "timestamp"),
    "document_id": ("document_id", "doc_id"),
    "agent": ("agent", "user_agent"),
}
NEEDED: Final = {
    "impression": ("search_id", "time", "query_id", "document_id", "position"),
    "ranking": ("search_id", "time", "query_id", "documents"),
    "interaction": ("search_id", "time", "document_id", "action"),
}


def own(reading: Reading) -> Plan:
    """Our own rows: the names of `schema.ROW`.

    A row with an action is an interaction, one with a list of documents a ranking, any other an impression, unless its
    `kind` says so.
    """
    paths: dict[str, str | tuple[str, ...]] = {name: ALIASES.get(name, name) for name in FIELDS}
    return _own(find(reading.places, paths), reading)


def mapped(reading: Reading) -> Plan:
    """Rows of a foreign log, as a mapping says."""
    settings, mapping = reading.settings, reading.settings.mapping
    paths = {name: mapping.columns.get(name, ALIASES.get(name, name)) for name in FIELDS}
    fields = find(reading.places, paths) | {name: constant(value, name) for name, value in mapping.constants.items()}
    for name, meanings in mapping.values.items():
        if name in fields:
            means = [(literal(word), constant(value, name).sql) for word, value in meanings.items()]
            cases = " ".join(f"when {word} then {value}" for word, value in means)
            sql = fields[name].sql
            fields[name] = replace(fields[name], sql=f"case {sql} {cases} else {sql} end")
    shift = 1 - settings.ordinal_base if settings.ordinal_base is not None else 0
    return replace(_own(fields, reading), shift=shift, names=mapping.columns)


def _own(fields: dict[str, Field], reading: Reading) -> Plan:
    if (features := reading.places.features()) is not None:
        given = f"coalesce(nullif({fields['features'].sql}, ''), {features})" if "features" in fields else features
        fields["features"] = Field("features", given)
    plan = Plan(reading, fields, required=NEEDED)
    told = f"case when {plan.text('action')} is not null then 'interaction'"
    told += f" when {plan.text('documents')} is not null then 'ranking' else 'impression' end"
    known = f"{plan.text('kind')} in ('impression', 'ranking', 'interaction')"
    kind = f"case when {plan.text('kind')} is null then {told} when {known} then {plan.text('kind')} end"
    return replace(plan, kind=kind if "kind" in fields else told)


UBI: Final[dict[str, str | tuple[str, ...]]] = {
    "time": "timestamp",
    "search_id": "query_id",
    "query": "user_query",
    "documents": "query_response_hit_ids",
    "action": "action_name",
    "document_id": ("event_attributes.object.object_id", "object_id"),
    "position": ("event_attributes.position.ordinal", "event_attributes.rank", "rank"),
    "display_ms": "event_attributes.display_ms",
    "dwell_ms": "event_attributes.dwell_ms",
    "page_skipped": "event_attributes.page_skipped",
    "user_id": ("client_id", "user_id"),
    "agent": ("user_agent", "query_attributes.user_agent", "event_attributes.user_agent"),
    "ranker": ("query_attributes.ranker", "event_attributes.ranker"),
    "randomised": "event_attributes.randomised",
    "features": "event_attributes.features",
}


HIT: Final = "_source"


def _hits(paths: dict[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """The same paths, and behind them those in search hits, as scrolls and dumps of an index give them."""
    ways = {name: (path,) if isinstance(path, str) else path for name, path in paths.items()}
    return {name: (*path, *(f"{HIT}.{each}" for each in path)) for name, path in ways.items()}


def ubi(reading: Reading) -> Plan:
    """OpenSearch User Behavior Insights: `ubi_queries` and `ubi_events`, told apart by `action_name`.

    Its query id is our search id. There is no event id. Events without an object, such as a page load, or without a
    search are ignored unless they are clicks, as are the lines that say where OpenSearch's bulk loader puts the next
    row. `view` is another word for `impression`. Of a search hit the row is its `_source`, and the event id its `_id`.
    """
    fields = find(reading.places, _hits(UBI) if reading.places.has(HIT) else UBI)
    within = [sql for name in ("query_id", "timestamp", "client_id") if (sql := reading.places.text(f"{HIT}.{name}"))]
    if within and (own_id := reading.places.text("_id")) is not None:
        fields["event_id"] = Field("_id", f"case when coalesce({', '.join(within)}) is not null then {own_id} end")
    bulk = [sql for name in ("index", "create") if (sql := reading.places.text(f"{name}._index")) is not None]
    if bulk:
        fields["bulk"] = Field("index", f"coalesce({', '.join(bulk)})")
    plan = Plan(reading, fields, names={name: path if isinstance(path, str) else path[0] for name, path in UBI.items()})
    action, asked = plan.text("action"), f"coalesce({plan.text('documents')}, {plan.text('query')})"
    apart = f"({plan.text('document_id')} is null or {plan.text('search_id')} is null)"
    kind = (
        f"case when {action} is null then case when {asked} is not null then 'ranking'"
        f" when {plan.text('bulk')} is not null then '{IGNORED}' end"
        f" when {apart} and lower({action}) <> 'click' then '{IGNORED}' else 'interaction' end"
    )
    if "action" in fields:
        spoken = fields["action"]
        words = f"case lower({spoken.sql}) when 'view' then 'impression' when 'impression' then 'impression'"
        fields["action"] = replace(spoken, sql=f"{words} when 'click' then 'click' else {spoken.sql} end")
    required = {"ranking": ("search_id", "time"), "interaction": ("search_id", "time", "document_id")}
    base = reading.settings.ordinal_base
    return replace(
        plan, kind=kind, required=required, shift=1 - base if base is not None else 0, based=base is not None
    )


def metarank(reading: Reading) -> Plan:
    """Metarank events: rankings and interactions; those of items and users are ignored.

    So are interactions outside of any ranking, unless they are clicks.
    """
    paths: dict[str, str | tuple[str, ...]] = {
        "kind": "event",
        "event_id": "id",
        "time": "timestamp",
        "document_id": "item",
        "action": "type",
        "user_id": ("user", "session"),
    }
    places = reading.places
    fields = find(places, paths)
    ranking = f"{fields['kind'].sql} = 'ranking'" if "kind" in fields else "false"
    of_search, own_id = places.text("ranking"), places.text("id")
    if own_id is not None or of_search is not None:
        sql = f"case when {ranking} then {own_id or 'null'} else {of_search or 'null'} end"
        fields["search_id"] = Field("ranking", sql)
    if (items := places.text("items")) is not None:
        listed = f"case when {ranking} and json_valid({items}) then list_transform(from_json({items}, "
        listed += """'[{"id":"VARCHAR"}]'), lambda x: x.id) end"""
        fields["documents"] = Field("items", items, listed=listed)
    if (given := places.text("fields")) is not None:
        pairs = f"""from_json(case when {ranking} and json_valid({given}) then {given} end, """
        pairs += """'[{"name":"VARCHAR","value":"VARCHAR"}]')"""
        fields["query"] = Field("fields", f"list_filter({pairs}, lambda x: x.name = 'query')[1].value")
    plan = Plan(reading, fields, names={"search_id": "ranking", "documents": "items", "time": "timestamp"})
    event = plan.text("kind")
    apart = f"{plan.text('search_id')} is null and lower({plan.text('action')}) <> 'click'"
    kind = f"case when {event} in ('item', 'user') or ({event} = 'interaction' and {apart}) then '{IGNORED}'"
    kind += f" when {event} in ('ranking', 'interaction') then {event} end"
    required = {"ranking": ("search_id", "time", "documents"), "interaction": NEEDED["interaction"]}
    return replace(plan, kind=kind, required=required)


def yandex(reading: Reading) -> Plan:
    """Search sessions without times: query, documents and clicks, parted by tabs, lists by commas.

    Every session is at the time `start`, and its search id is the hash of the file and the line.
    """
    places = reading.places
    fields = find(places, {"query_id": "query"})
    for name, column in (("documents", "documents"), ("clicked", "clicks")):
        if (text := places.text(column)) is not None:
            parts = f"case when {text} is null or {text} = '' then [] else string_split({text}, ',') end"
            fields[name] = Field(column, text, listed=parts)
    fields["time"] = constant(reading.settings.start, "time")
    fields["search_id"] = Field("line", f"{literal(_hash(reading.file) + ':')} || line")
    names = {"query_id": "query", "clicked": "clicks"}
    return Plan(reading, fields, "'ranking'", {"ranking": ("search_id", "time", "query_id", "documents")}, names)


def _hash(file: Path) -> str:
    found = file.stat()
    return _hash_of(file, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=4)
def _hash_of(file: Path, _size: int, _changed: int) -> str:
    """The start of the SHA-256 of a file, made once for all its chunks."""
    return sha256(file)[:16]


SOURCES: Final[dict[str, Source]] = {
    "clickprism": own,
    "ubi": ubi,
    "metarank": metarank,
    "yandex": yandex,
    "mapping": mapped,
}
