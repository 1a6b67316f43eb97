"""The sources: our own rows, OpenSearch UBI, Metarank, Yandex sessions, and any other through a mapping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from clickprism._util.files import sha256
from clickprism.log.mapping import FIELDS
from clickprism.log.readers.places import literal
from clickprism.log.readers.plan import IGNORED, Field, Plan, Reading, constant, find

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
