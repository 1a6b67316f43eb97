"""Quarantine: the rows that an ingest rejected. They can be shown, written to a file to be repaired, and cleared."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism._util.files import atomic_file
from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError
from clickprism.log.read.inputs import FORMATS, extension
from clickprism.log.read.rows import shown
from clickprism.log.schema import QUARANTINE, literal
from clickprism.log.settings import RowFilter
from clickprism.log.store import LogStore
from clickprism.log.table import writing

_BATCH: Final = 10_000
CUT: Final = ("too-long", "unreadable")
"""Reasons of rows that are kept in part only."""


@dataclass(frozen=True)
class Reason:
    """Why rows were rejected: how many, and file, line, field, value and start of the text of the first one."""

    code: str
    rows: int
    file: str
    line: int
    field: str | None
    value: str | None
    raw: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Number of rows that were ever quarantined, by state: `quarantined = standing + cleared + forgotten`.

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
        names = {"quarantined": "quarantined so far", "standing": "in quarantine now", "forgotten": "erased with users"}
        total = [[names.get(name, name), f"{count:,}"] for name, count in asdict(self.total).items()]
        rows = []
        for each in self.reasons:
            field = "-" if each.field is None else each.field
            field += "" if each.field is None or each.value is None else f" is '{each.value}'"
            example = f"{shown(Path(each.file).name)}:{each.line}"
            rows.append([f"{each.rows:,}", each.code, field, example, shown(each.raw)])
        if not rows:
            return [Table("", ["quarantine"], [["No rows are in quarantine."]])]
        header = ["rows", "reason", "field", "first example", "its content"]
        return [Table("", header, rows), Table("", ["all rows of this log", "count"], total)]


def examine_quarantine(
    store: LogStore, which: RowFilter | None = None, *, out: Path | None = None, clear_rows: bool = False
) -> QuarantineReport:
    """Report the rows in quarantine, write them to a file, and clear them."""
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
    columns = "code: reason, file: file, line: line, field: field, value: value, raw: raw[:640]"
    first = f"arg_min({{{columns}}}, (filename, file_row_number)) example, count(*) rows"
    with _matching(store, which) as found:
        rows = found.aggregate(first, "reason").fetchall()
    made = []
    for each, count in rows:
        each["value"] = None if each["value"] is None else shown(each["value"])
        each["raw"] = shown(each["raw"].decode("utf-8", "backslashreplace"), most=160)
        made.append(Reason(rows=count, **each))
    return sorted(made, key=lambda reason: (-reason.rows, reason.code))


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
    count = 0
    with _matching(store, which, whole=True) as found:
        header = _header(found, out)
        with writing(out), atomic_file(out) as draft, draft.open("wb") as handle:
            handle.write(header.encode() + b"\n" if header else b"")
            for rows in found.select("raw").to_arrow_reader(_BATCH):
                handle.writelines(line.removesuffix(b"\n") + b"\n" for line in rows["raw"].to_pylist())
                count += len(rows)
    return count


def clear(
    store: LogStore, which: RowFilter | None = None, *, whole: bool = False, file_ids: Collection[str] | None = None
) -> int:
    """Mark rows as cleared and delete their content, in one commit; return their number.

    They stay in the table with file, line, reason and field, so that every row is still accounted for. `whole`: only
    rows that are kept completely; `file_ids`: only rows of these input files.
    """
    now = pa.scalar(datetime.now(UTC).replace(tzinfo=None), QUARANTINE.field("cleared_at").type)
    values = {"raw": pa.scalar(b"", pa.large_binary()), "value": pa.scalar(None, pa.string()), "cleared_at": now}
    with store.lock():
        with _matching(store, which, whole=whole, file_ids=file_ids) as found:
            chosen = dict(found.aggregate("filename, list(file_row_number)", "filename").fetchall())

        def without_content(file: str, start: int, batch: pa.RecordBatch) -> pa.RecordBatch:
            match = pa.array(np.isin(np.arange(start, start + len(batch)), chosen[file]))
            for name, value in values.items():
                place = batch.schema.get_field_index(name)
                batch = batch.set_column(place, name, pc.if_else(match, value, batch[name]))
            return batch

        store.table("quarantine").rewrite(chosen, without_content)
        store.table("quarantine").sweep()
    return sum(map(len, chosen.values()))


@contextmanager
def _matching(
    store: LogStore, which: RowFilter | None, *, whole: bool = False, file_ids: Collection[str] | None = None
) -> Iterator[duckdb.DuckDBPyRelation]:
    """Yield the rows that match and are not cleared, with their place: filename and file_row_number."""
    which, files = which or RowFilter(), store.table("quarantine").files()
    with duckdb.connect(config={"threads": 1}) as connection:
        if not files:
            empty = QUARANTINE.empty_table()
            for name in ("filename", "file_row_number"):
                empty = empty.append_column(name, pa.array([], pa.string()))
            yield connection.from_arrow(empty)
            return
        found = connection.read_parquet(files, file_row_number=True, filename=True).filter("cleared_at is null")
        if which.file is not None:
            names = [name for (name,) in found.select("file").distinct().fetchall()]
            named = [name for name in names if any(fnmatchcase(each, which.file) for each in (name, Path(name).name))]
            named += [name for name in names if which.file in (name, Path(name).name)]
            found = found.filter(f"file in ({', '.join(map(literal, ['', *named]))})")
        if which.reason is not None:
            found = found.filter(f"starts_with(reason, {literal(which.reason + ':')})")
        if file_ids is not None:
            found = found.filter(f"file_id in ({', '.join(map(literal, ['', *file_ids]))})")
        for code in CUT if whole else ():
            found = found.filter(f"not starts_with(reason, '{code}:')")
        yield found


def _header(rows: duckdb.DuckDBPyRelation, out: Path) -> str:
    """Return the first line of the file to write; an error if its rows do not fit in one file of this name."""
    found = rows.aggregate("header, min(file) as file", "header").order("file").fetchall()
    if len(found) > 1:
        files = " and ".join(shown(Path(name).name) for _, name in found[:2])
        remedy = "Choose one of them with --file NAME"
        raise DataError(f"rows of {files} do not fit in one file", file=out, remedy=remedy)
    header = found[0][0] if found else None
    form, ends = ("json", ".jsonl") if header is None else ("csv", ".csv")
    if found and FORMATS.get(extension(out)) != form:
        raise SettingError("out", str(out), f"end in {ends}, because the rows are {form.upper()}")
    return header or ""
