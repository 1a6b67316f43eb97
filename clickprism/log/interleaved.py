"""Interleaved searches of a log: the clicks on the documents of each of two rankers.

A search was interleaved if its documents name two rankers: each impression has its ranker in `ranker`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.errors import UnsupportedError
from clickprism.types import Int64

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

TWO_RANKERS: Final = """
with teams as (
    select day, search_id, ranker, sum(cast(clicked as int)) as clicks, min(time) as time, min(user_id) as user_id
    from read_parquet($files, hive_partitioning = true, hive_types_autocast = false)
    where filter is null and ranker is not null group by all
)
select search_id, min(time) as time, min(user_id) as user_id, min(ranker) as low, max(ranker) as high,
    cast(arg_min(clicks, ranker) as bigint) as low_clicks, cast(arg_max(clicks, ranker) as bigint) as high_clicks
from teams group by day, search_id having count(*) = 2 order by time, search_id
"""
FIRST_TIMES: Final = """
select ranker, min(time) from read_parquet($files, hive_partitioning = true)
where filter is null and ranker is not null group by ranker
"""


@final
@dataclass(frozen=True, eq=False)
class InterleavedSearches:
    """Searches whose list two rankers have made, in the order of time.

    Attributes:
        rankers: the first and the second.
        first: number of clicked documents of the first ranker, [searches].
        second: number of clicked documents of the second ranker, [searches].
        users: a number for each user, -1 where it is not known, [searches].
        others: number of searches that other rankers made together.
    """

    rankers: tuple[str, str]
    first: Int64
    second: Int64
    users: Int64
    others: int

    def __len__(self) -> int:
        return len(self.first)


def interleaved_searches(
    store: LogStore, *, rankers: tuple[str, str] | None = None, days: Iterable[date] | None = None
) -> InterleavedSearches:
    """Return the interleaved searches in the sessions of a log, of these days only.

    `rankers` are two, the one in use first; by default those with the most searches together, the older one first.
    """
    searches, born = pa.table({"low": [], "high": []}), dict[str, Any]()
    if files := store.table("sessions").files(days):
        with duckdb.connect() as connection:
            searches = connection.sql(TWO_RANKERS, params={"files": files}).to_arrow_table()
            born = dict(connection.sql(FIRST_TIMES, params={"files": files}).fetchall())
    pairs = Counter(zip(searches["low"].to_pylist(), searches["high"].to_pylist(), strict=True))
    if rankers is None and pairs:
        one, other = min(pairs, key=lambda pair: (-pairs[pair], pair))
        rankers = (one, other) if born[one] <= born[other] else (other, one)
    if rankers is None or not pairs[min(rankers), max(rankers)]:
        known = "; ".join(f"--rankers {one} {other}" for one, other in sorted(pairs)[:5])
        raise UnsupportedError(
            "has no interleaved searches of these two rankers" if pairs else "has no interleaved searches",
            file=store.folder,
            remedy=f"Choose from: {known}" if known else "Each impression must name its ranker in the field `ranker`",
        )
    low, high = sorted(rankers)
    chosen = searches.filter(pc.and_(pc.equal(searches["low"], low), pc.equal(searches["high"], high)))
    clicks = [chosen[name].to_numpy() for name in ("low_clicks", "high_clicks")]
    first, second = clicks if rankers[0] == low else clicks[::-1]
    users = chosen["user_id"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    return InterleavedSearches(rankers, first, second, users, pairs.total() - len(chosen))
