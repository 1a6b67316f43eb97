"""Quarantine: the rows that an ingest rejected. They can be shown, written to a file to be repaired, and cleared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError
from clickprism.log.read.inputs import FORMATS, extension
from clickprism.log.read.validate import shown
from clickprism.log.schema import QUARANTINE
from clickprism.log.settings import RowFilter
from clickprism.log.store import LogStore
from clickprism.log.table import sweep, writing

_BATCH: Final = 10_000
CUT: Final = ("too-long", "unreadable")
"""What is kept of rows with these reasons is not the row."""


@dataclass(frozen=True)
class Reason:
    """Why rows were rejected: how many, and of the first one its file, line, field, value and the start of its text."""

    code: str
    rows: int
    file: str
    line: int
    field: str | None
    value: str | None
    raw: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where the rows are that were ever quarantined: `quarantined = standing + cleared + forgotten`.

    Attributes:
        quarantined: Number of rows that `ingest` has put into quarantine.
        standing: Number of rows that are in quarantine now.
        cleared: Number of rows that were cleared.
        forgotten: Number of rows that were erased with their users.
    """

    quarantined: int
    standing: int
    cleared: int
    forgotten: int


@dataclass(frozen=True, kw_only=True)
class QuarantineReport:
    """What is in quarantine, and what was done with it.

    Attributes:
        rows: Number of rows that match the filter.
        reasons: Why they were rejected, with an example each.
        written: Number of rows written to a file.
        cut: Number of rows that could not be written, because they are kept in part only.
        cleared_now: Number of rows cleared now.
        total: Where all rows of this log are that were ever quarantined.
    """

    rows: int
    reasons: tuple[Reason, ...]
    written: int
    cut: int
    cleared_now: int
    total: Standing

    def tables(self) -> list[Table]:
        """Return one row for each reason, and where all rows are."""
        reasons = [
            [
                f"{each.rows:,}",
                each.code,
                "-" if each.field is None else each.field if each.value is None else f"{each.field} is '{each.value}'",
                f"{shown(Path(each.file).name)}:{each.line}",
                shown(each.raw),
            ]
            for each in self.reasons
        ]
        total = [[name, f"{count:,}"] for name, count in asdict(self.total).items()]
        names = {"quarantined": "quarantined so far", "standing": "in quarantine now", "forgotten": "erased with users"}
        if not reasons:
            return [Table("", ["quarantine"], [["No rows are in quarantine."]])]
        return [
            Table("", ["rows", "reason", "field", "first example", "its content"], reasons),
            Table("", ["all rows of this log", "count"], [[names.get(name, name), count] for name, count in total]),
        ]


def examine_quarantine(
    store: LogStore, which: RowFilter | None = None, *, out: Path | None = None, clear_rows: bool = False
) -> QuarantineReport:
    """Report the rows in quarantine, write them to a file, and clear them.

    Args:
        store: the log.
        which: which rows; None: all.
        out: file for the content of the rows, to be repaired and ingested; None writes none.
        clear_rows: take the rows out of quarantine; with `out`, those that were written.
    """
    found = tuple(reasons(store, which))
    count = sum(each.rows for each in found)
    written = 0 if out is None else write_raw(store, out, which)
    return QuarantineReport(
        rows=count,
        reasons=found,
        written=written,
        cut=0 if out is None else count - written,
        cleared_now=clear(store, which, whole=out is not None) if clear_rows else 0,
        total=standing(store),
    )


def reasons(store: LogStore, which: RowFilter | None = None) -> list[Reason]:
    """Return why rows were rejected, the most frequent reason first."""
    found: dict[str, Reason] = {}
    for _, table in _matching(store, which):
        for each in table["reason"].value_counts():
            text, count = str(each["values"]), each["counts"].as_py()
            before = found.get(text)
            first = before or _first(table, text)
            rows = count + (0 if before is None else before.rows)
            found[text] = Reason(text, rows, first.file, first.line, first.field, first.value, first.raw)
    return sorted(found.values(), key=lambda reason: (-reason.rows, reason.code))


def standing(store: LogStore) -> Standing:
    """Return where the rows are that were ever quarantined."""
    ever = pc.sum(store.table("files").read(["quarantined"])["quarantined"]).as_py() or 0
    table = store.table("quarantine").read(["cleared_at"])
    there, cleared = len(table), len(table) - table["cleared_at"].null_count
    return Standing(
        quarantined=max(ever, there), standing=there - cleared, cleared=cleared, forgotten=max(0, ever - there)
    )


def write_raw(store: LogStore, out: Path, which: RowFilter | None = None) -> int:
    """Write the rows that are kept completely to a file, to be repaired and ingested; return their number.

    Rows of a CSV file are written below its header.
    """
    header, count = _header(store, out, which), 0
    with writing(out), atomic_file(out) as draft, draft.open("wb") as handle:
        handle.write(header.encode() + b"\n" if header else b"")
        for _, rows in _matching(store, which, columns=["raw"], whole=True):
            handle.writelines(line.removesuffix(b"\n") + b"\n" for line in rows["raw"].to_pylist())
            count += len(rows)
    return count


