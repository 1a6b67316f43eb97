"""From JSON texts to typed rows: where each of our fields is in a source, and one query that types and checks them.

A source is a function that returns a `Plan`: the SQL of each of our fields over JSON texts. `statement` makes one query
of it, which extracts the fields, reads them as values and gives each row the reason why it is broken, or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism._util.files import sha256
from clickprism.errors import DataError
from clickprism.log.read.formats import Bad, Rows
from clickprism.log.schema import BAD, ROW, literal
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
OBJECTS: Final = ("event_attributes", "query_attributes")
"""Fields of UBI whose objects may be written as texts."""
DAYS: Final = ("day", "date", "time", "timestamp")
"""Columns of a session file that may hold the day."""
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
    _packed: list[str] = field(default_factory=list)

    @cached_property
    def escaped(self) -> bool:
        """Return whether a text has characters that are written by their number."""
        return b"\\u" in self.data

    def has(self, name: str) -> bool:
        """Return whether a row may have a field whose name starts so."""
        return f'"{name}'.encode() in self.data or self.escaped

    def unpack(self, names: Sequence[str]) -> None:
        """Read these fields as objects also where they are the text of one, as in CSV."""
        self._packed = [name for name in names if re.search(rb'"%b"\s*:\s*"' % re.escape(name).encode(), self.data)]

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
        rows = "input"
        for name in self._packed:
            value = f"json_extract_string(text, {literal(_pointer([name]))})"
            packed = f"case when json_valid(text) then starts_with({value}, '{{') and json_valid({value}) end"
            is_text = f"json_type(text, {literal(_pointer([name]))}) = 'VARCHAR'"
            patch = f"json_merge_patch(text, json_object({literal(name)}, cast({value} as json)))"
            patched = f"case when {is_text} then cast({patch} as varchar) else text end"
            rows = f"({select(['line', f'case when {packed} then {patched} else text end as text'], rows)})"
        parsed = select(["line", "text", taken], rows)
        return f"({select(['*', f'{fault} fault'], f'({parsed})')})"


def select(columns: Sequence[str], source: str) -> str:
    """Return a query."""
    return " ".join(["select", ", ".join(columns), "from", source])


def _pointer(way: Sequence[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in way)


@dataclass(frozen=True)
class Plan:
    """How rows of a source are converted to rows with our fields.

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
        """Return the name that one of our fields has in the source."""
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
    reading.unpack([*dict.fromkeys(column.partition(".")[0] for column in mapping.columns.values() if "." in column)])
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
    reading.unpack(OBJECTS)
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
    """Read search sessions: query, documents and clicks, separated by tabs, lists by commas.

    A day may be a date, a time, or a whole number, which counts days from `start`; a session without a day is at the
    time `start`. The search id is the hash of the file and the line.
    """
    fields = {"query_id": reading.find("query_id", "query"), "query": reading.find("query", "query_text")}
    time, start = reading.find("time", DAYS), literal(reading.settings.start)
    ordinal = f"case when length({time.sql}) < 6 then try_cast({time.sql} as int) end"
    dates = f"case when regexp_full_match({time.sql}, '\\d{{8}}') then try_strptime({time.sql}, '%Y%m%d') end"
    numbered = f"coalesce({dates}, cast({start} as timestamp) + to_days({ordinal}))"
    dated = f"case when length({time.sql}) > 8 and regexp_matches({time.sql}, '^\\d{{4}}') then {time.sql} end"
    fields["time"] = replace(time, sql=f"coalesce({dated}, cast({numbered} as varchar), {start})")
    fields["ranker"] = reading.find("ranker", ("ranker", "policy"))
    fields["randomised"] = reading.find("randomised", ("randomised", "randomized"))
    for name, column in (("documents", "documents"), ("clicked", "clicks")):
        text = reading.text(column)
        names = f"list_transform(string_split({text}, ','), lambda x: trim(x))"
        parts = f"case when {text} is null or {text} = '' then [] else {names} end"
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


