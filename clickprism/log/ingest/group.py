"""Input files that are read and committed together: three commits, each at most once for each file."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.crash_points import crash_point
from clickprism._util.files import sha256
from clickprism.errors import ClickprismError, DataError
from clickprism.log.ingest.stage import Stage, by_day
from clickprism.log.read import Chunk, Part, type_rows
from clickprism.log.read.validate import shown
from clickprism.log.schema import FILES, QUARANTINE
from clickprism.log.store import LogStore

GROUP_BYTES: Final = 128 << 20
"""Input files that are committed together have about so many bytes."""
GROUP_FILES: Final = 1000
PART_BYTES: Final = 16 << 20
"""Bytes of JSON that one query types."""
LATE: Final = "time-late"
_EPOCH: Final = datetime(1970, 1, 1)
_STEP: Final = timedelta(microseconds=1)


@dataclass
class InputFile:
    """One input file, and where its rows went.

    Attributes:
        columns: Names and types of its columns, as its first rows tell; empty if they were not looked at.
    """

    path: Path
    file_id: str
    size: int
    state: tuple[int, int, int]
    columns: Mapping[str, str] = field(default_factory=dict)
    good: int = 0
    ignored: int = 0
    duplicate: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    header: str | None = None
    examples: list[str] = field(default_factory=list)
    dropped: bool = False

    @property
    def name(self) -> str:
        """Its path as text; what is not UTF-8 in it is escaped."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    @property
    def rows(self) -> int:
        """Number of input rows."""
        return self.good + self.ignored + self.bad.total()

    @property
    def stored(self) -> int:
        """Number of rows that count, if no rule excludes them."""
        return self.good - self.duplicate


