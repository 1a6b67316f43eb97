"""Input files into a log: every row is accounted for, every event counts once, every file goes in whole or not at all.

    files ─ read ─▶ staging, by day ─ lock ─ tell duplicates ─▶ quarantine ─▶ events ─▶ files ─▶ compaction
            next files, meanwhile

Each of the three commits carries the SHA-256 of each input file as idempotency key, so that it is done at most once;
the row in `files` comes last and says that all is done. After a crash at any point the same command does what is
left. Small files go in together, by one commit for each table. A day that has got many small files of many runs is then
put into fewer (`compact`).
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.crash_points import crash_point
from clickprism._util.progress import Progress, no_progress
from clickprism.errors import ClickprismError, DataError, EngineError, SettingError
from clickprism.log.account import IGNORED, Account
from clickprism.log.compact import MANY, SMALL, compact
from clickprism.log.engine import by_rows
from clickprism.log.filtered import ROWS, filtered_rows
from clickprism.log.group import Group, InputFile, begun_latest
from clickprism.log.pieces import read_pieces
from clickprism.log.readers import SourceSettings, Task, find_inputs, read_tasks
from clickprism.log.settings import PARTS, CompactSettings, EngineSettings, LogSettings
from clickprism.log.staging import Stage
from clickprism.log.store import SETTINGS_FILE, LogStore, refuse_others
from clickprism.log.table import first_line, writing
from clickprism.log.threads import Workers, ahead

_LARGE: Final = (32 << 20) - 8192
"""The C library keeps what is freed up to twice the largest block freed so far, at most this; new pages cost more."""

_ATTEMPTS: Final = 10


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
    """Read files into a log, and account for every row of them.

    What an error leaves out, it says; what went in before it is the account that it carries as `done`.

    Args:
        paths: files, folders, patterns.
        into: the folder of the log; it is made if missing.
        source: how files are read; None: as the log has it. A log keeps the settings of its first rows.
        settings: of a new log; an old one keeps its own.
        dry_run: do everything but write.
        max_bad_ratio: a file after which more than this share of all rows so far is broken is not ingested: an error.
            1: never.
        progress: called with the percentage of the input that was read.
        note: receives messages for the user, such as that another process is writing to the log.
        threads: to use.
        memory: what DuckDB may hold at a time.
        robots: count the rows that robot rules leave out, which reads whole days; else they are counted as accepted.
        many: days that have more small files than this after the run get them put into one; see `compact`.
    """
    if not 0 <= max_bad_ratio <= 1:
        raise SettingError("max_bad_ratio", max_bad_ratio, "be from 0 to 1")
    if threads < 1:
        raise SettingError("threads", threads, "be at least 1")
    EngineSettings(memory=memory)
    bytearray(_LARGE)
    started, inputs = time.monotonic(), find_inputs(paths)
    given = settings or LogSettings()
    given = given if source is None else given.with_part("source", source)
    with (
        _opened(into, dry_run=dry_run, note=note) as store,
        _failing(store.folder),
        store.write(memory=memory, threads=threads, exclusive=False, finish_erasure=not dry_run) as writer,
    ):
        merged = _settings(store, given)
        config: dict[str, str | bool | int | float | list[str]]
        config = {"threads": threads, "memory_limit": memory, "temp_directory": str(writer.temp / "spill")}
        with duckdb.connect(config=config) as connection:
            run = _Run(store, given, merged, writer.temp, connection, dry_run, max_bad_ratio, progress, threads, robots)
            try:
                with _failing(store.folder):
                    run.read(inputs)
                    run.compact(many)
            except ClickprismError as error:
                with suppress(ClickprismError, duckdb.Error):
                    error.done = run.account(started).check()
                raise
            return run.account(started).check()


@contextmanager
def _opened(into: Path | str, *, dry_run: bool, note: Callable[[str], None] | None) -> Iterator[LogStore]:
    """The log; for a dry run into a folder that is none yet, an empty one that is gone at the end."""
    if dry_run and not (Path(into) / SETTINGS_FILE).exists():
        refuse_others(Path(into))
        with tempfile.TemporaryDirectory(prefix="clickprism-") as folder:
            yield LogStore.open(folder, create=True)
    else:
        yield LogStore.open(into, create=not dry_run, note=note)


def _settings(store: LogStore, given: LogSettings) -> LogSettings:
    """What is in force: of a log with rows its own, which nothing may contradict; else all values, written out."""
    path, kept = store.folder / SETTINGS_FILE, store.settings
    others = [name for name in given.values if kept.part(name) != given.part(name)]
    if path.exists() and not others:
        return kept
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
    staging: Path
    connection: duckdb.DuckDBPyConnection
    dry_run: bool
    max_bad_ratio: float
    progress: Progress
    threads: int
    robots: bool
    files: list[InputFile] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    known: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_all: int = 0
    days: set[date] = field(default_factory=set)
    written: dict[date, list[Path]] = field(default_factory=dict)

    def read(self, inputs: Sequence[Path]) -> None:
        """All files, group by group: the next is read while one is written.

        What is whole is committed before an error of a file goes on.
        """
        groups = ahead(self._groups(inputs), held=0)
        with Workers(self.threads) as workers:
            try:
                for group in groups:
                    self._commit(group, workers)
                    if group.error is not None:
                        raise group.error
            finally:
                self.stopped.set()
                groups.close()

    def compact(self, many: int) -> None:
        """Put small files of the days that got rows together, where there are more than so many."""
        if self.days and not self.dry_run:
            self._say("compacting")
            compact(self.store, CompactSettings(files=many), small=SMALL, days=self.days)

    def _groups(self, inputs: Sequence[Path]) -> Iterator[Group]:
        self.bytes_all = sum(path.stat().st_size for path in inputs if path.is_file())
        ledger = set(self.store.table("files").read(["file_id"])["file_id"].to_pylist())
        source, begun = self.settings.source, begun_latest(self.store)
        latest = source.last_time

        def read(path: Path, file_id: str) -> Iterator[Task]:
            told = replace(source, latest=(begun(file_id) or latest).isoformat())
            return read_tasks(path, told, expected=self.bytes_all)

        group = Group(Stage(self.staging), latest)
        for piece in read_pieces(inputs, ledger.__contains__, read, threads=self.threads):
            if piece.known:
                group.known += 1
                self.bytes_read += piece.size
            elif piece.error is not None:
                last = len(group.files) - 1
                group.drop(last if group.files and group.files[-1].path == piece.path else last + 1, piece.error)
            else:
                group.add(piece)
                if piece.chunk is not None:
                    self.rows += piece.chunk.rows
                    self.bytes_read += piece.chunk.bytes_read
                    self._say(f"reading {piece.path.name}")
            if self.stopped.is_set():
                return
            if group.error is not None:
                break
            if piece.chunk is None and group.full and not self.dry_run:
                group.read_rests()
                yield group
                group = Group(Stage(self.staging), latest)
        group.read_rests()
        yield group

    def _commit(self, group: Group, workers: Workers) -> None:
        self._say("writing")
        self._refuse_too_bad(group)
        dropped = sum(file.dropped for file in group.files)
        group.commit(
            self.store,
            workers=workers,
            settle=self._settle,
            dry_run=self.dry_run,
        )
        self.known += group.known + sum(file.dropped for file in group.files) - dropped
        self.files += [file for file in group.files if not file.dropped]
        self.days |= group.days
        self.written |= group.written

    def _refuse_too_bad(self, group: Group) -> None:
        """Drop the first file, and all behind it, with which too many rows so far are broken."""
        bad, rows = sum(file.bad.total() for file in self.files), sum(file.rows for file in self.files)
        for number, file in enumerate(group.files):
            if file.dropped:
                return
            crash_point("file-staged")
            bad, rows = bad + file.bad.total(), rows + file.rows
            if bad > Fraction(str(self.max_bad_ratio)) * rows:
                problem = f"{bad:,} of {rows:,} rows are broken, more than --max-bad-ratio {self.max_bad_ratio:g}; "
                problem += f"nothing of this file was ingested. {'; '.join(file.examples)}"
                remedy = (
                    "Repair them, or check --schema and --mapping; --max-bad-ratio 1 puts broken rows into quarantine"
                )
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

    def account(self, started: float) -> Account:
        """Where every row went."""
        filtered = self._filtered()
        stored, ignored = sum(file.stored for file in self.files), sum(file.ignored for file in self.files)
        reasons = sum((file.bad for file in self.files), Counter())
        return Account(
            rows_in=sum(file.rows for file in self.files),
            accepted=stored - filtered.total(),
            duplicate=sum(file.duplicate for file in self.files),
            filtered=dict(sorted(filtered.items())) | ({IGNORED: ignored} if ignored else {}),
            quarantined=dict(sorted(reasons.items())),
            days=tuple(sorted(self.days)),
            files=len(self.files),
            known=self.known,
            seconds=time.monotonic() - started,
            dry_run=self.dry_run,
        )

    def _filtered(self) -> Counter[str]:
        """The rows that robot rules leave out; counted again if files went meanwhile, by `forget` for example."""
        events = self.store.table("events")
        for _ in range(_ATTEMPTS):
            before = events.version
            try:
                return self._filtered_now()
            except (FileNotFoundError, duckdb.IOException):
                if events.version == before:
                    raise
        raise DataError(
            "changes too often to be counted", file=events.folder, remedy="The rows are in: see the table files"
        )

    def _filtered_now(self) -> Counter[str]:
        filtered: Counter[str] = Counter()
        ids = [file.file_id for file in self.files if file.stored]
        files = {day: self._events(day) for day in sorted(self.days)} if ids else {}
        rows = {day: sum(pq.read_metadata(path).num_rows for path in paths) for day, paths in files.items() if paths}
        for days in by_rows(rows, most=ROWS):
            self._say(f"robot rules, {days[0]}")
            listed = [path for day in days for path in files[day]]
            filtered += filtered_rows(self.connection, listed, ids, self.settings.robots)
        return filtered

    def _events(self, day: date) -> list[str]:
        """All files of a day; in a dry run those that would be, seen from one folder."""
        stored = self.store.table("events").files([day])
        if not self.dry_run:
            return stored
        if day not in self.written:
            return stored
        folder = self.written[day][0].parent
        for old in folder.iterdir():
            if old.is_symlink():
                old.unlink()
        for path in map(Path, stored):
            (folder / path.name).symlink_to(path)
        return [str(path) for path in sorted(folder.iterdir())]


@contextmanager
def _failing(folder: Path) -> Iterator[None]:
    """A full disk, too little memory, or an engine that fails, in words and with a remedy."""
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
        remedy = "Nothing was half done: run the same command again, and report this if it comes again"
        raise EngineError(f"{type(error).__name__}: {first_line(error)}. {remedy}") from None
