"""A click log on disk: a folder of delta tables, a lock, and settings."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa

from clickprism.errors import DataError
from clickprism.log.schema import PARTITIONED, TABLES
from clickprism.log.settings import LogSettings, read_log_settings, write_log_settings
from clickprism.log.table import LogTable, writing

SETTINGS_FILE: Final = "log.toml"
PENDING: Final = "forget.pending"
"""Where an erasure keeps its users and days until it is done."""
_OURS: Final = {SETTINGS_FILE, "staging", "models", *TABLES}
DERIVED: Final = ("sessions", "partials", "week", "month", "snapshots")
"""Tables that are made of the others."""
_CODED: Final = re.compile("%[0-9A-Fa-f]{2}")


class LogStore:
    """The folder of a click log; make one by `LogStore.open`.

    >>> import tempfile
    >>> store = LogStore.open(Path(tempfile.mkdtemp()), create=True)
    >>> store.table("events").days(), store.table("events").files()
    ([], [])
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tables: dict[str, LogTable] = {}
        self._thread = threading.RLock()
        self._held: TextIO | None = None
        self._depth = 0

    @classmethod
    def open(cls, folder: Path | str, *, create: bool = False) -> LogStore:
        """The log in this folder; with `create`, a new one if the folder is missing or empty."""
        path = Path(folder).absolute()
        _refuse_name(path)
        if (path / SETTINGS_FILE).is_file():
            _refuse_loss(path)
            return cls(path)
        if not create:
            raise DataError(
                "is not a click log", file=folder, remedy=f"Make one by: clickprism ingest PATH --into {folder}"
            )
        refuse_others(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @property
    def settings(self) -> LogSettings:
        """What `log.toml` says, or the defaults before it is written."""
        return read_log_settings(self.folder / SETTINGS_FILE)

    def write_settings(self, settings: LogSettings) -> None:
        """Write `log.toml`, whole or not at all."""
        with writing(self.folder):
            write_log_settings(settings, self.folder / SETTINGS_FILE)

    def table(self, name: str, *, schema: pa.Schema | None = None, by_day: bool | None = None) -> LogTable:
        """One table; `schema` and `by_day` where `schema.TABLES` does not have it."""
        if name not in self._tables:
            columns = TABLES[name] if schema is None else schema
            days = bool(PARTITIONED.get(name)) if by_day is None else by_day
            self._tables[name] = _not_older(LogTable(self.folder / name, schema=columns, by_day=days))
        return self._tables[name]

    @contextmanager
    def lock(self, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
        """Be the only writer of this log; `waiting` is called once if another process is. May be nested."""
        with self._thread:
            if not self._depth:
                self._held = self._acquire(waiting)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth and self._held is not None:
                    self._held.close()
                    self._held = None

    def _acquire(self, waiting: Callable[[], None] | None) -> TextIO:
        with writing(self.folder):
            handle = (self.folder / ".lock").open("a", encoding="utf-8")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        return handle

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A private folder on the same disk, gone at the end; those of processes that died are cleared first."""
        parent = self.folder / "staging"
        with writing(self.folder), self.lock():
            parent.mkdir(exist_ok=True)
            for old in parent.iterdir():
                _clear_if_dead(old)
            folder = parent / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
            folder.mkdir()
            held = (folder / ".alive").open("w", encoding="utf-8")
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            held.close()


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
    try:
        with (folder / ".alive").open("r", encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    except OSError:
        pass
    shutil.rmtree(folder, ignore_errors=True)
