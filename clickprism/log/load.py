"""Load an ingested log into memory: ranked lists with clicks, their features, and sums by pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from hashlib import md5, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism._util.grouping import same_lists
from clickprism.data.click_table import occurrences, several_at_one_position
from clickprism.data.encoding import Encoding, numbers_of
from clickprism.data.logged import ONLY_CLICKS, Logged, Outcomes
from clickprism.data.tables import text_array
from clickprism.errors import DataError
from clickprism.log.features.partials import PAIR, counting
from clickprism.log.schema import EVENTS, SESSIONS, literal
from clickprism.log.sessions import kinds_of, update_sessions
from clickprism.log.store import LogStore
from clickprism.types import Bool, Clicks, Float32, Int64, Lists, slices

if TYPE_CHECKING:
    import duckdb

    from clickprism.log.engines.base import Engine


def merge_logged(logged: Logged) -> Logged:
    """Join the ranked lists that are equal in results, clicks, day, policy and columns, in the order of appearance.

    Randomised entries are joined only with randomised entries. Sessions that are merged already do not change.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> shown, ones = np.array([0, 1, 0, 1, 0, 1]), np.ones(3, np.int64)
    >>> places, hits = np.array([1, 2, 1, 2, 1, 2], np.int32), np.array([0, 1, 0, 1, 0, 1])
    >>> made = Logged(Clicks(lists, np.array([0, 2, 4, 6]), shown, places, hits, ones), np.array([0, 0, 1]))
    >>> merge_logged(made).clicks.impressions.tolist(), merge_logged(made).clicks.clicks.tolist()
    ([2, 1], [0, 2, 0, 1])
    """
    clicks = logged.clicks
    if not len(clicks.rows) or not clicks.are_patterns or clicks.weights is not None or clicks.seen is not None:
        return logged
    group, first = same_lists(clicks.offsets, clicks.rows, clicks.positions, _pattern(logged))
    entries, offsets = slices(clicks.offsets, first)
    impressions = np.bincount(group, weights=clicks.impressions, minlength=len(first)).astype(np.int64)
    hits = np.where(clicks.clicks[entries] > 0, np.repeat(impressions, np.diff(offsets)), 0)
    return replace(
        logged,
        clicks=Clicks(clicks.lists, offsets, clicks.rows[entries], clicks.positions[entries], hits, impressions),
        days=None if logged.days is None else logged.days[first],
        policy=None if logged.policy is None else logged.policy[first],
        randomised=None if logged.randomised is None else logged.randomised[entries],
        columns={name: values[first] for name, values in logged.columns.items()},
    )


def _pattern(logged: Logged) -> Int64:
    """Return what two joined entries must have in common: clicked, randomised; day, policy and columns of the list."""
    clicks = logged.clicks
    within = np.zeros(len(clicks), dtype=np.int64)
    columns = [np.unique(values, return_inverse=True)[1] for values in logged.columns.values()]
    for kinds in (logged.days, logged.policy, *columns):
        if kinds is not None:
            within = within * (int(kinds.max(initial=0)) + 1) + kinds
    chance: Bool | int = 0 if logged.randomised is None else logged.randomised
    made: Int64 = 4 * np.repeat(within, np.diff(clicks.offsets)) + 2 * chance + (clicks.clicks > 0)
    return made


def numbered(column: pa.ChunkedArray) -> tuple[Int64, Any]:
    """Return texts as numbers, in the order of the texts, and the text of each number."""
    coded = column.combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(coded.dictionary)
    places = np.empty(len(order), dtype=np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    return places[coded.indices.to_numpy()], coded.dictionary.take(order)


def _lists_of(pairs: pa.Table, features: Float32, *, ids: bool = True) -> Lists:
    """Return pairs, which are in order, as lists of documents; without `ids` queries are numbered."""
    query, queries = numbered(pairs["query_id"])
    bounds = np.searchsorted(query, np.arange(len(queries) + 1)).astype(np.int64)
    if not ids:
        return Lists(features, bounds, np.arange(len(queries)).astype(np.str_))
    texts = (text_array(each.to_pylist(), what="the column of ids") for each in (queries, pairs["document_id"]))
    return Lists(features, bounds, *texts)


LAST: Final = """
create table pairs as select query_id, document_id, arg_max(features, (time, features)) as features
from ({shown}) group by all
"""
SHOWN: Final = """
select coalesce(query_id, sha256(coalesce(query, ''))) as query_id, document_id, features, time
from read_parquet($events) where kind = 'impression' and features is not null
"""
DONE: Final = """
select asked.query_id, done.document_id, done.features, done.time from read_parquet($events) done join (
    select search_id, min(query_id) as query_id from read_parquet($sessions) where filter is null group by search_id
) asked using (search_id)
where kind = 'interaction' and features is not null and document_id is not null
"""
"""An interaction has the query of its search."""
NUMBER: Final = "case {0} when 'true' then 1 when 'false' then 0 else try_cast({0} as float) end"
NUMBERS: Final = ("BOOLEAN", "UBIGINT", "BIGINT", "HUGEINT", "DOUBLE", "NULL")
"""JSON types, as DuckDB names them, whose values are read as numbers."""
MOST: Final = 0.5  # maximum share of documents without features


def logged_features(folder: Path) -> Lists:
    """Return the features of the impressions of a log, by query and document; all must be numbers."""
    with _last(LogStore.open(folder)) as connection:
        wanted = None
        if connection is not None:
            wanted = connection.sql("select query_id, document_id from pairs order by all").to_arrow_table()
        if connection is None or not wanted:
            raise DataError("has no impressions with features", file=folder, remedy="Log them, or give a file")
        _, table = _feature_columns(connection, wanted)
    if not table.num_columns:
        raise DataError("has impressions with features, but no number in any", file=folder)
    features = np.stack([numbers_of(column) for column in table.columns], axis=1).astype(np.float32)
    wrong = np.argwhere(~np.isfinite(features))
    if len(wrong):
        row, place = wrong[0].tolist()
        pair = f"{wanted['query_id'][row].as_py()!r}, {wanted['document_id'][row].as_py()!r}"
        problem = f"has no number for the feature {table.column_names[place]!r} of {pair}"
        raise DataError(problem, file=folder, remedy="Log every feature of every impression as a number")
    return _lists_of(wanted, features)


def features_of(
    store: LogStore, pairs: pa.Table, *, memory: str = "700MB", temp: Path | None = None
) -> tuple[Float32, Encoding | None, dict[str, int]]:
    """Return the features of pairs, how they are encoded, and how many documents have none.

    Features of every kind are encoded as those of a table (`Encoding`); there are none if most documents have none.
    """
    known, table = np.zeros(len(pairs), dtype=np.bool_), pa.table({})
    with _last(store, memory=memory, temp=temp) as connection:
        if connection is not None:
            known, table = _feature_columns(connection, pairs)
    account = {"documents without features": int((~known).sum())}
    if known.mean() < MOST or not table.num_columns:
        return np.zeros((len(pairs), 0), dtype=np.float32), None, account
    encoding = Encoding.learn(table.filter(pa.array(known)), table.column_names)
    return encoding.apply(table), encoding, account


def _feature_columns(connection: duckdb.DuckDBPyConnection, pairs: pa.Table) -> tuple[Bool, pa.Table]:
    """Return whether pairs have features, and these as columns: numbers, lists of numbers, or texts.

    A column has numbers if all of its values are numbers, texts of numbers, or true and false.
    """
    query = "select json_group_structure(cast(features as json)) from pairs"
    structure = json.loads(connection.sql(query).fetchall()[0][0] or "{}")
    paths, values = [], []
    for place, (name, kind) in enumerate(sorted(structure.items()), start=1):
        paths.append(literal("/" + name.replace("~", "~0").replace("/", "~1")))
        value = f"j[{place}]"
        if isinstance(kind, list) and kind[0] in NUMBERS:
            value = f"try_cast({value} as float[])"
        elif kind in NUMBERS:
            value = NUMBER.format(value)
        values.append(f"{value} as c{place}")
    connection.register("wanted", pairs.append_column("place", pa.array(np.arange(len(pairs)))))
    taken = f"json_extract_string(features, [{', '.join(paths)}])" if paths else "null"
    joined = f"select place, features, {taken} j from wanted left join pairs using (query_id, document_id)"  # noqa: S608
    columns = ", ".join(["features is not null as known", *values])
    table = connection.sql(f"select {columns} from ({joined}) order by place").to_arrow_table()  # noqa: S608
    known = table["known"].to_numpy().astype(np.bool_)
    return known, pa.table(dict(zip(sorted(structure), map(_numbers_if_all, table.columns[1:]), strict=True)))


def _numbers_if_all(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as numbers if all are numbers; else the column as it is."""
    if not pa.types.is_string(column.type):
        return column
    words = pc.if_else(pc.equal(column, "true"), "1", pc.if_else(pc.equal(column, "false"), "0", column))
    try:
        return words.cast(pa.float32())
    except pa.ArrowInvalid:
        return column


