"""Some input files that go into a log together: three commits under the lock, each at most once for each file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.crash_points import crash_point
from clickprism.errors import ClickprismError, DataError
from clickprism.log.pieces import Piece
from clickprism.log.readers import Chunk, Rest, read_rests
from clickprism.log.readers.chunk import shown
from clickprism.log.readers.rest import joined
from clickprism.log.schema import FILES, QUARANTINE
from clickprism.log.staging import Days, Stage, by_day
from clickprism.log.store import LogStore
from clickprism.log.threads import Workers

GROUP_BYTES: Final = 128 << 20
GROUP_FILES: Final = 1000
REST_BYTES: Final = 24 << 20
LATE: Final = "time-late"
_EPOCH: Final = datetime(1970, 1, 1)
_STEP: Final = timedelta(microseconds=1)


@dataclass
class InputFile:
    """One input file, and where its rows went."""

    path: Path
    file_id: str
    size: int
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
        """Input rows."""
        return self.good + self.ignored + self.bad.total()

    @property
    def stored(self) -> int:
        """Rows that count, if no rule leaves them out."""
        return self.good - self.duplicate


@dataclass
class Group:
    """Files that are read one after another and committed together.

    Attributes:
        stage: their rows.
        latest: the last time that was not too late for the files that no run before has begun to commit.
        files: in their order.
        known: how many files were known before, and so not read.
        error: why no more files are read after these.
        written: the files of the rows that are stored, by day.
        days: those that got rows.

    Once the lock is held, nobody else commits: what was committed of the files is asked once.
    """

    stage: Stage
    latest: datetime
    files: list[InputFile] = field(default_factory=list)
    known: int = 0
    error: ClickprismError | None = None
    written: dict[date, list[Path]] = field(default_factory=dict)
    days: set[date] = field(default_factory=set)
    _rests: dict[int, list[Rest]] = field(default_factory=dict)
    _rest_bytes: int = 0
    _stored: dict[str, int] = field(default_factory=dict)
    _broken: dict[str, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether it is large enough for a commit."""
        return len(self.files) >= GROUP_FILES or sum(file.size for file in self.files) >= GROUP_BYTES

    def add(self, piece: Piece) -> None:
        """Stage the rows of a piece, which is of the last file or of a new one."""
        if not self.files or self.files[-1].file_id != piece.file_id:
            self.files.append(InputFile(piece.path, piece.file_id, piece.size))
        number = len(self.files) - 1
        if piece.chunk is not None:
            self._add(number, piece.chunk, piece.days)
        if piece.rest is not None:
            self._rests.setdefault(number, []).append(piece.rest)
            self._rest_bytes += len(piece.rest.lines.data)
            if self._rest_bytes >= REST_BYTES:
                self.read_rests()

    def read_rests(self) -> None:
        """Stage the rows of lines that were left to be read together; files from one on that cannot be are dropped."""
        rests = {number: joined(parts) for number, parts in self._rests.items()}
        self._rests, self._rest_bytes = {}, 0
        try:
            chunks = read_rests([*rests.values()])
        except DataError:
            chunks = []
            try:
                for rest in rests.values():
                    chunks += read_rests([rest])
            except DataError as error:
                self.drop([*rests][len(chunks)], error)
        for number, chunk in zip(rests, chunks, strict=False):
            self._add(number, chunk, by_day(chunk.good))

    def drop(self, number: int, error: ClickprismError) -> None:
        """Leave out the file with this number and all behind it, for this reason."""
        self.error = error
        for file in self.files[number:]:
            file.dropped = True

    def _add(self, number: int, chunk: Chunk, days: Days) -> None:
        file = self.files[number]
        self.stage.add(number, days)
        self.stage.add_bad(number, chunk.bad)
        file.good += len(chunk.good)
        file.ignored += chunk.ignored
        file.header = chunk.header if file.header is None else file.header
        if len(chunk.bad):
            counts = chunk.bad["reason"].value_counts()
            file.bad.update({str(each["values"]).partition(":")[0]: each["counts"].as_py() for each in counts})
            if not file.examples:
                file.examples = [_example(row) for row in chunk.bad.slice(0, 3).to_pylist()]

    def commit(
        self,
        store: LogStore,
        *,
        workers: Workers,
        settle: Callable[[], None],
        dry_run: bool,
    ) -> None:
        """Put all files into the log that are not there yet; those of another run since are dropped from the group.

        Args:
            store: the log.
            workers: to write with.
            settle: called before the first commit, as the only writer.
            dry_run: write no commit.
        """
        if not self.files:
            return
        self.stage.finish()
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
            self._write(store, workers=workers)
            crash_point("rows-written")
            if not dry_run:
                self._commit_quarantine(store)
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

    def _write(self, store: LogStore, *, workers: Workers) -> None:
        """Tell duplicates, and write what is stored to files beside the table."""
        events = store.table("events")
        skip = self._skip(self._stored)
        stored: dict[date, list[str]] = {day: [] for day in sorted(self.stage.rows)}
        for path in events.files(stored):
            stored[date.fromisoformat(Path(path).parent.name.removeprefix("day="))].append(path)
        again = self.stage.again(stored, skip=skip, workers=workers)
        repeated = self.stage.repeated(again, skip=skip)
        for number, file in enumerate(self.files):
            before = self._stored.get(file.file_id)
            file.duplicate = repeated[number] if before is None else file.good - before
        ids = [file.file_id for file in self.files]
        self.written = self.stage.write(again, self.stage.folder, ids=ids, skip=skip, workers=workers)
        resumed = any(file.file_id in self._stored for file in self.files if not file.dropped)
        self.days = set(self.written) | (set(self.stage.rows).intersection(events.days()) if resumed else set())

    def _commit_quarantine(self, store: LogStore) -> None:
        skip = self._skip(self._broken)
        keys = {file.file_id: file.bad.total() for i, file in enumerate(self.files) if i not in skip and file.bad}
        if not keys:
            return
        late = [file.file_id for file in self.files if file.file_id in keys and file.bad[LATE]]
        keys |= {latest_key(file_id): (self.latest - _EPOCH) // _STEP for file_id in late}
        path = self.stage.folder / f"{uuid4().hex}.parquet"
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
        now = datetime.now(UTC).replace(tzinfo=None)
        source = store.settings.source.schema
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


def latest_key(file_id: str) -> str:
    """What `quarantine` remembers the last time under that was not too late for a file, where it matters."""
    return f"{file_id}-latest"


def begun_latest(store: LogStore) -> Callable[[str], datetime | None]:
    """Of a file that a run before has begun to commit, what was its last time that was not too late; None of others."""
    delta = LogStore(store.folder).table("quarantine").latest()

    def found(file_id: str) -> datetime | None:
        micros = None if delta is None else delta.transaction_version(latest_key(file_id))
        return None if micros is None else _EPOCH + micros * _STEP

    return found


def _example(row: dict[str, object]) -> str:
    value = "" if row["value"] is None else f" is '{shown(str(row['value']))}'"
    name = "" if row["field"] is None else f" ({row['field']}{value})"
    return f"line {row['line']}: {row['reason']}{name}"
