"""Load an ingested log into memory: ranked lists with clicks, their features, and sums by pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.grouping import same_lists
from clickprism.data.encoding import Encoding
from clickprism.data.logged import Logged
from clickprism.data.sessions import SessionLog
from clickprism.data.tables import text_array
from clickprism.errors import DataError
from clickprism.log.features.partials import PAIR, counting
from clickprism.log.schema import EVENTS, SESSIONS, conform
from clickprism.log.sessions import by_day, kinds_of, update_sessions
from clickprism.log.store import LogStore
from clickprism.types import Bool, Clicks, Float32, Int64, Lists, Text, slices

if TYPE_CHECKING:
    import duckdb

    from clickprism.log.engines.base import Engine


def merge_logged(logged: Logged) -> Logged:
    """The same log with ranked lists joined that show and were clicked alike on one day, by one policy, in all columns.

    Entries that chance has filled are joined with such only. Sessions merged by list before cannot be parted, so such
    clicks come back as they are. The order is that of first appearance.

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
    return Logged(
        Clicks(clicks.lists, offsets, clicks.rows[entries], clicks.positions[entries], hits, impressions),
        None if logged.days is None else logged.days[first],
        None if logged.policy is None else logged.policy[first],
        logged.policies,
        None if logged.randomised is None else logged.randomised[entries],
        logged.feature_names,
        logged.account,
        {name: values[first] for name, values in logged.columns.items()},
    )


def _pattern(logged: Logged) -> Int64:
    """What else must agree in two entries: clicked or not, by chance or not; day, policy and columns of the list."""
    clicks = logged.clicks
    within = np.zeros(len(clicks), dtype=np.int64)
    columns = [np.unique(values, return_inverse=True)[1] for values in logged.columns.values()]
    for kinds in (logged.days, logged.policy, *columns):
        if kinds is not None:
            within = within * (int(kinds.max(initial=0)) + 1) + kinds
    chance: Bool | int = 0 if logged.randomised is None else logged.randomised
    made: Int64 = 4 * np.repeat(within, np.diff(clicks.offsets)) + 2 * chance + (clicks.clicks > 0)
    return made


_COLUMNS: Final = ("search_id", "query_id", "document_id", "position", "clicked", "ranker", "randomised", "filter")
_ROWS: Final = pa.schema([SESSIONS.field(name) for name in _COLUMNS])


def session_log(store: LogStore, days: Iterable[date] | None = None) -> SessionLog:
    """The sessions of a log, as they are now, in memory: one ranked list a search, without features.

    Documents of different queries are different, whatever their ids. Of several documents at one position the first by
    id counts. The columns are `ranker` and `randomised`: "1" where all of the list was filled at random, else "0".

    Args:
        store: the log; `update_sessions` brings its sessions up to date.
        days: of these days only.
    """
    parts = []
    for number, (_, files) in enumerate(sorted(by_day(store.table("sessions").files(days)).items())):
        for file in files:
            rows = conform(pq.ParquetFile(file).read(columns=_ROWS.names), _ROWS, what="sessions")
            rows = rows.filter(pc.is_null(rows["filter"])).drop_columns(["filter"])
            parts.append(rows.append_column("day", pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)))
    table = pa.concat_tables(parts) if parts else None
    if table is None or not table.num_rows:
        raise DataError("has no sessions", file=store.folder, remedy="Run: clickprism log sessions LOG")
    return _session_log(table)


