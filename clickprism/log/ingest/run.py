"""Add files to a log: every row is accounted for, every event counts once, every file goes in completely or not at all.

    files ─ read ─▶ stage ─ lock ─ deduplicate ─▶ quarantine ─▶ events ─▶ files ─▶ compaction

Each of the three commits carries the SHA-256 of each input file as idempotency key, so that it is done at most once;
the row in `files` comes last and says that all is done. After a crash at any point the same command does what is left.
Small files go in together, by one commit for each table. The files of a day that has many small ones are then merged
(`compact`).
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.crash_points import crash_point
from clickprism._util.files import sha256
from clickprism._util.progress import Progress, no_progress
from clickprism.errors import ClickprismError, DataError, EngineError, SettingError
from clickprism.log.engines.base import by_rows, first_line
from clickprism.log.ingest.account import IGNORED, Account, ColumnHistory
from clickprism.log.ingest.stage import GROUP_ROWS, MANY, Stage, days_of_rows, read_events
from clickprism.log.read import (
    Chunk,
    Part,
    SourceSettings,
    detect,
    find_inputs,
    first_ordinal,
    local_copies,
    read_parts,
    type_rows,
)
from clickprism.log.read.rows import DAYS, shown
from clickprism.log.robots import verdicts
from clickprism.log.schema import EVENTS, FILES, QUARANTINE
from clickprism.log.settings import PARTS, CompactSettings, EngineSettings, LogSettings, RobotSettings
from clickprism.log.store import SETTINGS_FILE, LogStore, refuse_others
from clickprism.log.table import writing

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
        """Add rows of the last file; one query types the rows of several files."""
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
    """Return a function that gives the latest allowed event time of a partially committed file, else None."""
    delta = LogStore(store.folder).table("quarantine").latest()

    def latest(file_id: str) -> datetime | None:
        micros = None if delta is None else delta.transaction_version(_latest_key(file_id))
        return None if micros is None else _EPOCH + micros * _STEP

    return latest


FILTER_ROWS: Final = 1 << 21
"""Rows that one query of the robot rules reads: planning it costs as much as 100 thousand rows."""
_ATTEMPTS: Final = 10
_COUNTED: Final = 'SELECT "filter", count(*) FROM excluded SEMI JOIN file_ids USING (file_id) GROUP BY "filter"'


def ingest(
    paths: Sequence[Path | str],
    into: Path | str,
    *,
    source: SourceSettings | None = None,
    settings: LogSettings | None = None,
    dry_run: bool = False,
    max_bad_ratio: float = 0.01,
    progress: Progress = no_progress,
    note: Callable[[str], None] | None = None,
    threads: int = 2,
    memory: str = "2GB",
    robots: bool = True,
    many: int = MANY,
) -> Account:
    """Add files to a log, and account for every row of them.

    An error says what was not ingested; its `done` is the account of what was ingested before it.

    Args:
        paths: files, folders or patterns, local or at a URL such as s3://bucket/events.
        into: the folder of the log; it is created if missing.
        source: how files are read; by default as the log has it. A log keeps the settings of its first rows.
        settings: settings of a new log; an existing one keeps its own.
        dry_run: do everything but write.
        max_bad_ratio: maximum share of broken rows so far; a file that exceeds it is not ingested: an error.
        progress: called with the percentage of the input that was read.
        note: receives messages for the user, such as that another process is writing to the log.
        threads: number of threads.
        memory: maximum memory of DuckDB.
        robots: count the rows that robot rules exclude, which reads whole days; else they count as accepted.
        many: days with more small files than this after the run get them merged into one; see `compact`.
    """
    if not 0 <= max_bad_ratio <= 1:
        raise SettingError("max_bad_ratio", max_bad_ratio, "be from 0 to 1")
    if threads < 1:
        raise SettingError("threads", threads, "be at least 1")
    EngineSettings(memory=memory)
    started, given = time.monotonic(), settings or LogSettings()
    given = given if source is None else given.with_part("source", source)
    with ExitStack() as stack:
        inputs = find_inputs(stack.enter_context(local_copies(paths, note=note)))
        store = stack.enter_context(_opened(into, dry_run=dry_run, note=note))
        stack.enter_context(_failing(store.folder))
        writer = stack.enter_context(
            store.write(memory=memory, threads=threads, exclusive=False, finish_erasure=not dry_run)
        )
        given = _with_ordinal_base(store, given, inputs, note)
        config: dict[str, Any] = {"threads": threads, "memory_limit": memory}
        config["temp_directory"] = str(writer.temp / "spill")
        connection = stack.enter_context(duckdb.connect(config=config))
        run = _Run(
            store, given, _settings(store, given), writer.temp, connection, dry_run, max_bad_ratio, progress, threads
        )
        try:
            with _failing(store.folder):
                run.read(inputs)
                run.compact(many)
        except ClickprismError as error:
            with suppress(ClickprismError, duckdb.Error):
                error.done = run.account(started, robots=robots)
            raise
        return run.account(started, robots=robots)


@contextmanager
def _opened(into: Path | str, *, dry_run: bool, note: Callable[[str], None] | None) -> Iterator[LogStore]:
    """Yield the log; for a dry run into a folder that is no log yet, an empty one that is deleted at the end."""
    if dry_run and not (Path(into) / SETTINGS_FILE).exists():
        refuse_others(Path(into))
        with tempfile.TemporaryDirectory(prefix="clickprism-") as folder:
            yield LogStore.open(folder, create=True)
    else:
        yield LogStore.open(into, create=not dry_run, note=note)


def _with_ordinal_base(
    store: LogStore, given: LogSettings, inputs: Sequence[Path], note: Callable[[str], None] | None
) -> LogSettings:
    """Add the number of the first position of UBI events to the settings, if it can and must be detected."""
    source = (given if "source" in given.values else store.settings).source
    wanted = source.ordinal_base is None and not source.mapping and source.schema in ("auto", "ubi")
    base = first_ordinal(inputs, source) if wanted else None
    if base is None:
        return given
    if note is not None:
        found = "Positions start from 0: 1 is added to each" if base == 0 else "Positions start from 1"
        note(f"{found}. If this is wrong, ingest into another folder with --ordinal-base {1 - base}.")
    return given.with_part("source", replace(source, ordinal_base=base))


def _settings(store: LogStore, given: LogSettings) -> LogSettings:
    """Return the stored settings of a log with rows, which no option may contradict; else all given values."""
    path, kept = store.folder / SETTINGS_FILE, store.settings
    others = [name for name in given.values if kept.part(name) != given.part(name)]
    if path.exists() and not others:
        return kept
    unset = kept.source.ordinal_base is None and not kept.source.mapping  # no row so far has needed it
    if others == ["source"] and unset and kept.source == replace(given.source, ordinal_base=None):
        return kept.with_part("source", given.source)
    if not path.exists() or not any(store.table(name).files() for name in ("quarantine", "events", "files")):
        merged = LogSettings({**kept.values, **given.values})
        for name in PARTS:
            if name != "examination" or name in merged.values:
                merged = merged.with_part(name, merged.part(name))
        return merged
    old, new = kept.part(others[0]), given.part(others[0])
    field = next(each.name for each in fields(new) if getattr(old, each.name) != getattr(new, each.name))
    must = "not be given" if getattr(old, field) is None else f"be {getattr(old, field)!r}"
    words = f"{must}, as in {path} (omit it, or ingest into another folder)"
    raise SettingError(f"{others[0]}.{field}", getattr(new, field), words)


@dataclass
class _Run:
    """One run of `ingest`."""

    store: LogStore
    given: LogSettings
    settings: LogSettings
    temp: Path
    connection: duckdb.DuckDBPyConnection
    dry_run: bool
    max_bad_ratio: float
    progress: Progress
    threads: int
    files: list[InputFile] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    known: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_all: int = 0
    days: set[date] = field(default_factory=set)
    written: dict[date, list[Path]] = field(default_factory=dict)

    def read(self, inputs: Sequence[Path]) -> None:
        """Read and commit all files, group by group. Complete files are committed before an error is raised."""
        self.bytes_all = sum(path.stat().st_size for path in inputs if path.is_file())
        known = set(self.store.table("files").read(["file_id"])["file_id"].to_pylist())
        columns, begun, latest = ColumnHistory(self.store), begun_latest(self.store), self.settings.source.last_time
        group = self._new_group()
        for path in inputs:
            number = len(group.files)
            try:
                file = open_input(path)
                if file.file_id in known:
                    self.known += 1
                    self.bytes_read += file.size
                    continue
                known.add(file.file_id)
                group.files.append(file)
                self._read_file(file, begun(file.file_id) or latest, group)
            except ClickprismError as error:
                group.drop(number, error)
            if group.error is not None or (group.full and not self.dry_run):
                self._commit(group, columns)
                group = self._new_group()
        self._commit(group, columns)

    def _new_group(self) -> Group:
        return Group(Stage(self.connection, self.temp), self.connection, self.settings.source.last_time)

    def _read_file(self, file: InputFile, latest: datetime, group: Group) -> None:
        source = replace(self.settings.source, latest=latest.isoformat())
        found = detect(file.path, source)
        file.columns = found.columns
        if found.schema == "yandex" and not set(DAYS) & set(found.columns):
            self.store.note(f"{file.path.name} has no column with the day: all searches count as one, {source.start}")
        for part in read_parts(file.path, source, self.connection, found=found):
            group.add(part)
            self.rows += len(part.rows.texts) + len(part.rows.bad)
            self.bytes_read += part.rows.read
            self._say(f"reading {file.path.name}")
        if open_input(file.path, file.file_id).state != file.state:
            problem = "changed while it was read; nothing of it was ingested"
            raise DataError(problem, file=file.path, remedy="Run the same command again when it is complete")

    def compact(self, many: int) -> None:
        """Merge the small files of each day that got rows, if the day has more than the allowed number."""
        from clickprism.log.compact import compact

        if self.days and not self.dry_run:
            self._say("compacting")
            compact(self.store, CompactSettings(files=many), small=GROUP_ROWS, days=self.days)

    def _commit(self, group: Group, columns: ColumnHistory) -> None:
        group.type_rows()
        self._say("writing")
        self._refuse_too_bad(group, columns)
        dropped = sum(file.dropped for file in group.files)
        group.commit(self.store, self.temp, settle=self._settle, dry_run=self.dry_run, threads=self.threads)
        self.known += sum(file.dropped for file in group.files) - dropped
        kept = [file for file in group.files if not file.dropped]
        for file in kept:
            if change := columns.compare(file.path, file.columns):
                self.changes.append(change)
                self.store.note(change)
            columns.add(file.columns)
        if kept and not self.dry_run:
            with writing(self.store.folder):
                columns.write()
        self.files += kept
        self.days |= group.days
        self.written |= group.written
        if group.error is not None:
            raise group.error

    def _refuse_too_bad(self, group: Group, columns: ColumnHistory) -> None:
        """Drop the first file with which too many rows so far are broken, and all after it."""
        bad, rows = sum(file.bad.total() for file in self.files), sum(file.rows for file in self.files)
        for number, file in enumerate(group.files):
            if file.dropped:
                return
            crash_point("file-staged")
            bad, rows = bad + file.bad.total(), rows + file.rows
            if bad > Fraction(str(self.max_bad_ratio)) * rows:
                examples = [each for each in (*file.examples, columns.compare(file.path, file.columns)) if each]
                problem = f"{bad:,} of {rows:,} rows are broken, more than --max-bad-ratio {self.max_bad_ratio:g}; "
                problem += f"nothing of this file was ingested. {'; '.join(examples)}"
                remedy = "Repair them, or check --schema and --mapping"
                remedy += "; --max-bad-ratio 1 puts broken rows into quarantine"
                group.drop(number, DataError(problem, file=file.path, remedy=remedy))
                return

    def _settle(self) -> None:
        """Write the settings of a new log; an error if another run has written others since the files were read."""
        settings = _settings(self.store, self.given)
        if settings.source != self.settings.source:
            words = "Another ingest changed the source settings of this log. No rows were added"
            raise DataError(words, file=self.store.folder / SETTINGS_FILE, remedy="Run the same command again")
        self.settings = settings
        if settings.values != self.store.settings.values:
            self.store.write_settings(settings)
        crash_point("settings-written")

    def _say(self, doing: str) -> None:
        self.progress(100 * self.bytes_read // max(self.bytes_all, 1), 100, f"{doing}, {self.rows:,} rows")

    def account(self, started: float, *, robots: bool) -> Account:
        """Return where every row went."""
        filtered = self._filtered() if robots else Counter[str]()
        ignored = sum(file.ignored for file in self.files)
        return Account(
            rows_in=sum(file.rows for file in self.files),
            accepted=sum(file.stored for file in self.files) - filtered.total(),
            duplicate=sum(file.good - file.stored for file in self.files),
            filtered=dict(sorted(filtered.items())) | ({IGNORED: ignored} if ignored else {}),
            quarantined=dict(sorted(sum((file.bad for file in self.files), Counter()).items())),
            days=tuple(sorted(self.days)),
            files=len(self.files),
            known=self.known,
            changes=tuple(self.changes),
            seconds=time.monotonic() - started,
            dry_run=self.dry_run,
        ).check()

    def _filtered(self) -> Counter[str]:
        """Count the rows that robot rules exclude, again if files are deleted meanwhile, for example by `forget`."""
        events = self.store.table("events")
        for _ in range(_ATTEMPTS):
            before = events.version
            try:
                return self._filtered_now()
            except (FileNotFoundError, duckdb.IOException):
                if events.version == before:
                    raise
        remedy = "The rows are stored: see the table files"
        raise DataError("changes too often to be counted", file=events.folder, remedy=remedy)

    def _filtered_now(self) -> Counter[str]:
        filtered: Counter[str] = Counter()
        ids = [file.file_id for file in self.files if file.stored]
        files = {day: self._events(day) for day in sorted(self.days)} if ids else {}
        rows = {day: sum(pq.read_metadata(path).num_rows for path in paths) for day, paths in files.items() if paths}
        for days in by_rows(rows, most=FILTER_ROWS):
            self._say(f"robot rules, {days[0]}")
            listed = [path for day in days for path in files[day]]
            filtered += filtered_rows(self.connection, listed, ids, self.settings.robots)
        return filtered

    def _events(self, day: date) -> list[str]:
        """Return all files of a day; in a dry run also those that would be added."""
        written = self.written.get(day, []) if self.dry_run else []
        return [*self.store.table("events").files([day]), *map(str, written)]


def filtered_rows(
    connection: duckdb.DuckDBPyConnection, files: Sequence[str], file_ids: Collection[str], settings: RobotSettings
) -> Counter[str]:
    """Count the rows of some input files that a robot rule excludes, by rule."""
    connection.execute(" ".join(["CREATE OR REPLACE TEMP VIEW events_of_days AS FROM", read_events(files)]))
    ((kinds,),) = connection.execute("SELECT list(DISTINCT kind) FROM events_of_days").fetchall()
    connection.register("file_ids", pa.table({"file_id": pa.array(sorted(file_ids), pa.string())}))
    try:
        return Counter(dict(connection.execute(_filter_query(settings, tuple(sorted(kinds)))).fetchall()))
    finally:
        connection.unregister("file_ids")


@cache
def _filter_query(settings: RobotSettings, kinds: tuple[str, ...]) -> str:
    """Return the robot rules as SQL of DuckDB, over `events_of_days`."""
    import ibis

    schema = pa.schema([each.with_nullable(True) for each in EVENTS])
    events = ibis.table(ibis.Schema.from_pyarrow(schema), name="events_of_days")
    judged = verdicts(events, settings, kinds=kinds)
    excluded = ibis.to_sql(judged.filter(judged["filter"].notnull()).select("file_id", "filter"), dialect="duckdb")
    return f"WITH excluded AS ({excluded}) {_COUNTED}"


@contextmanager
def _failing(folder: Path) -> Iterator[None]:
    """Turn a full disk, too little memory, or an engine that fails into an error with a remedy."""
    try:
        with writing(folder):
            yield
    except (duckdb.OutOfMemoryException, pa.ArrowMemoryError) as error:
        raise EngineError(f"There is too little memory ({error}). Give it more by --memory 4GB") from None
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.IOException as error:
        with writing(folder):
            raise OSError(first_line(error)) from None
    except (duckdb.Error, pa.ArrowException) as error:
        remedy = "The log was not changed partially. Run the same command again, and report this error if it repeats"
        raise EngineError(f"{type(error).__name__}: {first_line(error)}. {remedy}") from None
