"""The counts of an ingested log as `Logged`: the engine adds up impressions and clicks by pair, day and position.

The model of a log needs no ranked lists, only how often each pair was shown and clicked at each position on each day.
There are far fewer such sums than rows in the log, and no text of a row is in memory: the engine numbers the pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, final

import ibis
import numpy as np
import pyarrow as pa

from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.log.lists import numbered, texts
from clickprism.log.logged_features import features_of
from clickprism.log.partials import PAIR, counting
from clickprism.log.schema import SESSIONS
from clickprism.types import Clicks, Int64, Lists

if TYPE_CHECKING:
    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore

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
    features, names, account = features_of(store, known.select(list(PAIR)))
    lists = _lists(known, features, ids=ids)
    return LogSums(_logged(sums, lists, names, account), known.select(list(PAIR)), known["users"].to_numpy(), below)


def _lists(pairs: pa.Table, features: Any, *, ids: bool) -> Lists:
    query, queries = numbered(pairs["query_id"])
    bounds = np.searchsorted(query, np.arange(len(queries) + 1)).astype(np.int64)
    if not ids:
        return Lists(features, bounds, np.arange(len(queries)).astype(np.str_))
    return Lists(features, bounds, texts(queries), texts(pairs["document_id"].combine_chunks()))


def _logged(sums: pa.Table, lists: Lists, names: tuple[str, ...], account: dict[str, int]) -> Logged:
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
    return Logged(clicks, day[order] - day.min(), randomised=randomised, feature_names=names, account=account)