def _session_log(table: pa.Table) -> SessionLog:
    query, queries = numbered(table["query_id"])
    document, documents = numbered(table["document_id"])
    pairs, row = np.unique(query * len(documents) + document, return_inverse=True)
    bounds = np.searchsorted(pairs // len(documents), np.arange(len(queries) + 1)).astype(np.int64)
    search = numbered(table["search_id"])[0]
    search = np.unique(table["day"].to_numpy() * (search.max() + 1) + search, return_inverse=True)[1]
    position = table["position"].to_numpy()
    order = np.lexsort((document, position, search))
    search, position = search[order], position[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(search) != 0) | (np.diff(position) != 0)
    order, search = order[first], search[first]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(search) != 0]))
    lists = Lists(
        np.zeros((len(pairs), 0), np.float32), bounds, texts(queries), texts(documents)[pairs % len(documents)]
    )
    clicks = Clicks(
        lists,
        np.append(starts, len(order)).astype(np.int64),
        row.astype(np.int64)[order],
        position[first].astype(np.int32),
        table["clicked"].to_numpy()[order].astype(np.int64),
        np.ones(len(starts), np.int64),
    )
    randomised = np.logical_and.reduceat(table["randomised"].to_numpy()[order], starts)
    ranker, rankers = numbered(table["ranker"].fill_null(""))
    columns = {"ranker": texts(rankers)[ranker[order][starts]], "randomised": np.where(randomised, "1", "0")}
    return SessionLog(clicks, columns)


