"""The features that an ingested log has of its pairs, as they were when the pair was last shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from clickprism.errors import DataError
from clickprism.log.sessions import kinds_of
from clickprism.log.store import LogStore
from clickprism.types import Bool, Float32, Lists

if TYPE_CHECKING:
    import duckdb

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
MOST: Final = 0.5  # the share of documents that may lack a feature, or all of them
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
) -> tuple[Float32, tuple[str, ...], dict[str, int]]:
    """The features of these pairs as far as the log has them, their names, and an account of what it lacks.

    A feature that is a number for fewer than half of the documents that have any is left out; so are all where most
    documents have none. What else is missing becomes the median of the feature.

    Args:
        store: the log.
        pairs: the columns query_id and document_id, in the order that is wanted.
        memory: what DuckDB may hold.
        temp: a folder for what does not fit.
    """
    nothing = np.zeros((len(pairs), 0), dtype=np.float32)
    with _last(store, memory=memory, temp=temp) as connection:
        names = [] if connection is None else _names(connection)
        if connection is None or not names:
            return nothing, (), {"documents without features": len(pairs)}
        connection.register("wanted", pairs.append_column("place", pa.array(np.arange(len(pairs)))))
        query = f"select place, {NUMBERS} as numbers from pairs join wanted using (query_id, document_id)"  # noqa: S608
        features = np.full((len(pairs), len(names)), np.nan, dtype=np.float32)
        told = np.zeros(len(pairs), dtype=np.bool_)
        for batch in connection.sql(query, params=[_paths(names)]).to_arrow_reader(_BATCH):
            place = batch["place"].to_numpy()
            flat = batch["numbers"].flatten().to_numpy(zero_copy_only=False)
            features[place] = flat.reshape(len(place), len(names))
            told[place] = True
    return _completed(features, names, told)


def _completed(features: Float32, names: list[str], told: Bool) -> tuple[Float32, tuple[str, ...], dict[str, int]]:
    """Without features that most documents lack; what is missing of others is their median."""
    account = {"documents without features": int((~told).sum())}
    there = np.isfinite(features)
    known = there.sum(axis=0)
    kept = known >= max(MOST * told.sum(), 1)
    if not kept.all():
        account["features left out, not numbers in most documents"] = int((~kept).sum())
    if told.mean() < MOST or not kept.any():
        return features[:, :0].copy(), (), account
    chosen, there = features[:, kept], there[:, kept]
    for column in np.flatnonzero(~there.all(axis=0)):
        chosen[~there[:, column], column] = np.median(chosen[there[:, column], column])
    filled = int((~there[told]).sum())
    if filled:
        account["values of features missing, set to the median"] = filled
    return chosen, tuple(name for name, keep in zip(names, kept, strict=True) if keep), account


@contextmanager
def _last(
    store: LogStore, *, memory: str = "2GB", temp: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection | None]:
    """A connection with the table `pairs`: the features that each pair had last; None where there are no events."""
    import duckdb

    from clickprism.log.duckdb_engine import failing

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
