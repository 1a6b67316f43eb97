"""How many rows of some input files the robot rules leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

import duckdb
import pyarrow as pa

from clickprism.log.robots import unique, verdicts
from clickprism.log.schema import EVENTS
from clickprism.log.settings import RobotSettings

ROWS: Final = 1 << 21
"""Of days that one query looks at together: to plan it costs as much as to look at 100 thousand."""
_EVENTS: Final = pa.schema([each.with_nullable(True) for each in EVENTS])


def filtered_rows(
    connection: duckdb.DuckDBPyConnection, files: Sequence[str], file_ids: Collection[str], settings: RobotSettings
) -> Counter[str]:
    """The rows of these input files that a rule leaves out, by rule; rows counted as duplicates are not among them.

    Args:
        connection: that runs the rules.
        files: all files of some days of `events`, in the folders of their days.
        file_ids: of the input files.
        settings: of the rules.
    """
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    source = f"read_parquet([{listed}], hive_partitioning = true, hive_types = {{day: DATE}})"
    connection.execute(f"CREATE OR REPLACE TEMP VIEW events_of_days AS SELECT * FROM {source}")  # noqa: S608
    found = connection.execute("SELECT list(DISTINCT kind), bool_or(variant) FROM events_of_days").fetchall()
    kinds, variants = found[0]
    connection.register("file_ids", pa.table({"file_id": pa.array(sorted(file_ids), pa.string())}))
    try:
        query = _query(settings, tuple(sorted(kinds)), variants)
        return Counter(dict(connection.execute(query).fetchall()))
    finally:
        connection.unregister("file_ids")


@cache
def _query(settings: RobotSettings, kinds: tuple[str, ...], variants: bool) -> str:
    """The rules as SQL of DuckDB, over `events_of_days`; without variants each key of a day is there once."""
    import ibis

    events = ibis.table(ibis.Schema.from_pyarrow(_EVENTS), name="events_of_days")
    judged = verdicts(unique(events) if variants else events, settings, kinds=kinds)
    columns = ["day", "key", "filter"] if variants else ["file_id", "filter"]
    left_out = ibis.to_sql(judged.filter(judged["filter"].notnull()).select(columns), dialect="duckdb")
    if not variants:
        return f'SELECT "filter", count(*) FROM ({left_out}) SEMI JOIN file_ids USING (file_id) GROUP BY "filter"'  # noqa: S608
    return f"""SELECT "filter", count(*) FROM ({left_out}) SEMI JOIN (
        SELECT day, key FROM events_of_days SEMI JOIN file_ids USING (file_id) WHERE NOT variant) USING (day, key)
        GROUP BY "filter" """  # noqa: S608
