"""The features that an ingested log has of its pairs, as they were when the pair was last shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clickprism.errors import DataError
from clickprism.log.store import LogStore
from clickprism.types import Lists

LAST = """
create table pairs as
select coalesce(query_id, sha256(coalesce(query, ''))) as query_id, document_id,
    arg_max(features, (time, features)) as features
from read_parquet(?) where kind = 'impression' and features is not null and not variant
group by all order by all
"""
NUMBERS = """
select query_id, document_id,
    list_transform(json_extract_string(features, ?), lambda x: try_cast(x as float)) as numbers
from pairs
"""


def logged_features(folder: Path) -> Lists:
    """Every number in `features` of the impressions of a log, by query and document, the names in order.

    Args:
        folder: the ingested log.
    """
    import duckdb

    files = LogStore.open(folder).table("events").files()
    with duckdb.connect() as connection:
        if files:
            connection.execute(LAST, [files])
        count = connection.sql("select count(*) from pairs").fetchall()[0][0] if files else 0
        if not count:
            raise DataError("has no impressions with features", file=folder, remedy="Log them, or give a file")
        keys = connection.sql("select distinct unnest(json_keys(features)) as key from pairs order by key").fetchall()
        names = [str(key) for (key,) in keys]
        if not names:
            raise DataError("has impressions with features, but no number in any", file=folder)
        paths = ["/" + name.replace("~", "~0").replace("/", "~1") for name in names]
        table: Any = connection.sql(NUMBERS, params=[paths]).to_arrow_table()
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