REASONS: Final = {
    "not-utf8": "the bytes are not UTF-8",
    "nul-byte": "there is a NUL in the text",
    "too-long": "the line is longer than max_line_bytes",
    "truncated": "the file ends in the middle",
    "corrupt": "the file is corrupt from here on",
    "unreadable": "this part of the Parquet file cannot be read",
    "not-json": "the line is not JSON",
    "not-object": "the line is JSON, but not an object",
    "field-count": "the line does not have as many fields as the header",
    "stray-quote": "a quote is neither around a field nor doubled",
    "stray-return": "the line has a carriage return in the middle",
    "unknown-kind": "the row does not say what kind of event it is",
    "missing": "a required field is missing or empty",
    "wrong-type": "a field is of the wrong type",
    "time-unreadable": "the time cannot be read",
    "time-early": "the time lies before the earliest allowed",
    "time-late": "the time lies too far in the future",
    "position-range": "the position is below 1 or beyond max_position, or the list is longer",
    "negative": "a duration is negative",
    "duration-range": "a duration is longer than max_duration_hours",
}
"""Reasons for which a row is quarantined: a stable code, and its explanation."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of an input file.

    Attributes:
        good: rows as `schema.ROW` has them.
        bad: broken rows as `schema.BAD` has them.
        ignored: rows of events that a click log does not use, such as Metarank's item and user events.
        header: the first line of a CSV file, empty if it has none; None for other files.
    """

    good: pa.Table
    bad: pa.Table
    ignored: int = 0
    header: str | None = None


def shown(text: str, most: int = 60) -> str:
    r"""Return the start of a text for a terminal: in one line, without control characters.

    >>> print(shown("a\x1b[31m\tb"), shown("long", most=2))
    a\x1b[31m\tb lo...
    """
    start = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[:most])
    return start + "..." if len(text) > most else start


def bad_table(rows: Sequence[Bad]) -> pa.Table:
    """Return broken rows as a table, sorted by line."""
    rows = sorted(rows, key=lambda row: row.line)
    values = [(row.line, f"{row.code}: {REASONS[row.code]}", row.field, row.value, row.raw) for row in rows]
    columns = zip(*values, strict=True) if rows else [()] * len(BAD)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, BAD, strict=True)], schema=BAD
    )


PARTED: Final = "\x1f"
SHOWN: Final = 80  # number of letters of a wrong value that are kept
FLAGS: Final = ("click", "page_skipped", "randomised")
DURATIONS: Final = ("display_ms", "dwell_ms")
HUGE: Final = 2**63
UNITS: Final = {
    "s": (10**11, "{} * 1000000"),
    "ms": (10**14, "{} * 1000"),
    "us": (10**17, "{}"),
    "ns": (10**20, "cast(trunc({}) as hugeint) // 1000"),
}
"""By unit: the least number that is of the next one, and the exact conversion to microseconds."""
SQL_TYPES: Final = {
    pa.string(): "varchar",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp",
    pa.list_(pa.string()): "varchar[]",
}
_WORDS: Final = "when 'true' then true when 'false' then false when '1' then true when '0' then false"
_FLAG: Final = f"case {{0}} {_WORDS} else case lower({{0}}) {_WORDS} when '1.0' then true when '0.0' then false end end"
_POSITION: Final = (
    "case when try_cast({0} as double) = try_cast({0} as bigint) then try_cast({0} as bigint) end"  # 3.0 is 3
)
VALUES: Final = (
    dict.fromkeys(FLAGS, _FLAG) | dict.fromkeys(DURATIONS, "try_cast({0} as bigint)") | {"position": _POSITION}
)
"""SQL of the values that are not texts, over their text; null where it cannot be converted."""


def statement(plan: Plan, *, nul: bool) -> str:
    """Return the query over `input` for the columns of `schema.ROW`, and `problem`, null for a good row.

    A problem is a code, a field and the start of its value, separated by `PARTED`; of a broken line, a code.

    Three queries in one: the innermost extracts the fields as texts (`t_<field>`, of lists also `l_<field>`), the
    middle one reads them as values (`v_<field>`), the outer one checks them.
    """
    texts, values = ["line", "fault"], []
    for name, given in plan.fields.items():
        texts.append(f"nullif({given.sql}, '') t_{name}")
        texts += [f"{given.nested} n_{name}"] if given.nested != "false" else []
        texts += [f"{given.listed} l_{name}"] if given.listed else []
        if name in VALUES:
            values.append(f"{VALUES[name].format(f't_{name}')} v_{name}")
    if "time" in plan.fields:
        values.append(f"{_time(plan.reading.settings.unit)} v_time")
    query_id, query = plan.text("query_id"), plan.text("query")
    values.append(f"case when {query_id} is null then md5(lower(trim({query}))) else {query_id} end query_key")
    inner = select(["*", *values, f"{plan.kind} kind"], f"({select(texts, plan.reading.table())})")
    cases = []
    for when, code, name in _cases(plan, nul):
        value = f"coalesce(cast(l_{name} as varchar), t_{name})" if name in LISTS else f"t_{name}"
        if name in LISTS and code == "position-range":
            value = f"len(l_{name}) || ' documents'"
        shows = name in plan.fields and code not in (IGNORED, "missing")
        start = f" || coalesce(left({value}, {SHOWN}), '')" if shows else ""
        cases.append(f"when {when} then {literal(f'{code}{PARTED}{plan.name(name)}{PARTED}')}{start}")
    problem = f"case when fault is not null then fault {' '.join(cases)} end problem"
    return select([*(f"{_output(plan, field)} {field.name}" for field in ROW), problem], f"({inner})")


