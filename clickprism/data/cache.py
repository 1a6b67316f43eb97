"""Arrays kept on disk by the files that they were read from, opened again as memory maps.

An entry is a folder of .npy files with a manifest. It is written as a draft and renamed, so that a reader sees a whole
entry or none. An entry that does not match its manifest counts as missing, and is written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from clickprism._util.files import DRAFT, atomic_folder

VERSION: Final = 3
MANIFEST: Final = "manifest"
SETTLED_SECONDS = 2.0
ABANDONED_SECONDS: Final = 86_400.0
BLOCK, BLOCKS = 4096, 64

Place = Path | Literal["default"] | None
Arrays = dict[str, NDArray[Any]]


def folder(cache: Place) -> Path | None:
    """Return where entries are kept: by default `$CLICKPRISM_CACHE` (`off`: nowhere) or `~/.cache/clickprism`."""
    if cache != "default":
        return cache
    named = os.environ.get("CLICKPRISM_CACHE", "")
    if named == "off":
        return None
    try:
        return Path(named) if named else Path.home() / ".cache" / "clickprism"
    except RuntimeError:  # no home
        return None


def key_of(files: Sequence[Path], how: Sequence[Any]) -> str | None:
    """Return a key of files by path, size, times and inode, and of how they are read.

    None if a file cannot be read, or changed so recently that it may change again without a new time.
    """
    states = []
    for file in files:
        try:
            found = file.stat()
        except OSError:
            return None
        if time.time() - max(found.st_mtime, found.st_ctime) < SETTLED_SECONDS:
            return None
        states.append([os.fspath(file.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino])
    return _hash(json.dumps([states, *how]).encode())


def load(where: Path, key: str) -> tuple[Arrays, dict[str, Any]] | None:
    """Return the arrays and facts of an entry, large arrays memory-mapped; None if there is no undamaged one."""
    entry = where / key
    try:
        check, _, text = (entry / MANIFEST).read_bytes().partition(b"\n")
        manifest = json.loads(text)
        if check.decode() != _hash(text) or manifest["version"] != VERSION:
            return None
        arrays = {}
        for name, noted in manifest["arrays"].items():
            file = entry / f"{name}.npy"
            if _sample(file) != noted:
                return None
            # Copy on write: the file is safe, and torch takes the array without a warning about read-only memory.
            mode: Literal["c"] | None = "c" if noted[0] > BLOCK * BLOCKS else None
            arrays[name] = np.asarray(np.load(file, mmap_mode=mode, allow_pickle=False))
        return arrays, dict(manifest["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        return None


def store(where: Path, key: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bool:
    """Write an entry, and remove what killed writers left; return False if the disk does not allow it."""
    try:
        where.mkdir(parents=True, exist_ok=True)
        for left in where.glob(f".*{DRAFT}"):
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        with atomic_folder(where / key, durable=False) as draft:
            for name, array in arrays.items():
                np.save(draft / f"{name}.npy", array, allow_pickle=False)
            noted = {name: _sample(draft / f"{name}.npy") for name in arrays}
            text = json.dumps({"version": VERSION, "arrays": noted, "facts": facts}).encode()
            (draft / MANIFEST).write_bytes(_hash(text).encode() + b"\n" + text)
    except OSError:
        return False
    return True


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def _sample(file: Path) -> list[Any]:
    """Return the size of a file and a hash of blocks spread evenly over it: all of a small file."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        blocks = []
        for place in (*range(0, size, max(BLOCK, size // BLOCKS)), max(size - BLOCK, 0)):
            stream.seek(place)
            blocks.append(stream.read(BLOCK))
    return [size, _hash(b"".join(blocks))]
