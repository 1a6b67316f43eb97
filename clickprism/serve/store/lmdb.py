"""The store in a folder: LMDB snapshots that are read in place, by as many processes as like.

    DIR/current                  which snapshot is in force; replaced by a rename
    DIR/snapshots/<name>/        data.mdb and store.json, never changed once they are there
    DIR/.lock                    held by the one who builds

A reader looks at `current` now and then and goes on with the new snapshot as soon as it has it open. What it has open
stays readable after it was removed.
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
from types import TracebackType
from typing import Final, final
from uuid import uuid4
from weakref import WeakValueDictionary

import lmdb

from clickprism._util.crash_points import crash_point
from clickprism._util.files import DRAFT, create_folder, lock, sync, write_file
from clickprism.errors import DataError
from clickprism.log.table import writing
from clickprism.serve.store.base import (
    AGAIN,
    Block,
    Found,
    StoredVersion,
    StoreInfo,
    StoreUnavailableError,
    intact,
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
_NAMES: Final = 200_000
"""So many document ids are remembered by a reader, about 30 MB."""


@final
class LmdbSnapshot:
    """One snapshot, open to read; `open_snapshot` opens each once in a process, as LMDB wants it."""

    def __init__(self, folder: Path) -> None:
        file, data = folder / INFO, folder / DATA
        try:
            text, size = file.read_text(encoding="utf-8"), data.stat().st_size
            values = json.loads(text)
            if size != values["bytes"]:
                raise DataError(f"has {size:,} bytes, not {values['bytes']:,}", file=data, remedy=AGAIN)
            self.info = StoreInfo.from_plain(values, what=str(file))
            self.env = lmdb.open(str(folder), readonly=True, lock=False, readahead=False, max_spare_txns=16)
            queries = self.env.stat()["entries"]
            if queries != values.get("queries", queries):
                raise DataError(f"has {queries:,} queries, not {values['queries']:,}", file=data, remedy=AGAIN)
        except (ValueError, KeyError, TypeError, lmdb.Error) as error:
            raise DataError(f"is damaged ({error})", file=folder, remedy=AGAIN) from None
        self.folder = folder
        self._width = len(self.info.fields)
        self._local = threading.local()
        self.blocks: dict[str, Block] = {}
        self.remembered = 0

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """The rows of these documents.

        Blocks that were read are remembered: their rows lie in the file that is mapped as long as this object is there.
        """
        block = self.blocks.get(query_id)
        if block is None:
            value = self._value(query_key(query_id))
            if value is None:
                return nothing(document_ids, self.info)
            block = unpack(value, fields=self._width, what=f"{self.folder}: the query {query_id!r}")
            self._remember(query_id, block)
        return block.answer(document_ids, self.info, held=self)

    def _value(self, key: bytes) -> memoryview | None:
        """Return the value of a key; after a damaged page the next lookup of this thread has a new transaction."""
        try:
            transaction = self._local.transaction
        except AttributeError:
            transaction = self._local.transaction = self.env.begin(buffers=True)
        try:
            found: memoryview | None = transaction.get(key)
        except lmdb.Error as error:
            del self._local.transaction
            transaction.abort()
            raise DataError(f"has a damaged page ({error})", file=self.folder / DATA, remedy=AGAIN) from None
        return found

    def _remember(self, query_id: str, block: Block) -> None:
        size = len(block.names or ()) + 10
        if self.remembered + size > _NAMES:
            self.blocks, self.remembered = {}, 0
        self.blocks[query_id] = block
        self.remembered += size

    def check(self) -> int:
        """Read every value; how many there are. An error at one that is damaged."""
        count = 0
        with self.env.begin(buffers=True) as transaction:
            for key, value in transaction.cursor():
                count += 1
                what = f"{self.folder}: the query {bytes(key)[1:]!r}"
                unpack(value, fields=len(self.info.fields), what=what)
                if not intact(value):
                    raise DataError("is damaged", file=what, remedy=AGAIN)
        return count


_OPEN: WeakValueDictionary[Path, LmdbSnapshot] = WeakValueDictionary()
_OPENING: Final = threading.Lock()


def open_snapshot(folder: Path) -> LmdbSnapshot:
    """The snapshot in this folder; the same object as long as anyone in this process has it."""
    with _OPENING:
        found = _OPEN.get(folder)
        if found is None:
            found = _OPEN[folder] = LmdbSnapshot(folder)
        return found


def in_force(folder: Path) -> Path:
    """The folder of the snapshot that the pointer names."""
    try:
        name = (folder / POINTER).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        remedy = f"Fill it with: clickprism store publish LOG --to {folder}"
        raise StoreUnavailableError(f"{folder}: holds no published store. {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=folder / POINTER, remedy=AGAIN) from None
    if not name or name != Path(name).name:
        raise DataError("does not name a snapshot", file=folder / POINTER, remedy=AGAIN)
    return folder / SNAPSHOTS / name


@final
class LmdbStore:
    """The store in a folder, open to read. It may be shared by threads, and used on in a forked process.

    Args:
        folder: that `clickprism store publish` has filled.
        poll_seconds: how often to look for a new snapshot; 0: at every lookup.
    """

    def __init__(self, folder: Path, *, poll_seconds: float = 0.2) -> None:
        self.folder = Path(folder).resolve()
        self.problem: Exception | None = None
        self._poll = poll_seconds
        self._next = 0.0
        self._seen: tuple[int, int] | None = None
        self._snapshot: LmdbSnapshot | None = None
        self._following = threading.Lock()
        self._follow(must=True)

    @property
    def info(self) -> StoreInfo:
        """Of the snapshot in force."""
        return self._current().info

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """The rows of these documents, all of one snapshot."""
        snapshot = self._snapshot
        if snapshot is None or time.monotonic() >= self._next:
            snapshot = self._current()
        return snapshot.get(query_id, document_ids)

    def versions(self) -> tuple[StoredVersion, ...]:
        """Return what is stored: the current version first, then older ones that are kept for a while."""
        current = self._current()
        folders = sorted((self.folder / SNAPSHOTS).iterdir(), key=lambda each: -each.stat().st_mtime)
        older = [each for each in folders if each != current.folder and (each / INFO).is_file()]
        return tuple(
            StoredVersion.of(
                each.info,
                current=each is current,
                queries=each.env.stat()["entries"],
                size=(each.folder / DATA).stat().st_size,
            )
            for each in (current, *map(open_snapshot, older))
        )

    def close(self) -> None:
        """Let go of the files; lookups are errors from here on."""
        self._snapshot = None
        self._next = float("inf")

    def _current(self) -> LmdbSnapshot:
        if time.monotonic() >= self._next:
            self._follow(must=False)
        if self._snapshot is None:
            raise StoreUnavailableError(f"{self.folder}: the store is closed")
        return self._snapshot

    def _follow(self, *, must: bool) -> None:
        """Go on with the snapshot in force; one that cannot be opened leaves the one before in use.

        One thread does so at a time; others go on with what they have meanwhile.
        """
        if not self._following.acquire(blocking=must):
            return
        try:
            self._next = time.monotonic() + self._poll
            seen = self._pointer()
            if seen != self._seen or must:
                self._snapshot = self._newest()
                self._seen, self.problem = seen, None
        except (OSError, DataError, StoreUnavailableError) as error:
            if must:
                raise
            self.problem = error
        finally:
            self._following.release()

    def _pointer(self) -> tuple[int, int]:
        """What changes whenever the pointer does."""
        try:
            found = os.stat(self.folder / POINTER)
        except FileNotFoundError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino

    def _newest(self) -> LmdbSnapshot:
        for _ in range(20):
            folder = in_force(self.folder)
            try:
                return open_snapshot(folder)
            except FileNotFoundError:
                if in_force(self.folder) == folder:
                    raise DataError("has lost its files", file=folder, remedy=AGAIN) from None
        raise StoreUnavailableError(f"{self.folder}: snapshots come and go faster than they can be opened")


POINTS: Final = ("store-begun", "store-filled", "store-moved", "store-switched")
"""Where a test may kill a builder, in their order."""
_BUILDING: Final = ".building-"
_COMMIT_BYTES: Final = 16 << 20
_MAP_BYTES: Final = 64 << 20


@final
class LmdbBuilder:
    """The one who fills a folder; to be used in a `with`, one at a time in a folder.

    Args:
        folder: of the store; it is made if missing.
        grace: seconds for which a snapshot stays after it was replaced.
        waiting: called once if another process builds here.
    """

    def __init__(self, folder: Path, *, grace: float, waiting: Callable[[], None] | None = None) -> None:
        self.folder = Path(folder).resolve()
        self._grace = grace
        self._waiting = waiting
        self._draft = self.folder / SNAPSHOTS / f"{_BUILDING}{uuid4().hex}"
        self._held = ExitStack()
        self._env: lmdb.Environment | None = None
        self._pending: list[tuple[bytes, bytes]] = []
        self._bytes = 0
        self._last = b""
        self._sealed: Path | None = None

    def __enter__(self) -> LmdbBuilder:
        with writing(self.folder):
            _refuse_others(self.folder)
            create_folder(self.folder / SNAPSHOTS)
            self._held.enter_context(lock(self.folder / ".lock", waiting=self._waiting))
            for left in (self.folder / SNAPSHOTS).glob(f"{_BUILDING}*"):
                shutil.rmtree(left)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._env is not None:
            self._env.close()
        shutil.rmtree(self._draft, ignore_errors=True)
        self._held.close()

    def present(self) -> StoreInfo | None:
        """What is in force, if it is whole; None otherwise."""
        try:
            return open_snapshot(in_force(self.folder)).info
        except (DataError, StoreUnavailableError, FileNotFoundError):
            return None

    def put(self, query_id: str, document_ids: Sequence[str], rows: Float32) -> None:
        """All documents of a query; each query comes once."""
        value = pack(document_ids, rows)
        self._pending.append((query_key(query_id), value))
        self._bytes += len(value)
        if self._bytes >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        with writing(self.folder):
            if self._env is None:
                self._draft.mkdir()
                self._env = lmdb.open(str(self._draft), map_size=_MAP_BYTES, sync=False, metasync=False, lock=False)
                crash_point("store-begun")
            while True:
                try:
                    self._write(self._env)
                    break
                except lmdb.MapFullError:
                    self._env.set_mapsize(2 * self._env.info()["map_size"])
                except lmdb.Error as error:
                    raise OSError(str(error)) from None
        self._last = max(self._last, max((key for key, _ in self._pending), default=b""))
        self._pending, self._bytes = [], 0

    def _write(self, env: lmdb.Environment) -> None:
        last = self._last
        with env.begin(write=True) as transaction:
            for key, value in self._pending:
                rising = key > last
                if not transaction.put(key, value, overwrite=False, append=rising):
                    raise DataError(f"the query {key[1:]!r} comes twice", remedy="Give each query once")
                last = key if rising else last

    def seal(self, info: StoreInfo) -> LmdbSnapshot:
        """Nothing more comes: bring it to disk, and open it to look at; it is not in force yet."""
        self._commit()
        with writing(self.folder):
            if self._env is None:
                raise DataError("there is nothing to publish", file=self.folder)
            self._env.sync(True)
            queries = self._env.stat()["entries"]
            self._env.close()
            self._env = None
            size = (self._draft / DATA).stat().st_size
            write_file(self._draft / INFO, json.dumps(info.plain() | {"bytes": size, "queries": queries}))
            crash_point("store-filled")
            self._sealed = self.folder / SNAPSHOTS / f"{info.version}-{uuid4().hex[:8]}"
            sync(self._draft)
            self._draft.rename(self._sealed)
            sync(self._sealed.parent)
        crash_point("store-moved")
        return open_snapshot(self._sealed)

    def switch(self) -> None:
        """Put what was sealed in force; clear away what is older than the grace."""
        if self._sealed is None:
            raise DataError("nothing was sealed", file=self.folder)
        with writing(self.folder):
            before = self.present() and in_force(self.folder)
            write_file(self.folder / POINTER, self._sealed.name)
            crash_point("store-switched")
            if before:
                os.utime(before)
            for old in (self.folder / SNAPSHOTS).iterdir():
                if old != self._sealed and old.stat().st_mtime < time.time() - self._grace:
                    shutil.rmtree(old)
            for left in self.folder.glob(f".{POINTER}.*{DRAFT}"):
                left.unlink()


def _refuse_others(folder: Path) -> None:
    known = {POINTER, SNAPSHOTS}
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    others = [name for name in names if name not in known and not name.startswith(".")]
    if others:
        raise DataError(f"holds {others[0]!r}, not an online store", file=folder, remedy="Choose a new folder")