def _time(unit: str) -> str:
    """Return the SQL of a time: ISO 8601 if its fifth character is a dash, else a number of units since 1970."""
    iso = "substr(t_time, 5, 1) = '-'"
    other = "replace(upper(t_time), ',', '.')"
    moment = f"coalesce(try_cast(t_time as timestamptz), try_cast({other} as timestamptz))"
    quick = "try_cast(case when ends_with(t_time, 'Z') then t_time end as timestamp)"  # a third of the time
    moment = f"coalesce({quick}, make_timestamp(epoch_us({moment})))"
    if unit == "iso":
        return f"case when {iso} then {moment} end"
    units = UNITS if unit == "auto" else {unit: UNITS[unit]}
    whole = _micros("try_cast(t_time as bigint)", "{}", units)  # by far the fastest, if it is one
    other = _micros("try_cast(t_time as decimal(38, 9))", "cast({} as decimal(29, 9))", units)
    is_whole = "length(t_time) < 19 and t_time = cast(try_cast(t_time as bigint) as varchar)"
    number = f"case when {is_whole} then {whole} else {other} end"
    return f"case when {iso} then {moment} else make_timestamp({number}) end"


def _micros(number: str, narrow: str, units: Mapping[str, tuple[int, str]]) -> str:
    cases = [
        f"when abs({number}) < {most} then cast(trunc({scale.format(narrow.format(number))}) as bigint)"
        for most, scale in units.values()
    ]
    return " ".join(["case", *cases, "end"])


def _output(plan: Plan, field: pa.Field) -> str:
    name = field.name
    if name in ("kind", "line"):
        return str(name)
    if name == "query_id":
        return "query_key"
    if name not in plan.fields:
        return f"cast(null as {SQL_TYPES[field.type]})"
    if name in LISTS:
        value = f"coalesce(l_{name}, [])" if name == "documents" else f"l_{name}"
        return f"case when kind = 'ranking' then {value} end"
    if name == "position":
        return f"case when v_position {_in_range(plan)} then cast(v_position + {plan.shift} as int) end"
    return f"t_{name}" if name in TEXTS or name == "features" else f"v_{name}"


def _in_range(plan: Plan) -> str:
    return f"between {1 - plan.shift} and {plan.reading.settings.max_position - plan.shift}"


def _cases(plan: Plan, nul: bool) -> Iterator[tuple[str, str, str]]:
    """Yield conditions (SQL) with the reason and our field for which a row is bad; the first that holds is reported."""
    yield "kind is null", "unknown-kind", "kind"
    yield f"kind = '{IGNORED}'", IGNORED, "kind"
    yield from ((f"n_{name}", "wrong-type", name) for name, field in plan.fields.items() if field.nested != "false")
    for name in dict.fromkeys(name for names in plan.required.values() for name in names):
        kinds = ", ".join(f"'{kind}'" for kind, names in plan.required.items() if name in names)
        value = "query_key" if name == "query_id" else plan.text(name)
        yield f"{value} is null and kind in ({kinds})", "missing", name
    for name in plan.fields:
        yield from _cases_of(plan, name)
        if nul and name in TEXTS:
            yield f"contains(t_{name}, chr(0))", "nul-byte", name
        if nul and name in LISTS:
            yield f"contains(array_to_string(l_{name}, ' '), chr(0))", "nul-byte", name


