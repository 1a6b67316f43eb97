"""Rows on their way into a log: identified, sorted into days on disk, told from duplicates, written as Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.log.again import Again, find_again
from clickprism.log.identity import identify
from clickprism.log.schema import BAD, EVENTS, QUARANTINE, ROW
from clickprism.log.threads import mapped
from clickprism.types import Int64

_FLUSH_BYTES: Final = 4 << 20
_OPEN_FILES: Final = 128
_FOR_MANY_DAYS: Final = 16  # times as much is held before it is put on disk if there are more days than open files
_GROUP_ROWS: Final = 100_000
_POOL: Final = pa.system_memory_pool()  # keeps its pages: to clear new ones costs more than all that is done here
_UNIQUE: Final = ("event_id", "line", "key", "content")
_STAGED: Final = pa.schema(
    [*ROW, EVENTS.field("key"), EVENTS.field("content"), ("file", pa.int32()), ("row", pa.int64())]
)
_WRITTEN: Final = pa.schema([each for each in EVENTS if each.name != "day"])


@dataclass
class Stage:
    """The rows of some input files, in a private folder.

    Attributes:
        folder: on the disk of the log.
        rows: how many are staged, by day.
        bad: how many broken rows are staged.
    """

    folder: Path
    rows: Counter[date] = field(default_factory=Counter)
    bad: int = 0
    _pending: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _files: dict[date, list[Path]] = field(default_factory=dict)
    _writers: dict[date, pa.ipc.RecordBatchFileWriter] = field(default_factory=dict)
    _broken: tuple[Path, pa.ipc.RecordBatchFileWriter] | None = None

    def add(self, number: int, good: pa.Table) -> None:
        """Stage good rows of the file with this number; those of a file come in order, as do files."""
        if len(good):
            self._pending.append(good.append_column("file", pa.repeat(pa.scalar(number, pa.int32()), len(good))))
            self._bytes += good.nbytes
            if self._bytes >= _FLUSH_BYTES * (_FOR_MANY_DAYS if len(self.rows) > _OPEN_FILES else 1):
                self.flush()

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

    def flush(self) -> None:
        """Identify what was added and put it on disk, each day into a file of its own."""
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._bytes = [], 0
        names = identify(rows)
        rows = rows.append_column("key", names["key"]).append_column("content", names["content"])
        days = rows["time"].cast(pa.date32())
        low, high = (value.as_py() for value in pc.min_max(days).values())
        if low == high:
            self._write(low, rows)
            return
        numbers = days.cast(pa.int32()).to_numpy()
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            rows, numbers = pc.take(rows, order, memory_pool=_POOL), numbers[order]
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            self._write(date.fromordinal(int(numbers[start]) + _EPOCH), rows.slice(start, end - start))

    def _write(self, day: date, rows: pa.Table) -> None:
        first = self.rows[day]
        rows = rows.append_column("row", pa.array(np.arange(first, first + len(rows))))
        if day not in self._writers:
            if len(self._writers) == _OPEN_FILES:
                self._close()
            path = self.folder / f"{day.isoformat()}-{uuid4().hex}.arrow"
            self._files.setdefault(day, []).append(path)
            self._writers[day] = pa.ipc.new_file(path, _STAGED)
        self._writers[day].write_table(rows.select(_STAGED.names).cast(_STAGED))
        self.rows[day] += len(rows)

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def finish(self) -> None:
        """All rows are on disk."""
        self.flush()
        self._close()
        if self._broken is not None:
            self._broken[1].close()

    def again(self, stored: Mapping[date, Sequence[str]], *, skip: Collection[int], threads: int) -> dict[date, Again]:
        """Which staged rows of each day repeat a key, of the stored files of that day or of staged rows before them.

        Args:
            stored: the files in the log of each day that has staged rows.
            skip: numbers of files to pass over.
            threads: how many days are looked at at a time.
        """

        def find(day: date) -> Again:
            rows, at_once = self.rows[day], min(threads, len(stored))
            return find_again(lambda names: self._read(day, names, skip), stored[day], rows=rows, threads=at_once)

        return dict(zip(stored, mapped(find, stored, threads=threads), strict=True))

    def _read(self, day: date, names: Sequence[str], skip: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Columns of the staged rows of a day, but for those of some files."""
        left_out = pa.array([*skip], pa.int32())
        columns = [*names, *(["file"] if skip and "file" not in names else [])]
        options = pa.ipc.IpcReadOptions(included_fields=[_STAGED.get_field_index(name) for name in columns])
        for path in self._files[day]:
            with pa.ipc.open_file(path, options=options, memory_pool=_POOL) as reader:
                for i in range(reader.num_record_batches):
                    batch = reader.get_batch(i)
                    batch = batch.filter(pc.invert(pc.is_in(batch["file"], left_out))) if skip else batch
                    if len(batch):
                        yield batch

    def write(
        self, again: dict[date, Again], folder: Path, *, ids: Sequence[str], skip: Collection[int], threads: int
    ) -> dict[date, list[Path]]:
        """Write the rows of the days to Parquet files, as `events` has them; days without rows get none.

        Args:
            again: what repeats, by day.
            folder: on the disk of the log; files go to `day=YYYY-MM-DD/` in it.
            ids: the file ids by number.
            skip: numbers of files to pass over.
            threads: how many days are written at a time.
        """
        names = pa.array(ids, pa.string())

        def write(day: date) -> Path | None:
            return self._write_day(day, again[day], folder, names=names, skip=skip)

        written = zip(again, mapped(write, again, threads=threads), strict=True)
        return {day: [path] for day, path in written if path is not None}

    def _write_day(
        self, day: date, again: Again, folder: Path, *, names: pa.Array, skip: Collection[int]
    ) -> Path | None:
        if self.rows[day] == int(again.same.sum()):
            return None
        path = folder / f"day={day.isoformat()}" / f"{uuid4().hex}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        dropped, variants, rows = again.row[again.same], again.row[~again.same], 0
        plain = [name for name in _WRITTEN.names if name not in _UNIQUE]
        with pq.ParquetWriter(
            path,
            _WRITTEN,
            compression="zstd",
            use_dictionary=plain,
            write_statistics=["kind", "time", "display_ms"],
            store_schema=False,
        ) as writer:
            for table in self._groups(day, skip):
                kept = _written(table, dropped=dropped, variants=variants, names=names)
                rows += len(kept)
                if len(kept):
                    writer.write_table(kept)
        if not rows:
            path.unlink()
            return None
        return path

    def _groups(self, day: date, skip: Collection[int]) -> Iterator[pa.Table]:
        """The staged rows of a day but for those of some files, some at a time."""
        held: list[pa.RecordBatch] = []
        for batch in self._read(day, _STAGED.names, skip):
            held.append(batch)
            if sum(map(len, held)) >= _GROUP_ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def broken(self, files: Sequence[tuple[str, str, str | None]], *, skip: Collection[int]) -> Iterator[pa.Table]:
        """The broken rows as `quarantine` has them, some at a time; of files there are their ids, names and headers."""
        if self._broken is None:
            return
        told = [pa.array(values, pa.string()) for values in zip(*files, strict=True)]
        without = pa.array([*skip], pa.int32())
        with pa.ipc.open_file(self._broken[0]) as reader:
            for i in range(reader.num_record_batches):
                batch = pa.Table.from_batches([reader.get_batch(i)])
                batch = batch.filter(pc.invert(pc.is_in(batch["file"], without)))
                columns = [values.take(batch["file"].combine_chunks()) for values in told]
                cleared = pa.nulls(len(batch), QUARANTINE.field("cleared_at").type)
                yield pa.Table.from_arrays([*columns, *batch.select(BAD.names).columns, cleared], schema=QUARANTINE)


_EPOCH: Final = date(1970, 1, 1).toordinal()


def _written(table: pa.Table, *, dropped: Int64, variants: Int64, names: pa.Array) -> pa.Table:
    row = table["row"].to_numpy()
    keep = np.ones(len(row), bool)
    keep[_among(dropped, row)] = False
    variant = np.zeros(len(row), bool)
    variant[_among(variants, row)] = True
    ids = pa.DictionaryArray.from_arrays(table["file"].combine_chunks(), names).cast(pa.string())
    table = table.append_column("variant", pa.array(variant)).append_column("file_id", ids)
    table = table.select(_WRITTEN.names)
    return (table if keep.all() else pc.filter(table, pa.array(keep), memory_pool=_POOL)).cast(_WRITTEN)


def _among(numbers: Int64, row: Int64) -> Int64:
    """Where those of some sorted row numbers stand that are in a group of rows."""
    low, high = np.searchsorted(numbers, [row[0], row[-1] + 1])
    found: Int64 = np.searchsorted(row, numbers[low:high])
    return found
