"""Rows on their way into a log: identified, told apart by day, held, told from duplicates, written as Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.log.again import NEW, SAME, VARIANT, Again, find_again
from clickprism.log.identity import identify
from clickprism.log.schema import BAD, EVENTS, QUARANTINE, ROW
from clickprism.log.threads import Workers

HELD_BYTES: Final = 256 << 20  # of rows in memory; more are put on disk
MARKED_ROWS: Final = 1 << 26  # of a day whose marks are held in memory; those of more are put on disk
GROUP_ROWS: Final = 100_000  # that are written at a time, and about what the smallest share of a day has
_BROKEN_BYTES: Final = 16 << 20
_POOL: Final = pa.system_memory_pool()  # keeps its pages: to clear new ones costs more than all that is done here
_DAY: Final = 86_400_000_000  # microseconds
_EPOCH: Final = date(1970, 1, 1).toordinal()
_STAGED: Final = pa.schema([*ROW, EVENTS.field("key"), EVENTS.field("content")])
_FILE_ID: Final = EVENTS.field("file_id").with_type(pa.dictionary(pa.int32(), pa.string()))
_WRITTEN: Final = pa.schema([each if each.name != "file_id" else _FILE_ID for each in EVENTS if each.name != "day"])
_HASHES: Final = ("key", "content")
_UNIQUE: Final = (*_HASHES, "event_id", "document_id", "line")
_LEAVES: Final = [f"{each.name}.list.element" if pa.types.is_list(each.type) else each.name for each in _WRITTEN]

Days: TypeAlias = Sequence[tuple[date, pa.RecordBatch]]
"""Rows with their identity, those of each day together."""


def by_day(rows: pa.Table) -> Days:
    """Rows as `schema.ROW` has them, identified and told apart by the day of their time; any thread may do this."""
    names, time = identify(rows), rows["time"].cast(pa.int64()).to_numpy()
    rows = rows.append_column("key", names["key"]).append_column("content", names["content"])
    numbers = time // _DAY
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        rows, numbers = pc.take(rows, order, memory_pool=_POOL), numbers[order]
    bounds = [*np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1)).tolist(), len(numbers)]
    return [
        (date.fromordinal(int(numbers[start]) + _EPOCH), batch)
        for start, end in pairwise(bounds)
        for batch in rows.slice(start, end - start).to_batches()
    ]


@dataclass
class _Part:
    """Some rows of one day and of the file with this number: held, or put on disk as the batch with this index."""

    file: int
    rows: int
    batch: pa.RecordBatch | None
    path: Path = Path()
    index: int = 0


@dataclass
class Stage:
    """The rows of some input files: in memory, and what does not fit in a private folder.

    Attributes:
        folder: on the disk of the log.
        rows: how many are staged, by day.
        bad: how many broken rows are staged.
    """

    folder: Path
    rows: Counter[date] = field(default_factory=Counter)
    bad: int = 0
    _parts: dict[date, list[_Part]] = field(default_factory=dict)
    _bytes: int = 0
    _broken: tuple[Path, pa.ipc.RecordBatchFileWriter] | None = None

    def add(self, number: int, days: Days) -> None:
        """Stage good rows of the file with this number."""
        for day, batch in days:
            held = batch.cast(_STAGED)  # as it is on disk: a day may be partly here and partly there
            self._parts.setdefault(day, []).append(_Part(number, len(batch), held))
            self.rows[day] += len(batch)
            self._bytes += batch.nbytes
        if self._bytes > HELD_BYTES:
            self._spill()

    def _spill(self) -> None:
        """Put all that is held on disk."""
        path, index = self.folder / f"{uuid4().hex}.arrow", 0
        with pa.ipc.new_file(path, _STAGED) as writer:
            for part in (part for parts in self._parts.values() for part in parts):
                if part.batch is not None:
                    writer.write_batch(part.batch)
                    part.batch, part.path, part.index = None, path, index
                    index += 1
        self._bytes = 0

    def add_bad(self, number: int, bad: pa.Table) -> None:
        """Stage broken rows."""
        if not len(bad):
            return
        staged = bad.append_column("file", pa.repeat(pa.scalar(number, pa.int32()), len(bad)))
        if self._broken is None:
            path = self.folder / f"bad-{uuid4().hex}.arrow"
            self._broken = path, pa.ipc.new_file(path, staged.schema)
        self._broken[1].write_table(staged)
        self.bad += len(bad)

    def finish(self) -> None:
        """No more rows will come."""
        if self._broken is not None:
            self._broken[1].close()

    def _meant(self, day: date, skip: Collection[int]) -> list[_Part]:
        return [part for part in self._parts[day] if part.file not in skip]

    def again(
        self, stored: Mapping[date, Sequence[str]], *, skip: Collection[int], workers: Workers
    ) -> dict[date, Again]:
        """Which staged rows of each day repeat a key, of the stored files of that day or of staged rows before them.

        Args:
            stored: the files in the log of each day that has staged rows.
            skip: numbers of files to pass over.
            workers: that look at a day each.
        """

        def find(day: date) -> Again:
            parts = self._meant(day, skip)
            found = self._marks(sum(part.rows for part in parts))
            find_again(
                lambda name: (batch[name] for batch in _read(parts, [name])),
                stored[day],
                found,
                threads=min(workers.threads, len(stored)),
            )
            return found

        return dict(zip(stored, workers.map(find, stored), strict=True))

    def _marks(self, rows: int) -> Again:
        if rows <= MARKED_ROWS:
            return np.zeros(rows, np.uint8)
        return np.memmap(self.folder / f"{uuid4().hex}.marks", np.uint8, "w+", shape=rows)

    def repeated(self, again: Mapping[date, Again], *, skip: Collection[int]) -> Counter[int]:
        """How many rows of each file repeat a key, by its number."""
        counts: Counter[int] = Counter()
        for day, found in again.items():
            start = 0
            for part in self._meant(day, skip):
                counts[part.file] += int(np.count_nonzero(found[start : start + part.rows]))
                start += part.rows
        return counts

    def write(
        self, again: Mapping[date, Again], folder: Path, *, ids: Sequence[str], skip: Collection[int], workers: Workers
    ) -> dict[date, list[Path]]:
        """Write the rows of the days to Parquet files, as `events` has them; days without rows get none.

        After this they are held no more.

        Args:
            again: what repeats, by day.
            folder: on the disk of the log; files go to `day=YYYY-MM-DD/` in it.
            ids: the file ids by number.
            skip: numbers of files to pass over.
            workers: that write a file each: of a day with many rows there are several.
        """
        names, tasks = pa.array(ids, pa.string()), []
        for day, found in again.items():
            start = 0
            for some in _shares(self._meant(day, skip), workers.threads):
                rows = sum(part.rows for part in some)
                tasks.append((day, some, found[start : start + rows]))
                start += rows

        def write(task: tuple[date, list[_Part], Again]) -> Path | None:
            day, parts, found = task
            path = self._write_some(parts, found, folder / f"day={day.isoformat()}", names=names)
            for part in parts:
                part.batch = None
            return path

        written: dict[date, list[Path]] = {}
        for (day, _, _), path in zip(tasks, workers.map(write, tasks), strict=True):
            if path is not None:
                written.setdefault(day, []).append(path)
        self._parts = {}
        return written

    def _write_some(self, parts: Sequence[_Part], again: Again, folder: Path, *, names: pa.Array) -> Path | None:
        if np.count_nonzero(again == SAME) == len(again):
            return None
        folder.mkdir(parents=True, exist_ok=True)
        path, start = folder / f"{uuid4().hex}.parquet", 0
        with event_writer(path) as writer:
            for some in _groups(parts):
                rows = sum(part.rows for part in some)
                kept = _written(some, again[start : start + rows], names=names)
                start += rows
                if len(kept):
                    writer.write_table(kept)
        return path

    def broken(self, files: Sequence[tuple[str, str, str | None]], *, skip: Collection[int]) -> Iterator[pa.Table]:
        """The broken rows as `quarantine` has them, some at a time; of files there are their ids, names and headers."""
        told = [pa.array(values, pa.string()) for values in zip(*files, strict=True)]
        for rows in self._read_broken():
            meant = rows.filter(pc.invert(pc.is_in(rows["file"], pa.array([*skip], pa.int32()))))
            columns = [values.take(meant["file"].combine_chunks()) for values in told]
            cleared = pa.nulls(len(meant), QUARANTINE.field("cleared_at").type)
            yield pa.Table.from_arrays([*columns, *meant.select(BAD.names).columns, cleared], schema=QUARANTINE)

    def _read_broken(self) -> Iterator[pa.Table]:
        if self._broken is None:
            return
        some: list[pa.RecordBatch] = []
        with pa.ipc.open_file(self._broken[0]) as reader:
            for i in range(reader.num_record_batches):
                some.append(reader.get_batch(i))
                if i + 1 == reader.num_record_batches or sum(each.nbytes for each in some) >= _BROKEN_BYTES:
                    yield pa.Table.from_batches(some)
                    some = []


def event_writer(path: Path) -> pq.ParquetWriter:
    """A new file of `events`: its rows lack `day`, and have `file_id` as a dictionary."""
    return pq.ParquetWriter(
        path,
        _WRITTEN,
        compression={name: "none" if name in _HASHES else "snappy" for name in _LEAVES},
        use_dictionary=[name for name in _LEAVES if name not in _UNIQUE],
        column_encoding={"line": "DELTA_BINARY_PACKED"},
        write_statistics=["kind", "time", "display_ms"],
        store_schema=False,
    )


def _shares(parts: Sequence[_Part], most: int) -> list[list[_Part]]:
    """The parts of a day in so many shares of about as many rows, fewer where they would be small."""
    rows = sum(part.rows for part in parts)
    size = max(rows / most, GROUP_ROWS)
    shares: list[list[_Part]] = []
    done = 0
    for part in parts:
        if not shares or done >= size * len(shares):
            shares.append([])
        shares[-1].append(part)
        done += part.rows
    return shares


def _groups(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """The parts of a day, some at a time."""
    some: list[_Part] = []
    for part in parts:
        some.append(part)
        if sum(each.rows for each in some) >= GROUP_ROWS:
            yield some
            some = []
    if some:
        yield some


def _read(parts: Sequence[_Part], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Columns of the rows of some parts."""
    options = pa.ipc.IpcReadOptions(included_fields=[_STAGED.get_field_index(name) for name in names])
    for path, some in groupby(parts, lambda part: part.path):
        if path == Path():
            yield from (part.batch.select(list(names)) for part in some if part.batch is not None)
            continue
        with pa.ipc.open_file(path, options=options, memory_pool=_POOL) as reader:
            yield from (reader.get_batch(part.index) for part in some)


def _written(parts: Sequence[_Part], again: Again, *, names: pa.Array) -> pa.Table:
    """The rows of some parts as they are written: without those that are there, with the ids of their files."""
    table = pa.Table.from_batches(_read(parts, _STAGED.names))
    numbers = np.repeat(np.array([part.file for part in parts], np.int32), [part.rows for part in parts])
    ids = pa.DictionaryArray.from_arrays(pa.array(numbers), names)
    table = table.append_column("variant", pa.array(again == VARIANT)).append_column("file_id", ids)
    table = table.select(_WRITTEN.names)
    if (again != NEW).any():
        table = pc.filter(table, pa.array(again != SAME), memory_pool=_POOL)
    return table.cast(_WRITTEN)
