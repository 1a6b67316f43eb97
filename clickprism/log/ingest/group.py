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
from clickprism.log.ingest.stage import Stage, days_of_rows
from clickprism.log.read import Chunk, Part, type_rows
from clickprism.log.read.validate import shown
from clickprism.log.schema import FILES, QUARANTINE
from clickprism.log.store import LogStore

GROUP_BYTES: Final = 128 << 20
"""Bytes of input files after which they are committed."""
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
        state: size, time of change and inode before it was read.
        columns: names and types of its columns, as its first rows show; empty if they were not looked at.
        stored: number of rows that count, if no rule excludes them; the other good rows are duplicates.
        dropped: whether it is not committed.
    """

    path: Path
    file_id: str
    state: tuple[int, int, int]
    columns: Mapping[str, str] = field(default_factory=dict)
    good: int = 0
    ignored: int = 0
    stored: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    header: str | None = None
    examples: list[str] = field(default_factory=list)
    dropped: bool = False

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.state[0]

    @property
    def rows(self) -> int:
        """Number of input rows."""
        return self.good + self.ignored + self.bad.total()

    @property
    def name(self) -> str:
        """Path as text; bytes that are not UTF-8 are escaped."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    def add(self, chunk: Chunk) -> None:
        """Count some rows."""
        self.good += len(chunk.good)
        self.ignored += chunk.ignored
        self.header = chunk.header if self.header is None else self.header
        if not len(chunk.bad):
            return
        for each in chunk.bad["reason"].value_counts().to_pylist():
            self.bad[each["values"].partition(":")[0]] += each["counts"]
        for row in [] if self.examples else chunk.bad.slice(0, 3).to_pylist():
            value = "" if row["value"] is None else f" is '{shown(row['value'])}'"
            name = "" if row["field"] is None else f" ({row['field']}{value})"
            self.examples.append(f"line {row['line']}: {row['reason']}{name}")


