"""Windows of a click log: from sessions to a snapshot, and the hourly update, against hand-written DuckDB SQL.

The log is made in SQL: five weeks, searches by Zipf's law, ten documents each, robots among the users;
`CLICKPRISM_BENCH_IMPRESSIONS` sets its size. The SQL by hand makes the same snapshot in one statement, straight from
the session rows, with the estimates of examination given; ours also makes and keeps the daily partials and the week
and month, and has half the memory. Results must be equal, value by value. Each figure is measured in a process of its
own, so that the peak of memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.base import Result

IMPRESSIONS = int(os.environ.get("CLICKPRISM_BENCH_IMPRESSIONS", "10_000_000"))
MEMORY: Final = 4096.0  # MB
DAYS: Final = 35
LAST: Final = date(2026, 3, 4)
AS_OF: Final = datetime(2026, 3, 4, 15, 30)
K: Final = 5
CELL: Final = "position, clicked, clicks_before, click_distance, click_below, page, query_bucket"


def run() -> list[Result]:
    """CPU seconds of ours and of the SQL by hand, the first time and an hour later, and the peak of memory."""
    with tempfile.TemporaryDirectory(prefix="clickprism-bench-") as scratch:
        log = str(Path(scratch) / "log")
        _measured("make", log)
        hand = _measured("hand", log)
        first = _measured("first", log)
        same = _measured("same", log)
        if not same["equal"]:
            raise RuntimeError(f"the snapshot differs from that of the SQL by hand: {same}")
        later = _measured("later", log)
    size = f"{IMPRESSIONS / 1e6:g} M impressions"
    return [
        Result(f"CPU of windows of {size}: SQL by hand", first["processor"], hand["processor"], 1 / 1.3, "s", False),
        Result("an hour later: the first time", later["processor"], first["processor"], 1 / 0.15, "s", False),
        Result("peak memory of windows", first["megabytes"], MEMORY, 1, "MB", False),
    ]


def _measured(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.windows", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def main(step: str, folder: str) -> None:
    """One step in a process of its own: print what it took."""
    steps: dict[str, Callable[[str], dict[str, Any]]] = {
        "make": make_log,
        "hand": _by_hand,
        "first": lambda log: _windows(log, AS_OF),
        "same": _same,
        "later": lambda log: _windows(log, AS_OF + timedelta(hours=1)),
    }
    print(json.dumps(steps[step](folder)))


def timed(work: Callable[[], object]) -> dict[str, Any]:
    """How long something takes, and the peak of memory of this process."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def connect_by_hand(folder: str) -> Any:
    """DuckDB with two threads and 2 GB."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]]
    config = {"threads": 2, "memory_limit": "2GB", "temp_directory": f"{folder}-spill"}
    config["preserve_insertion_order"] = False
    return duckdb.connect(config=config)


def _windows(folder: str, as_of: datetime) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from clickprism.log.engines.base import connect
    from clickprism.log.features.windows import windows
    from clickprism.log.store import LogStore

    class Examiner:
        fingerprint = "one by the position"

        def estimate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            units = pc.divide(2**20, pc.cast(batch.column("position"), pa.int64()))
            return batch.append_column("examination", units)

    store = LogStore.open(folder)
    with connect(threads=2, memory="1GB") as engine:
        return timed(lambda: windows(store, engine, as_of, examiner=Examiner(), refresh=False))


def _same(folder: str) -> dict[str, Any]:
    from clickprism.log.features.snapshots import read_snapshot
    from clickprism.log.store import LogStore

    files = ", ".join(f"'{file}'" for file in read_snapshot(LogStore.open(folder)).files)
    counts = connect_by_hand(folder).execute(
        f"SELECT count(*), count(*) FILTER (a.x = b.x AND a.users = b.users AND a.as_of = b.as_of) "  # noqa: S608
        f"FROM read_parquet([{files}]) a FULL JOIN '{folder}-hand.parquet' b USING (query_id, document_id)"
    )
    rows, equal = counts.fetchone()
    return {"rows": rows, "equal": rows == equal and rows > 0}


def make_log(folder: str) -> dict[str, Any]:
    """A log of session rows, a file a day."""
    from clickprism.log.store import LogStore

    store = LogStore.open(folder, create=True)
    store.write_settings(store.settings)
    table, connection = store.table("sessions"), connect_by_hand(folder)
    searches = IMPRESSIONS // 10 // DAYS
    added = {}
    for number in range(DAYS):
        day = LAST - timedelta(days=DAYS - 1 - number)
        path = table.day_folder(day) / f"made-{number}.parquet"
        rows = _rows(number * searches, (number + 1) * searches, day)
        connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
        added[day] = [path]
    table.commit_files(added)
    return {}


def _rows(first: int, last: int, day: date) -> str:
    def draw(*of: object) -> str:
        return f"(hash({', '.join(map(str, of))}) % 1000003) / 1000003.0"

    queries, users = max(1000, IMPRESSIONS // 50), max(1000, IMPRESSIONS // 20)
    return f"""
