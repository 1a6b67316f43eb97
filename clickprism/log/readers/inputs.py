"""Input files: which they are, and by their names what is in them."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from clickprism.errors import DataError

COMPRESSED: Final = (".gz", ".gzip", ".zst", ".zstd")
OURS: Final = ("log.toml", ".alive")
"""Marks of folders that are no input: a click log, and the staging of a run."""
FORMATS: Final = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def find_inputs(paths: Sequence[Path | str]) -> list[Path]:
    """The files that paths name, each once: a file, the known files under a folder (sorted), or a pattern's.

    Hidden files, partial ones (.tmp, .part), markers such as _SUCCESS, and whatever is in a click log of ours (a folder
    with a log.toml), are left out of folders and patterns.

    >>> find_inputs(["no/such/*.jsonl"])
    Traceback (most recent call last):
    clickprism.errors.DataError: no/such/*.jsonl: no file matches. Check the pattern, and quote it for the shell
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not str(path):
            raise DataError("a path is empty", remedy="Say . for the current folder")
        for file in _files(Path(path)):
            found.setdefault(file.resolve(), file)
    return list(found.values())


def extension(path: Path) -> str:
    """The ending that names the format, without that of the compression.

    >>> extension(Path("log.2024.CSV.gz")), extension(Path("log"))
    ('.csv', '')
    """
    name = Path(path.name.lower())
    return (name.with_suffix("") if name.suffix in COMPRESSED else name).suffix


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if extension(each) in FORMATS and _whole(each, path))
        if not files:
            known = ", ".join(FORMATS)
            raise DataError("the folder has no log file", file=path, remedy=f"Log files end in {known}, .gz, .zst")
        yield from files
    elif path.exists():
        yield path
    elif glob.has_magic(str(path)):
        names = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        root = next(folder for folder in path.parents if not glob.has_magic(str(folder)))
        files = [name for name in names if _whole(name, root)]
        if not files:
            raise DataError("no file matches", file=path, remedy="Check the pattern, and quote it for the shell")
        yield from files
    else:
        raise DataError("there is no such file or folder", file=path, remedy="Check the path")


def _whole(path: Path, folder: Path) -> bool:
    inner = path.relative_to(folder)
    if any(part.startswith((".", "_")) and part not in (".", "..") for part in inner.parts):
        return False
    if path.suffix.lower() in (".tmp", ".part", ".partial", ".crdownload") or not path.is_file():
        return False
    return not any((folder / above / mark).is_file() for above in inner.parents for mark in OURS)