def numbered(column: pa.ChunkedArray) -> tuple[Int64, Any]:
    """Texts as numbers, in the order of the texts, and the text of each number."""
    coded = column.combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(coded.dictionary)
    places = np.empty(len(order), dtype=np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    return places[coded.indices.to_numpy()], coded.dictionary.take(order)


def texts(values: Any) -> Text:
    """Ids of an Arrow array as a vector, in which each takes as much as the longest; refused if they fill memory."""
    return text_array(values.to_pylist(), what="the column of ids")


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
"""An interaction has no query of its own: it has that of its search."""
NUMBERS: Final = """
list_transform(json_extract_string(features, ?),
    lambda x: case x when 'true' then 1 when 'false' then 0 else try_cast(x as float) end)
"""
TEXTS: Final = """
list_transform(json_extract_string(features, ?), lambda x: case when x not in ('true', 'false', 'null')
    and try_cast(x as float) is null then x end)
"""
MOST: Final = 0.5  # the share of documents that may have no features
_BATCH: Final = 20_000


def logged_features(folder: Path) -> Lists:
    """Every number in `features` of the impressions of a log, by query and document, the names in order.

    Args:
        folder: the ingested log.
    """
    with _last(LogStore.open(folder)) as connection:
        count = 0 if connection is None else connection.sql("select count(*) from pairs").fetchall()[0][0]
        if connection is None or not count:
            raise DataError("has no impressions with features", file=folder, remedy="Log them, or give a file")
        names = _names(connection)
        if not names:
            raise DataError("has impressions with features, but no number in any", file=folder)
        query = f"select query_id, document_id, {NUMBERS} as numbers from pairs order by query_id, document_id"  # noqa: S608
        table: Any = connection.sql(query, params=[_paths(names)]).to_arrow_table()
    flat = table["numbers"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    features = flat.astype(np.float32).reshape(len(table), len(names))
    queries, documents = (np.array(table[name].to_pylist(), dtype=np.str_) for name in ("query_id", "document_id"))
    wrong = ~np.isfinite(features)
    if wrong.any():
        row, place = (int(each[0]) for each in np.nonzero(wrong))
        pair = f"{str(queries[row])!r}, {str(documents[row])!r}"
        remedy = "Log every feature of every impression as a number"
        raise DataError(f"has no number for the feature {names[place]!r} of {pair}", file=folder, remedy=remedy)
    distinct, counts = np.unique(queries, return_counts=True)
    order = np.argsort(queries, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Lists(features[order], offsets, distinct, documents[order])


def features_of(
    store: LogStore, pairs: pa.Table, *, memory: str = "700MB", temp: Path | None = None
) -> tuple[Float32, Encoding | None, dict[str, int]]:
    """Return the features of these pairs as far as the log has them, how they are encoded, and what it lacks.

    Features of every kind are encoded as those of a table (`Encoding`); there are none if most documents have none.

    Args:
        store: the log.
        pairs: the columns query_id and document_id, in the order that is wanted.
        memory: the most memory that DuckDB may use.
        temp: a folder for what does not fit.
    """
    told = np.zeros(len(pairs), dtype=np.bool_)
    columns: dict[str, _Values] = {}
    with _last(store, memory=memory, temp=temp) as connection:
        names = [] if connection is None else _names(connection)
        if connection is not None and names:
            columns = {name: _Values(len(pairs)) for name in names}
            connection.register("wanted", pairs.append_column("place", pa.array(np.arange(len(pairs)))))
            values_of = f"{NUMBERS} as numbers, {TEXTS} as texts"
            query = f"select place, {values_of} from pairs join wanted using (query_id, document_id)"  # noqa: S608
            for batch in connection.sql(query, params=[_paths(names)] * 2).to_arrow_reader(_BATCH):
                place = batch["place"].to_numpy()
                told[place] = True
                numbers = batch["numbers"].flatten().to_numpy(zero_copy_only=False).reshape(len(place), len(names))
                found = batch["texts"].flatten()
                for column, values in enumerate(columns.values()):
                    values.add(
                        place, numbers[:, column], found.take(pa.array(np.arange(len(place)) * len(names) + column))
                    )
    account = {"documents without features": int((~told).sum())}
    if told.mean() < MOST or not columns:
        return np.zeros((len(pairs), 0), dtype=np.float32), None, account
    table = pa.table({name: values.column() for name, values in columns.items()})
    encoding = Encoding.learn(table.filter(pa.array(told)), names)
    return encoding.apply(table), encoding, account


class _Values:
    """The values of one feature: numbers, and the texts of those that are no numbers."""

    def __init__(self, rows: int) -> None:
        self.numbers = np.full(rows, np.nan, dtype=np.float32)
        self.texts: dict[int, str] = {}

    def add(self, place: Int64, numbers: Float32, found: pa.Array) -> None:
        """Take the values of some rows."""
        self.numbers[place] = numbers
        for row in np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False)).tolist():
            self.texts[int(place[row])] = found[row].as_py()

    def column(self) -> pa.Array:
        """Return numbers if all values are, lists if all are, else texts; null where there is none."""
        absent = np.isnan(self.numbers)
        if not self.texts:
            return pa.array(self.numbers, mask=absent)
        if absent.sum() == len(absent) and (lists := _lists_of_numbers(self.texts, len(absent))) is not None:
            return lists
        known = np.flatnonzero(~absent)
        values = dict(zip(known.tolist(), self.numbers[known].tolist(), strict=True))
        named = {
            row: str(int(value)) if value.is_integer() else str(value) for row, value in values.items()
        } | self.texts
        return pa.array([named.get(row) for row in range(len(absent))], pa.string())


def _lists_of_numbers(found: dict[int, str], rows: int) -> pa.Array | None:
    """Return texts as lists of numbers; None if one is something else."""
    try:
        found = {row: json.loads(text) for row, text in found.items()}
        return pa.array([found.get(row) for row in range(rows)], pa.list_(pa.float32()))
    except (ValueError, pa.ArrowInvalid, pa.ArrowTypeError):
        return None


@contextmanager
def _last(
    store: LogStore, *, memory: str = "2GB", temp: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection | None]:
    """A connection with the table `pairs`: the features that each pair had last; None where there are no events."""
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


def _names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    keys = connection.sql("select distinct unnest(json_keys(features)) as key from pairs order by key").fetchall()
    return [str(key) for (key,) in keys]


def _paths(names: list[str]) -> list[str]:
    return ["/" + name.replace("~", "~0").replace("/", "~1") for name in names]


CELL: Final = ("day", "position", "randomised")


@final
@dataclass(frozen=True, eq=False)
class LogSums:
    """The sums of a log.

    Attributes:
        logged: One ranked list of a single document for each pair, day and position, shown as often as the pair was.
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
        raise DataError(
            "has no impressions to count", file=store.folder, remedy="Ingest events first, or use other days"
        )
    known = known.take(np.argsort(known["row"].to_numpy()))
    features, encoding, account = features_of(store, known.select(list(PAIR)))
    lists = _sum_lists(known, features, ids=ids)
    return LogSums(
        _logged_sums(sums, lists, encoding, account), known.select(list(PAIR)), known["users"].to_numpy(), below
    )


def _sum_lists(pairs: pa.Table, features: Any, *, ids: bool) -> Lists:
    query, queries = numbered(pairs["query_id"])
    bounds = np.searchsorted(query, np.arange(len(queries) + 1)).astype(np.int64)
    if not ids:
        return Lists(features, bounds, np.arange(len(queries)).astype(np.str_))
    return Lists(features, bounds, texts(queries), texts(pairs["document_id"].combine_chunks()))


def _logged_sums(sums: pa.Table, lists: Lists, encoding: Encoding | None, account: dict[str, int]) -> Logged:
    row, position = sums["row"].to_numpy(), sums["position"].to_numpy()
    day = sums["day"].cast(pa.int32()).to_numpy().astype(np.int64)
    chance = sums["randomised"].to_numpy().astype(np.bool_)
    order = np.lexsort((chance, position, day, row))
    clicks = Clicks(
        lists,
        np.arange(len(order) + 1),
        row[order],
        position[order].astype(np.int32),
        sums["clicked"].to_numpy()[order],
        sums["impressions"].to_numpy()[order],
    )
    randomised = chance[order] if chance.any() else None
    return _encoded(Logged(clicks, day[order] - day.min(), randomised=randomised, account=account), encoding)


def _encoded(logged: Logged, encoding: Encoding | None) -> Logged:
    """Return a log that says how its features are encoded."""
    if encoding is None:
        return logged
    notes = (*logged.notes, *encoding.notes())
    return replace(logged, encoding=encoding, feature_names=encoding.names, notes=notes)


SEARCH: Final = ("day", "search_id", "query_id")
SEVERAL: Final = "several rankers"
UNNAMED: Final = "not named"
OPTIONAL: Final = {
    "user_id": ("impression", "ranking"),
    "ranker": ("impression", "ranking"),
    "features": ("impression",),
    "display_ms": ("impression",),
}
"""The fields that a row may lack and that an account counts, and the kinds of rows that would have them."""


def read_store(folder: Path, *, memory: str = "700MB", note: Callable[[str], None] | None = None) -> Logged:
    """The log in a folder that `clickprism log ingest` made; its sessions are brought up to date first.

    Args:
        folder: of the log.
        memory: what the engine may hold at a time.
        note: told what goes on, a sentence each.
    """
    store = LogStore.open(folder, note=note)
    with store.write(memory=memory) as writer:
        update_sessions(store, writer.engine)
        numbers = _numbers(store, writer.engine)
        account = _account(store, writer.engine)
        writer.engine.close()
        features, encoding, lacks = features_of(store, numbers.pairs, memory=memory, temp=writer.temp)
    query, queries = numbered(numbers.pairs["query_id"])
    bounds = np.searchsorted(query, np.arange(len(queries) + 1)).astype(np.int64)
    lists = Lists(features, bounds, texts(queries), texts(numbers.pairs["document_id"].combine_chunks()))
    return _encoded(_logged(numbers, lists, account=account | lacks), encoding)


@final
@dataclass(frozen=True, eq=False)
class _Numbers:
    """What was shown, in numbers.

    Attributes:
        pairs: query_id and document_id, in order; what `row` of an entry counts.
        searches: day, and the least and the most of ranker, in the order that `search` of an entry counts.
        entries: search, row, position, clicked, randomised.
        told: whether the log tells at all what chance has filled.
    """

    pairs: pa.Table
    searches: pa.Table
    entries: pa.Table
    told: bool


def _numbers(store: LogStore, engine: Engine) -> _Numbers:
    rows = engine.read(store.table("sessions").files(), SESSIONS)
    rows = rows.filter(rows["filter"].isnull())
    with ExitStack() as stack:
        pairs = _counted(rows.select(*PAIR).distinct(), PAIR, "row")
        pairs = stack.enter_context(engine.held(pairs))
        found = rows.group_by(*SEARCH).aggregate(least=rows.ranker.min(), most=rows.ranker.max())
        searches = stack.enter_context(engine.held(_counted(found, SEARCH, "search")))
        both = rows.inner_join(pairs, list(PAIR)).inner_join(searches, list(SEARCH))
        entries = engine.collect(both.select("search", "row", "position", "clicked", "randomised"))
        if not entries.num_rows:
            raise DataError(
                "has no searches that count", file=store.folder, remedy="Ingest files first, or see the robot rules"
            )
        events = engine.read(store.table("events").files(), EVENTS)
        told = engine.collect(events.aggregate(told=events.randomised.count()))["told"][0].as_py() > 0
        return _Numbers(
            engine.collect(pairs.order_by("row").select(*PAIR)),
            engine.collect(searches.order_by("search").select("day", "least", "most")),
            entries,
            told,
        )


def _counted(rows: Any, by: tuple[str, ...], name: str) -> Any:
    """The rows with their place in this order, from 0."""
    place = ibis.row_number().over(order_by=[rows[each] for each in by]).cast("int32")
    return rows.mutate(**{name: place})


def _logged(numbers: _Numbers, lists: Lists, *, account: dict[str, int]) -> Logged:
    search, row, position = (numbers.entries[name].to_numpy() for name in ("search", "row", "position"))
    clicked, chance = (numbers.entries[name].to_numpy() for name in ("clicked", "randomised"))
    place = search.astype(np.int64) * (int(position.max()) + 1) + position
    order = np.lexsort((row, place))
    first = np.concatenate([[True], np.diff(place[order]) != 0])
    account["documents at a position that was taken"] = int((~first).sum())
    order = order[first]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(search[order]) != 0]))
    clicks = Clicks(
        lists,
        np.append(starts, len(order)).astype(np.int64),
        row[order].astype(np.int64),
        position[order].astype(np.int32),
        clicked[order].astype(np.int64),
        np.ones(len(starts), dtype=np.int64),
    )
    randomised: Bool | None = chance[order].astype(np.bool_) if numbers.told else None
    day = numbers.searches["day"].cast(pa.int32()).to_numpy().astype(np.int64)
    policy, policies = _policies(numbers.searches)
    return merge_logged(Logged(clicks, day - day.min(), policy, policies, randomised, account=_told(account)))


def _policies(searches: pa.Table) -> tuple[Int64 | None, tuple[str, ...]]:
    """The ranker of each search, by place, and the names; None where no search has one."""
    one = searches["least"]
    if one.null_count == len(one):
        return None, ()
    apart = pc.fill_null(pc.not_equal(one, searches["most"]), False)
    named = pc.if_else(apart, SEVERAL, pc.fill_null(one, UNNAMED))
    place, policies = numbered(named)
    return place, tuple(policies.to_pylist())


def _account(store: LogStore, engine: Engine) -> dict[str, int]:
    """What came in, what was left out and why, and which fields are missing how often."""
    files = store.table("files").read(["rows_in", "stored", "duplicate", "quarantined", "ignored"])
    sums = {name: int(pc.sum(files[name]).as_py() or 0) for name in files.column_names}
    account = {
        "rows in": sums["rows_in"],
        "rows stored": sums["stored"],
        "rows duplicate": sums["duplicate"],
        "rows quarantined": sums["quarantined"],
        "rows not of a click event": sums["ignored"],
    }
    for each in store.table("quarantine").read(["reason"])["reason"].value_counts().to_pylist():
        account[f"rows broken, {each['values'].partition(':')[0]}"] = each["counts"]
    rows = engine.read(store.table("sessions").files(), SESSIONS)
    left = engine.collect(rows.filter(rows["filter"].notnull()).group_by("filter").aggregate(rows=ibis._.count()))
    account |= {f"impressions filtered, {each['filter']}": each["rows"] for each in left.to_pylist()}
    events = engine.read(store.table("events").files(), EVENTS)
    counts = {name: (events[name].isnull() & events.kind.isin(kinds)).sum() for name, kinds in OPTIONAL.items()}
    missing = engine.collect(events.aggregate(**counts)).to_pylist()[0]
    return account | {f"rows without {name}": int(count or 0) for name, count in missing.items()}


def _told(account: dict[str, int]) -> dict[str, int]:
    """What was counted, without what there is none of; the rows that came in stay."""
    return {name: count for name, count in account.items() if count or name.startswith("rows in")}
