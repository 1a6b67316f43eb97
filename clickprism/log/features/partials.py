"""Daily partials: what the windows need of a day's sessions, as integer sums that can be added up.

A partial holds a row for each (query, document, position) of a day. A week or a month is a sum of partials and never
reads a row of the log; only the day window, which is cut at hours, is computed from session rows by the same function.
Session rows that a robot rule excludes do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import ibis
import pyarrow as pa
from ibis.expr import datatypes, operations

from clickprism.log.engines.base import by_rows
from clickprism.log.schema import BEHAVIOUR, BIN_EDGES_MS, EXAMINATION_UNIT, PARTIALS, SESSIONS
from clickprism.log.table import by_day, writing

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

PAIR: Final = ("query_id", "document_id")
EXAMINATION: Final = ("examination", "examination_clicked", "examination_squared")
LAYOUT: Final = 3
"""Increased when what a partial or a window holds changes, so that old ones are rebuilt."""


class Examiner(Protocol):
    """An estimator of examination, such as a model of `clickprism.examination`."""

    @property
    def fingerprint(self) -> str:
        """An id that changes whenever an estimate may."""

    def estimate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows (columns `BEHAVIOUR`) with `examination`, an int64 in units of 2^-20."""


def total(column: Any) -> Any:
    """Return a sum that is an int64 on every engine; nothing sums to 0."""
    return operations.Cast(column.sum().fill_null(0), to=datatypes.int64).to_expr()


def partial_rows(sessions: Any, *, cells: Any = None, by: Sequence[str] = (*PAIR, "position")) -> Any:
    """Return sums of session rows by the columns `by`: the columns of `PARTIALS` but `day`.

    `cells` are the estimates of `examined_cells`; None leaves the examination null.
    """
    rows = counting(sessions)
    if cells is not None:
        squared = (cells.examination * cells.examination) // EXAMINATION_UNIT
        rows = rows.inner_join(cells.mutate(squared=squared.cast("int64")), list(BEHAVIOUR))
    examination = dict.fromkeys(EXAMINATION, ibis.null("int64"))
    if cells is not None:
        columns = rows.examination, ibis.ifelse(rows.clicked, rows.examination, 0), rows.squared
        examination = dict(zip(EXAMINATION, map(total, columns), strict=True))
    rows = rows.mutate(dwell_bin=_bin(rows.dwell_ms), display_bin=_bin(rows.display_ms))
    sums = {
        "impressions": rows.count(),
        "clicks": total(rows.clicks),
        "clicked": rows.count(where=rows.clicked),
        **examination,
        "dwell_ms": total(rows.dwell_ms),
        "dwells": rows.dwell_ms.count(),
        "display_ms": total(rows.display_ms),
        "displays": rows.display_ms.count(),
        "displayed": rows.count(where=rows.display_ms > 0),
        "skips": rows.count(where=rows.page_skipped),
        "last_click": rows.last_click.max(),
    }
    for name in ("dwell", "display"):
        for index in range(len(BIN_EDGES_MS) + 1):
            sums[f"{name}_hist_{index}"] = rows.count(where=rows[f"{name}_bin"] == index)
    return rows.group_by(list(by)).aggregate(**sums)


def _bin(column: Any) -> Any:
    """Return how many edges a value has reached, 0 to 7; -1 without a value."""
    below = [(column < edge, index) for index, edge in enumerate(BIN_EDGES_MS)]
    return ibis.cases(*below, (column >= BIN_EDGES_MS[-1], len(BIN_EDGES_MS)), else_=-1).cast("int32")


def counting(sessions: Any) -> Any:
    """Return the session rows that no robot rule excludes."""
    return sessions.filter(sessions["filter"].isnull())


def examined_cells(sessions: Any, *, engine: Engine, examiner: Examiner | None) -> Any:
    """Return the estimates of the distinct rows of features, of which any log has few; None without a model."""
    if examiner is None:
        return None
    columns = [SESSIONS.field(name) for name in BEHAVIOUR]
    schema = pa.schema([*columns, pa.field("examination", pa.int64())])
    distinct = engine.collect(counting(sessions).select(*BEHAVIOUR).distinct())
    cells = [examiner.estimate(batch).select(schema.names).cast(schema) for batch in distinct.to_batches()]
    return engine.memory(pa.Table.from_batches(cells, schema))


def update_partials(
    store: LogStore, engine: Engine, *, days: Iterable[date], examiner: Examiner | None = None
) -> list[date]:
    """Rebuild the partials of each day whose sessions or model have changed; return the rebuilt days.

    Days without sessions lose their partials.
    """
    sessions, partials = store.table("sessions"), store.table("partials")
    files, present = by_day(sessions.files()), by_day(partials.files())
    stems = {day: partial_fingerprint(files.get(day, ()), examiner) for day in days}
    gone = [day for day in stems if day in present and day not in files]
    stale = sorted(day for day in stems if day in files and not fresh(present.get(day, ()), stems[day]))

    def rows(days: Sequence[date]) -> Any:
        return engine.read([file for day in days for file in files[day]], SESSIONS)

    cells = examined_cells(rows(stale), engine=engine, examiner=examiner if stale else None)
    for together in by_rows(sessions.rows_of(stale), most=engine.commit_rows):
        made = partial_rows(rows(together), cells=cells, by=(*PAIR, "position", "day"))
        some = {day: stems[day] for day in together}
        with writing(partials.folder):
            added = engine.write_days(made.select(*PARTIALS.names), partials.folder, stems=some)
        partials.commit_files(added, remove_days=added)
    if gone:
        partials.commit_files({}, remove_days=gone)
    return sorted({*stale, *gone})


def fresh(files: Iterable[str], stem: str) -> bool:
    """Return whether there are files, all made from the inputs of this fingerprint."""
    names = [Path(file).name for file in files]
    return bool(names) and all(name.startswith(f"{stem}-") for name in names)


def partial_fingerprint(files: Sequence[str], examiner: Examiner | None) -> str:
    """Return the fingerprint of what the partials of a day depend on: its sessions and the model."""
    return fingerprint(sorted(Path(file).name for file in files), None if examiner is None else examiner.fingerprint)


def fingerprint(*inputs: object) -> str:
    """Return an id of some inputs, 16 letters."""
    return hashlib.sha256(json.dumps([LAYOUT, *inputs], sort_keys=True).encode()).hexdigest()[:16]
