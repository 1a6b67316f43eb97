"""The store in a folder: LMDB files that any number of processes read in place.

    DIR/current                  which version is current; replaced by a rename
    DIR/snapshots/<name>/        data.mdb and store.json, never changed once they are there
    DIR/.lock                    held by the builder

A reader looks at `current` now and then, and uses the new version as soon as it is open. What a reader has open stays
readable after it was removed.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, final
from uuid import uuid4
from weakref import WeakValueDictionary

import lmdb

from clickprism._util.crash_points import crash_point
from clickprism._util.files import DRAFT, create_folder, lock, stamp, sync, write_errors, write_file
from clickprism.errors import DataError
from clickprism.serve.store.base import (
    REMEDY,
    Block,
    Found,
    StoreInfo,
    StoreUnavailableError,
    damaged,
    nothing,
    pack,
    query_key,
    unpack,
)
from clickprism.types import Float32

POINTER: Final = "current"
SNAPSHOTS: Final = "snapshots"
DATA: Final = "data.mdb"
INFO: Final = "store.json"
NAMES: Final = 200_000
"""Number of document ids that a reader remembers, about 30 MB."""


@final
class LmdbSnapshot:
    """One version, open to read; `open_snapshot` opens each once in a process, as LMDB requires."""

    def __init__(self, folder: Path) -> None:
        file, data = folder / INFO, folder / DATA
        try:
            values, size = json.loads(file.read_text(encoding="utf-8")), data.stat().st_size
            if size != values["bytes"]:
                raise DataError(f"has {size:,} bytes, not {values['bytes']:,}", file=data, remedy=REMEDY)
            self.info = StoreInfo.from_plain(values, what=str(file))
            self._width = len(self.info.fields)
            self._env = lmdb.open(str(folder), readonly=True, lock=False, readahead=False, max_spare_txns=16)
            queries = self._env.stat()["entries"]
            if queries != values.get("queries", queries):
                raise DataError(f"has {queries:,} queries, not {values['queries']:,}", file=data, remedy=REMEDY)
        except (ValueError, KeyError, TypeError, lmdb.Error) as error:
            raise DataError(f"is damaged ({error})", file=folder, remedy=REMEDY) from None
        self.folder, self._local = folder, threading.local()
        self._blocks: dict[str, Block] = {}
        self._remembered = 0

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """Return the rows of these documents; they are in the file, which is mapped as long as this object exists."""
        block = self._blocks.get(query_id)
        if block is None:
            value = self._value(query_key(query_id))
            if value is None:
                return nothing(document_ids, self.info)
            block = unpack(value, fields=self._width)
            if block is None:
                raise damaged(query_id, self.folder)
        return block.find(document_ids, self.info, held=self)

    def remember(self, query_id: str, block: Block) -> None:
        """Keep a block whose rows were scored; rows alone are not kept, which would cost more than reading them."""
        size = len(block.places) + 10
        if self._remembered + size > NAMES:
            self._blocks, self._remembered = {}, 0
        self._blocks[query_id] = block
        self._remembered += size

    def _value(self, key: bytes) -> memoryview | None:
        """Return the value of a key; after a damaged page the next lookup of this thread has a new transaction."""
        try:
            transaction = self._local.transaction
        except AttributeError:
            transaction = self._local.transaction = self._env.begin(buffers=True)
        try:
            found: memoryview | None = transaction.get(key)
        except lmdb.Error as error:
            del self._local.transaction
            transaction.abort()
            raise DataError(f"has a damaged page ({error})", file=self.folder / DATA, remedy=REMEDY) from None
        return found


_OPEN: WeakValueDictionary[Path, LmdbSnapshot] = WeakValueDictionary()
_OPENING: Final = threading.Lock()


def open_snapshot(folder: Path) -> LmdbSnapshot:
    """Return the version in this folder; the same object as long as anyone in this process has it."""
    with _OPENING:
        found = _OPEN.get(folder)
        if found is None:
            found = _OPEN[folder] = LmdbSnapshot(folder)
        return found


def current_folder(folder: Path) -> Path:
    """Return the folder of the version that the pointer names."""
    try:
        name = (folder / POINTER).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        remedy = f"Fill it with: clickprism store publish LOG --to {folder}"
        raise StoreUnavailableError(f"{folder}: holds no published store. {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=folder / POINTER, remedy=REMEDY) from None
    if not name or name != Path(name).name:
        raise DataError("does not name a snapshot", file=folder / POINTER, remedy=REMEDY)
    return folder / SNAPSHOTS / name


@final
class LmdbStore:
    """The store in a folder, open to read. It may be shared by threads, and used on in a forked process.

    It looks for a new version every `poll_seconds`.
    """

    def __init__(self, folder: Path, *, poll_seconds: float = 0.2) -> None:
        self.folder = Path(folder).resolve()
        self.problem: Exception | None = None
        self._poll, self._next = poll_seconds, 0.0
        self._following = threading.Lock()
        self._seen = stamp(self.folder / POINTER)
        self._snapshot: LmdbSnapshot | None = self._newest()

    @property
    def info(self) -> StoreInfo:
        """Description of the current version."""
        return self._current().info

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """Return the rows of these documents, all of one version."""
        return self._current().get(query_id, document_ids)

    def close(self) -> None:
        """Close the files; lookups are errors from here on."""
        self._snapshot, self._next = None, float("inf")

    def _current(self) -> LmdbSnapshot:
        """Return the current version, or the one before if that cannot be opened.

        One thread looks for a new one at a time; others go on with what they have meanwhile.
        """
        if time.monotonic() >= self._next and self._following.acquire(blocking=False):
            try:
                self._next = time.monotonic() + self._poll
                seen = stamp(self.folder / POINTER)
                if seen != self._seen:
                    self._snapshot = self._newest()
                    self._seen, self.problem = seen, None
            except (OSError, DataError, StoreUnavailableError) as error:
                self.problem = error
            finally:
                self._following.release()
        if self._snapshot is None:
            raise StoreUnavailableError(f"{self.folder}: the store is closed")
        return self._snapshot

    def _newest(self) -> LmdbSnapshot:
        folder = current_folder(self.folder)
        while True:
            try:
                return open_snapshot(folder)
            except FileNotFoundError:  # removed after the pointer was read, or lost
                before, folder = folder, current_folder(self.folder)
                if folder == before:
                    raise DataError("has lost its files", file=folder, remedy=REMEDY) from None


POINTS: Final = ("store-begun", "store-filled", "store-moved", "store-switched")
"""Where a test may kill a builder, in their order."""
_BUILDING: Final = ".building-"
_COMMIT_BYTES: Final = 16 << 20
_MAP_BYTES: Final = 1 << 40
"""Address space while a file is written; it is the limit of its size and costs nothing."""


@final
class LmdbBuilder:
    """Fills a folder with a new version; use it in a `with`.

    A version stays for `grace` seconds after it was replaced. `waiting` is called if another process builds here.
    """

    def __init__(self, folder: Path, *, grace: float, waiting: Callable[[], None] | None = None) -> None:
        self.folder = Path(folder).resolve()
        self._grace, self._waiting = grace, waiting
        self._draft = self.folder / SNAPSHOTS / f"{_BUILDING}{uuid4().hex}"
        self._held = ExitStack()
        self._env: lmdb.Environment | None = None
        self._pending: list[tuple[bytes, bytes]] = []
        self._bytes = 0

    def __enter__(self) -> LmdbBuilder:
        with write_errors(self.folder):
            names = sorted(each.name for each in self.folder.iterdir()) if self.folder.is_dir() else []
            others = [name for name in names if name not in (POINTER, SNAPSHOTS) and not name.startswith(".")]
            if others:
                problem = f"holds {others[0]!r}, not an online store"
                raise DataError(problem, file=self.folder, remedy="Choose a new folder")
            create_folder(self.folder / SNAPSHOTS)
            self._held.enter_context(lock(self.folder / ".lock", waiting=self._waiting))
            for left in (self.folder / SNAPSHOTS).glob(f"{_BUILDING}*"):
                shutil.rmtree(left)
        return self

    def __exit__(self, *_: object) -> None:
        if self._env is not None:
            self._env.close()
        shutil.rmtree(self._draft, ignore_errors=True)
        self._held.close()

    def present(self) -> StoreInfo | None:
        """Return the current version if it is complete; None otherwise."""
        try:
            return open_snapshot(current_folder(self.folder)).info
        except (DataError, StoreUnavailableError, FileNotFoundError):
            return None

    def put(self, query_id: str, document_ids: Sequence[str], rows: Float32) -> None:
        """Add all documents of a query; each query comes once."""
        self._pending.append((query_key(query_id), pack(document_ids, rows)))
        self._bytes += len(self._pending[-1][1])
        if self._bytes >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> lmdb.Environment:
        with write_errors(self.folder, remedy="Free some disk space and run the same command again"):
            try:
                if self._env is None:
                    self._draft.mkdir()
                    self._env = lmdb.open(str(self._draft), map_size=_MAP_BYTES, sync=False, metasync=False, lock=False)
                    crash_point("store-begun")
                with self._env.begin(write=True) as transaction:
                    for key, value in self._pending:
                        if not transaction.put(key, value, overwrite=False):
                            raise DataError(f"the query {key[1:]!r} comes twice", remedy="Give each query once")
            except lmdb.Error as error:
                raise OSError(str(error)) from None
        self._pending, self._bytes = [], 0
        return self._env

    def seal(self, info: StoreInfo) -> LmdbSnapshot:
        """Write the new version to disk and return it for inspection; it is not current yet."""
        env = self._commit()
        with write_errors(self.folder):
            env.sync(True)
            queries, size = env.stat()["entries"], (self._draft / DATA).stat().st_size
            env.close()
            self._env = None
            write_file(self._draft / INFO, json.dumps(info.plain() | {"bytes": size, "queries": queries}))
            crash_point("store-filled")
            self._sealed = self.folder / SNAPSHOTS / f"{info.version}-{uuid4().hex[:8]}"
            sync(self._draft)
            self._draft.rename(self._sealed)
            sync(self._sealed.parent)
        crash_point("store-moved")
        return open_snapshot(self._sealed)

    def switch(self) -> None:
        """Make the sealed version current; remove versions that were replaced longer ago than the grace period."""
        with write_errors(self.folder):
            before = self.present() and current_folder(self.folder)
            write_file(self.folder / POINTER, self._sealed.name)
            crash_point("store-switched")
            if before:
                os.utime(before)
            for old in (self.folder / SNAPSHOTS).iterdir():
                if old != self._sealed and old.stat().st_mtime < time.time() - self._grace:
                    shutil.rmtree(old)
            for left in self.folder.glob(f".{POINTER}.*{DRAFT}"):
                left.unlink()