def _cases_of(plan: Plan, name: str) -> Iterator[tuple[str, str, str]]:
    settings, given = plan.reading.settings, f"t_{name} is not null"
    if name == "position" and not plan.based:
        yield given, "ordinal-base", name
    if name in DURATIONS:  # numbers that no 64 bits hold
        yield f"v_{name} is null and try_cast(t_{name} as double) between -1e300 and -{HUGE}", "negative", name
        yield f"v_{name} is null and try_cast(t_{name} as double) between {HUGE} and 1e300", "duration-range", name
    if name in VALUES:
        yield f"{given} and v_{name} is null", "wrong-type", name
    if name in DURATIONS:
        yield f"v_{name} < 0", "negative", name
        yield f"v_{name} > {settings.max_duration_ms}", "duration-range", name
    if name == "position":
        yield f"v_position not {_in_range(plan)}", "position-range", name
    if name == "time":
        yield "v_time is null", "time-unreadable", name
        yield f"v_time < timestamp {literal(settings.earliest)}", "time-early", name
        yield f"v_time > timestamp '{settings.last_time.isoformat(sep=' ')}'", "time-late", name
    if name == "documents":
        yield f"kind = 'ranking' and len(l_documents) > {settings.max_position}", "position-range", name
    if name in LISTS:
        holes = f"len(list_filter(l_{name}, lambda x: x is null or x = '')) > 0"
        broken = f"{given} and (l_{name} is null or {holes})"
        yield f"case when kind = 'ranking' then {broken} else false end", "wrong-type", name
    if name == "features":
        yield f"{given} and (not starts_with(ltrim(t_{name}), '{{') or not json_valid(t_{name}))", "wrong-type", name


BATCH: Final = 8192  # rows that DuckDB gives to a thread at a time


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a file that are still JSON texts, whose fields they have, and how they are read."""

    rows: Rows
    path: Path
    schema: str
    settings: SourceSettings

    @property
    def key(self) -> object:
        """Rows with the same key are read by one query; search ids of yandex contain the file."""
        return self.schema, repr(self.settings), self.path if self.schema == "yandex" else None


def type_rows(parts: Sequence[Part], connection: duckdb.DuckDBPyConnection) -> list[Chunk]:
    """Return the good and the bad rows of each part; equal parts share one query, to plan it once."""
    chunks: dict[int, Chunk] = {}
    alike: dict[object, list[int]] = {}
    for place, part in enumerate(parts):
        alike.setdefault(part.key, []).append(place)
    for places in alike.values():
        chunks |= zip(places, _type_alike([parts[place] for place in places], connection), strict=True)
    return [chunks[place] for place in range(len(parts))]


def _type_alike(parts: Sequence[Part], connection: duckdb.DuckDBPyConnection) -> Iterator[Chunk]:
    texts = pa.concat_arrays([part.rows.texts for part in parts])
    data = texts.buffers()[2].to_pybytes() if len(texts) else b""
    plan = SOURCES[parts[0].schema](Reading(parts[0].settings, parts[0].path, data))
    table = pa.table({"text": texts, "line": pa.array(np.concatenate([part.rows.numbers for part in parts]))})
    typed = _run(statement(plan, nul=plan.reading.escaped and b"\\u0000" in data), table, parts[0].path, connection)
    problem, rows = typed["problem"].combine_chunks(), typed.drop_columns(["problem"])
    is_good = pc.is_null(problem).to_numpy(zero_copy_only=False)
    good = rows.filter(pa.array(is_good)).cast(ROW)
    bounds = np.cumsum([0, *(len(part.rows.texts) for part in parts)])
    for part, (start, end) in zip(parts, pairwise(bounds.tolist()), strict=True):
        first, last = (int(np.count_nonzero(is_good[:bound])) for bound in (start, end))
        bad, ignored = list(part.rows.bad), 0
        for place in np.flatnonzero(~is_good[start:end]).tolist():
            code, name, value = [*problem[start + place].as_py().split(PARTED, 2), "", ""][:3]
            line = int(part.rows.numbers[place])
            if code == "ordinal-base":
                remedy = "Give --ordinal-base 0 if the first document has 0, else --ordinal-base 1"
                counts = f"{name} may count positions from 0 or from 1"
                raise DataError(counts, file=part.path, line=line, remedy=remedy)
            if code == IGNORED:
                ignored += 1
            elif code != "blank":
                bad.append(Bad(line, code, name or None, part.rows.raw_row(place), value or None))
        yield Chunk(good.slice(first, last - first), bad_table(bad), ignored, part.rows.header)


def _run(sql: str, table: pa.Table, file: Path, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    batches = pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=BATCH), table.schema)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.register("input", batches)
            return cursor.sql(sql).to_arrow_table()
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        problem = f"cannot be read as expected: {str(error).splitlines()[0]}"
        raise DataError(problem, file=file, remedy="Check the mapping and the file") from None
