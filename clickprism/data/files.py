"""Whole files as vectors of bytes, plain or compressed, whatever their names say."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError

Bytes: TypeAlias = NDArray[np.uint8]

PADDING = 16  # newlines behind every text, so that a parser can look ahead from any place in it
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
CHUNK = 1 << 22


def read_padded(path: Path) -> Bytes:
    """All bytes of a file as they are on disk, and the padding."""
    try:
        with path.open("rb", buffering=0) as file:
            size = path.stat().st_size
            padded = np.full(PADDING, 10, np.uint8) if size == 0 else np.empty(size + PADDING, np.uint8)
            view, filled = padded.data[:size], 0
            while filled < size and (count := file.readinto(view[filled:])):
                filled += count
            padded[filled:] = 10
            rest = file.read()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None
    padded = padded[: filled + PADDING]
    return _padded([padded[:-PADDING].tobytes(), rest]) if rest else padded


def expand(padded: Bytes, *, file: Path) -> Bytes:
    """The text of a file, padded: decompressed if its first bytes say gzip or zstd, else as it is."""
    start = padded[:4].tobytes()
    if start.startswith(GZIP):
        return _padded(list(_gunzip(padded[:-PADDING], file)))
    if start == ZSTD or (start[1:] == ZSTD_SKIPPABLE and start[0] >> 4 == 5):
        return _padded(list(_unzstd(padded[:-PADDING], file)))
    return padded


def _padded(chunks: list[bytes]) -> Bytes:
    text = np.empty(sum(map(len, chunks)) + PADDING, np.uint8)
    place = 0
    for chunk in chunks:
        text[place : place + len(chunk)] = np.frombuffer(chunk, np.uint8)
        place += len(chunk)
    text[place:] = 10
    return text


def _gunzip(raw: Bytes, file: Path) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw.data)) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
    except EOFError:
        raise _broken("gzip", "it ends in the middle", file) from None
    except (OSError, zlib.error) as error:
        raise _broken("gzip", str(error), file) from None


def _unzstd(raw: Bytes, file: Path) -> Iterator[bytes]:
    import zstandard

    rest = raw.data
    try:
        while rest:
            frame = zstandard.ZstdDecompressor().decompressobj()
            while rest and not frame.eof:
                given = rest[:CHUNK]
                yield frame.decompress(given)
                rest = rest[len(given) - len(frame.unused_data) :]
            if not frame.eof:
                raise _broken("zstd", "it ends in the middle", file)
    except zstandard.ZstdError as error:
        raise _broken("zstd", str(error), file) from None


def _broken(kind: str, how: str, file: Path) -> DataError:
    return DataError(f"is not a whole {kind} file: {how}", file=file, remedy="Copy or download it again")
