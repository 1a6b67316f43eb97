"""Compaction: the small files of a day of `events` are merged into one; data that is too old is deleted.

`ingest` does it by itself for the days it touched; `clickprism log compact` for all days. Nothing derived is rebuilt
for it: the fingerprint of sessions uses a sum over the files of a day (`table.files_id`), and the name of a merged file
contains that of the files in it. Each day is one commit, so a killed run has merged some days and not the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.crash_points import crash_point
from clickprism._util.files import sync
from clickprism._util.tables import Table
from clickprism.log.features.schedule import Clock, now
from clickprism.log.features.snapshots import find_snapshots
from clickprism.log.ingest.stage import GROUP_ROWS, event_writer, row_groups
from clickprism.log.quarantine import clear
from clickprism.log.settings import CompactSettings
from clickprism.log.table import SUM, files_id, writing

if TYPE_CHECKING:
    from clickprism.log.store import LogStore


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What `compact` did.

    Attributes:
        days: Days whose files were merged.
        files_before: Number of files of these days before.
        rows: Number of rows in these files.
        expired_days: Days of events that were deleted because they were older than keep_days.
        expired_rows: Number of rows of these events.
        expired_quarantined: Number of rows in quarantine whose content was deleted for the same reason.
        expired_snapshots: Number of snapshots of click features that were deleted for the same reason.
    """

    days: tuple[date, ...]
    files_before: int
    rows: int
    expired_days: tuple[date, ...] = ()
    expired_rows: int = 0
    expired_quarantined: int = 0
    expired_snapshots: int = 0

    def tables(self) -> list[Table]:
        """Return the number of days, files and rows that were merged, and what expired."""
        merged = {
            "days": len(self.days),
            "files before": self.files_before,
            "files now": len(self.days),
            "rows": self.rows,
        }
        expired = {
            "days of events": len(self.expired_days),
            "rows of events": self.expired_rows,
            "rows in quarantine": self.expired_quarantined,
            "snapshots of click features": self.expired_snapshots,
        }
        tables = [Table("", ["merged", "count"], [[name, f"{count:,}"] for name, count in merged.items()])]
        if any(expired.values()):
            tables.append(Table("", ["expired", ""], [[name, f"{count:,}"] for name, count in expired.items()]))
        return tables


def compact(
    store: LogStore,
    settings: CompactSettings | None = None,
    *,
    small: int | None = None,
    days: Iterable[date] | None = None,
    clock: Clock = now,
) -> Compacted:
    """Merge the files of each day of `events` that has too many, and delete what is older than `keep_days`.

    The files that were replaced stay on disk for `windows.keep_hours`, for processes that read them; the next
    compaction, or an erasure, deletes them. What has expired is deleted at once.

    Args:
        store: the log.
        settings: the maximum number of files of a day, and the number of days to keep.
        small: only files with fewer rows count and are merged; None: all.
        days: the days to look at; None: all.
        clock: the time now, UTC without a zone.
    """
    settings = settings or CompactSettings()
    done: dict[date, dict[str, int]] = {}
    with store.lock():
        expired = _expire(store, clock() - timedelta(days=settings.keep_days)) if settings.keep_days else {}
        events = store.table("events")
        for day, rows in sorted(events.file_rows(days).items()):
            some = {file: count for file, count in rows.items() if small is None or count < small}
            if len(some) <= settings.files:
                continue
            with writing(events.folder):
                path = events.day_folder(day) / f"{SUM}-{files_id(some)}-{uuid4().hex}.parquet"
                with event_writer(path) as writer:
                    for rows_of_group in row_groups(_tables(some, writer.schema)):
                        writer.write_table(rows_of_group)
            crash_point("compact-written")
            events.commit_files({day: [path]}, remove=some)
            crash_point("compact-committed")
            done[day] = some
        if done or days is None:
            events.vacuum(hours=store.settings.windows.keep_hours)
    return Compacted(
        days=tuple(done),
        files_before=sum(map(len, done.values())),
        rows=sum(sum(rows.values()) for rows in done.values()),
        **expired,
    )


def _expire(store: LogStore, limit: datetime) -> dict[str, Any]:
    """Delete what is older than a time: days of events and of what is derived from them, quarantine, snapshots."""
    events, snapshots = store.table("events"), store.table("snapshots")
    old = [day for day in events.days() if day < limit.date()]
    rows = sum(events.rows_of(old).values())
    files = store.table("files").read(["file_id", "ingested_at"])
    ids = files.filter(pc.less(files["ingested_at"], pa.scalar(limit, files["ingested_at"].type)))["file_id"]
    cleared = clear(store, file_ids=ids.to_pylist()) if len(ids) else 0
    for name in ("events", "sessions", "partials", "week", "month"):
        table = store.table(name)
        if gone := [day for day in table.days() if day < limit.date()]:
            table.commit_files({}, remove_days=gone)
            table.sweep()
    late = [each for each in find_snapshots(store) if each.as_of < limit and each.kept and each.files]
    names = {file for each in late for file in each.files}
    if leaving := names & {*snapshots.files()}:
        snapshots.commit_files({}, remove=leaving)
    for file in names:
        Path(file).unlink(missing_ok=True)
    if names:
        sync(snapshots.folder)
    counts = {"expired_rows": rows, "expired_quarantined": cleared, "expired_snapshots": len(late)}
    return {"expired_days": tuple(old), **counts}


def _tables(files: Iterable[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of files, cast one by one: older files may differ in which columns can be null."""
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(GROUP_ROWS, columns=schema.names, use_threads=False):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