def open_input(path: Path, file_id: str | None = None) -> InputFile:
    """Return a file before it is read; its hash is computed unless it is given."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise DataError("is not a regular file", file=path, remedy="Save it to a file first: it is read twice")
        state = (about.st_size, about.st_mtime_ns, about.st_ino)
        return InputFile(path, sha256(path) if file_id is None else file_id, state)
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error}); nothing of it was ingested"
        raise DataError(problem, file=path, remedy="Check the file and run the command again") from None


@dataclass
class Group:
    """Files that are read one after another and committed together.

    Attributes:
        stage: their rows.
        connection: of DuckDB, which types rows.
        latest: latest allowed event time of files that no earlier run has begun to commit.
        files: in their order.
        error: why no more files are read after these.
        written: files of the stored rows, by day.
        days: days that got rows.
    """

    stage: Stage
    connection: duckdb.DuckDBPyConnection
    latest: datetime
    files: list[InputFile] = field(default_factory=list)
    error: ClickprismError | None = None
    written: dict[date, list[Path]] = field(default_factory=dict)
    days: set[date] = field(default_factory=set)
    _parts: list[tuple[int, Part]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether it is large enough for a commit."""
        return len(self.files) >= GROUP_FILES or sum(file.size for file in self.files) >= GROUP_BYTES

    def add(self, part: Part) -> None:
        """Take rows of the last file; those of several files are typed by one query."""
        self._parts.append((len(self.files) - 1, part))
        if sum(part.rows.texts.nbytes for _, part in self._parts) >= PART_BYTES:
            self.type_rows()

    def type_rows(self) -> None:
        """Type and stage the rows that were taken; drop the first file that cannot be read, and those after it."""
        parts, self._parts = self._parts, []
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
            self.files[number].add(chunk)
            self.stage.add(number, days_of_rows(chunk.good), chunk.bad)

    def drop(self, number: int, error: ClickprismError) -> None:
        """Omit the file with this number and all after it, for this reason."""
        self.error = error
        for file in self.files[number:]:
            file.dropped = True

    def commit(self, store: LogStore, temp: Path, *, settle: Callable[[], None], dry_run: bool, threads: int) -> None:
        """Add all files to the log that are not in it yet; files that another run has added meanwhile are dropped."""
        if not self.files:
            return
        with store.lock():  # from here on nobody else commits
            crash_point("lock-held")
            ledger = set(store.table("files").read(["file_id"])["file_id"].to_pylist())
            for file in self.files:
                file.dropped |= file.file_id in ledger
            if not dry_run and not all(file.dropped for file in self.files):
                settle()
            ids = [file.file_id for file in self.files]
            stored, broken = (store.table(name).committed(ids) for name in ("events", "quarantine"))
            self._refuse_others(stored, broken)
            self._write(store, temp, stored, threads)
            crash_point("rows-written")
            if not dry_run:
                self._commit_quarantine(store, temp, broken)
                keys = {
                    file.file_id: file.stored for number, file in enumerate(self.files) if number in self._new(stored)
                }
                if keys:
                    store.table("events").commit_files(self.written, keys=keys)
                self._commit_files(store)

    def _refuse_others(self, stored: Mapping[str, int], broken: Mapping[str, int]) -> None:
        """Raise an error if a run that died had begun to commit a file and had found other broken rows in it."""
        for file in self.files:
            begun = not file.dropped and (file.file_id in stored or file.file_id in broken)
            if begun and broken.get(file.file_id, 0) != file.bad.total():
                raise DataError(
                    f"a run that did not end found {broken.get(file.file_id, 0):,} broken rows, "
                    f"this one {file.bad.total():,}",
                    file=file.name,
                    remedy="Run the same command again, with the settings and the version of clickprism that it had",
                )

    def _new(self, committed: Mapping[str, int]) -> list[int]:
        """Return the numbers of the files that are to be committed and were not."""
        return [i for i, file in enumerate(self.files) if not file.dropped and file.file_id not in committed]

    def _write(self, store: LogStore, temp: Path, stored: Mapping[str, int], threads: int) -> None:
        """Deduplicate, and write the rows to store to files beside the table."""
        events, days = store.table("events"), self.stage.days()
        counts = self.stage.deduplicate(events.files(days), use=self._new(stored))
        for number, file in enumerate(self.files):
            file.stored = stored.get(file.file_id, counts[number])
        self.written = self.stage.write(temp / uuid4().hex, ids=[file.file_id for file in self.files], threads=threads)
        resumed = any(file.file_id in stored for file in self.files if not file.dropped)
        self.days = set(self.written) | (set(days).intersection(events.days()) if resumed else set())

    def _commit_quarantine(self, store: LogStore, temp: Path, broken: Mapping[str, int]) -> None:
        new = [number for number in self._new(broken) if self.files[number].bad]
        if not new:
            return
        keys = {self.files[number].file_id: self.files[number].bad.total() for number in new}
        late = [self.files[number].file_id for number in new if self.files[number].bad[LATE]]
        keys |= {_latest_key(file_id): (self.latest - _EPOCH) // _STEP for file_id in late}
        path = temp / f"{uuid4().hex}.parquet"
        names = [(file.file_id, file.name, file.header) for file in self.files]
        with pq.ParquetWriter(path, QUARANTINE, compression="zstd") as writer:
            for rows in self.stage.broken(names, use=new):
                writer.write_table(rows)
        store.table("quarantine").commit_files({None: [path]}, keys=keys)

    def _commit_files(self, store: LogStore) -> None:
        now, kept = datetime.now(UTC).replace(tzinfo=None), [file for file in self.files if not file.dropped]
        rows = [
            {
                "file_id": file.file_id,
                "file": file.name,
                "bytes": file.size,
                "source": store.settings.source.schema,
                "rows_in": file.rows,
                "stored": file.stored,
                "duplicate": file.good - file.stored,
                "quarantined": file.bad.total(),
                "ignored": file.ignored,
                "ingested_at": now,
            }
            for file in kept
        ]
        if rows:
            keys = {file.file_id: file.rows for file in kept}
            store.table("files").append(pa.Table.from_pylist(rows, schema=FILES), keys=keys)


def _latest_key(file_id: str) -> str:
    """Return the key under which `quarantine` keeps the latest allowed time of a file with rows after it."""
    return f"{file_id}-latest"


def begun_latest(store: LogStore) -> Callable[[str], datetime | None]:
    """Return a function for the latest allowed event time of a partially committed file, or None of others."""
    delta = LogStore(store.folder).table("quarantine").latest()

    def latest(file_id: str) -> datetime | None:
        micros = None if delta is None else delta.transaction_version(_latest_key(file_id))
        return None if micros is None else _EPOCH + micros * _STEP

    return latest
