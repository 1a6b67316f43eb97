"""Readers: files of any known source become chunks of good rows, and bad rows with their reasons.

    inputs (which files, what is in them) ─▶ formats (rows as JSON) ─▶ sources (where fields are) ─▶ validate

DuckDB types and checks the rows: no good row is a Python object. A broken row never stops a run and affects no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb

from clickprism.errors import SettingError
from clickprism.log.read.formats import Rows, csv_rows, json_rows, parquet_rows
from clickprism.log.read.inputs import Detected, detect, find_inputs, local_copies
from clickprism.log.read.validate import REASONS, Chunk, Part, type_rows
from clickprism.log.settings import SourceSettings

__all__ = [
    "REASONS",
    "Chunk",
    "Detected",
    "Part",
    "SourceSettings",
    "detect",
    "find_inputs",
    "local_copies",
    "read_chunks",
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
    if not 1 <= size <= 1 << 30:
        raise SettingError("size", size, "be from 1 to 1073741824")
    found = found or detect(path, source)
    rows: Iterator[Rows]
    if found.format == "parquet":
        rows = parquet_rows(path, connection, size=size)
    elif found.format == "json":
        rows = json_rows(path, size=size, max_line=source.max_line_bytes)
    else:
        objects = [column.partition(".")[0] for column in source.mapping.columns.values() if "." in column]
        rows = csv_rows(
            path, connection, dialect=found.dialect, objects=objects, size=size, max_line=source.max_line_bytes
        )
    for some in rows:
        yield Part(some, path, found.schema, source)


def read_chunks(path: Path, source: SourceSettings, *, size: int = SIZE) -> Iterator[Chunk]:
    r"""Yield the rows of a file in chunks.

    >>> import tempfile
    >>> row = b'{"search_id": "s", "time": "2024-05-01T12:00:00Z", "query": "q", "document_id": "d", "position": 1}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.jsonl")
    ...     _ = path.write_bytes(row + b"\n" + row[:50])
    ...     (chunk,) = read_chunks(path, SourceSettings())
    >>> chunk.good["position"].to_pylist(), chunk.bad["reason"].to_pylist()
    ([1], ['not-json: the line is not JSON'])
    """
    with closing(duckdb.connect()) as connection:
        for part in read_parts(Path(path), source, connection, size=size):
            yield from type_rows([part], connection)