@contextmanager
def _last(
    store: LogStore, *, memory: str = "2GB", temp: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection | None]:
    """Yield a connection with the table `pairs`, the last features of each pair; None if there are no events."""
    import duckdb

    from clickprism.log.engines.duckdb import failing

    files = {name: store.table(name).files() for name in ("events", "sessions")}
    if not files["events"]:
        yield None
        return
    shown, given = SHOWN, {"events": files["events"]}
    if files["sessions"] and "interaction" in kinds_of(files["events"]):
        shown, given = f"{SHOWN} union all {DONE}", files
    config: dict[str, Any] = {"memory_limit": memory, "preserve_insertion_order": False}
    config |= {} if temp is None else {"temp_directory": str(temp / "spill")}
    with failing(), duckdb.connect(config=config) as connection:
        connection.execute(LAST.format(shown=shown), given)
        yield connection


CELL: Final = ("day", "position", "randomised")


@final
@dataclass(frozen=True, eq=False)
class LogSums:
    """The sums of a log.

    Attributes:
        logged: One ranked list of a single document for each pair, day and position, with the impressions of the pair.
        pairs: query_id and document_id of each document of `logged`, in order.
        users: Number of distinct users that saw each pair, [pairs]; 0 if users were not counted.
        below: Number of impressions below the last position that was asked for.
    """

    logged: Logged
    pairs: pa.Table
    users: Int64
    below: int


