"""The bytes of a file in blocks, decompressed on the way; what can be read of a broken file is given.

Compression is told by the first bytes, not by the name. Gzip members and zstd frames one after another are one text.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from clickprism.errors import DataError

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE: Final = b"\x2a\x4d\x18"
STEP: Final = 1 << 16
OUTPUT: Final = 1 << 20  # gzip gives no more than this at a time
ZSTD_STEP: Final = 1 << 12  # zstd may give 32 kB for each byte: a step of 4 kB is 128 MB at worst

ZSTD_WINDOW: Final = 1 << 28  # what it looks back, and holds, at most: `zstd --long=28`


@dataclass(frozen=True)
class Block:
    """Some text, how many bytes of the file have been read so far, and why there is no more, if there is a fault.

    A `whole` one is passed on as it is.
    """

    data: bytes
    read: int
    problem: str | None = None
    last: bool = False
    whole: bool = False


def blocks(path: Path, size: int) -> Iterator[Block]:
    """The text of a file in blocks of at most `size` bytes; a fault ends it, with the last block."""
    kept: list[bytes] = []
    held, read = 0, 0
    try:
        with path.open("rb", buffering=0) as file:
            for block in _expanded(file, size):
                read = max(read, block.read)
                view, at = block.data, 0
                while held + len(view) - at >= size or (block.whole and at < len(view)):
                    end = min(at + size - held, len(view))
                    yield Block(b"".join([*kept, view[at:end]]), read)
                    kept, held, at = [], 0, end
                if at < len(view):
                    kept.append(view[at:])
                    held += len(view) - at
                if block.problem:
                    yield Block(b"".join(kept), os.fstat(file.fileno()).st_size, block.problem, last=True)
                    return
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
    yield Block(b"".join(kept), read, last=True)


def _expanded(file: IO[bytes], size: int) -> Iterator[Block]:
    start = file.read(4)
    file.seek(0)
    if start.startswith(GZIP):
        return _gunzip(file)
    if start == ZSTD or (start[1:] == SKIPPABLE and start[0] >> 4 == 5):
        return _unzstd(file)
    return _plain(file, size)


def _plain(file: IO[bytes], size: int) -> Iterator[Block]:
    """Up to the last line end of each block, if it is near, so that no line is in two of them."""
    near = min(size, STEP)
    while True:
        start = file.tell() + size - near
        cut = os.pread(file.fileno(), near, start).rfind(b"\n") + 1
        if not (data := file.read(size - near + cut if cut else size)):
            return
        yield Block(data, file.tell(), whole=True)


def _gunzip(file: IO[bytes]) -> Iterator[Block]:
    given = file.read(STEP)
    while given:
        member = zlib.decompressobj(31)
        while not member.eof:
            if not given and not (given := file.read(STEP)):
                while data := member.decompress(b"", OUTPUT):
                    yield Block(data, file.tell())
                yield Block(b"", file.tell(), "truncated")
                return
            before = member.copy()
            try:
                data = member.decompress(given, OUTPUT)
            except zlib.error:
                for data in _salvage(before, given):
                    yield Block(data, file.tell())
                yield Block(b"", file.tell(), "corrupt")
                return
            given = member.unconsumed_tail
            yield Block(data, file.tell())
        given = member.unused_data
        while not (given := given.lstrip(b"\0")) and (given := file.read(STEP)):
            pass  # zeros between or behind members are padding


def _salvage(member: zlib._Decompress, given: bytes) -> Iterator[bytes]:
    """What comes before the fault: by pieces of output up to the one that has it, that one by bytes of input."""
    while True:
        before = member.copy()
        try:
            data = member.decompress(given, 4096)
        except zlib.error:
            break
        yield data
        given = member.unconsumed_tail
    for place in range(len(given)):
        try:
            yield before.decompress(given[place : place + 1])
        except zlib.error:
            return


def _unzstd(file: IO[bytes]) -> Iterator[Block]:
    import zstandard

    start, given = 0, file.read(ZSTD_STEP)
    while given:
        frame, fed = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj(), start
        while not frame.eof:
            if not given and not (given := file.read(ZSTD_STEP)):
                yield Block(b"", file.tell(), "truncated")
                return
            try:
                data = frame.decompress(given)
            except zstandard.ZstdError:
                for data in _last_steps(file, start, fed, given):
                    yield Block(data, file.tell())
                yield Block(b"", file.tell(), "corrupt")
                return
            yield Block(data, file.tell())
            fed += len(given)
            given = b""
        given = frame.unused_data
        start = fed - len(given)
        given = given or file.read(ZSTD_STEP)


def _last_steps(file: IO[bytes], start: int, fed: int, given: bytes) -> Iterator[bytes]:
    """What the step with the fault gives before it: the frame once more, and that step byte by byte."""
    import zstandard

    file.seek(start)
    frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
    while start < fed:
        piece = file.read(min(ZSTD_STEP, fed - start))
        frame.decompress(piece)
        start += len(piece)
    for place in range(len(given)):
        try:
            yield frame.decompress(given[place : place + 1])
        except zstandard.ZstdError:
            return
