"""A click log in a folder: its tables, its settings, its lock, and what a writer needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from clickprism._util.files import create_folder, lock, read_json, write_file
from clickprism.data.cache import folder as cache_folder
from clickprism.errors import DataError
from clickprism.log.engines.base import connect
from clickprism.log.schema import TABLES
from clickprism.log.settings import EngineSettings, LogSettings, read_log_settings, write_log_settings
from clickprism.log.table import LogTable, writing

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine

SETTINGS_FILE: Final = "log.toml"
PENDING: Final = "forget.pending"
"""Users and days of an erasure that is not finished."""
OUTPUTS: Final = "outputs.json"
"""Files that were written from the log, each with the command that wrote it."""
COLUMNS_FILE: Final = "columns.json"
"""Columns of the input files."""
COPIES: Final = "copies.json"
"""Logs that were ingested as copies of raw events, in the cache folder."""
WATERMARKS: Final = "watermarks.json"
"""The value of a column up to which each query was read."""
DERIVED: Final = ("sessions", "partials", "week", "month", "snapshots")
"""Tables that are computed from the others."""
_OURS: Final = {SETTINGS_FILE, OUTPUTS, COLUMNS_FILE, WATERMARKS, "staging", "models", *TABLES}
_CODED: Final = re.compile("%[0-9A-Fa-f]{2}")
_OLD_COLUMN: Final = "variant"  # column of events in logs of version 0.1


@final
class LogWriter:
    """What `LogStore.write` yields: an engine, and `temp`, a folder on the disk of the log, deleted at the end."""

    def __init__(self, store: LogStore, temp: Path, stack: ExitStack, connect: Callable[[], Engine]) -> None:
        self.store = store
        self.temp = temp
        self._stack, self._connect = stack, connect

    @cached_property
    def engine(self) -> Engine:
        """The engine, started on first use and closed at the end of the block."""
        return self._stack.enter_context(self._connect())


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
        """Open the log in a folder, for reading and, inside `write`, for writing."""
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

            def start() -> Engine:
                if engine != "duckdb":
                    self.note(f"Starting Spark ({engine}); this takes up to a minute, even for a small log")
                return connect(engine, memory=memory, threads=threads, temp=temp)

            writer = LogWriter(self, temp, stack, start)
            self.table("events")  # an error if an old version wrote it
            if finish_erasure and (self.folder / PENDING).exists():
                from clickprism.log.forget import forget

                with self.lock():
                    if (self.folder / PENDING).exists():  # otherwise another process was erasing, and is done now
                        forget(self, writer.engine, [])
                        self.note("Finished an erasure of users that had been interrupted")
            yield writer

    @property
    def settings(self) -> LogSettings:
        """The settings in `log.toml`, or the defaults before it is written."""
        return read_log_settings(self.folder / SETTINGS_FILE)

    def write_settings(self, settings: LogSettings) -> None:
        """Write `log.toml` completely or not at all."""
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

    def table(self, name: str, *, schema: pa.Schema | None = None) -> LogTable:
        """Return one table; `schema` is needed if it is not one of `schema.TABLES`."""
        if name not in self._tables:
            self._tables[name] = _not_older(LogTable(self.folder / name, schema=schema or TABLES[name]))
        return self._tables[name]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other writers out of this log; may be nested. `note` is called when another process is writing."""
        with self._thread:
            if not self._depth:
                with writing(self.folder):
                    waiting = "Another process is writing to this log: waiting for it"
                    self._held.enter_context(lock(self.folder / ".lock", waiting=lambda: self.note(waiting)))
                    for name, schema in TABLES.items():
                        LogTable(self.folder / name, schema=schema).repair()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._held.close()

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


def record_result(log: Path | None, out: Path, command: str) -> None:
    """Remember in an ingested log that a command wrote a result from it; do nothing for any other source."""
    if log is not None and (log / SETTINGS_FILE).is_file():
        LogStore.open(log).record_output(out, command)


def record_copy(folder: Path) -> None:
    """Remember on this machine that a log was ingested as a copy of raw events, so that `forget` can name it.

    The list is in the cache folder, if that can be written; logs that were deleted leave it.
    """
    if (place := cache_folder("default")) is None:
        return
    with suppress(OSError), ExitStack() as stack:
        create_folder(place)
        stack.enter_context(lock(place / f".{COPIES}.lock"))
        write_file(place / COPIES, json.dumps({"logs": sorted({*_copies(), str(folder.absolute())})}))


def copies_of(store: LogStore) -> list[tuple[Path, bool]]:
    """Return the known copies that have a raw file in common with a log, or are damaged, and whether each is whole."""
    own, found = _file_ids(store.folder) or set(), []
    for path in map(Path, _copies()):
        ids = _file_ids(path)
        if path != store.folder and (ids is None or not own.isdisjoint(ids)):
            found.append((path, ids is not None))
    return found


def _copies() -> list[str]:
    place = cache_folder("default")
    known = read_json(place / COPIES, remedy="Delete it") if place is not None and (place / COPIES).exists() else {}
    return [path for path in known.get("logs", ()) if (Path(path) / SETTINGS_FILE).is_file()]


def _file_ids(folder: Path) -> set[str] | None:
    """Return the ids of the files of a log; None if the log cannot be read."""
    with suppress(DataError, OSError, pa.ArrowException):
        return set(LogStore.open(folder).table("files").read(["file_id"])["file_id"].to_pylist())
    return None


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
    """Return the table; an error if an older version of clickprism has created it with other columns."""
    delta = table.latest()
    names = table.schema.names if delta is None else [each.name for each in delta.schema().fields]
    if table.name == "events" and _OLD_COLUMN in names:
        remedy = f"Convert it with: clickprism log ingest {table.folder} --schema clickprism --into newlog"
        raise DataError("is a log of clickprism 0.1", file=table.folder.parent, remedy=remedy)
    if missing := [name for name in table.schema.names if name not in names]:
        remedy = "Ingest your files into a new folder with this version"
        if table.name in DERIVED:
            remedy = f"Delete {table.folder}: it is computed again from the events"
        problem = f"the table was made by an older version of clickprism, without the column {missing[0]!r}"
        raise DataError(problem, file=table.folder, remedy=remedy)
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
