"""Daily partials: all that the windows need of a day's sessions, as integer sums that can be added up.

A partial holds a row for each (query, document, position) of a day. Sums over days are sums of partials, so a week or
a month never reads a row of the log; only the day window, which is cut at hours, is made of session rows by the same
function. Session rows that a robot rule leaves out do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import ibis
import pyarrow as pa
from ibis.expr import datatypes, operations

from clickprism.log.engines.base import by_rows
from clickprism.log.schema import BEHAVIOUR, EXAMINATION_UNIT, PARTIALS, SESSIONS
from clickprism.log.sessions import by_day
from clickprism.log.settings import EDGES, WindowSettings
from clickprism.log.table import writing

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

PAIR: Final = ("query_id", "document_id")
EXAMINATION: Final = ("examination", "examination_clicked", "examination_squared")
LAYOUT: Final = 3
"""Raised when what a partial or a window holds changes, so that old ones are made anew."""


class Examiner(Protocol):
    """What estimates examination: a model of `clickprism.examination`, or anything like it."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever an estimate may."""

    def estimate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows (the columns `BEHAVIOUR`) with `examination`, an int64 in units of 2^-20."""


def total(column: Any) -> Any:
    """A sum that is an int64 on every engine; nothing sums to 0."""
    return operations.Cast(column.sum().fill_null(0), to=datatypes.int64).to_expr()


def partial_rows(
    sessions: Any, *, settings: WindowSettings, cells: Any = None, by: Sequence[str] = (*PAIR, "position")
) -> Any:
    """Sums of session rows, by default by query, document and position: the columns `PARTIALS` but `day`.

    Args:
        sessions: an ibis table with the columns `SESSIONS`.
        settings: the edges of the histograms.
        cells: the estimates of examination, from `examined_cells`; None leaves `examination` null.
        by: the columns that tell the sums apart.
    """
    rows = counting(sessions)
    if cells is not None:
        squared = (cells.examination * cells.examination) // EXAMINATION_UNIT
        rows = rows.inner_join(cells.mutate(squared=squared.cast("int64")), list(BEHAVIOUR))
    rows = rows.mutate(
        dwell_bin=_bin(rows.dwell_ms, settings.dwell_edges_ms),
        display_bin=_bin(rows.display_ms, settings.display_edges_ms),
    )
    sums = {
        "impressions": rows.count(),
        "clicks": total(rows.clicks),
        "clicked": rows.count(where=rows.clicked),
        **_examination(rows, examined=cells is not None),
        "dwell_ms": total(rows.dwell_ms),
        "dwells": rows.dwell_ms.count(),
        "display_ms": total(rows.display_ms),
        "displays": rows.display_ms.count(),
        "displayed": rows.count(where=rows.display_ms > 0),
        "skips": rows.count(where=rows.page_skipped),
        "last_click": rows.last_click.max(),
    }
    for name in ("dwell", "display"):
        for index in range(EDGES + 1):
            sums[f"{name}_hist_{index}"] = rows.count(where=rows[f"{name}_bin"] == index)
    return rows.group_by(list(by)).aggregate(**sums)


def _examination(rows: Any, *, examined: bool) -> dict[str, Any]:
    """The sums of the estimates, of those of clicked rows and of the squares, each square cut to whole units."""
    if not examined:
        return dict.fromkeys(EXAMINATION, ibis.null("int64"))
    clicked = ibis.ifelse(rows.clicked, rows.examination, 0)
    return dict(zip(EXAMINATION, (total(rows.examination), total(clicked), total(rows.squared)), strict=True))


def _bin(column: Any, edges: Sequence[int]) -> Any:
    """How many edges a value has reached, 0 to 7; -1 without a value."""
    below = [(column < edge, index) for index, edge in enumerate(edges)]
    return ibis.cases(*below, (column >= edges[-1], len(edges)), else_=-1).cast("int32")


def counting(sessions: Any) -> Any:
    """The session rows that no robot rule leaves out."""
    return sessions.filter(sessions["filter"].isnull())


@contextmanager
def examined_cells(sessions: Any, *, engine: Engine, examiner: Examiner | None) -> Iterator[Any]:
    """Estimates for the distinct rows of features: (*BEHAVIOUR, examination). There are few, in a log of any size.

    They are worked out once, and held until the end; None without an examiner.
    """
    if examiner is None:
        yield None
        return
    columns = [SESSIONS.field(name) for name in BEHAVIOUR]
    schema = pa.schema([*columns, pa.field("examination", pa.int64())])
    distinct = counting(sessions).select(*BEHAVIOUR).distinct()
    with engine.held(engine.map_batches(distinct, examiner.estimate, schema)) as cells:
        yield cells


def update_partials(
    store: LogStore,
    engine: Engine,
    *,
    days: Iterable[date],
    settings: WindowSettings | None = None,
    examiner: Examiner | None = None,
) -> list[date]:
    """Make the partials of these days anew where the sessions, the model or the edges have changed.

    Returns:
        The days that were made anew. Days without sessions lose their partials.
    """
    settings = store.settings.windows if settings is None else settings
    sessions, partials = store.table("sessions"), store.table("partials")
    files, present = by_day(sessions.files()), by_day(partials.files())
    stems = {day: partial_fingerprint(files.get(day, ()), settings=settings, examiner=examiner) for day in days}
    gone = [day for day in stems if day in present and day not in files]
    stale = sorted(day for day in stems if day in files and not fresh(present.get(day, ()), stems[day]))

    def rows(days: Sequence[date]) -> Any:
        return engine.read([file for day in days for file in files[day]], SESSIONS)

    with examined_cells(rows(stale), engine=engine, examiner=examiner if stale else None) as cells:
        for together in by_rows(sessions.rows_of(stale), most=engine.commit_rows):
            made = partial_rows(rows(together), settings=settings, cells=cells, by=(*PAIR, "position", "day"))
            some = {day: stems[day] for day in together}
            with writing(partials.folder):
                added = engine.write_days(made.select(*PARTIALS.names), partials.folder, stems=some)
            partials.commit_files(added, remove_days=added)
    if gone:
        partials.commit_files({}, remove_days=gone)
    return sorted({*stale, *gone})


def fresh(files: Iterable[str], stem: str) -> bool:
    """Whether there are files, made of what this fingerprint names."""
    names = [Path(file).name for file in files]
    return bool(names) and all(name.startswith(f"{stem}-") for name in names)


def partial_fingerprint(files: Sequence[str], *, settings: WindowSettings, examiner: Examiner | None) -> str:
    """What the partials of a day are a function of, as a name: the sessions of the day, the model, the edges."""
    return fingerprint(
        sorted(Path(file).name for file in files),
        None if examiner is None else examiner.fingerprint,
        settings.dwell_edges_ms,
        settings.display_edges_ms,
    )


def fingerprint(*inputs: object) -> str:
    """The same name for the same inputs, 16 letters.

    >>> fingerprint(["a"], 1) == fingerprint(["a"], 1), fingerprint(["a"]) == fingerprint(["b"])
    (True, False)
    """
    return hashlib.sha256(json.dumps([LAYOUT, *inputs], sort_keys=True).encode()).hexdigest()[:16]