def read_sums(
    store: LogStore,
    engine: Engine,
    *,
    days: Iterable[date] | None = None,
    depth: int | None = None,
    users: bool = False,
    ids: bool = False,
) -> LogSums:
    """Add up the impressions and clicks of a log, the same on every engine; its sessions must be up to date.

    Args:
        store: The log.
        engine: Engine that adds up.
        days: Use only these days; by default all.
        depth: Use only positions 1 to this one; by default all.
        users: Count the distinct users of each pair.
        ids: Keep the ids of queries and documents in the lists; numbered queries take less memory.
    """
    rows = counting(engine.read(store.table("sessions").files(None if days is None else sorted(days)), SESSIONS))
    below = 0
    if depth is not None:
        below = engine.collect(rows.aggregate(rows=rows.count(where=rows.position > depth)))["rows"][0].as_py()
        rows = rows.filter(rows.position <= depth)
    with ExitStack() as stack:
        seen = rows.user_id.nunique() if users else ibis.literal(0)
        found = rows.group_by(list(PAIR)).aggregate(users=seen.cast("int64"))
        row = ibis.row_number().over(order_by=[found[name] for name in PAIR]).cast("int64")
        pairs = stack.enter_context(engine.held(found.mutate(row=row)))
        cells = rows.group_by([*PAIR, *CELL]).aggregate(
            impressions=rows.count().cast("int64"), clicked=rows.count(where=rows.clicked).cast("int64")
        )
        cells = cells.inner_join(pairs.select(*PAIR, "row"), list(PAIR))
        sums = engine.collect(cells.select("row", *CELL, "impressions", "clicked"))
        known = engine.collect(pairs.select(*PAIR, "row", "users"))
    if not sums.num_rows:
        remedy = "Ingest events first, or use other days"
        raise DataError("has no impressions to count", file=store.folder, remedy=remedy)
    known = known.take(np.argsort(known["row"].to_numpy()))
    pairs = known.select(list(PAIR))
    features, encoding, account = features_of(store, pairs)
    row, position = sums["row"].to_numpy(), sums["position"].to_numpy()
    day, random = _day_numbers(sums["day"]), sums["randomised"].to_numpy().astype(np.bool_)
    order = np.lexsort((random, position, day, row))
    clicks = Clicks(
        _lists_of(pairs, features, ids=ids),
        np.arange(len(order) + 1),
        row[order],
        position[order].astype(np.int32),
        sums["clicked"].to_numpy()[order],
        sums["impressions"].to_numpy()[order],
    )
    logged = Logged(clicks, day[order], randomised=random[order] if random.any() else None, account=account)
    return LogSums(_encoded(logged, encoding), pairs, known["users"].to_numpy(), below)


