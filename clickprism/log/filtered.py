"""How many rows of some input files the robot rules leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

import duckdb
import pyarrow as pa

from clickprism.log.robots import RobotSettings, unique, verdicts
from clickprism.log.schema import EVENTS

_EVENTS: Final = pa.schema([each.with_nullable(True) for each in EVENTS if each.name != "day"])


def filtered_rows(
    connection: duckdb.DuckDBPyConnection, files: Sequence[str], file_ids: Collection[str], settings: RobotSettings
) -> Counter[str]:
    """The rows of these input files that a rule leaves out, by rule; rows counted as duplicates are not among them.

    Args:
        connection: that runs the rules.
        files: all files of one day of `events`.
        file_ids: of the input files.
        settings: of the rules.
    """
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    source = f"read_parquet([{listed}], hive_partitioning = false)"
    connection.execute(f"CREATE OR REPLACE TEMP VIEW events_of_day AS SELECT * FROM {source}")  # noqa: S608
    kinds = connection.execute("SELECT DISTINCT kind FROM events_of_day").fetchall()
    variants = connection.execute("SELECT bool_or(variant) FROM events_of_day").fetchall()[0][0]
    connection.register("file_ids", pa.table({"file_id": pa.array(sorted(file_ids), pa.string())}))
    try:
        query = _query(settings, tuple(sorted(kind for (kind,) in kinds)), bool(variants))
        return Counter(dict(connection.execute(query).fetchall()))
    finally:
        connection.unregister("file_ids")


@cache
def _query(settings: RobotSettings, kinds: tuple[str, ...], variants: bool) -> str:
    """The rules as SQL of DuckDB, over `events_of_day`; without variants each key is there once."""
    import ibis

    events = ibis.table(ibis.Schema.from_pyarrow(_EVENTS), name="events_of_day")
    judged = verdicts(unique(events, by=()) if variants else events, settings, kinds=kinds, by=())
    columns = ["key", "filter"] if variants else ["file_id", "filter"]
    left_out = ibis.to_sql(judged.filter(judged["filter"].notnull()).select(columns), dialect="duckdb")
    if not variants:
        return f'SELECT "filter", count(*) FROM ({left_out}) SEMI JOIN file_ids USING (file_id) GROUP BY "filter"'  # noqa: S608
    return f"""SELECT "filter", count(*) FROM ({left_out}) SEMI JOIN (
        SELECT key FROM events_of_day SEMI JOIN file_ids USING (file_id) WHERE NOT variant) USING (key)
        GROUP BY "filter" """  # noqa: S608
