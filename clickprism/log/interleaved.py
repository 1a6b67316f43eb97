"""Interleaved searches of a log: the clicks on the documents of each of two rankers.

A search was interleaved if its documents name two rankers: each impression says in `ranker` which one it came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.errors import UnsupportedError
from clickprism.log.schema import SESSIONS, conform
from clickprism.log.sessions import by_day
from clickprism.types import Int64

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

_ROWS: Final = pa.schema(
    [SESSIONS.field(name) for name in ("search_id", "time", "clicked", "user_id", "ranker", "filter")]
)


@final
@dataclass(frozen=True, eq=False)
class InterleavedSearches:
    """Searches whose list two rankers have made, in the order of time.

    Attributes:
        rankers: the first and the second.
        first: documents of the first that were clicked, [searches].
        second: those of the second, [searches].
        users: a number for each user, -1 where it is not known, [searches].
        others: how many searches other rankers made together.
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
    """The interleaved searches of a log, as its sessions are now.

    Args:
        store: the log; `update_sessions` brings its sessions up to date.
        rankers: which two, the one in use first; by default those that made the most searches together, the one that
            the log has known for longer first.
        days: of these days only.
    """
    found: list[pa.Table] = [_FOUND.empty_table()]
    born: dict[str, datetime] = {}
    for _, files in sorted(by_day(store.table("sessions").files(days)).items()):
        rows = _rows(files)
        first_seen = rows.group_by("ranker").aggregate([("time", "min")])
        born = dict(zip(first_seen["ranker"].to_pylist(), first_seen["time_min"].to_pylist(), strict=True)) | born
        found.append(_searches(rows))
    searches = pa.concat_tables(found)
    pairs = Counter(dict(zip(*_counted(searches), strict=True)))
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
    chosen = chosen.sort_by([("time", "ascending"), ("search_id", "ascending")])
    clicks = [chosen[name].to_numpy() for name in ("low_clicks", "high_clicks")]
    first, second = clicks if rankers[0] == low else clicks[::-1]
    users = chosen["user_id"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    return InterleavedSearches(rankers, first, second, users, pairs.total() - len(chosen))


_FOUND: Final = pa.schema(
    [
        ("search_id", pa.string()),
        ("time", SESSIONS.field("time").type),
        ("user_id", pa.string()),
        ("low", pa.string()),
        ("high", pa.string()),
        ("low_clicks", pa.int64()),
        ("high_clicks", pa.int64()),
    ]
)


def _rows(files: Iterable[str]) -> pa.Table:
    """The rows of a day that count and name a ranker."""
    parts = [conform(pq.ParquetFile(file).read(columns=_ROWS.names), _ROWS, what="sessions") for file in files]
    rows = pa.concat_tables(parts)
    return rows.filter(pc.and_(pc.is_null(rows["filter"]), pc.is_valid(rows["ranker"])))


def _searches(rows: pa.Table) -> pa.Table:
    """The searches of a day that just two rankers have made; `low` and `high` are these in the order of their names."""
    teams = rows.group_by(["search_id", "ranker"]).aggregate([("clicked", "sum"), ("time", "min"), ("user_id", "min")])
    teams = teams.sort_by([("search_id", "ascending"), ("ranker", "ascending")])
    if not len(teams):
        return _FOUND.empty_table()
    search = teams["search_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(search, prepend=-1))
    two = starts[np.diff(np.append(starts, len(search))) == 2]
    one, other = teams.take(pa.array(two)), teams.take(pa.array(two + 1))
    columns = {
        "search_id": one["search_id"],
        "time": pc.min_element_wise(one["time_min"], other["time_min"]),
        "user_id": pc.coalesce(one["user_id_min"], other["user_id_min"]),
        "low": one["ranker"],
        "high": other["ranker"],
        "low_clicks": one["clicked_sum"].cast(pa.int64()),
        "high_clicks": other["clicked_sum"].cast(pa.int64()),
    }
    return pa.table(columns).cast(_FOUND)


def _counted(searches: pa.Table) -> tuple[list[tuple[str, str]], list[int]]:
    counts = searches.group_by(["low", "high"]).aggregate([([], "count_all")])
    return list(zip(counts["low"].to_pylist(), counts["high"].to_pylist(), strict=True)), counts[
        "count_all"
    ].to_pylist()
