"""Rows on their way into a log: staged by day with their keys, deduplicated by SQL, and written as Parquet.

The key of an event is 16 bytes of MD5: of its kind and event id if it has an id, else of all its fields. Of several
rows with one key on one day, the first that arrived is stored; the others are duplicates, also if they differ.

Rows stay in Arrow, and only keys go through DuckDB: with 21 columns, inserting a million rows into a table of DuckDB
takes 2.1 s of CPU, and COPY to Parquet 1.3 s, against 0.35 s for the writer of pyarrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.log.schema import BAD, EVENTS, QUARANTINE, ROW
from clickprism.types import Bool

HELD_BYTES: Final = 256 << 20
"""Bytes of rows in memory; more are put on disk."""
GROUP_ROWS: Final = 100_000
"""Rows of a row group of `events`; files with fewer are small."""
_DAY: Final = 86_400_000_000  # microseconds
_EPOCH: Final = date(1970, 1, 1).toordinal()
_BY_ID: Final = "kind || chr(31) || event_id"
_VALUES: Final = [f"to_json({each.name})" if pa.types.is_list(each.type) else each.name for each in ROW]
_BY_CONTENT: Final = f"cast(to_json([{', '.join(f'cast({each} as varchar)' for each in _VALUES[:-1])}]) as varchar)"
_STAGED: Final = pa.schema([*ROW, EVENTS.field("key")])
_FILE_ID: Final = EVENTS.field("file_id").with_type(pa.dictionary(pa.int32(), pa.string()))
_WRITTEN: Final = pa.schema([each if each.name != "file_id" else _FILE_ID for each in EVENTS if each.name != "day"])
_LEAVES: Final = [f"{each.name}.list.element" if pa.types.is_list(each.type) else each.name for each in _WRITTEN]
_UNIQUE: Final = ("key", "event_id", "document_id", "line")
_BROKEN: Final = pa.schema([pa.field("file", pa.int32()), *BAD])
_BROKEN_BYTES: Final = 16 << 20

Days: TypeAlias = Sequence[tuple[date, pa.RecordBatch]]
"""Rows with their keys, those of each day together."""


def by_day(rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> Days:
    """Rows as `schema.ROW` has them, with their keys, split by the day of their time; any thread may do this."""
    if not len(rows):
        return ()
    rows, days = rows.append_column("key", keys(rows, connection)), rows["time"].cast(pa.int64()).to_numpy() // _DAY
    if (days[1:] < days[:-1]).any():
        order = np.argsort(days, kind="stable")
        rows, days = rows.take(order), days[order]
    bounds = [*np.flatnonzero(np.diff(days, prepend=days[:1] - 1)).tolist(), len(days)]
    return [
        (date.fromordinal(int(days[start]) + _EPOCH), batch)
        for start, end in pairwise(bounds)
        for batch in rows.slice(start, end - start).cast(_STAGED).to_batches()
    ]


def keys(rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> pa.ChunkedArray:
    """The key of each row, in order.

    >>> row = {"kind": "ranking", "time": 0, "search_id": "s", "line": 1}
    >>> rows = pa.Table.from_pylist([row, row | {"line": 2}, row | {"query": ""}], schema=ROW)
    >>> [len(set(keys(rows, duckdb.connect()).to_pylist())), len(keys(rows, duckdb.connect())[0].as_py())]
    [2, 16]
    """
    missing = rows["event_id"].null_count
    text = _BY_ID if not missing else _BY_CONTENT if missing == len(rows) else None
    text = text or f"case when event_id is null then {_BY_CONTENT} else {_BY_ID} end"
    with connection.cursor() as cursor:
        cursor.register("rows", rows)
        found: pa.Table = cursor.sql(" ".join(["from rows select", f"unhex(md5({text})) as key"])).to_arrow_table()
    return found["key"]


@dataclass
class _Part:
    """Some rows of one day and of the file with this number."""

    file: int
    batch: pa.RecordBatch


class Stage:
    """The rows of some input files: in memory, and what does not fit in a private folder.

    Args:
        connection: of DuckDB, which finds duplicates.
        folder: on the disk of the log.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.connection, self._folder = connection, folder
        self._parts: dict[date, list[_Part]] = {}
        self._new: dict[date, Bool] = {}
        self._held: list[_Part] = []
        self._bytes = 0
        self._broken: tuple[Path, pa.ipc.RecordBatchFileWriter] | None = None

    def add(self, number: int, days: Days, bad: pa.Table) -> None:
        """Stage rows of the file with this number: good ones, and broken ones as `schema.BAD` has them."""
        for day, batch in days:
            part = _Part(number, batch)
            self._parts.setdefault(day, []).append(part)
            self._held.append(part)
            self._bytes += batch.nbytes
        if self._bytes > HELD_BYTES:
            self._spill()
        if len(bad):
            if self._broken is None:
                path = self._folder / f"bad-{uuid4().hex}.arrow"
                self._broken = path, pa.ipc.new_file(path, _BROKEN)
            numbers = pa.repeat(pa.scalar(number, pa.int32()), len(bad))
            self._broken[1].write_table(bad.add_column(0, "file", numbers).cast(_BROKEN))

    def _spill(self) -> None:
        """Put all that is held on disk, and map it into memory."""
        path = self._folder / f"{uuid4().hex}.arrow"
        with pa.ipc.new_file(path, _STAGED) as writer:
            for part in self._held:
                writer.write_batch(part.batch)
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        for index, part in enumerate(self._held):
            part.batch = reader.get_batch(index)
        self._held, self._bytes = [], 0

    def days(self) -> list[date]:
        """The days of the good rows."""
        return sorted(self._parts)

    def deduplicate(self, stored: Mapping[date, Sequence[str]], *, skip: Collection[int]) -> Counter[int]:
        """Find the rows whose key is new: the first of each key of a day that no stored file has.

        Returns:
            How many rows of each file are new, by its number.

        Args:
            stored: the files of `events`, by day.
            skip: numbers of files to omit.
        """
        counts: Counter[int] = Counter()
        for day, parts in self._parts.items():
            places, start = [], 0
            for part in parts:
                places.append(np.arange(start, start + len(part.batch)) if part.file not in skip else np.empty(0, int))
                start += len(part.batch)
            used = [part.batch["key"] for part in parts if part.file not in skip]
            new = np.zeros(start, dtype=bool)
            if used:
                table = pa.table({"key": pa.chunked_array(used), "place": pa.array(np.concatenate(places))})
                new[self._firsts(table, stored.get(day, ()))] = True
            self._new[day], start = new, 0
            for part in parts:
                counts[part.file] += int(np.count_nonzero(new[start : start + len(part.batch)]))
                start += len(part.batch)
        return counts

    def _firsts(self, staged: pa.Table, stored: Sequence[str]) -> pa.Array:
        """The places of the first rows of each key that is not stored."""
        query = "select key, min(place) as place from staged group by key"
        if stored:
            query = " ".join(["from", f"({query})", "anti join", read_events(stored), "using (key) select place"])
        with self.connection.cursor() as cursor:
            cursor.register("staged", staged)
            return cursor.sql(query).to_arrow_table()["place"].to_numpy()

    def write(self, folder: Path, *, ids: Sequence[str], threads: int) -> dict[date, list[Path]]:
        """Write the new rows to Parquet files, as `events` has them, one for each day, and drop all rows.

        Args:
            folder: on the disk of the log; files go to `day=YYYY-MM-DD/` in it.
            ids: the file ids by number.
            threads: number of days that are written at the same time.
        """
        names = pa.array(ids, pa.string())
        days = [day for day, new in self._new.items() if new.any()]

        def write(day: date) -> Path:
            path = folder / f"day={day.isoformat()}" / f"{uuid4().hex}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            with event_writer(path) as writer:
                for rows in _groups(self._kept(day, names)):
                    writer.write_table(rows)
            return path

        with ThreadPoolExecutor(threads) as pool:
            written = {day: [path] for day, path in zip(days, pool.map(write, days), strict=True)}
        self._parts, self._new, self._held = {}, {}, []
        return written

    def _kept(self, day: date, names: pa.Array) -> Iterator[pa.Table]:
        """The new rows of a day as they are written, with the ids of their files."""
        start = 0
        for part in self._parts[day]:
            new = self._new[day][start : start + len(part.batch)]
            start += len(part.batch)
            batch = part.batch if new.all() else part.batch.filter(pa.array(new))
            numbers = pa.array(np.full(len(batch), part.file, np.int32))
            rows = pa.Table.from_batches([batch]).append_column(
                "file_id", pa.DictionaryArray.from_arrays(numbers, names)
            )
            yield rows.select(_WRITTEN.names).cast(_WRITTEN)

    def broken(self, files: Sequence[tuple[str, str, str | None]], *, skip: Collection[int]) -> Iterator[pa.Table]:
        """Yield the broken rows as `quarantine` has them, some at a time; `files`: their ids, names and headers."""
        if self._broken is None:
            return
        self._broken[1].close()
        told = [pa.array(values, pa.string()) for values in zip(*files, strict=True)]
        with pa.ipc.open_file(self._broken[0]) as reader:
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
            for some in _groups((pa.Table.from_batches([batch]) for batch in batches), most=_BROKEN_BYTES):
                rows = some.filter(pc.invert(pc.is_in(some["file"], pa.array([*skip], pa.int32()))))
                columns = [values.take(rows["file"].combine_chunks()) for values in told]
                cleared = pa.nulls(len(rows), QUARANTINE.field("cleared_at").type)
                yield pa.Table.from_arrays([*columns, *rows.select(BAD.names).columns, cleared], schema=QUARANTINE)


def _groups(tables: Iterator[pa.Table], *, most: int | None = None) -> Iterator[pa.Table]:
    """Tables put together until they have the rows of a row group, or so many bytes."""
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(each.nbytes for each in some) >= most if most else sum(map(len, some)) >= GROUP_ROWS:
            yield pa.concat_tables(some)
            some = []
    if some:
        yield pa.concat_tables(some)


def event_writer(path: Path) -> pq.ParquetWriter:
    """A new file of `events`, for rows that are there already; its rows lack `day`."""
    return pq.ParquetWriter(
        path,
        _WRITTEN,
        compression={name: "none" if name == "key" else "snappy" for name in _LEAVES},
        use_dictionary=[name for name in _LEAVES if name not in _UNIQUE],
        column_encoding={"line": "DELTA_BINARY_PACKED"},
        write_statistics=["kind", "time", "display_ms"],
        store_schema=False,
    )


def read_events(files: Sequence[str]) -> str:
    """The SQL of the rows of files of `events`, with their day."""
    listed = ", ".join(quoted(path) for path in files)
    return f"read_parquet([{listed}], hive_partitioning = true, hive_types = {{day: DATE}})"


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
