"""The files of a bundle: which there may be, how large, what each must look like; none is compressed, none is code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

from clickprism.errors import DataError

MANIFEST: Final = "manifest.json"
MB: Final = 1 << 20
NAMES: Final = re.compile(r"(?!manifest\.)[a-z][a-z0-9_-]{0,60}\.(?:onnx|safetensors|txt|json|svg)|MODEL_CARD\.md")
LARGEST: Final = {
    ".onnx": 2048 * MB - 1,
    ".safetensors": 4096 * MB,
    ".txt": 1024 * MB,
    ".json": 256 * MB,
    ".md": 4 * MB,
    ".svg": 8 * MB,
}
MOST_FILES: Final = 64
LARGEST_MANIFEST: Final = 16 * MB
LARGEST_HEADER: Final = 16 * MB
CHUNK: Final = MB
START: Final = {".txt": (b"tree\n",), ".svg": (b"<?xml", b"<svg"), ".json": (b"{", b"[")}
ANEW: Final = "Create the bundle again with clickprism model bundle, or copy it again from its source"
ONLY: Final = "A bundle holds what its manifest names and nothing else: move the file away"


def listed(folder: Path) -> set[str]:
    """The names of the files of a folder; anything but regular files is an error."""
    names: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise DataError("is a link, which a bundle has none of", file=folder / entry.name, remedy=ONLY)
            if not entry.is_file(follow_symlinks=False):
                raise DataError("is not a regular file", file=folder / entry.name, remedy=ONLY)
            names.add(entry.name)
            if len(names) > MOST_FILES:
                raise DataError(f"has more than {MOST_FILES} files", file=folder, remedy=ONLY)
    return names


def check_name(name: str, *, file: Path) -> None:
    """Refuse a name that no file of a bundle has, such as one with a path."""
    if not NAMES.fullmatch(name):
        problem = f"names a file that no bundle has: {name[:80]!r}"
        raise DataError(
            problem, file=file, remedy="Its files stand beside it, and are weights, JSON, pictures and the model card"
        )


def digest(folder: Path, name: str) -> str:
    """The SHA-256 of a file that looks as its name says; read in pieces, whatever its size."""
    with opened(folder, name) as file:
        _check_start(folder / name, file.read(CHUNK), os.fstat(file.fileno()).st_size)
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def content(folder: Path, name: str, wanted: str) -> bytes:
    """A file whole, its own bytes checked against their SHA-256, so that none can change them in between."""
    with opened(folder, name) as file:
        whole = file.read()
    if hashlib.sha256(whole).hexdigest() != wanted:
        raise changed(folder / name)
    return whole


def changed(file: Path) -> DataError:
    """The error of a file that is not what the manifest says."""
    return DataError("was changed after the bundle was made: its SHA-256 is another", file=file, remedy=ANEW)


def opened(folder: Path, name: str) -> BufferedReader:
    """A regular file of the folder, open; no link is followed, no pipe waited for, nothing oversize opened."""
    largest = LARGEST_MANIFEST if name == MANIFEST else LARGEST[os.path.splitext(name)[1]]
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=folder / name, remedy=ANEW) from None
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
        os.close(handle)
        problem = f"is larger than {largest:,} bytes" if stat.S_ISREG(about.st_mode) else "is not a regular file"
        raise DataError(problem, file=folder / name, remedy=ANEW)
    return os.fdopen(handle, "rb")


def parsed(text: bytes, *, file: Path) -> dict[str, object]:
    """A JSON object; a name that stands twice in it, or anything else than an object, is an error."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a name stands twice")
        return made

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error})", file=file, remedy=ANEW) from None
    if not isinstance(value, dict):
        raise DataError("is not a JSON object", file=file, remedy=ANEW)
    return value


def _check_start(file: Path, first: bytes, size: int) -> None:
    """Refuse what is plainly not what its name says, such as a pickle, before anything reads it."""
    ending = file.suffix
    if ending == ".safetensors":
        header = int.from_bytes(first[:8], "little")
        if size < 10 or header > min(LARGEST_HEADER, size - 8) or first[8:9] != b"{":
            raise DataError("is not a safetensors file", file=file, remedy=ANEW)
    if not first.startswith(START.get(ending, (b"",))):
        raise DataError(f"is not what {ending} says", file=file, remedy=ANEW)
    if ending == ".svg" and re.search(rb"<\s*script|javascript:|\bon[a-z]+\s*=", first, re.IGNORECASE):
        raise DataError("is a picture with a script", file=file, remedy=ANEW)
