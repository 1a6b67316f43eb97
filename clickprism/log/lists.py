"""Lists with clicks of an ingested log: what every estimator of position bias reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.data.sessions import LARGEST, SessionLog
from clickprism.errors import DataError
from clickprism.log.schema import SESSIONS, conform
from clickprism.log.sessions import by_day
from clickprism.types import Clicks, Int64, Lists, Text

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

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
    return _lists(table)


def _lists(table: pa.Table) -> SessionLog:
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
    longest = pc.max(pc.utf8_length(values)).as_py() or 1
    if 4 * longest * len(values) > LARGEST:
        raise DataError(
            f"the ids are too large for memory: {len(values):,} of them, the longest of {longest:,} characters",
            remedy="Choose fewer days",
        )
    made: Text = np.array(values.to_pylist(), dtype=np.str_)
    return made
