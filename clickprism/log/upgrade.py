"""Logs of version 0.1: their events have another key, and rows with the key of another row (`variant`)."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.log.ingest.stage import GROUP_ROWS, event_writer, keys
from clickprism.log.schema import ROW
from clickprism.log.sessions import by_day
from clickprism.log.table import sweep, writing

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

OLD: Final = "variant"
"""A column that only logs of version 0.1 have."""


def is_old(store: LogStore) -> bool:
    """Whether the events are those of version 0.1."""
    delta = store.table("events").latest()
    return delta is not None and OLD in [each.name for each in delta.schema().fields]


def upgrade(store: LogStore) -> None:
    """Rewrite all events with the keys of this version, in one commit; of rows with the same key the first stays."""
    events = store.table("events")
    added: dict[date, list[Path]] = {}
    with duckdb.connect() as connection, writing(events.folder):
        for day, files in by_day(events.files()).items():
            for file in files:
                path = events.day_folder(day) / f"{uuid4().hex}.parquet"
                with pq.ParquetFile(file) as opened, event_writer(path) as writer:
                    for batch in opened.iter_batches(GROUP_ROWS, use_threads=False):
                        rows = pa.Table.from_batches([batch])
                        rows = rows.filter(pc.invert(rows[OLD]))
                        key = keys(rows.select(ROW.names), connection) if len(rows) else pa.array([], pa.binary())
                        rows = rows.set_column(rows.schema.get_field_index("key"), "key", key)
                        writer.write_table(rows.select(writer.schema.names).cast(writer.schema))
                added.setdefault(day, []).append(path)
    events.commit_files(added, overwrite=True)
    sweep(events)
