"""A disk that loses its power: what was synced survives, what was not may survive, in any combination.

`Disk` watches `os.fsync` and notes what each sync makes permanent: the bytes of a file, or the names in a folder. An
image is what a machine may find after a cut: of each folder the names as they were last synced, or as they are now; of
each file its bytes if they were synced, else nothing, a part, or all of them.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Moment = Callable[[], None]


class Disk:
    """The folder of a log on a disk. All that is there at first is permanent.

    Args:
        root: the folder.
        moment: called at each sync, rename and deletion, before and after a sync.
    """

    def __init__(self, root: Path, moment: Moment) -> None:
        self.root, self.moment = root, moment
        self._handles: dict[int, int] = {}  # open, so that no number of a file is used again
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for folder, _, files in os.walk(root):
            self._keep(Path(folder))
            for name in files:
                self._keep(Path(folder, name))

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Watch this process while it works on the folder."""
        fsync = os.fsync
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda handle: self._sync(handle, fsync))
            for name in ("replace", "rename", "unlink", "link"):
                patched.setattr(os, name, self._passing(getattr(os, name)))
            yield

    def image(self, target: Path, draw: random.Random) -> Path:
        """Write what may be on the disk after a cut now."""
        live = {os.stat(folder).st_ino: Path(folder) for folder, _, _ in os.walk(self.root)}
        self._write(os.stat(self.root).st_ino, target, live, draw)
        return target

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def _write(self, number: int, target: Path, live: dict[int, Path], draw: random.Random) -> None:
        target.mkdir()
        names = self._names.get(number, {})
        if number in live and draw.random() < 0.5:
            names = self._listed(live[number])
        for name, inner in sorted(names.items()):
            if stat.S_ISDIR(os.fstat(self._handles[inner]).st_mode):
                self._write(inner, target / name, live, draw)
            else:
                (target / name).write_bytes(self._found(inner, draw))

    def _found(self, number: int, draw: random.Random) -> bytes:
        if number in self._bytes:
            return self._bytes[number]
        handle = self._handles[number]
        whole = os.pread(handle, os.fstat(handle).st_size, 0)
        return whole[: draw.choice([0, 0, draw.randint(0, len(whole)), len(whole)])]

    def _sync(self, handle: int, fsync: Callable[[int], None]) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_relative_to(self.root):
            self.moment()
            self._keep(path)
            self.moment()

    def _passing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def passed(*words: Any, **options: Any) -> Any:
            if Path(words[0]).is_relative_to(self.root):  # others, such as of temporary folders, are not of the log
                self.moment()
            return function(*words, **options)

        return passed

    def _keep(self, path: Path) -> None:
        """Make a file, or the names in a folder, permanent."""
        number = self._held(path)
        if path.is_dir():
            self._names[number] = self._listed(path)
        else:
            self._bytes[number] = path.read_bytes()

    def _listed(self, folder: Path) -> dict[str, int]:
        return {entry.name: self._held(folder / entry.name) for entry in os.scandir(folder)}

    def _held(self, path: Path) -> int:
        number = os.stat(path).st_ino
        if number not in self._handles:
            self._handles[number] = os.open(path, os.O_RDONLY)
        return number