def open_input(path: Path, file_id: str | None = None) -> InputFile:
    """Return a file that can be read, before anything of it was; its hash is computed unless it is given."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise DataError("is not a regular file", file=path, remedy="Save it to a file first: it is read twice")
        state = (found.st_size, found.st_mtime_ns, found.st_ino)
        return InputFile(path, sha256(path) if file_id is None else file_id, found.st_size, state)
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error}); nothing of it was ingested"
        raise DataError(problem, file=path, remedy="Check the file and run the command again") from None


@dataclass
class Group:
    """Files that are read one after another and committed together: three commits, each at most once for each file.

    Attributes:
        stage: their rows.
        connection: of DuckDB, which types rows.
        latest: latest allowed event time of files that no earlier run has begun to commit.
        files: in their order.
        error: why no more files are read after these.
        written: the files of the rows that are stored, by day.
        days: those that got rows.

    Once the lock is held, nobody else commits: what was committed of the files is asked once.
    """

    stage: Stage
    connection: duckdb.DuckDBPyConnection
    latest: datetime
    files: list[InputFile] = field(default_factory=list)
    error: ClickprismError | None = None
    written: dict[date, list[Path]] = field(default_factory=dict)
    days: set[date] = field(default_factory=set)
    _parts: list[tuple[int, Part]] = field(default_factory=list)
    _part_bytes: int = 0
    _stored: dict[str, int] = field(default_factory=dict)
    _broken: dict[str, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether it is large enough for a commit."""
        return len(self.files) >= GROUP_FILES or sum(file.size for file in self.files) >= GROUP_BYTES

    def add(self, part: Part) -> None:
        """Take rows of the last file; those of several files are typed by one query."""
        self._parts.append((len(self.files) - 1, part))
        self._part_bytes += part.rows.texts.nbytes
        if self._part_bytes >= PART_BYTES:
            self.type_rows()

    def type_rows(self) -> None:
        """Type and stage the rows that were taken; files from the first on that cannot be read are dropped."""
        parts, self._parts, self._part_bytes = self._parts, [], 0
        try:
            chunks = type_rows([part for _, part in parts], self.connection)
        except DataError:
            chunks = []
            try:
                for _, part in parts:
                    chunks += type_rows([part], self.connection)
            except DataError as error:
                self.drop(parts[len(chunks)][0], error)
        for (number, _), chunk in zip(parts, chunks, strict=False):
            self._add(number, chunk)

    def drop(self, number: int, error: ClickprismError) -> None:
        """Omit the file with this number and all behind it, for this reason."""
        self.error = error
        for file in self.files[number:]:
            file.dropped = True

    def _add(self, number: int, chunk: Chunk) -> None:
        file = self.files[number]
        self.stage.add(number, by_day(chunk.good), chunk.bad)
        file.good += len(chunk.good)
        file.ignored += chunk.ignored
        file.header = chunk.header if file.header is None else file.header
        if len(chunk.bad):
            counts = chunk.bad["reason"].value_counts()
            file.bad.update({str(each["values"]).partition(":")[0]: each["counts"].as_py() for each in counts})
            if not file.examples:
                file.examples = [_example(row) for row in chunk.bad.slice(0, 3).to_pylist()]

    def commit(self, store: LogStore, temp: Path, *, settle: Callable[[], None], dry_run: bool, threads: int) -> None:
        """Put all files into the log that are not there yet; those of another run since are dropped from the group.

        Args:
            store: the log.
            temp: a folder on the disk of the log.
            settle: called before the first commit, as the only writer.
            dry_run: write no commit.
            threads: number of threads that write.
        """
        if not self.files:
            return
        with store.lock():
            crash_point("lock-held")
            ledger = set(store.table("files").read(["file_id"])["file_id"].to_pylist())
            for file in self.files:
                file.dropped |= file.file_id in ledger
            if not dry_run and not all(file.dropped for file in self.files):
                settle()
            ids = [file.file_id for file in self.files]
            self._stored, self._broken = (store.table(name).committed(ids) for name in ("events", "quarantine"))
            self._refuse_others()
            self._write(store, temp, threads)
            crash_point("rows-written")
            if not dry_run:
                self._commit_quarantine(store, temp)
                self._commit_events(store)
                self._commit_files(store)

    def _refuse_others(self) -> None:
        """An error if a run that died had begun to commit a file which it had read otherwise."""
        for file in self.files:
            begun, broken = file.file_id in {*self._stored, *self._broken}, self._broken.get(file.file_id, 0)
            if begun and not file.dropped and broken != file.bad.total():
                raise DataError(
                    f"a run that did not end found {broken:,} broken rows, this one {file.bad.total():,}",
                    file=file.name,
                    remedy="Run the same command again, with the settings and the version of clickprism that it had",
                )

    def _skip(self, committed: Mapping[str, int]) -> list[int]:
        return [number for number, file in enumerate(self.files) if file.dropped or file.file_id in committed]

    def _write(self, store: LogStore, temp: Path, threads: int) -> None:
        """Deduplicate, and write what is stored to files beside the table."""
        events, days = store.table("events"), self.stage.days()
        new = self.stage.deduplicate(events.files(days), skip=self._skip(self._stored))
        for number, file in enumerate(self.files):
            file.duplicate = file.good - self._stored.get(file.file_id, new[number])
        self.written = self.stage.write(temp / uuid4().hex, ids=[file.file_id for file in self.files], threads=threads)
        resumed = any(file.file_id in self._stored for file in self.files if not file.dropped)
        self.days = set(self.written) | (set(days).intersection(events.days()) if resumed else set())

    def _commit_quarantine(self, store: LogStore, temp: Path) -> None:
        skip = self._skip(self._broken)
        keys = {file.file_id: file.bad.total() for i, file in enumerate(self.files) if i not in skip and file.bad}
        if not keys:
            return
        late = [file.file_id for file in self.files if file.file_id in keys and file.bad[LATE]]
        keys |= {_latest_key(file_id): (self.latest - _EPOCH) // _STEP for file_id in late}
        path = temp / f"{uuid4().hex}.parquet"
        told = [(file.file_id, file.name, file.header) for file in self.files]
        with pq.ParquetWriter(path, QUARANTINE, compression="zstd") as writer:
            for rows in self.stage.broken(told, skip=skip):
                writer.write_table(rows)
        store.table("quarantine").commit_files({None: [path]}, keys=keys)

    def _commit_events(self, store: LogStore) -> None:
        skip = set(self._skip(self._stored))
        keys = {file.file_id: file.stored for number, file in enumerate(self.files) if number not in skip}
        if keys:
            store.table("events").commit_files(self.written, keys=keys)

    def _commit_files(self, store: LogStore) -> None:
        now, source = datetime.now(UTC).replace(tzinfo=None), store.settings.source.schema
        rows = [
            {
                "file_id": file.file_id,
                "file": file.name,
                "bytes": file.size,
                "source": source,
                "rows_in": file.rows,
                "stored": file.stored,
                "duplicate": file.duplicate,
                "quarantined": file.bad.total(),
                "ignored": file.ignored,
                "ingested_at": now,
            }
            for file in self.files
            if not file.dropped
        ]
        if rows:
            keys = {file.file_id: file.rows for file in self.files if not file.dropped}
            store.table("files").append(pa.Table.from_pylist(rows, schema=FILES), keys=keys)


def _latest_key(file_id: str) -> str:
    """The key under which `quarantine` keeps the last time that was not too late for a file, where it matters."""
    return f"{file_id}-latest"


def begun_latest(store: LogStore) -> Callable[[str], datetime | None]:
    """Return the latest allowed event time of a file that a run before has begun to commit, or None."""
    delta = LogStore(store.folder).table("quarantine").latest()

    def found(file_id: str) -> datetime | None:
        micros = None if delta is None else delta.transaction_version(_latest_key(file_id))
        return None if micros is None else _EPOCH + micros * _STEP

    return found


def _example(row: dict[str, object]) -> str:
    value = "" if row["value"] is None else f" is '{shown(str(row['value']))}'"
    name = "" if row["field"] is None else f" ({row['field']}{value})"
    return f"line {row['line']}: {row['reason']}{name}"
