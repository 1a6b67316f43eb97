"""A new snapshot of the store in a folder: built beside the one in force, on disk for sure, then switched to.

A builder that is killed leaves the snapshot in force as it was, and leftovers that the next one clears away.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, final
from uuid import uuid4

import lmdb

from clickprism._util.crash_points import crash_point
from clickprism._util.files import DRAFT, create_folder, lock, sync, write_file
from clickprism.errors import DataError
from clickprism.log.table import writing
from clickprism.serve.block import pack, query_key
from clickprism.serve.lmdb_store import DATA, INFO, POINTER, SNAPSHOTS, LmdbSnapshot, in_force, open_snapshot
from clickprism.serve.store import StoreInfo, StoreUnavailableError
from clickprism.types import Float32

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
