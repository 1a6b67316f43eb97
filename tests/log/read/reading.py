"""Rows to write and to read again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from clickprism.log.read import Chunk, SourceSettings, read_parts, type_rows
from clickprism.log.schema import BAD, ROW

TIME = "2024-05-01T12:00:00Z"
IMPRESSION = {"search_id": "s", "time": TIME, "query": "q", "document_id": "d", "position": 1, "click": True}


def impression(**changes: Any) -> dict[str, Any]:
    """A good row of ours with some fields changed; `...` leaves one out."""
    return {name: value for name, value in {**IMPRESSION, **changes}.items() if value is not ...}


def json_lines(*rows: Any) -> bytes:
    """Rows as JSON lines; bytes as they are."""
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def read_chunks(path: Path, source: SourceSettings, *, size: int = 1 << 22) -> Iterator[Chunk]:
    """The rows of a file in chunks; all bytes of it are read."""
    total = 0
    with duckdb.connect() as connection:
        for part in read_parts(path, source, connection, size=size):
            total += part.rows.read
            yield from type_rows([part], connection)
    assert total == path.stat().st_size


def read(
    path: Path, data: bytes | None = None, *, size: int = 1 << 20, **settings: Any
) -> tuple[list[dict[str, Any]], list[tuple[int, str, str | None]], int]:
    """All good rows without their nulls, all bad ones as line, code and field, and how many were ignored."""
    if data is not None:
        path.write_bytes(data)
    good: list[dict[str, Any]] = []
    bad: list[dict[str, Any]] = []
    ignored = 0
    for chunk in read_chunks(path, SourceSettings(**settings), size=size):
        assert chunk.good.schema.equals(ROW)
        assert chunk.bad.schema.equals(BAD)
        good += [{name: value for name, value in row.items() if value is not None} for row in chunk.good.to_pylist()]
        bad += chunk.bad.to_pylist()
        ignored += chunk.ignored
    return good, sorted((row["line"], row["reason"].partition(":")[0], row["field"]) for row in bad), ignored


def lines_of(rows: list[dict[str, Any]]) -> list[int]:
    """Where good rows stand."""
    return [row["line"] for row in rows]
