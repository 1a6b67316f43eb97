"""Compaction: small files of a day of `events` become one file, with the same rows.

`ingest` does it by itself for the days it touched (`MANY`, `SMALL`); `clickprism log compact` for all days. Nothing
that is derived is made anew for it: what sessions are a function of is told by a sum over the files of a day
(`table.files_id`), and the name of a file that others were put into carries theirs. Each day is one commit, so a run
that is killed has done some days whole and others not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.crash_points import crash_point
from clickprism._util.tables import Table
from clickprism.log.schema import EVENTS
from clickprism.log.settings import CompactSettings
from clickprism.log.staging import GROUP_ROWS, event_writer
from clickprism.log.table import SUM, files_id, writing

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

MANY: Final = 32
"""How many small files a day may have before `ingest` puts them into one."""
SMALL: Final = GROUP_ROWS
"""Files of fewer rows are small."""
_COLUMNS: Final = [name for name in EVENTS.names if name != "day"]


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What `compact` did.

    Attributes:
        days: Days whose files were merged.
        files_before: Number of files of these days before.
        rows: Number of their rows.
    """

    days: tuple[date, ...]
    files_before: int
    rows: int

    def tables(self) -> list[Table]:
        """Return the number of days, files and rows."""
        rows = [["days", f"{len(self.days):,}"], ["files before", f"{self.files_before:,}"]]
        rows += [["files now", f"{len(self.days):,}"], ["rows", f"{self.rows:,}"]]
        return [Table("", ["merged", "count"], rows)]


def compact(
    store: LogStore,
    settings: CompactSettings | None = None,
    *,
    small: int | None = None,
    days: Iterable[date] | None = None,
) -> Compacted:
    """Merge the files of each day of `events` that has too many.

    The files that were replaced stay on disk for `windows.keep_hours`, for processes that read them; the next
    compaction, or an erasure, deletes them.

    Args:
        store: the log.
        settings: the maximum number of files of a day.
        small: only files with fewer rows count and are merged; None: all.
        days: the days to look at; None: all.
    """
    files = (settings or CompactSettings()).files
    done: dict[date, dict[str, int]] = {}
    with store.lock():
        events = store.table("events")
        for day, rows in sorted(events.file_rows(days).items()):
            some = {file: count for file, count in rows.items() if small is None or count < small}
            if len(some) <= files:
                continue
            with writing(events.folder):
                path = events.day_folder(day) / f"{SUM}-{files_id(some)}-{uuid4().hex}.parquet"
                _write(list(some), path)
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
    )


def _write(files: Sequence[str], path: Path) -> None:
    """The rows of files, one file after another, in one; as many are held as a row group has."""
    with event_writer(path) as writer:
        for rows in _row_groups(files):
            writer.write_table(rows.cast(writer.schema))


def _row_groups(files: Sequence[str]) -> Iterator[pa.Table]:
    some: list[pa.RecordBatch] = []
    rows = 0
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(GROUP_ROWS, columns=_COLUMNS, use_threads=False):
                some.append(batch)
                rows += len(batch)
                if rows >= GROUP_ROWS:
                    yield pa.Table.from_batches(some).select(_COLUMNS)
                    some, rows = [], 0
    if some:
        yield pa.Table.from_batches(some).select(_COLUMNS)
