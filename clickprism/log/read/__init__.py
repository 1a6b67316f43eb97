"""Readers: files of any known source become chunks of good rows, and bad rows with their reasons.

    inputs ─▶ lines, records, parquet ─▶ sources (where each field is) ─▶ validate (one query) ─▶ Chunk

Text is cut into lines in numpy; the rows of Parquet become JSON lines. DuckDB reads them: no good row is a Python
object. A broken row never stops a reading and never takes a good one with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from clickprism.errors import SettingError
from clickprism.log.read.inputs import Detected, detect, find_inputs
from clickprism.log.read.lines import Lines, Text, blocks, cut, joined, lines_of, split
from clickprism.log.read.parquet import parquet_lines
from clickprism.log.read.records import read_records
from clickprism.log.read.settings import SourceSettings
from clickprism.log.read.sources import SOURCES, ColumnPlaces, JsonPlaces, Reading
from clickprism.log.read.validate import REASONS, Chunk, rows
from clickprism.types import Int64

__all__ = [
    "REASONS",
    "Chunk",
    "Detected",
    "Rest",
    "SourceSettings",
    "Task",
    "detect",
    "find_inputs",
    "mapped",
    "read_chunks",
    "read_rests",
    "read_tasks",
]

WORTH: Final = 1 << 20
"""Bytes of text from which on it pays to load compiled code."""
SIZE: Final = 4 << 20
"""Bytes of plain text that are read at a time: they stay in the cache."""
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Rest:
    """Lines of our own rows that are not plain; those of several files are read by one query, to plan it once."""

    path: Path
    source: SourceSettings
    lines: Lines


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
    much = max(expected, path.stat().st_size) >= WORTH
    if much and found.format == "json" and found.schema == "clickprism":
        for text in cut(blocks(path, min(chunk_bytes, SIZE)), max_line=source.max_line_bytes):
            yield partial(_plain, path, source, text)
        return
    for chunk in _chunks(path, source, found, chunk_bytes):
        yield partial(_done, chunk)


def read_rests(rests: Sequence[Rest]) -> list[Chunk]:
    """The rows of each of these, by one query for all that are read in the same way; an error may name any file."""
    chunks: dict[int, Chunk] = {}
    alike: dict[str, list[int]] = {}
    for place, rest in enumerate(rests):
        alike.setdefault(rest.source.latest, []).append(place)
    for places in alike.values():
        chunks |= dict(zip(places, _read_alike([rests[place] for place in places]), strict=True))
    return [chunks[place] for place in range(len(rests))]


def mapped(
    function: Callable[[S], T], items: Iterable[S], *, threads: int, waiting: int = 0
) -> Generator[T, None, None]:
    """The function of each item, in order, by so many threads; some results are made ahead of their use.

    Args:
        function: that the threads call.
        items: made in the thread of the caller.
        threads: number of threads.
        waiting: how many items wait for a thread, so that none is idle while an item takes long to make.

    >>> list(mapped(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    begun: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, "clickprism-read") as pool:
        try:
            for item in items:
                begun.append(pool.submit(function, item))
                if len(begun) > threads + waiting:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
            wait(begun)


def _done(chunk: Chunk) -> Done:
    return chunk, None


def _plain(path: Path, source: SourceSettings, text: Text) -> Done:
    """Plain lines at once, and what is left to be read with others."""
    from clickprism.log.read.scan import read_plain

    parts = [read_plain(lines, source) for lines in lines_of(text, max_line=source.max_line_bytes)]
    chunks, left = [chunk for chunk, _ in parts], [rest for _, rest in parts if len(rest)]
    rest = Rest(path, source, joined(left)) if left else None
    if len(chunks) == 1:
        return chunks[0], rest
    good, bad = (pa.concat_tables(tables) for tables in zip(*((each.good, each.bad) for each in chunks), strict=True))
    return Chunk(good, bad, 0, sum(each.bytes_read for each in chunks)), rest


def _read_alike(rests: Sequence[Rest]) -> list[Chunk]:
    first = rests[0]
    if len(rests) == 1:
        return [_parsed(first.path, first.source, "clickprism", first.lines)]
    lines = joined([rest.lines for rest in rests])
    whole = _parsed(first.path, first.source, "clickprism", replace(lines, numbers=np.arange(len(lines)), bad=[]))
    bounds = np.cumsum([0, *(len(rest.lines) for rest in rests)])
    tables = [_apart(table, bounds, lines) for table in (whole.good, whole.bad)]
    return [Chunk(good, bad, 0, rest.lines.read) for rest, good, bad in zip(rests, tables[0], tables[1], strict=True)]


def _apart(table: pa.Table, bounds: Int64, lines: Lines) -> list[pa.Table]:
    """The rows between these bounds, which have their indices in place of their lines, with their lines."""
    indices = table["line"].to_numpy()
    place = table.schema.get_field_index("line")
    named = table.set_column(place, table.schema.field(place), pa.array(lines.numbers[indices]))
    return [named.slice(start, end - start) for start, end in pairwise(np.searchsorted(indices, bounds).tolist())]


def _chunks(path: Path, source: SourceSettings, found: Detected, chunk_bytes: int) -> Iterator[Chunk]:
    if found.format == "parquet":
        yield from (_parsed(path, source, found.schema, part) for part in parquet_lines(path, chunk_bytes=chunk_bytes))
        return
    lines = split(blocks(path, chunk_bytes), max_line=source.max_line_bytes, blank=found.format == "csv")
    if found.format == "json":
        yield from (_parsed(path, source, found.schema, part) for part in lines)
        return
    for table, names, part in read_records(lines, found.dialect, max_line=source.max_line_bytes, file=path):
        places = ColumnPlaces(names)
        plan = SOURCES[found.schema](Reading(places, source, path))
        numbered, header = table.append_column("line", pa.array(part.numbers)), found.dialect.header(names)
        yield rows(numbered, plan, raw=_raw(part), bad=part.bad, read=part.read, header=header)


def _parsed(path: Path, source: SourceSettings, schema: str, lines: Lines) -> Chunk:
    """The rows of JSON lines, by a query."""
    plan = SOURCES[schema](Reading(JsonPlaces(lines), source, path))
    table = pa.table({"text": lines.text(), "line": pa.array(lines.numbers)})
    escaped = b"\\" in lines.data and b"\\u0000" in lines.data
    return rows(table, plan, raw=_raw(lines), bad=lines.bad, read=lines.read, nul=escaped)


def _raw(part: Lines) -> Callable[[Sequence[int]], list[bytes]]:
    return lambda indices: [part.raw(index) for index in indices]
