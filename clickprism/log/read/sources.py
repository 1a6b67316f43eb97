"""Sources: where each of our fields is in their rows. A `Plan` describes it as SQL over JSON texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from clickprism._util.files import sha256
from clickprism.log.schema import literal
from clickprism.log.settings import FIELDS, SourceSettings

TEXTS: Final = ("event_id", "search_id", "query_id", "query", "document_id", "action", "user_id", "agent", "ranker")
LISTS: Final = ("documents", "clicked")
IGNORED: Final = "ignored"
"""The kind of a row that a click log does not use."""
NOTHING: Final = "cast(null as varchar)"
HIT: Final = "_source"
Ways: TypeAlias = str | tuple[str, ...]

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "time": ("time", "timestamp"),
    "document_id": ("document_id", "doc_id"),
    "agent": ("agent", "user_agent"),
}
UBI: Final[dict[str, Ways]] = {
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
NEEDED: Final = {
    "impression": ("search_id", "time", "query_id", "document_id", "position"),
    "ranking": ("search_id", "time", "query_id", "documents"),
    "interaction": ("search_id", "time", "document_id", "action"),
}


@dataclass(frozen=True)
class Field:
    """One of our fields in a source: its name there, its SQL as text and as list, and whether it is an object."""

    path: str
    sql: str
    nested: str = "false"
    listed: str = ""


@dataclass(eq=False)
class Reading:
    """Settings, file, and JSON texts of some rows.

    All values are extracted from a row at once: `j` is the list of the values at the pointers that were asked for.
    """

    settings: SourceSettings
    file: Path
    data: bytes = b""
    _pointers: dict[str, int] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether a row may have a field whose name starts so."""
        return f'"{name}'.encode() in self.data or b"\\u" in self.data

    def text(self, path: str) -> str:
        """Return the SQL of the value at a path as text; dots lead into objects, or are part of a name."""
        ways = dict.fromkeys([_pointer(path.split(".")), _pointer([path])])
        first, *others = [f"j[{self._pointers.setdefault(way, len(self._pointers) + 1)}]" for way in ways]
        return f"coalesce(nullif({first}, ''), {others[0]})" if others else first

    def find(self, name: str, ways: Ways) -> Field:
        """Return one of our fields: the first of these paths that has a value."""
        paths = (ways,) if isinstance(ways, str) else ways
        texts = [self.text(path) for path in paths]
        filled = ", ".join(f"nullif({each}, '')" for each in texts)
        sql = f"coalesce({filled})" if len(texts) > 1 else texts[0]
        if name in LISTS:
            is_list = f"starts_with({sql}, '[') and json_valid({sql})"
            return Field(paths[0], sql, listed=f"case when {is_list} then from_json({sql}, '[\"VARCHAR\"]') end")
        if name not in TEXTS:
            return Field(paths[0], sql)
        types = [f"json_type(text, {literal(_pointer(path.split('.')))}) in ('OBJECT', 'ARRAY')" for path in paths]
        looks = f"starts_with({sql}, '{{') or starts_with({sql}, '[')"
        return Field(paths[0], sql, f"case when {looks} then coalesce({' or '.join(types)}, false) else false end")

    def features(self) -> str | None:
        """Return the SQL of all fields that start with feature_, as the text of one JSON object."""
        if not self.has("feature_"):
            return None
        names = "list_sort(list_filter(json_keys(text), lambda k: starts_with(k, 'feature_')))"
        pointer = "'/' || replace(replace(k, '~', '~0'), '/', '~1')"
        pairs = f"list_transform({names}, lambda k: to_json(k[9:]) || ':' || json_extract(text, {pointer}))"
        return f"case when fault is null then nullif('{{' || array_to_string({pairs}, ',') || '}}', '{{}}') end"

    def table(self) -> str:
        """Return the SQL of the table that has all of these as columns."""
        paths = ", ".join(map(literal, self._pointers))
        fault = (
            "case when j is not null and starts_with(ltrim(text, ' \t'), '{') then null"
            " when j is not null then 'not-object' when trim(text, ' \t\r\n') = '' then 'blank' else 'not-json' end"
        )
        taken = f"case when json_valid(text) then json_extract_string(text, [{paths}]) end j"
        parsed = select(["line", "text", taken], "input")
        return f"({select(['*', f'{fault} fault'], f'({parsed})')})"


