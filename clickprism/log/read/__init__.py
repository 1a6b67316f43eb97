"""Readers: files of any known source become chunks of good rows, and bad rows with their reasons.

    inputs (which files, what is in them) ─▶ formats (rows as JSON) ─▶ rows (fields, types, checks)

DuckDB types and checks the rows: no good row is a Python object. A broken row never stops a run and affects no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from clickprism.log.read.formats import Rows, answer_rows, csv_rows, json_rows, parquet_rows
from clickprism.log.read.inputs import Detected, detect, find_inputs, first_ordinal, local_copies
from clickprism.log.read.rows import REASONS, Chunk, Part, type_rows
from clickprism.log.settings import SourceSettings

__all__ = [
    "REASONS",
    "Chunk",
    "Detected",
    "Part",
    "SourceSettings",
    "detect",
    "find_inputs",
    "first_ordinal",
    "local_copies",
    "read_parts",
    "type_rows",
]

SIZE = 4 << 20
"""Bytes of text that are read at a time."""


def read_parts(
    path: Path,
    source: SourceSettings,
    connection: duckdb.DuckDBPyConnection,
    *,
    found: Detected | None = None,
    size: int = SIZE,
) -> Iterator[Part]:
    """Yield the rows of a file as JSON texts, some at a time.

    Args:
        path: a file of JSON lines, CSV or Parquet, plain, gzip or zstd.
        source: how it is read.
        connection: of DuckDB, which converts CSV and Parquet.
        found: what is in the file; by default it is detected.
        size: bytes of text that are held at a time; the rows do not depend on it.
    """
    found = found or detect(path, source)
    rows: Iterator[Rows]
    if found.format == "parquet":
        rows = parquet_rows(path, connection, size=size)
    elif found.format == "answer":
        rows = answer_rows(path, size=size)
    elif found.format == "json":
        rows = json_rows(path, size=size, max_line=source.max_line_bytes)
    else:
        rows = csv_rows(path, connection, dialect=found.dialect, size=size, max_line=source.max_line_bytes)
    for some in rows:
        yield Part(some, path, found.schema, source)
