"""An ingested log as `Logged`: the engine numbers searches and pairs, so that no text of a row comes into memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.log.lists import numbered, texts
from clickprism.log.logged_features import features_of
from clickprism.log.merging import merge_logged
from clickprism.log.schema import EVENTS, SESSIONS
from clickprism.log.sessions import update_sessions
from clickprism.log.store import LogStore
from clickprism.types import Bool, Clicks, Int64, Lists

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clickprism.log.engine import Engine

PAIR: Final = ("query_id", "document_id")
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
        features, names, lacks = features_of(store, numbers.pairs, memory=memory, temp=writer.temp)
    query, queries = numbered(numbers.pairs["query_id"])
    bounds = np.searchsorted(query, np.arange(len(queries) + 1)).astype(np.int64)
    lists = Lists(features, bounds, texts(queries), texts(numbers.pairs["document_id"].combine_chunks()))
    return _logged(numbers, lists, names, account=account | lacks)


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


def _logged(numbers: _Numbers, lists: Lists, names: tuple[str, ...], *, account: dict[str, int]) -> Logged:
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
    return merge_logged(Logged(clicks, day - day.min(), policy, policies, randomised, names, _told(account)))


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