def _day_numbers(days: pa.ChunkedArray) -> Int64:
    """Return days as numbers from the first one on."""
    numbers = days.cast(pa.int32()).to_numpy().astype(np.int64)
    first_is_0: Int64 = numbers - numbers.min()
    return first_is_0


def _encoded(logged: Logged, encoding: Encoding | None) -> Logged:
    """Return a log that says how its features are encoded."""
    if encoding is None:
        return logged
    notes = (*logged.notes, *encoding.notes())
    return replace(logged, encoding=encoding, feature_names=encoding.names, notes=notes)


SEARCH: Final = ("day", "search_id", "query_id")
SEVERAL: Final = "several rankers"
UNNAMED: Final = "not named"
ACTIONS: Final = ("click", "impression")
"""Actions that are no outcomes."""
OUTCOMES: Final = {"add_to_cart": "cart", "cart": "cart", "purchase": "purchase", "buy": "purchase"}
"""Outcomes that have several names."""
NO_TEXT: Final = sha256(b"").hexdigest()
"""Id of the query of searches without a text."""
OPTIONAL: Final = {
    "user_id": ("impression", "ranking"),
    "ranker": ("impression", "ranking"),
    "features": ("impression",),
    "display_ms": ("impression",),
}
"""Optional fields that an account counts, and the kinds of rows that may have them."""


def read_store(
    folder: Path,
    *,
    days: Collection[date] | None = None,
    merge: bool = True,
    memory: str = "700MB",
    texts: bool = False,
    note: Callable[[str], None] | None = None,
) -> Logged:
    """Return an ingested log; its sessions are brought up to date first.

    A search that shows several documents at one position, as after a filter, is several lists.

    Args:
        folder: Folder of the log.
        days: Use only these days; by default all.
        merge: Join equal ranked lists; otherwise each search is a list.
        memory: Maximum memory of the engine.
        texts: Name queries by their text where their id is the hash of it.
        note: Called with messages about the progress.
    """
    store = LogStore.open(folder, note=note)
    with store.write(memory=memory) as writer, ExitStack() as stack:
        engine = writer.engine
        update_sessions(store, engine, days)
        rows = counting(engine.read(store.table("sessions").files(days), SESSIONS))
        pairs = stack.enter_context(engine.held(_with_numbers(rows.select(*PAIR).distinct(), PAIR, "row")))
        rankers = rows.group_by(*SEARCH).aggregate(least=rows.ranker.min(), most=rows.ranker.max())
        searches = stack.enter_context(engine.held(_with_numbers(rankers, SEARCH, "search")))
        both = rows.inner_join(pairs, list(PAIR)).inner_join(searches, list(SEARCH))
        entries = engine.collect(both.select("search", "row", "position", "clicked", "randomised"))
        files = store.table("events").files(days)
        events, kinds = engine.read(files, EVENTS), kinds_of(files) if files else set[str]()
        if not entries.num_rows:
            problem, remedy = "has no searches that count", "Ingest files with impressions, or see the robot rules"
            if "interaction" in kinds and "impression" not in kinds:
                problem = "has no impressions, so documents that users saw and did not click are not known"
                remedy = "Log impressions with their position, or query_response_hit_ids with each query"
            raise DataError(problem, file=store.folder, remedy=remedy)
        clicked, account = both.filter(both.clicked), _account(store, engine)
        outcomes, notes = None, list[str]()
        if "interaction" in kinds:
            outcomes = _outcomes(engine, clicked, events)
            notes = _count_actions(engine, clicked, events, account) + _note_unseen(engine, events)
        is_told = engine.collect(events.aggregate(count=events.randomised.count()))["count"][0].as_py() > 0
        shown = engine.collect(pairs.order_by("row").select(*PAIR))
        asked = engine.collect(searches.order_by("search").select("day", "least", "most"))
        names = _query_texts(engine, events) if texts else {}
        stack.close()
        engine.close()
        features, encoding, lacks = features_of(store, shown, memory=memory, temp=writer.temp)
    search, row, position = (entries[name].to_numpy().astype(np.int64) for name in ("search", "row", "position"))
    order, starts, several = _lists_of_entries(search, position, row)
    asked, lists = asked.take(search[order][starts]), _lists_of(shown, features)
    notes += [several_at_one_position(several)] if several else []
    notes += ["Searches without a text are one query, the empty one."] if NO_TEXT in lists.query_ids else []
    notes += [ONLY_CLICKS] if entries["clicked"].to_numpy().all() else []
    clicks = Clicks(
        _named(lists, names),
        np.append(starts, len(order)).astype(np.int64),
        row[order],
        position[order].astype(np.int32),
        entries["clicked"].to_numpy()[order].astype(np.int64),
        np.ones(len(starts), dtype=np.int64),
    )
    randomised: Bool | None = entries["randomised"].to_numpy()[order].astype(np.bool_) if is_told else None
    account = {name: count for name, count in (account | lacks).items() if count or name == "rows in"}
    policies = _policies(asked)
    days_of_lists = _day_numbers(asked["day"])
    logged = Logged(
        clicks, days_of_lists, *policies, randomised, account=account, outcomes=outcomes, notes=tuple(notes)
    )
    return _encoded(merge_logged(logged) if merge else logged, encoding)


