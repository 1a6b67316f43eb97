"""A click log in a folder: its tables, its settings, its lock, and what a writer needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from clickprism._util.files import create_folder, lock, read_json, write_file
from clickprism.errors import DataError
from clickprism.log.engines.base import connect
from clickprism.log.schema import PARTITIONED, TABLES
from clickprism.log.settings import EngineSettings, LogSettings, read_log_settings, write_log_settings
from clickprism.log.table import LogTable, writing

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine

SETTINGS_FILE: Final = "log.toml"
PENDING: Final = "forget.pending"
"""Where an erasure keeps its users and days until it is done."""
OUTPUTS: Final = "outputs.json"
"""Where the log keeps which files were written from it, and by which command."""
COLUMNS_FILE: Final = "columns.json"
"""Where the log keeps the columns of its input files."""
WATERMARKS: Final = "watermarks.json"
"""Where the log keeps up to which value of a column it has read a query."""
_OURS: Final = {SETTINGS_FILE, OUTPUTS, COLUMNS_FILE, WATERMARKS, "staging", "models", *TABLES}
DERIVED: Final = ("sessions", "partials", "week", "month", "snapshots")
"""Tables that are made of the others."""
_CODED: Final = re.compile("%[0-9A-Fa-f]{2}")


@final
class LogWriter:
    """What `LogStore.write` yields: an engine, and a folder for temporary files.

    Attributes:
        store: the log.
        temp: an empty folder on the disk of the log; it is deleted at the end of the block.
    """

    def __init__(
        self, store: LogStore, temp: Path, *, engine: str, memory: str, threads: int | None, stack: ExitStack
    ) -> None:
        self.store = store
        self.temp = temp
        self._engine, self._memory, self._threads, self._stack = engine, memory, threads, stack

    @cached_property
    def engine(self) -> Engine:
        """The engine, started on first use and closed at the end of the block."""
        if self._engine != "duckdb":
            self.store.note(f"Starting Spark ({self._engine}); this takes up to a minute, even for a small log")
        made = connect(self._engine, memory=self._memory, threads=self._threads, temp=self.temp)
        return self._stack.enter_context(made)


class LogStore:
    """A click log in a folder; `LogStore.open` opens or creates it.

    Attributes:
        folder: the folder of the log.
        note: receives messages for the user, one sentence each, such as that another process is writing.

    >>> import tempfile
    >>> store = LogStore.open(Path(tempfile.mkdtemp()), create=True)
    >>> store.table("events").days(), store.table("events").files()
    ([], [])
    """

    def __init__(self, folder: Path, *, note: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.note = note or (lambda _: None)
        self._tables: dict[str, LogTable] = {}
        self._thread = threading.RLock()
        self._held = ExitStack()
        self._depth = 0

    @classmethod
    def open(cls, folder: Path | str, *, create: bool = False, note: Callable[[str], None] | None = None) -> LogStore:
        """Open the log in a folder, for reading and, inside `write`, for writing.

        Args:
            folder: the folder of the log.
            create: create a log if the folder is missing or empty; otherwise that is an error.
            note: receives messages for the user, one sentence each.
        """
        path = Path(folder).absolute()
        _refuse_name(path)
        if (path / SETTINGS_FILE).is_file():
            _refuse_loss(path)
            return cls(path, note=note)
        if not create:
            given = ("FILE", folder) if not path.is_file() else (folder, "mylog")
            remedy = f"Create one with: clickprism log ingest {given[0]} --into {given[1]}"
            raise DataError("is not a click log", file=folder, remedy=remedy)
        refuse_others(path)
        with writing(path):
            create_folder(path)
        return cls(path, note=note)

    @contextmanager
    def write(
        self,
        *,
        engine: str = "duckdb",
        memory: str = "2GB",
        threads: int | None = None,
        exclusive: bool = True,
        finish_erasure: bool = True,
    ) -> Iterator[LogWriter]:
        """Prepare the log for writing: wait for other writers, and finish an erasure of users that was interrupted.

        The engine and the temporary folder of the yielded writer exist until the block ends.

        Args:
            engine: what runs queries: "duckdb", "local[*]" or "local[N]" (Spark), or "spark://host:port".
            memory: the most memory that the engine may use, such as "500MB".
            threads: number of threads of DuckDB; None uses all cores.
            exclusive: keep other writers out during the whole block. With False, only each commit does, so that a
                running service can add events during a long computation.
            finish_erasure: False only for `forget`, which continues an interrupted erasure itself.
        """
        EngineSettings(engine=engine, memory=memory)
        with ExitStack() as stack:
            if exclusive:
                stack.enter_context(self.lock())
            temp = stack.enter_context(self.staging())
            writer = LogWriter(self, temp, engine=engine, memory=memory, threads=threads, stack=stack)
            self.upgrade()
            if finish_erasure and (self.folder / PENDING).exists():
                self._finish_erasure(writer)
            yield writer

    def _finish_erasure(self, writer: LogWriter) -> None:
        from clickprism.log.forget import forget

        with self.lock():
            if (self.folder / PENDING).exists():  # otherwise another process was erasing, and is done now
                forget(self, writer.engine, [])
                self.note("Finished an erasure of users that had been interrupted")

    def upgrade(self) -> None:
        """Rewrite the events of a log of version 0.1 for this version."""
        from clickprism.log.compact import is_old, rewrite_events

        if is_old(self):
            with self.lock():
                if is_old(self):  # otherwise another process has just done it
                    rewrite_events(self)
                    self.note("Rewrote the events of a log of clickprism 0.1 for this version")

    @property
    def settings(self) -> LogSettings:
        """What `log.toml` says, or the defaults before it is written."""
        return read_log_settings(self.folder / SETTINGS_FILE)

    def write_settings(self, settings: LogSettings) -> None:
        """Write `log.toml`, whole or not at all."""
        with writing(self.folder):
            write_log_settings(settings, self.folder / SETTINGS_FILE)

    def outputs(self) -> dict[str, str]:
        """The files and folders that were written from this log and still exist, each with the command that did it."""
        path = self.folder / OUTPUTS
        found = read_json(path, remedy="Delete it") if path.exists() else {}
        return {name: command for name, command in found.items() if Path(name).exists()}

    def record_output(self, path: Path, command: str) -> None:
        """Remember that a command wrote a file or folder from this log, so that `forget` can name it."""
        with self.lock(), writing(self.folder):
            write_file(self.folder / OUTPUTS, json.dumps({**self.outputs(), str(path.absolute()): command}, indent=1))

    def table(self, name: str, *, schema: pa.Schema | None = None, by_day: bool | None = None) -> LogTable:
        """One table; `schema` and `by_day` where `schema.TABLES` does not have it."""
        if name not in self._tables:
            columns = TABLES[name] if schema is None else schema
            days = bool(PARTITIONED.get(name)) if by_day is None else by_day
            table = LogTable(self.folder / name, schema=columns, by_day=days)
            self._tables[name] = _not_older(table)
        return self._tables[name]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other writers out of this log; may be nested. `note` is told when another process is writing."""
        with self._thread:
            if not self._depth:
                with writing(self.folder):
                    self._held.enter_context(lock(self.folder / ".lock", waiting=self._say_waiting))
                    self._repair()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._held.close()

    def _repair(self) -> None:
        """Remove commits that a power cut left incomplete."""
        for name in TABLES:
            LogTable(self.folder / name, schema=TABLES[name], by_day=bool(PARTITIONED[name])).repair()

    def _say_waiting(self) -> None:
        self.note("Another process is writing to this log: waiting for it")

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a private folder on the same disk; it is deleted at the end, and those of dead processes before."""
        parent = self.folder / "staging"
        with ExitStack() as alive:
            with writing(self.folder), self.lock():
                parent.mkdir(exist_ok=True)
                for old in parent.iterdir():
                    _clear_if_dead(old)
                folder = parent / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
                folder.mkdir()
                alive.enter_context(lock(folder / ".alive"))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def refuse_others(folder: Path) -> None:
    """An error if a folder that is not there yet, or is no log yet, cannot become one; nothing is written."""
    _refuse_name(folder.absolute())
    with writing(folder):
        names = sorted(each.name for each in folder.iterdir()) if folder.exists() else []
    others = [name for name in names if name not in _OURS and name[0] != "."]
    if others:
        raise DataError(f"holds {others[0]!r}, not a click log", file=folder, remedy="Choose a new folder")


def _refuse_name(folder: Path) -> None:
    shown = os.fsencode(folder).decode("utf-8", "backslashreplace")
    if _CODED.search(shown) or shown != str(folder):
        words = "has a name that tables cannot be kept under (a % code, or bytes that are not UTF-8)"
        raise DataError(words, file=shown, remedy="Choose another folder")


def _refuse_loss(folder: Path) -> None:
    """An error if files were ingested whose events are gone: they are known, so they would never come back."""
    ingested, there = ((folder / name / "_delta_log").is_dir() for name in ("files", "events"))
    if ingested and not there:
        remedy = "Restore it from a copy, or ingest your files into a new folder"
        raise DataError("has lost its table events", file=folder, remedy=remedy)


def _not_older(table: LogTable) -> LogTable:
    """The table; an error if another version of clickprism has made it with other columns."""
    delta = table.latest()
    has = table.schema.names if delta is None else [each.name for each in delta.schema().fields]
    if missing := [name for name in table.schema.names if name not in has]:
        remedy = "Ingest your files into a new folder with this version"
        if table.name in DERIVED:
            remedy = f"Delete {table.folder}: it is made again of the events"
        words = f"the table was made by an older version of clickprism, without the column {missing[0]!r}"
        raise DataError(words, file=table.folder, remedy=remedy)
    return table


def _clear_if_dead(folder: Path) -> None:
    def refuse() -> None:
        raise BlockingIOError

    try:
        with lock(folder / ".alive", waiting=refuse):
            pass
    except BlockingIOError:
        return
    except OSError:
        pass
    shutil.rmtree(folder, ignore_errors=True)