def clear(
    store: LogStore,
    which: RowFilter | None = None,
    *,
    whole: bool = False,
    file_ids: Collection[str] | None = None,
) -> int:
    """Mark rows as cleared and delete their content, in one commit; return their number.

    They stay in the table with file, line, reason and field, so that every row is still accounted for.

    Args:
        store: the log.
        which: which rows; None: all.
        whole: only rows that are kept completely.
        file_ids: only rows of these input files, by their ids in the table `files`; None: of all.
    """
    ids = None if file_ids is None else pa.array(sorted(file_ids), pa.string())
    now = pa.scalar(datetime.now(UTC).replace(tzinfo=None), QUARANTINE.field("cleared_at").type)
    with store.lock(), store.staging() as temp:
        counts: Counter[str] = Counter()
        for file, rows in _matching(store, which, columns=["line", "file_id"], whole=whole):
            counts[file] += len(rows) if ids is None else pc.sum(pc.is_in(rows["file_id"], ids)).as_py() or 0
        added, old = [], [file for file, count in counts.items() if count]
        with writing(store.folder):
            for file in old:
                added.append(temp / f"{uuid4().hex}.parquet")
                with pq.ParquetFile(file) as opened, pq.ParquetWriter(added[-1], QUARANTINE, compression="zstd") as to:
                    for batch in opened.iter_batches(_BATCH):
                        match = _among(which or RowFilter(), batch, whole=whole)
                        if ids is not None:
                            match = pc.and_(match, pc.is_in(batch.column("file_id"), ids))
                        to.write_batch(_cleared(batch, match, now))
        if old:
            store.table("quarantine").commit_files({None: added}, remove=old)
        sweep(store.table("quarantine"))
    return counts.total()


def _among(which: RowFilter, batch: pa.RecordBatch, *, whole: bool) -> pa.Array:
    """Return which rows of a batch match the filter and are not cleared, [rows]; `whole`: only if kept completely."""
    match = batch.column("cleared_at").is_null()
    if which.file is not None:
        names = [name for name in batch.column("file").unique().to_pylist() if _matches(name, which.file)]
        match = pc.and_(match, pc.is_in(batch.column("file"), pa.array(names, pa.string())))
    if which.reason is not None:
        match = pc.and_(match, pc.starts_with(batch.column("reason"), f"{which.reason}:"))
    for code in CUT if whole else ():
        match = pc.and_not(match, pc.starts_with(batch.column("reason"), f"{code}:"))
    return match


def _matches(name: str, pattern: str) -> bool:
    return any(each == pattern or fnmatchcase(each, pattern) for each in (name, Path(name).name))


def _cleared(batch: pa.RecordBatch, meant: pa.Array, now: pa.Scalar) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in QUARANTINE.names}
    columns["raw"] = pc.if_else(meant, pa.scalar(b"", QUARANTINE.field("raw").type), columns["raw"])
    columns["value"] = pc.if_else(meant, pa.scalar(None, pa.string()), columns["value"])
    columns["cleared_at"] = pc.if_else(meant, now, columns["cleared_at"])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=QUARANTINE)


def _matching(
    store: LogStore, which: RowFilter | None, *, columns: Sequence[str] = QUARANTINE.names, whole: bool = False
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows that match, some at a time, with the file of the table that they are in."""
    read = [*dict.fromkeys([*columns, "file", "reason", "cleared_at"])]
    for file in store.table("quarantine").files():
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_BATCH, columns=read):
                match = _among(which or RowFilter(), batch, whole=whole)
                yield file, pa.Table.from_batches([batch]).filter(match).select(list(columns))


def _first(table: pa.Table, text: str) -> Reason:
    row = table.slice(pc.index(table["reason"], text).as_py(), 1).to_pylist()[0]
    value = None if row["value"] is None else shown(row["value"])
    raw = shown(row["raw"][:640].decode("utf-8", "backslashreplace"), most=160)
    return Reason(text, 0, row["file"], row["line"], row["field"], value, raw)


def _header(store: LogStore, out: Path, which: RowFilter | None) -> str:
    """Return the first line of the file to write; an error if its rows do not fit in one file of this name."""
    found: dict[str | None, str] = {}
    for _, table in _matching(store, which, columns=["header", "file"], whole=True):
        for pair in table.group_by("header", use_threads=False).aggregate([("file", "min")]).to_pylist():
            found.setdefault(pair["header"], pair["file_min"])
    if len(found) > 1:
        files = " and ".join(shown(Path(name).name) for name in [*found.values()][:2])
        raise DataError(
            f"rows of {files} do not fit in one file", file=out, remedy="Choose one of them with --file NAME"
        )
    header = next(iter(found), None)
    form, ends = ("json", ".jsonl") if header is None else ("csv", ".csv")
    if found and FORMATS.get(extension(out)) != form:
        raise SettingError("out", str(out), f"end in {ends}, because the rows are {form.upper()}")
    return header or ""
