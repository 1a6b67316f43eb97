"""Readers: files of any known source become chunks of good rows, and bad rows with their reasons.

Text is cut into lines in numpy and read by DuckDB, Parquet by Arrow; no good row is a Python object. A broken row never
stops a reading and never takes a good one with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from clickprism.errors import SettingError
from clickprism.log.readers import plain
from clickprism.log.readers.chunk import REASONS, Chunk
from clickprism.log.readers.detect import Detected, detect
from clickprism.log.readers.inputs import find_inputs
from clickprism.log.readers.lines import Lines, Text, cut, joined, lines_of, split
from clickprism.log.readers.parquet import columns_of, read_groups
from clickprism.log.readers.places import ColumnPlaces
from clickprism.log.readers.plan import Reading
from clickprism.log.readers.records import read_records
from clickprism.log.readers.rest import Rest, parsed, read_rests
from clickprism.log.readers.rows import rows
from clickprism.log.readers.settings import SourceSettings
from clickprism.log.readers.sources import SOURCES
from clickprism.log.readers.stream import blocks
from clickprism.log.threads import mapped

__all__ = [
    "REASONS",
    "Chunk",
    "Detected",
    "Rest",
    "SourceSettings",
    "Task",
    "detect",
    "find_inputs",
    "read_chunks",
    "read_rests",
    "read_tasks",
]

Done: TypeAlias = tuple[Chunk, Rest | None]
Task: TypeAlias = Callable[[], Done]
"""Gives some rows of a file, and lines of it that are read together with those of other files."""


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
    rests: list[Rest] = []
    tasks = read_tasks(path, source, chunk_bytes=chunk_bytes, expected=expected)
    for chunk, rest in mapped(lambda task: task(), tasks, threads=threads):
        yield chunk
        if rest is not None:
            rests.append(rest)
        if sum(len(each.lines.data) for each in rests) >= chunk_bytes:
            yield from read_rests(rests)
            rests = []
    if rests:
        yield from read_rests(rests)


def read_tasks(path: Path, source: SourceSettings, *, chunk_bytes: int = 24 << 20, expected: int = 0) -> Iterator[Task]:
    """What is to be done to read a file, in pieces: any thread may do them, in any order. See `read_chunks`."""
    if not 1 <= chunk_bytes <= 1 << 30:
        raise SettingError("chunk_bytes", chunk_bytes, "be from 1 to 1073741824")
    path = Path(path)
    found = detect(path, source)
    much = max(expected, path.stat().st_size) >= plain.WORTH
    if much and found.format == "json" and found.schema == "clickprism":
        for text in cut(blocks(path, min(chunk_bytes, plain.SIZE)), max_line=source.max_line_bytes):
            yield partial(_plain, path, source, text)
        return
    for chunk in _chunks(path, source, found, chunk_bytes):
        yield partial(_done, chunk)


def _done(chunk: Chunk) -> Done:
    return chunk, None


def _plain(path: Path, source: SourceSettings, text: Text) -> Done:
    """Plain lines at once, and what is left to be read with others."""
    parts = [plain.read_plain(lines, source) for lines in lines_of(text, max_line=source.max_line_bytes)]
    chunks, left = [chunk for chunk, _ in parts], [rest for _, rest in parts if len(rest)]
    rest = Rest(path, source, joined(left)) if left else None
    if len(chunks) == 1:
        return chunks[0], rest
    good, bad = (pa.concat_tables(tables) for tables in zip(*((each.good, each.bad) for each in chunks), strict=True))
    return Chunk(good, bad, 0, sum(each.bytes_read for each in chunks)), rest


def _chunks(path: Path, source: SourceSettings, found: Detected, chunk_bytes: int) -> Iterator[Chunk]:
    if found.format == "parquet":
        yield from _parquet(path, source, found, chunk_bytes)
        return
    lines = split(blocks(path, chunk_bytes), max_line=source.max_line_bytes, blank=found.format == "csv")
    if found.format == "json":
        yield from (parsed(path, source, found.schema, part) for part in lines)
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


def _parquet(path: Path, source: SourceSettings, found: Detected, chunk_bytes: int) -> Iterator[Chunk]:
    columns = columns_of(path)
    places = ColumnPlaces(columns.names, columns.types)
    plan = SOURCES[found.schema](Reading(places, source, path))
    for part in read_groups(path, sorted(places.used), chunk_bytes=chunk_bytes):
        yield rows(part.ready, plan, raw=part.raw, bad=part.bad, read=part.read, nul=True)


def _raw(part: Lines) -> Callable[[Sequence[int]], list[bytes]]:
    return lambda indices: [part.raw(index) for index in indices]