def _lists_of_entries(search: Int64, position: Int64, row: Int64) -> tuple[Int64, Int64, int]:
    """Return the order of entries by list and position, where each list starts, and the searches with several lists.

    The second document of a search at a position is in its second list, and so on.
    """
    place = search * (int(position.max()) + 1) + position
    order = np.lexsort((row, place))
    again = np.empty(len(order), dtype=np.int64)
    again[order] = occurrences(place[order])
    order = np.lexsort((position, again, search))
    breaks = (np.diff(search[order]) != 0) | (np.diff(again[order]) != 0)
    return order, np.flatnonzero(np.concatenate([[True], breaks])), len(np.unique(search[again > 0]))


def _query_texts(engine: Engine, events: Any) -> dict[str, str]:
    """Return the text of each query whose id is the hash of its text."""
    found = engine.collect(events.group_by("query_id").aggregate(text=events.query.max())).to_pylist()
    texts = {row["query_id"]: row["text"].strip(" ").lower() for row in found if row["query_id"] and row["text"]}
    hashed = {
        name: text for name, text in texts.items() if md5(text.encode(), usedforsecurity=False).hexdigest() == name
    }
    return {**hashed, NO_TEXT: ""}


def _named(lists: Lists, texts: Mapping[str, str]) -> Lists:
    """Return lists whose queries have these names, unless two queries would have the same."""
    names = [texts.get(name, name) for name in lists.query_ids.tolist()]
    return lists if len(set(names)) < len(names) else replace(lists, query_ids=np.array(names, dtype=np.str_))


def _count_actions(engine: Engine, clicked: Any, events: Any, account: dict[str, int]) -> list[str]:
    """Add to the account how many clicks and outcomes count, and why others do not; return a sentence for each kind."""
    pairs = clicked.select("search_id", "document_id").distinct().mutate(counts=True)
    acted = events.filter((events.kind == "interaction") & (events.action != "impression"))
    acted = acted.mutate(action=acted.action.substitute(OUTCOMES))
    joined = acted.left_join(pairs, ["search_id", "document_id"])
    pair = joined.search_id.concat("\x1f", joined.document_id)
    found = joined.group_by("action").aggregate(
        total=ibis._.count(), matched=joined.counts.sum().fill_null(0), once=pair.nunique(where=joined.counts)
    )
    notes = []
    for row in sorted(engine.collect(found).to_pylist(), key=lambda row: (row["action"] != "click", row["action"])):
        name, total, once = row["action"], int(row["total"]), int(row["once"])
        repeated, lost = int(row["matched"]) - once, total - int(row["matched"])
        lacks = "an impression of" if name == "click" else "a click on"
        account[f"{name} events"] = total
        account[f"{name} events counted"] = once
        account[f"{name} events not counted, repeated on one result"] = repeated
        account[f"{name} events not counted, without {lacks} the document in the search"] = lost
        if name in ("click", *OUTCOMES.values()):
            counts = f"{once:,} counted, {repeated:,} repeated on one result"
            notes.append(f"{total:,} {name} events: {counts}, {lost:,} without {lacks} the document in the search.")
    return notes


