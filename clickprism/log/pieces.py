"""Input files one after another: what each is, and its rows, made by several threads."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clickprism._util.files import sha256
from clickprism.errors import ClickprismError, DataError
from clickprism.log.readers import Chunk, Rest, Task
from clickprism.log.staging import Days, by_day
from clickprism.log.threads import mapped

_WAITING: Final = 6  # pieces that wait for a thread while the bytes of the next file are hashed


@dataclass(frozen=True)
class Piece:
    """Something of an input file: a chunk of its rows, that it was known before, that it failed, or its end.

    Attributes:
        path: of the file.
        file_id: SHA-256 of its bytes.
        size: in bytes.
        task: what gives a chunk, if it is not there yet.
        chunk: some rows; None otherwise.
        days: the good ones among them.
        rest: lines that are still to be read.
        known: whether it was ingested before; it is not read then.
        error: why it could not be read to its end.
    """

    path: Path
    file_id: str = ""
    size: int = 0
    task: Task | None = None
    chunk: Chunk | None = None
    days: Days = ()
    rest: Rest | None = None
    known: bool = False
    error: ClickprismError | None = None


def read_pieces(
    paths: Sequence[Path],
    known: Callable[[str], bool],
    read: Callable[[Path, str], Iterator[Task]],
    *,
    threads: int,
) -> Generator[Piece, None, None]:
    """Each file in turn: its chunks and its end. A file with the bytes of one before it is known too.

    Args:
        paths: of the files.
        known: whether a file id was ingested before.
        read: what gives the chunks of a file, by its path and its id.
        threads: that make them.
    """
    return mapped(_made, _pieces(paths, known, read), threads=threads, waiting=_WAITING)


def _made(piece: Piece) -> Piece:
    if piece.task is None:
        return piece
    try:
        chunk, rest = piece.task()
        return replace(piece, task=None, chunk=chunk, days=by_day(chunk.good), rest=rest)
    except ClickprismError as error:
        return Piece(piece.path, error=error)


def _pieces(
    paths: Sequence[Path], known: Callable[[str], bool], read: Callable[[Path, str], Iterator[Task]]
) -> Iterator[Piece]:
    seen: set[str] = set()
    for path in paths:
        try:
            before = _status(path)
            file_id = sha256(path)
            if file_id in seen or known(file_id):
                yield Piece(path, file_id, before.st_size, known=True)
                continue
            seen.add(file_id)
            for task in read(path, file_id):
                yield Piece(path, file_id, before.st_size, task)
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