WITH searches AS (
  SELECT s, floor(pow({queries}, {draw("s", 1)}))::BIGINT AS q, floor({users} * pow({draw("s", 2)}, 2))::BIGINT AS u,
    (hash(s, 3) % 6)::INTEGER AS turn, TIMESTAMP '{day}' + to_microseconds((hash(s, 4) % 86400000000)::BIGINT) AS time
  FROM range({first}, {last}) numbers(s)
), shown AS (
  SELECT *, p::INTEGER AS position, {draw("s", "p", 5)} < 0.4 / p AS clicked, {draw("s", "p", 6)} AS r
  FROM searches, range(1, 11) places(p)
)
SELECT 'search-' || s AS search_id, 'query-' || q AS query_id,
  'document-' || q || '-' || ((position * 7 + turn) % 17) AS document_id, position, time,
  CASE WHEN clicked THEN 1 + (r > 0.9)::INTEGER ELSE 0 END::INTEGER AS clicks,
  CASE WHEN clicked THEN time + to_microseconds((r * 1e8)::BIGINT) END AS last_click,
  CASE WHEN r < 0.8 THEN (20000 * r / position)::BIGINT END AS display_ms,
  CASE WHEN clicked THEN (300000 * r * r)::BIGINT END AS dwell_ms,
  r > 0.98 AS page_skipped, 'user-' || u AS user_id, 'a' AS ranker, position = 1 AND r < 0.1 AS randomised,
  CASE WHEN u % 50 = 0 THEN 'rate' END AS filter, clicked, least(position - 1, turn)::INTEGER AS clicks_before,
  least(position - 1, 2)::INTEGER AS click_distance, r > 0.5 AS click_below, 1::INTEGER AS page,
  least(4, floor(log10({IMPRESSIONS // 10} / q)))::INTEGER AS query_bucket
FROM shown"""  # noqa: S608


def _by_hand(folder: str) -> dict[str, Any]:
    connection = connect_by_hand(folder)
    source = f"read_parquet('{folder}/sessions/*/*.parquet')"
    connection.execute(
        f"CREATE TABLE cells AS SELECT *, (1048576 // position)::BIGINT AS examination "  # noqa: S608
        f"FROM (SELECT DISTINCT {CELL} FROM {source} WHERE filter IS NULL)"
    )
    statement = _statement(source)
    return timed(
        lambda: connection.execute(
            f"COPY ({statement}) TO '{folder}-hand.parquet' (FORMAT parquet, COMPRESSION snappy)"
        )
    )


def _statement(source: str) -> str:
    """The snapshot in one statement: users of all windows in one pass, then each window for its pairs."""
    spans = {
        "day": ("2026-03-03 15:00", "2026-03-04 15:00", 24),
        "week": ("2026-02-25", "2026-03-04", 168),
        "month": ("2026-02-02", "2026-03-02", 672),
    }
    inside = {name: f"time >= '{start}' AND time < '{end}'" for name, (start, end, _) in spans.items()}
    flags = ", ".join(f"bool_or({test}) AS {name}" for name, test in inside.items())
    counts = ", ".join(f"count(*) FILTER ({name}) AS {name}_users" for name in spans)
    tables = [
        f"pairs AS MATERIALIZED (SELECT query_id, document_id, {counts} FROM (SELECT query_id, document_id, user_id, "  # noqa: S608
        f"{flags} FROM {source} WHERE filter IS NULL AND user_id IS NOT NULL AND time >= '2026-02-02' AND "
        "time < '2026-03-04 15:00' GROUP BY ALL) GROUP BY ALL)"
    ]
    for name, (_, end, hours) in spans.items():
        fields = ", ".join(f"({field})::DOUBLE" for field in _fields(end, hours))
        tables.append(
            f"{name} AS (SELECT query_id, document_id, any_value(users) AS users, [{fields}] AS x FROM {source} "  # noqa: S608
            f"JOIN cells USING ({CELL}) JOIN (SELECT query_id, document_id, {name}_users AS users FROM pairs "
            f"WHERE {name}_users >= {K}) USING (query_id, document_id) WHERE filter IS NULL AND {inside[name]} "
            "GROUP BY query_id, document_id)"
        )
    x = " || ".join(f"coalesce({name}.x, {_nothing(hours)})" for name, (_, _, hours) in spans.items())
    users = ", ".join(f"coalesce({name}.users, 0)" for name in spans)
    return (
        f"WITH {', '.join(tables)} SELECT query_id, document_id, {x} AS x, greatest({users}) AS users, "  # noqa: S608
        f"TIMESTAMP '{AS_OF}' AS as_of FROM day FULL JOIN week USING (query_id, document_id) "
        "FULL JOIN month USING (query_id, document_id)"
    )


def _fields(end: str, hours: int) -> list[str]:
    edges = (1000, 2000, 5000, 10000, 30000, 60000, 180000)
    bins = ["{0} < 1000", *(f"{{0}} >= {a} AND {{0}} < {b}" for a, b in pairwise(edges))]
    bins.append("{0} >= 180000")
    places = [*(f"position = {place}" for place in range(1, 11)), "position > 10"]
    return [
        "count(*)",
        "sum(clicks)",
        "count(*) FILTER (clicked)",
        "sum(examination) / 1048576::DOUBLE",
        "coalesce(sum(dwell_ms), 0) / 1000::DOUBLE",
        "count(dwell_ms)",
        "coalesce(sum(display_ms), 0) / 1000::DOUBLE",
        "count(display_ms)",
        "count(*) FILTER (page_skipped)",
        "any_value(users)",
        f"CASE WHEN max(last_click) IS NULL THEN {hours} ELSE "
        f"greatest(date_diff('microsecond', max(last_click), TIMESTAMP '{end}'), 0) / 3600000000::DOUBLE END",
        *(f"count(*) FILTER ({test.format(column)})" for column in ("dwell_ms", "display_ms") for test in bins),
        *(f"count(*) FILTER ({test})" for test in places),
        *(f"count(*) FILTER (clicked AND {test})" for test in places),
        *(f"coalesce(sum(examination) FILTER ({test}), 0) / 1048576::DOUBLE" for test in places),
    ]


def _nothing(hours: int) -> str:
    return "[" + ", ".join(f"{hours}.0" if index == 10 else "0.0" for index in range(60)) + "]::DOUBLE[]"


if __name__ == "__main__":
    main(*sys.argv[1:])
