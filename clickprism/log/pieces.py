"""Input files one after another: what each is, and its rows."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clickprism.errors import ClickprismError, DataError

if TYPE_CHECKING:
    from clickprism.log.readers import Chunk


@dataclass(frozen=True)
class Piece:
    """Something of an input file: a chunk of its rows, that it was known before, that it failed, or its end.

    Attributes:
        path: of the file.
        file_id: SHA-256 of its bytes.
        size: in bytes.
        chunk: some rows; None otherwise.
        known: whether it was ingested before; it is not read then.
        error: why it could not be read to its end.
    """

    path: Path
    file_id: str = ""
    size: int = 0
    chunk: Chunk | None = None
    known: bool = False
    error: ClickprismError | None = None


def read_pieces(
    paths: Sequence[Path], known: Callable[[str], bool], read: Callable[[Path, str], Iterator[Chunk]]
) -> Iterator[Piece]:
    """Each file in turn: its chunks and its end. A file with the bytes of one before it is known too.

    Args:
        paths: of the files.
        known: whether a file id was ingested before.
        read: the chunks of a file, by its path and its id.
    """
    seen: set[str] = set()
    for path in paths:
        try:
            before = _status(path)
            with path.open("rb") as handle:
                file_id = hashlib.file_digest(handle, "sha256").hexdigest()
            if file_id in seen or known(file_id):
                yield Piece(path, file_id, before.st_size, known=True)
                continue
            seen.add(file_id)
            for chunk in read(path, file_id):
                yield Piece(path, file_id, before.st_size, chunk)
            after = _status(path)
            if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
                raise DataError(
                    "changed while it was read; nothing of it was ingested",
                    file=path,
                    remedy="Run the same command again when it is whole",
                )
        except OSError as error:
            problem = f"cannot be read ({error.strerror or error}); nothing of it was ingested"
            yield Piece(path, error=DataError(problem, file=path, remedy="Check the file and run the command again"))
            return
        except ClickprismError as error:
            yield Piece(path, error=error)
            return
        yield Piece(path, file_id, before.st_size)


def _status(path: Path) -> os.stat_result:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise DataError("is not a regular file", file=path, remedy="Save it to a file first: it is read twice")
    return found