def select(columns: Sequence[str], source: str) -> str:
    """Return a query."""
    return " ".join(["select", ", ".join(columns), "from", source])


def _pointer(way: Sequence[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in way)


@dataclass(frozen=True)
class Plan:
    """How rows of a source become ours.

    Attributes:
        reading: the rows it was made for.
        fields: fields of the source, by our names; their SQL is over the table of `reading`.
        kind: SQL of the kind of a row, over the texts of the fields (`t_<name>`); null if it is unknown.
        required: by kind, the fields that a row must have.
        shift: number added to positions, so that they start from 1.
        based: whether the number of the first position is known.
    """

    reading: Reading
    fields: Mapping[str, Field]
    kind: str = ""
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shift: int = 0
    based: bool = True

    def text(self, name: str) -> str:
        """Return the SQL of a field as text, after it was taken out."""
        return f"t_{name}" if name in self.fields else NOTHING

    def name(self, name: str) -> str:
        """Return what the source calls one of our fields."""
        return self.fields[name].path if name in self.fields else name


def constant(value: str | float | bool, name: str) -> Field:
    """Return a field that is the same in every row."""
    return Field(name, literal(str(value).lower() if isinstance(value, bool) else str(value)))


def own(reading: Reading) -> Plan:
    """Read our own rows: the names of `schema.ROW`.

    A row with an action is an interaction, one with a list of documents a ranking, any other an impression, unless it
    has a `kind`.
    """
    return _own({name: reading.find(name, ALIASES.get(name, name)) for name in FIELDS}, reading)


def mapped(reading: Reading) -> Plan:
    """Read rows of a foreign log by a mapping."""
    settings, mapping = reading.settings, reading.settings.mapping
    fields = {
        name: reading.find(name, mapping.columns.get(name, ALIASES.get(name, name)))
        for name in FIELDS
        if name not in mapping.constants
    }
    fields |= {name: constant(value, name) for name, value in mapping.constants.items()}
    for name, meanings in mapping.values.items():
        sql = fields[name].sql
        cases = " ".join(f"when {literal(word)} then {constant(value, name).sql}" for word, value in meanings.items())
        fields[name] = replace(fields[name], sql=f"case {sql} {cases} else {sql} end")
    shift = 1 - settings.ordinal_base if settings.ordinal_base is not None else 0
    return replace(_own(fields, reading), shift=shift)


def _own(fields: dict[str, Field], reading: Reading) -> Plan:
    if (features := reading.features()) is not None:
        fields["features"] = Field("features", f"coalesce(nullif({fields['features'].sql}, ''), {features})")
    plan = Plan(reading, fields, required=NEEDED)
    guess = f"case when {plan.text('action')} is not null then 'interaction'"
    guess += f" when {plan.text('documents')} is not null then 'ranking' else 'impression' end"
    known = f"{plan.text('kind')} in ('impression', 'ranking', 'interaction')"
    kind = f"case when {plan.text('kind')} is null then {guess} when {known} then {plan.text('kind')} end"
    return replace(plan, kind=kind)


def ubi(reading: Reading) -> Plan:
    """Read OpenSearch User Behavior Insights: `ubi_queries` and `ubi_events`, which have an `action_name`.

    Its query id is our search id. There is no event id. Events without an object, such as a page load, or without a
    search are ignored unless they are clicks, as are the action lines of OpenSearch's bulk loader. `view` is another
    word for `impression`. The row of a search hit is its `_source`, and the event id its `_id`.
    """
    paths = {name: (ways,) if isinstance(ways, str) else ways for name, ways in UBI.items()}
    hits = reading.has(HIT)
    if hits:
        paths = {name: (*ways, *(f"{HIT}.{each}" for each in ways)) for name, ways in paths.items()}
    fields = {name: reading.find(name, ways) for name, ways in paths.items()}
    if hits:
        within = [reading.text(f"{HIT}.{name}") for name in ("query_id", "timestamp", "client_id")]
        own_id = reading.text("_id")
        fields["event_id"] = Field("_id", f"case when coalesce({', '.join(within)}) is not null then {own_id} end")
    if reading.has("_index"):
        bulk = [reading.text(f"{name}._index") for name in ("index", "create")]
        fields["bulk"] = Field("index", f"coalesce({', '.join(bulk)})")
    plan = Plan(reading, fields)
    action, asked = plan.text("action"), f"coalesce({plan.text('documents')}, {plan.text('query')})"
    apart = f"({plan.text('document_id')} is null or {plan.text('search_id')} is null)"
    kind = (
        f"case when {action} is null then case when {asked} is not null then 'ranking'"
        f" when {plan.text('bulk')} is not null then '{IGNORED}' end"
        f" when {apart} and lower({action}) <> 'click' then '{IGNORED}' else 'interaction' end"
    )
    spoken = fields["action"]
    words = f"case lower({spoken.sql}) when 'view' then 'impression' when 'impression' then 'impression'"
    fields["action"] = replace(spoken, sql=f"{words} when 'click' then 'click' else {spoken.sql} end")
    required = {"ranking": ("search_id", "time"), "interaction": ("search_id", "time", "document_id")}
    base = reading.settings.ordinal_base
    return replace(
        plan, kind=kind, required=required, shift=1 - base if base is not None else 0, based=base is not None
    )


def metarank(reading: Reading) -> Plan:
    """Read Metarank events: rankings, and interactions with one of them or clicks; others are ignored."""
    paths: dict[str, Ways] = {"event_id": "id", "time": "timestamp", "document_id": "item", "action": "type"}
    fields = {name: reading.find(name, ways) for name, ways in paths.items()}
    fields["user_id"] = reading.find("user_id", ("user", "session"))
    fields["kind"] = Field("event", reading.text("event"))
    ranking, items, given = f"{reading.text('event')} = 'ranking'", reading.text("items"), reading.text("fields")
    search = f"case when {ranking} then {reading.text('id')} else {reading.text('ranking')} end"
    listed = f"case when {ranking} and json_valid({items}) then list_transform(from_json({items}, "
    listed += """'[{"id":"VARCHAR"}]'), lambda x: x.id) end"""
    pairs = f"""from_json(case when {ranking} and json_valid({given}) then {given} end, """
    pairs += """'[{"name":"VARCHAR","value":"VARCHAR"}]')"""
    fields["search_id"] = Field("ranking", search)
    fields["documents"] = Field("items", items, listed=listed)
    fields["query"] = Field("fields", f"list_filter({pairs}, lambda x: x.name = 'query')[1].value")
    plan = Plan(reading, fields)
    event = plan.text("kind")
    apart = f"{plan.text('search_id')} is null and lower({plan.text('action')}) <> 'click'"
    kind = f"case when {event} in ('item', 'user') or ({event} = 'interaction' and {apart}) then '{IGNORED}'"
    kind += f" when {event} in ('ranking', 'interaction') then {event} end"
    required = {"ranking": ("search_id", "time", "documents"), "interaction": NEEDED["interaction"]}
    return replace(plan, kind=kind, required=required)


def yandex(reading: Reading) -> Plan:
    """Read search sessions without times: query, documents and clicks, separated by tabs, lists by commas.

    Every session is at the time `start`, and its search id is the hash of the file and the line.
    """
    fields = {"query_id": reading.find("query_id", "query"), "time": constant(reading.settings.start, "time")}
    fields["query"] = reading.find("query", "query_text")
    for name, column in (("documents", "documents"), ("clicked", "clicks")):
        text = reading.text(column)
        parts = f"case when {text} is null or {text} = '' then [] else string_split({text}, ',') end"
        fields[name] = Field(column, text, listed=parts)
    found = reading.file.stat()
    name = _hash(reading.file, found.st_size, found.st_mtime_ns)
    fields["search_id"] = Field("line", f"{literal(name + ':')} || line")
    return Plan(reading, fields, "'ranking'", {"ranking": ("search_id", "time", "query_id", "documents")})


@lru_cache(maxsize=4)
def _hash(file: Path, _size: int, _changed: int) -> str:
    """Return the start of the SHA-256 of a file, computed once for all its rows."""
    return sha256(file)[:16]


SOURCES: Final[dict[str, Callable[[Reading], Plan]]] = {
    "clickprism": own,
    "ubi": ubi,
    "metarank": metarank,
    "yandex": yandex,
    "mapping": mapped,
}
