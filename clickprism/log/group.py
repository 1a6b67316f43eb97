"""Some input files that go into a log together: three commits under the lock, each at most once for each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.log.faults import fault
from clickprism.log.inputs import Piece
from clickprism.log.schema import FILES, QUARANTINE
from clickprism.log.staging import Stage
from clickprism.log.store import LogStore

GROUP_BYTES: Final = 256 << 20
GROUP_FILES: Final = 1000


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
    examples: list[str] = field(default_factory=list)
    dropped: bool = False

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
    """Files that are read one after another and committed together."""

    stage: Stage
    files: list[InputFile] = field(default_factory=list)
    written: dict[date, list[Path]] = field(default_factory=dict)
    days: set[date] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Whether it is large enough for a commit."""
        return len(self.files) >= GROUP_FILES or sum(file.size for file in self.files) >= GROUP_BYTES

    def last(self, piece: Piece) -> InputFile:
        """The file that a piece is of."""
        if not self.files or self.files[-1].file_id != piece.file_id:
            self.files.append(InputFile(piece.path, piece.file_id, piece.size))
        return self.files[-1]

    def add(self, piece: Piece, file: InputFile) -> None:
        """Stage the rows of a piece."""
        chunk, number = piece.chunk, len(self.files) - 1
        if chunk is None:
            return
        self.stage.add(number, chunk.good)
        self.stage.add_bad(number, chunk.bad)
        file.good += len(chunk.good)
        file.ignored += chunk.ignored
        if len(chunk.bad):
            counts = chunk.bad["reason"].value_counts()
            file.bad.update({str(each["values"]).partition(":")[0]: each["counts"].as_py() for each in counts})
            if not file.examples:
                file.examples = [_example(row) for row in chunk.bad.slice(0, 3).to_pylist()]

    def commit(
        self,
        store: LogStore,
        *,
        threads: int,
        waiting: Callable[[], None],
        settle: Callable[[], None],
        dry_run: bool,
    ) -> None:
        """Put all files into the log that are not there yet; those of another run since are dropped from the group.

        Args:
            store: the log.
            threads: to write with.
            waiting: called if another run holds the log.
            settle: called before the first commit, as the only writer.
            dry_run: write no commit.
        """
        if not self.files:
            return
        self.stage.finish()
        with store.lock(waiting=waiting):
            fault("lock-held")
            ledger = set(store.table("files").read(["file_id"])["file_id"].to_pylist())
            for file in self.files:
                file.dropped |= file.file_id in ledger
            if not dry_run and not all(file.dropped for file in self.files):
                settle()
            self._write(store, threads=threads)
            fault("rows-written")
            if not dry_run:
                self._commit_quarantine(store)
                self._commit_events(store)
                self._commit_files(store)

    def _skip(self, committed: Callable[[str], int | None]) -> list[int]:
        done = (file.dropped or committed(file.file_id) is not None for file in self.files)
        return [number for number, each in enumerate(done) if each]

    def _write(self, store: LogStore, *, threads: int) -> None:
        """Tell duplicates, and write what is stored to files beside the table."""
        events = store.table("events")
        skip = self._skip(events.committed)
        again = {day: self.stage.again(day, events.files([day]), skip=skip) for day in sorted(self.stage.rows)}
        repeated = Counter(int(number) for each in again.values() for number in each.file)
        for number, file in enumerate(self.files):
            before = events.committed(file.file_id)
            file.duplicate = repeated[number] if before is None else file.good - before
        ids = [file.file_id for file in self.files]
        self.written = self.stage.write(again, self.stage.folder, ids=ids, skip=skip, threads=threads)
        resumed = any(events.committed(file.file_id) is not None for file in self.files if not file.dropped)
        self.days = set(self.stage.rows if resumed else self.written)

    def _commit_quarantine(self, store: LogStore) -> None:
        table = store.table("quarantine")
        skip = self._skip(table.committed)
        keys = {file.file_id: file.bad.total() for i, file in enumerate(self.files) if i not in skip and file.bad}
        if not keys:
            return
        path = self.stage.folder / f"{uuid4().hex}.parquet"
        ids, paths = [file.file_id for file in self.files], [file.path for file in self.files]
        with pq.ParquetWriter(path, QUARANTINE, compression="zstd") as writer:
            for rows in self.stage.broken(paths, ids=ids, skip=skip):
                writer.write_table(rows)
        table.commit_files({None: [path]}, keys=keys)

    def _commit_events(self, store: LogStore) -> None:
        table = store.table("events")
        skip = set(self._skip(table.committed))
        keys = {file.file_id: file.stored for number, file in enumerate(self.files) if number not in skip}
        if keys:
            table.commit_files(self.written, keys=keys)

    def _commit_files(self, store: LogStore) -> None:
        now = datetime.now(UTC).replace(tzinfo=None)
        source = store.settings.source.schema
        rows = [
            {
                "file_id": file.file_id,
                "file": str(file.path),
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


def _example(row: dict[str, object]) -> str:
    name = "" if row["field"] is None else f" ({row['field']})"
    return f"line {row['line']}: {row['reason']}{name}"
