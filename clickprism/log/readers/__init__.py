"""Readers: files of any known source become chunks of good rows, and bad rows with their reasons.

Text is cut into lines in numpy and read by DuckDB, Parquet by Arrow; no good row is a Python object. A broken row never
stops a reading and never takes a good one with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from clickprism.errors import SettingError
from clickprism.log.readers import plain
from clickprism.log.readers.chunk import REASONS, Chunk
from clickprism.log.readers.detect import Detected, detect
from clickprism.log.readers.inputs import find_inputs
from clickprism.log.readers.lines import Lines, joined, split
from clickprism.log.readers.parquet import columns_of, read_groups
from clickprism.log.readers.places import ColumnPlaces, JsonPlaces
from clickprism.log.readers.plan import Reading
from clickprism.log.readers.records import read_records
from clickprism.log.readers.rows import rows
from clickprism.log.readers.settings import SourceSettings
from clickprism.log.readers.sources import SOURCES
from clickprism.log.readers.stream import blocks
from clickprism.log.threads import mapped

__all__ = ["REASONS", "Chunk", "Detected", "SourceSettings", "detect", "find_inputs", "read_chunks"]


def read_chunks(
    path: Path, source: SourceSettings, *, chunk_bytes: int = 24 << 20, threads: int = 1, expected: int = 0
) -> Iterator[Chunk]:
    r"""The rows of a file in chunks, in any order.

    Args:
        path: a file of JSON lines, CSV or Parquet, plain, gzip or zstd.
        source: how it is read.
        chunk_bytes: how much text is held at a time; the rows are the same whatever it is.
        threads: to read plain lines with.
        expected: how many bytes are to be read, of this and other files: for many it pays to load compiled code.

    >>> import tempfile
    >>> row = b'{"search_id": "s", "time": "2024-05-01T12:00:00Z", "query": "q", "document_id": "d", "position": 1}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.jsonl")
    ...     _ = path.write_bytes(row + b"\n" + row[:50])
    ...     chunks = list(read_chunks(path, SourceSettings()))
    >>> [place for chunk in chunks for place in chunk.good["position"].to_pylist()]
    [1]
    >>> [reason for chunk in chunks for reason in chunk.bad["reason"].to_pylist()]
    ['not-json: the line is not JSON']
    """
    if not 1 <= chunk_bytes <= 1 << 30:
        raise SettingError("chunk_bytes", chunk_bytes, "be from 1 to 1073741824")
    path = Path(path)
    found = detect(path, source)
    if found.format == "parquet":
        yield from _parquet(path, source, found, chunk_bytes)
        return
    much = max(expected, path.stat().st_size) >= plain.WORTH
    quick = much and found.format == "json" and found.schema == "clickprism"
    size = min(chunk_bytes, plain.SIZE) if quick else chunk_bytes
    lines = split(blocks(path, size), max_line=source.max_line_bytes, blank=found.format == "csv")
    if quick:
        yield from _plain(path, source, found, lines, chunk_bytes=chunk_bytes, threads=threads)
        return
    if found.format == "json":
        for part in lines:
            yield _parsed(path, source, found, part)
        return
    for table, names, part in read_records(lines, found.dialect, max_line=source.max_line_bytes, file=path):
        places = ColumnPlaces(names, [pa.string()] * len(names))
        plan = SOURCES[found.schema](Reading(places, source, path))
        yield rows(
            table.append_column("line", pa.array(part.numbers)),
            plan,
            raw=_raw(part),
            bad=part.bad,
            read=part.read,
            header=found.dialect.header(names),
        )


def _plain(
    path: Path, source: SourceSettings, found: Detected, lines: Iterator[Lines], *, chunk_bytes: int, threads: int
) -> Iterator[Chunk]:
    """Plain lines at once, all others together behind them: to plan a query costs more than to read some lines."""
    left: list[Lines] = []
    for chunk, rest in mapped(lambda part: plain.read_plain(part, source), lines, threads=threads):
        yield chunk
        if len(rest):
            left.append(rest)
        if sum(len(each.data) for each in left) >= chunk_bytes:
            yield _parsed(path, source, found, joined(left))
            left = []
    if left:
        yield _parsed(path, source, found, joined(left))


def _parsed(path: Path, source: SourceSettings, found: Detected, part: Lines) -> Chunk:
    plan = SOURCES[found.schema](Reading(JsonPlaces(part), source, path))
    table = pa.table({"text": part.text(), "line": pa.array(part.numbers)})
    return rows(
        table, plan, raw=_raw(part), bad=part.bad, read=part.read, nul=b"\\" in part.data and b"\\u0000" in part.data
    )


def _parquet(path: Path, source: SourceSettings, found: Detected, chunk_bytes: int) -> Iterator[Chunk]:
    columns = columns_of(path)
    places = ColumnPlaces(columns.names, columns.types)
    plan = SOURCES[found.schema](Reading(places, source, path))
    for part in read_groups(path, sorted(places.used), chunk_bytes=chunk_bytes):
        yield rows(part.ready, plan, raw=part.raw, bad=part.bad, read=part.read, nul=True)


def _raw(part: Lines) -> Callable[[Sequence[int]], list[bytes]]:
    return lambda indices: [part.raw(index) for index in indices]
