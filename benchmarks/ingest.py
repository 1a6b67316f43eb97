"""Ingest of a raw log, end to end by the command line: rows a second, peak memory, and what DuckDB alone would need.

The log is simulated (`clickprism log simulate`): JSON lines with robots, duplicates, late and broken rows;
`CLICKPRISM_BENCH_IMPRESSIONS` sets its size. Each figure is measured in a process of its own, so that the peak of
memory is its own. The limit is DuckDB: the same files parsed by `read_json` and written as Parquet by day, with no
check, no duplicates told, no account.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.base import Result

IMPRESSIONS = int(os.environ.get("CLICKPRISM_BENCH_IMPRESSIONS", "10_000_000"))
ROWS_PER_SEARCH = 9.4
BAR = 300_000.0  # rows a second
MEMORY = 4096.0  # MB
FLAT = 0.7  # the peak of a quarter of the rows is at least this share of the peak
LIMIT = """
import sys, duckdb
files, into = sys.argv[1:]
connection = duckdb.connect(config={"threads": 2, "memory_limit": "2GB", "preserve_insertion_order": False})
connection.execute(
    f"COPY (SELECT *, time::DATE AS day FROM read_json('{files}', format='newline_delimited', ignore_errors=true, "
    "columns={event_id: 'VARCHAR', time: 'TIMESTAMP', search_id: 'VARCHAR', query_id: 'VARCHAR', query: 'VARCHAR', "
    "document_id: 'VARCHAR', position: 'INTEGER', click: 'BOOLEAN', display_ms: 'BIGINT', dwell_ms: 'BIGINT', "
    "page_skipped: 'BOOLEAN', user_id: 'VARCHAR', agent: 'VARCHAR', ranker: 'VARCHAR', randomised: 'BOOLEAN'}) "
    f"WHERE time < TIMESTAMP '2030-01-01') TO '{into}' (FORMAT parquet, PARTITION_BY (day), COMPRESSION zstd)"
)
"""


def run() -> list[Result]:
    """Rows a second of both, and the peak of memory of ours, of the log and of one with a quarter of its rows."""
    with tempfile.TemporaryDirectory(prefix="clickprism-bench-") as scratch:
        _, _, _, small = _ingest(Path(scratch, "small"), IMPRESSIONS // 4)
        rows, seconds, processor, megabytes = _ingest(Path(scratch, "whole"), IMPRESSIONS)
        files = Path(scratch, "whole", "raw", "events", "*.jsonl")
        _, limit, _, _ = _measured(["-c", LIMIT, str(files), str(Path(scratch, "parquet"))])
    ours = rows / seconds
    return [
        Result(f"ingest {rows / 1e6:.1f} M rows of JSON lines", ours, BAR, 1, "rows/s; limit: the bar of the issue"),
        Result("CPU of ingest: DuckDB's bare parse and write", processor, limit, 0.7, "s", higher_is_better=False),
        Result("peak memory of ingest", megabytes, MEMORY, 1, "MB", higher_is_better=False),
        Result("the same against a quarter of the rows", megabytes, small, FLAT, "MB", higher_is_better=False),
    ]


def _ingest(folder: Path, impressions: int) -> tuple[int, float, float, float]:
    """Rows, seconds, CPU seconds and MB of an ingest of a new log; what it says must be what was written."""
    searches = max(1, int(impressions / ROWS_PER_SEARCH))
    log = ["--out", str(folder / "raw"), "--searches", str(searches), "--compress", "none", "--json", "--quiet"]
    account = json.loads(_measured(["-m", "clickprism", "log", "simulate", *log])[3])["account"]
    words = [str(folder / "raw" / "events"), "--into", str(folder / "log"), "--json", "--quiet"]
    seconds, processor, megabytes, said = _measured(["-m", "clickprism", "log", "ingest", *words])
    found = json.loads(said)
    counts = {"in": found["rows_in"], "accepted": found["accepted"], "duplicate": found["duplicate"]}
    counts |= {name: sum(found[name].values()) for name in ("filtered", "quarantined")}
    if counts != account:
        raise RuntimeError(f"the account is {found}, and {account} was written")
    return account["in"], seconds, processor, megabytes


def _measured(words: list[str]) -> tuple[float, float, float, str]:
    """Run a process of Python: its wall time and CPU time in seconds, its peak memory in MB, and what it printed."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    said = process.stdout.read() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words[:3]} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said
