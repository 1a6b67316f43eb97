"""Broken rows that were kept: what they are, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.log.store import LogStore
from clickprism.log.table import writing

_SHOWN: Final = 160


@dataclass(frozen=True)
class Reason:
    """Why rows were put aside: how many, and the first of them (file, line, field, the beginning of its bytes)."""

    code: str
    rows: int
    file: str
    line: int
    field: str | None
    raw: str


def reasons(store: LogStore) -> list[Reason]:
    """The reasons in a log's quarantine, the most frequent first."""
    found: dict[str, Reason] = {}
    for file in store.table("quarantine").files():
        for batch in pq.ParquetFile(file).iter_batches(batch_size=10_000):
            table = pa.Table.from_batches([batch])
            for each in table["reason"].value_counts():
                text, count = str(each["values"]), each["counts"].as_py()
                before = found.get(text)
                first = before or _first(table, text)
                rows = count + (0 if before is None else before.rows)
                found[text] = Reason(text, rows, first.file, first.line, first.field, first.raw)
    return sorted(found.values(), key=lambda reason: (-reason.rows, reason.code))


def _first(table: pa.Table, text: str) -> Reason:
    row = table.slice(pc.index(table["reason"], text).as_py(), 1).to_pylist()[0]
    raw = row["raw"][:_SHOWN].decode("utf-8", "backslashreplace").replace("\n", "\\n").replace("\0", "\\0")
    return Reason(text, 0, row["file"], row["line"], row["field"], raw)


def write_raw(store: LogStore, out: Path) -> int:
    """Write the bytes of all broken rows to a file, one a line, to be mended and ingested again; how many there are."""
    rows = 0
    with writing(out), out.open("wb") as handle:
        for file in store.table("quarantine").files():
            for batch in pq.ParquetFile(file).iter_batches(batch_size=10_000, columns=["raw"]):
                lines = batch.column("raw").to_pylist()
                handle.writelines(line.removesuffix(b"\n") + b"\n" for line in lines)
                rows += len(lines)
    return rows
