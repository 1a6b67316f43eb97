"""What became of the rows of an input file: a function of the tables of a log, so the same whenever it is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.errors import DataError
from clickprism.log.read import read_chunks
from clickprism.log.schema import TABLES, conform
from clickprism.log.store import LogStore

_TABLES: Final = ("files", "quarantine", "events")


@final
@dataclass(frozen=True)
class Outcome:
    """The lines of one input file, by what became of them; all others are duplicates.

    Attributes:
        stored: they count, if no robot rule leaves them out.
        broken: they are in quarantine, each with its reason.
        events: all lines but those of no kind that a log has; None if there are none such.
    """

    stored: frozenset[int]
    broken: Mapping[int, str]
    events: frozenset[int] | None


def known_files(store: LogStore) -> dict[str, frozenset[str]]:
    """The files of the tables as they are now: what `outcomes` need not look at for input that came later."""
    return {name: frozenset(store.table(name).files()) for name in _TABLES}


def outcomes(
    store: LogStore, inputs: Mapping[str, Path], *, before: Mapping[str, Collection[str]] | None = None
) -> dict[str, Outcome]:
    """What became of the rows of input files, by file id.

    Args:
        store: a log that has them.
        inputs: the files, by file id; they are read again only where the tables do not tell enough.
        before: `known_files` before they were ingested, so that only what is new is looked at first.
    """
    known = before or dict.fromkeys(_TABLES, ())
    told = _rows(store, "files", inputs, known, ["stored", "quarantined", "ignored"])
    late = [file_id for file_id in inputs if file_id not in told]
    told |= _rows(store, "files", late, {"files": ()}, ["stored", "quarantined", "ignored"]) if late else {}
    missing = [path for file_id, path in inputs.items() if file_id not in told]
    if missing:
        raise DataError("is not in the log", file=missing[0], remedy="Ingest it first")
    counts = {
        file_id: {name: int(rows[name][0].as_py()) for name in rows.column_names} for file_id, rows in told.items()
    }
    broken = _rows(store, "quarantine", _with(counts, "quarantined"), known, ["line", "reason"])
    stored = _rows(store, "events", _with(counts, "stored"), known, ["line"])
    made = {}
    for file_id, path in inputs.items():
        of_file = counts[file_id]
        bad = _reasons(broken.get(file_id))
        if len(bad) != of_file["quarantined"]:
            bad = _reasons(_rows(store, "quarantine", [file_id], {}, ["line", "reason"]).get(file_id))
        good = _lines(stored.get(file_id))
        if len(good) != of_file["stored"]:
            good = _lines(_rows(store, "events", [file_id], {}, ["line"]).get(file_id))
        made[file_id] = Outcome(good, bad, _events(store, path) if of_file["ignored"] else None)
    return made


def _with(counts: Mapping[str, Mapping[str, int]], name: str) -> list[str]:
    return [file_id for file_id, of_file in counts.items() if of_file[name]]


def _rows(
    store: LogStore, table: str, ids: Iterable[str], before: Mapping[str, Collection[str]], columns: list[str]
) -> dict[str, pa.Table]:
    """Columns of the rows of some input files, by file id."""
    wanted = pa.array([*ids], pa.string())
    files = [file for file in store.table(table).files() if file not in before.get(table, ())] if len(wanted) else []
    if not files:
        return {}
    schema = pa.schema([TABLES[table].field(name) for name in ("file_id", *columns)])
    parts = [pq.read_table(file, columns=schema.names, partitioning=None) for file in files]
    rows = pa.concat_tables([conform(part, schema, what=table) for part in parts])
    rows = rows.filter(pc.is_in(rows["file_id"], wanted))
    found = pc.unique(rows["file_id"]).to_pylist()
    return {file_id: rows.filter(pc.equal(rows["file_id"], file_id)).select(columns) for file_id in found}


def _lines(rows: pa.Table | None) -> frozenset[int]:
    return frozenset() if rows is None else frozenset(rows["line"].to_pylist())


def _reasons(rows: pa.Table | None) -> dict[int, str]:
    return {} if rows is None else dict(zip(rows["line"].to_pylist(), rows["reason"].to_pylist(), strict=True))


def _events(store: LogStore, path: Path) -> frozenset[int]:
    """The lines that are good or bad."""
    chunks = read_chunks(path, store.settings.source)
    return frozenset(line for chunk in chunks for part in (chunk.good, chunk.bad) for line in part["line"].to_pylist())
