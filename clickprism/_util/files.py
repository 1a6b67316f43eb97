"""Files that are written completely or not at all, locks, and hashes.

Every file of the package is written by `write_file`, `atomic_file` or `atomic_folder`: the content goes to a draft in
the same folder, is synced to disk, and then takes its final name; the folder is synced after that. A reader finds the
old content or the new content, and what a function of this module has returned from survives a power cut. For files
that can be recomputed at no cost, such as plots, `durable=False` skips the syncs.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from clickprism.errors import DataError, SettingError

DRAFT: Final = ".part"
"""Suffix of unfinished files; their names start with a dot and the name that the file is going to have."""
_EXCHANGE: Final = 2  # RENAME_EXCHANGE of renameat2(2)
_HERE: Final = -100  # AT_FDCWD: paths are relative to the working directory


def write_file(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file completely or not at all; create its folder if it is missing.

    Args:
        path: the file. An existing file is replaced.
        content: text (written as UTF-8) or bytes.
        durable: whether the file must survive a power cut once this function has returned.
    """
    with atomic_file(path, durable=durable, parents=True) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: Path, *, durable: bool = True, replace: bool = True, parents: bool = False) -> Iterator[Path]:
    """Yield the path of a draft for the block to write; it becomes `path` when the block ends without an error.

    Args:
        path: the file.
        durable: whether the file must survive a power cut once the block has ended.
        replace: whether an existing file is replaced; otherwise a FileExistsError is raised and the file is kept.
        parents: whether the folder of the file is created if it is missing.
    """
    if parents:
        create_folder(path.parent)
    draft = _draft_of(path)
    try:
        with _errors_name(path, draft):
            yield draft
            if durable:
                sync(draft)
            if replace:
                os.replace(draft, path)
            else:
                os.link(draft, path)
        if durable:
            sync(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def atomic_folder(folder: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a new folder for the block to fill; it becomes `folder` when the block ends without an error.

    An existing folder is replaced in one step and then deleted (in two steps where the system cannot exchange folders).

    Args:
        folder: the folder. Its parents are created if they are missing.
        durable: whether its files must survive a power cut once the block has ended.
    """
    create_folder(folder.parent)
    draft = _draft_of(folder)
    try:
        draft.mkdir()
        yield draft
        if durable:
            for path in (*draft.rglob("*"), draft):
                sync(path)
        with lock(folder.parent):
            if folder.exists():
                _exchange(draft, folder)
            else:
                os.rename(draft, folder)
            if durable:
                sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def create_folder(folder: Path) -> None:
    """Create a folder and its parents where they are missing, and wait until they are on disk."""
    missing = [each for each in (folder.absolute(), *folder.absolute().parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def lock(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file or folder; wait while another process or another `lock` holds it.

    The system releases the lock when the process ends, however it ends.

    Args:
        path: a folder, or a file, which is created if it is missing.
        waiting: called once if the lock is not free; it may raise an error in order not to wait.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever a file is written or replaced; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def write_errors(path: Path | str, *, remedy: str = "") -> Iterator[None]:
    """Turn an OSError of the block into a DataError that says that this file cannot be written."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=path, remedy=remedy) from None


def read_json(path: Path, *, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a file; a DataError names the file if it is missing, unreadable or not an object."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not valid JSON ({error})", file=path, remedy=remedy) from None
    if not isinstance(value, dict):
        raise DataError("is not a JSON object", file=path, remedy=remedy)
    return value


def make_folder(path: Path) -> None:
    """Create a folder if it is missing; raise an error at once if files cannot be written to it."""
    if path.exists() and not path.is_dir():
        raise DataError(
            "cannot be used (it is a file, and a folder is needed)", file=path, remedy="Choose another --out"
        )
    create_folder(path)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_output(path: Path, *, suffix: str) -> None:
    """Raise an error before long work if its result cannot be written to this file; create the folder.

    Args:
        path: the file to write.
        suffix: what its name must end with, such as ".parquet".
    """
    if path.suffix != suffix:
        raise SettingError("out", str(path), f"end in {suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        reason = "it is a folder" if path.is_dir() else None if os.access(path.parent, os.W_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is not None:
        raise DataError(f"cannot be written ({reason})", file=path, remedy="Choose another file with --out")


def _draft_of(path: Path) -> Path:
    """Return a new name in the same folder; names may have 255 bytes, so that a long one is cut."""
    start = os.fsdecode(os.fsencode(path.name)[:200])
    return path.with_name(f".{start}.{uuid4().hex[:12]}{DRAFT}")


@contextmanager
def _errors_name(path: Path, draft: Path) -> Iterator[None]:
    """Replace the name of the draft in an OSError by that of the file that the user named."""
    try:
        yield
    except OSError as error:
        if error.filename == str(draft):
            error.filename, error.filename2 = str(path), None
        raise


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step, by Linux's renameat2; otherwise by two renames."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        if rename(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _EXCHANGE) == 0:
            return
    except AttributeError:
        pass
    aside = _draft_of(old)
    os.rename(old, aside)
    os.rename(new, old)
    os.rename(aside, new)
