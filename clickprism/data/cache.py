"""Arrays kept on disk by the content they were made from, opened again as memory maps.

An entry is a folder of .npy files with a manifest, written beside its place and renamed into it: a reader sees a whole
entry or none. An entry that does not match its manifest is taken for missing, and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clickprism._util.files import DRAFT, atomic_folder, write_file

VERSION = 2
MANIFEST = "manifest"
SETTLED_SECONDS = 2.0
ABANDONED_SECONDS = 86_400.0
BLOCK, BLOCKS = 4096, 64

Place = Path | Literal["default"] | None
Arrays = dict[str, NDArray[Any]]
State = list[int]


def folder(cache: Place) -> Path | None:
    """Where entries are kept: `$CLICKPRISM_CACHE` (`off` for nowhere) or else `~/.cache/clickprism` by default."""
    if cache != "default":
        return cache
    named = os.environ.get("CLICKPRISM_CACHE", "")
    if named == "off":
        return None
    try:
        return Path(named) if named else Path.home() / ".cache" / "clickprism"
    except RuntimeError:  # no home
        return None


def digest(data: bytes | memoryview) -> str:
    """The content hash."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def recall(where: Path, file: Path) -> str | None:
    """The content hash of a file that is the same, by size and times, as when it was last hashed."""
    try:
        noted = json.loads(_note(where, file).read_bytes())
        return str(noted["hash"]) if noted["state"] == state(file) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(where: Path, file: Path, content: str, before: State | None) -> None:
    """Note the content hash of a file whose state was `before` when its reading began.

    Not if it has changed since, nor if it changed so lately that it may change again unnoticed.
    """
    try:
        if before is None or before != state(file) or time.time() - max(before[1:3]) / 1e9 < SETTLED_SECONDS:
            return
        write_file(_note(where, file), json.dumps({"hash": content, "state": before}), durable=False)
    except OSError:
        return


def load(where: Path, key: str) -> tuple[Arrays, dict[str, Any]] | None:
    """The arrays and facts of an entry, large arrays memory-mapped; None if there is no sound one."""
    entry = where / key
    try:
        check, _, text = (entry / MANIFEST).read_bytes().partition(b"\n")
        manifest = json.loads(text)
        if check.decode() != digest(text) or manifest["version"] != VERSION:
            return None
        arrays = {name: _open(entry / f"{name}.npy", noted) for name, noted in manifest["arrays"].items()}
        return arrays, dict(manifest["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        return None


def store(where: Path, key: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bool:
    """Write an entry in place of any other under the same key; False if the disk does not let us."""
    try:
        where.mkdir(parents=True, exist_ok=True)
        _sweep(where)
        with atomic_folder(where / key, durable=False) as draft:
            noted = {}
            for name, array in arrays.items():
                np.save(draft / f"{name}.npy", array, allow_pickle=False)
                noted[name] = _fingerprint(draft / f"{name}.npy")
            text = json.dumps({"version": VERSION, "arrays": noted, "facts": facts}).encode()
            (draft / MANIFEST).write_bytes(digest(text).encode() + b"\n" + text)
    except OSError:  # no room, or no right to write
        return False
    return True


def _sweep(where: Path) -> None:
    """Remove what writers that were killed left behind."""
    for left in where.glob(f".*{DRAFT}"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def state(file: Path) -> State | None:
    """What tells a file from what it was before: size, time of change of content and of any change, inode."""
    try:
        found = file.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _note(where: Path, file: Path) -> Path:
    return where / "files" / f"{digest(os.fsencode(file.resolve()))}.json"


def _fingerprint(file: Path) -> dict[str, int | str]:
    """Size, and a hash of the ends and of blocks spread evenly over the file: all of it where it is small."""
    size = file.stat().st_size
    spread = range(0, size, max(BLOCK, size // BLOCKS))
    hashed = hashlib.blake2b(digest_size=16)
    with file.open("rb") as stream:
        for place in (*spread, max(size - BLOCK, 0)):
            stream.seek(place)
            hashed.update(stream.read(BLOCK))
    return {"bytes": size, "sample": hashed.hexdigest()}


def _open(file: Path, noted: Mapping[str, int | str]) -> NDArray[Any]:
    if _fingerprint(file) != noted:
        raise ValueError(f"{file} is not what its manifest says")
    # Copy on write: the file is safe, and torch takes the array without a warning about read-only memory.
    mapped = np.load(file, mmap_mode="c" if int(noted["bytes"]) > BLOCK * BLOCKS else None, allow_pickle=False)
    return np.asarray(mapped)