def _note_unseen(engine: Engine, events: Any) -> list[str]:
    """Return a note if the whole lists of some searches count as shown, as they have no impression events."""
    listed = events.filter((events.kind == "ranking") & (events.documents.length() > 0)).select("search_id").distinct()
    seen = events.filter((events.kind == "interaction") & (events.action == "impression")).select("search_id")
    count = engine.collect(listed.anti_join(seen, "search_id").aggregate(searches=ibis._.count()))["searches"][
        0
    ].as_py()
    note = f"{count:,} searches have no impression events: all documents of their lists count as shown, also those "
    return [f"{note}that were not in view."] if count else []


def _outcomes(engine: Engine, clicked: Any, events: Any) -> Outcomes | None:
    """Return the user actions that followed clicks, such as carts; None if there are none."""
    acted = events.filter((events.kind == "interaction") & events.action.notin([*ACTIONS]))
    actions = acted.select("search_id", "document_id", "action").distinct()
    found = engine.collect(clicked.inner_join(actions, ["search_id", "document_id"]).select("search", "row", "action"))
    if not found.num_rows:
        return None
    every = engine.collect(clicked.select("search", "row").distinct().order_by("search", "row"))
    search, row = (every[name].to_numpy().astype(np.int64) for name in ("search", "row"))
    width = int(row.max()) + 1
    place = np.searchsorted(search * width + row, found["search"].to_numpy() * width + found["row"].to_numpy())
    names = np.array([OUTCOMES.get(name, name) for name in found["action"].to_pylist()])
    values = {name: np.zeros(len(row)) for name in np.unique(names).tolist()}
    for name, counts in values.items():
        counts[place[names == name]] = 1.0
    return Outcomes(row, values)


def _with_numbers(rows: Any, by: tuple[str, ...], name: str) -> Any:
    """Return the rows with their place in this order, from 0."""
    place = ibis.row_number().over(order_by=[rows[each] for each in by]).cast("int32")
    return rows.mutate(**{name: place})


def _policies(searches: pa.Table) -> tuple[Int64 | None, tuple[str, ...]]:
    """Return the ranker of each search, by place, and the names; None where no search has one."""
    one = searches["least"]
    if one.null_count == len(one):
        return None, ()
    apart = pc.fill_null(pc.not_equal(one, searches["most"]), False)
    place, policies = numbered(pc.if_else(apart, SEVERAL, pc.fill_null(one, UNNAMED)))
    return place, tuple(policies.to_pylist())


def _account(store: LogStore, engine: Engine) -> dict[str, int]:
    """Return the number of rows read, the excluded rows by reason, and how often optional fields are missing."""
    names = {"rows_in": "in", "stored": "stored", "duplicate": "duplicate", "quarantined": "quarantined"}
    files = store.table("files").read([*names, "ignored"])
    account = {f"rows {word}": int(pc.sum(files[name]).as_py() or 0) for name, word in names.items()}
    account["rows not of a click event"] = int(pc.sum(files["ignored"]).as_py() or 0)
    for each in store.table("quarantine").read(["reason"])["reason"].value_counts().to_pylist():
        account[f"rows broken, {each['values'].partition(':')[0]}"] = each["counts"]
    rows = engine.read(store.table("sessions").files(), SESSIONS)
    left = engine.collect(rows.filter(rows["filter"].notnull()).group_by("filter").aggregate(rows=ibis._.count()))
    account |= {f"impressions filtered, {each['filter']}": each["rows"] for each in left.to_pylist()}
    events = engine.read(store.table("events").files(), EVENTS)
    counts = {name: (events[name].isnull() & events.kind.isin(kinds)).sum() for name, kinds in OPTIONAL.items()}
    missing = engine.collect(events.aggregate(**counts)).to_pylist()[0]
    return account | {f"rows without {name}": int(count or 0) for name, count in missing.items()}
