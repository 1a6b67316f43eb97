"""Broken rows that were kept: what they are, their bytes to mend, and how they are cleared once they are mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism.errors import DataError, SettingError
from clickprism.log.readers.chunk import REASONS, shown
from clickprism.log.readers.inputs import FORMATS, extension
from clickprism.log.schema import QUARANTINE
from clickprism.log.store import LogStore
from clickprism.log.table import sweep, writing
from clickprism.settings import suggest

_BATCH: Final = 10_000
CUT: Final = ("too-long", "unreadable")
"""What is kept of rows with these reasons is not the row."""


@dataclass(frozen=True)
class Chosen:
    """Which rows of quarantine are meant, of those that were not cleared; by default all.

    Args:
        file: the path or the name of their input file, or a pattern of it.
        reason: the code of the reason.
        whole: only those whose bytes are kept whole, so that they can be mended.
    """

    file: str | None = None
    reason: str | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise SettingError("--reason", self.reason, f"be the code of a reason ({suggest(self.reason, REASONS)})")

    def among(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows of a batch are meant, [rows]."""
        meant = batch.column("cleared_at").is_null()
        if self.file is not None:
            names = [name for name in batch.column("file").unique().to_pylist() if self._is_of(name)]
            meant = pc.and_(meant, pc.is_in(batch.column("file"), pa.array(names, pa.string())))
        if self.reason is not None:
            meant = pc.and_(meant, pc.starts_with(batch.column("reason"), f"{self.reason}:"))
        for code in CUT if self.whole else ():
            meant = pc.and_not(meant, pc.starts_with(batch.column("reason"), f"{code}:"))
        return meant

    def _is_of(self, name: str) -> bool:
        pattern = self.file or ""
        return any(each == pattern or fnmatchcase(each, pattern) for each in (name, Path(name).name))


@dataclass(frozen=True)
class Reason:
    """Why rows were put aside: how many, and of the first its file, line, field, value and the start of its bytes."""

    code: str
    rows: int
    file: str
    line: int
    field: str | None
    value: str | None
    raw: str


@dataclass(frozen=True)
class Standing:
    """Where the rows are that were ever quarantined: `quarantined = standing + cleared + forgotten`.

    Args:
        quarantined: in all, by the ledger.
        standing: that are there to be mended.
        cleared: that were cleared.
        forgotten: that named a user who was erased.
    """

    quarantined: int
    standing: int
    cleared: int
    forgotten: int


def reasons(store: LogStore, chosen: Chosen | None = None) -> list[Reason]:
    """The reasons in a log's quarantine, the most frequent first."""
    found: dict[str, Reason] = {}
    for _, table in _meant(store, chosen or Chosen()):
        for each in table["reason"].value_counts():
            text, count = str(each["values"]), each["counts"].as_py()
            before = found.get(text)
            first = before or _first(table, text)
            rows = count + (0 if before is None else before.rows)
            found[text] = Reason(text, rows, first.file, first.line, first.field, first.value, first.raw)
    return sorted(found.values(), key=lambda reason: (-reason.rows, reason.code))


def standing(store: LogStore) -> Standing:
    """Where the rows are that were ever quarantined."""
    ever = pc.sum(store.table("files").read(["quarantined"])["quarantined"]).as_py() or 0
    table = store.table("quarantine").read(["cleared_at"])
    there, cleared = len(table), len(table) - table["cleared_at"].null_count
    return Standing(max(ever, there), there - cleared, cleared, max(0, ever - there))


def write_raw(store: LogStore, out: Path, chosen: Chosen | None = None) -> int:
    """Write broken rows that are kept whole to a file to be mended and ingested, those of CSV below their header.

    Returns:
        how many.
    """
    chosen = replace(chosen or Chosen(), whole=True)
    header, count = _header(store, out, chosen), 0
    with writing(out), atomic_file(out) as draft, draft.open("wb") as handle:
        handle.write(header.encode() + b"\n" if header else b"")
        for _, rows in _meant(store, chosen, columns=["raw"]):
            handle.writelines(line.removesuffix(b"\n") + b"\n" for line in rows["raw"].to_pylist())
            count += len(rows)
    return count


def clear(store: LogStore, chosen: Chosen | None = None) -> int:
    """Mark rows as cleared and drop their bytes, in one commit; returns how many.

    They stay in the table with file, line, reason and field, so that what came in is still accounted for.
    """
    now = pa.scalar(datetime.now(UTC).replace(tzinfo=None), QUARANTINE.field("cleared_at").type)
    with store.lock(), store.staging() as temp:
        counts: Counter[str] = Counter()
        for file, rows in _meant(store, chosen or Chosen(), columns=["line"]):
            counts[file] += len(rows)
        added, old = [], [file for file, count in counts.items() if count]
        with writing(store.folder):
            for file in old:
                added.append(temp / f"{uuid4().hex}.parquet")
                with pq.ParquetFile(file) as opened, pq.ParquetWriter(added[-1], QUARANTINE, compression="zstd") as to:
                    for batch in opened.iter_batches(_BATCH):
                        to.write_batch(_cleared(batch, (chosen or Chosen()).among(batch), now))
        if old:
            store.table("quarantine").commit_files({None: added}, remove=old)
        sweep(store.table("quarantine"))
    return counts.total()


def _cleared(batch: pa.RecordBatch, meant: pa.Array, now: pa.Scalar) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in QUARANTINE.names}
    columns["raw"] = pc.if_else(meant, pa.scalar(b"", QUARANTINE.field("raw").type), columns["raw"])
    columns["value"] = pc.if_else(meant, pa.scalar(None, pa.string()), columns["value"])
    columns["cleared_at"] = pc.if_else(meant, now, columns["cleared_at"])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=QUARANTINE)


def _meant(
    store: LogStore, chosen: Chosen, *, columns: Sequence[str] = QUARANTINE.names
) -> Iterator[tuple[str, pa.Table]]:
    """The chosen rows, some at a time, with the file of the table that they are in."""
    read = [*dict.fromkeys([*columns, "file", "reason", "cleared_at"])]
    for file in store.table("quarantine").files():
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_BATCH, columns=read):
                yield file, pa.Table.from_batches([batch]).filter(chosen.among(batch)).select(list(columns))


def _first(table: pa.Table, text: str) -> Reason:
    row = table.slice(pc.index(table["reason"], text).as_py(), 1).to_pylist()[0]
    value = None if row["value"] is None else shown(row["value"])
    raw = shown(row["raw"][:640].decode("utf-8", "backslashreplace"), most=160)
    return Reason(text, 0, row["file"], row["line"], row["field"], value, raw)


def _header(store: LogStore, out: Path, chosen: Chosen) -> str:
    """The first line of the file to write; an error if its rows cannot stand in one file, or not under this name."""
    found: dict[str | None, str] = {}
    for _, table in _meant(store, chosen, columns=["header", "file"]):
        for pair in table.group_by("header", use_threads=False).aggregate([("file", "min")]).to_pylist():
            found.setdefault(pair["header"], pair["file_min"])
    if len(found) > 1:
        files = " and ".join(shown(Path(name).name) for name in [*found.values()][:2])
        raise DataError(f"rows of {files} cannot stand in one file", file=out, remedy="Choose some by --file NAME")
    header = next(iter(found), None)
    form, ends = ("json", ".jsonl") if header is None else ("csv", ".csv")
    if found and FORMATS.get(extension(out)) != form:
        raise SettingError("--out", str(out), f"end in {ends}, as the rows are {form.upper()}, and are read again")
    return header or ""
