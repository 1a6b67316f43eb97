"""Whole files as vectors of bytes, text, rows or Parquet; compressed or not, whatever their names say."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError, MissingExtraError

Bytes: TypeAlias = NDArray[np.uint8]

PADDING = 16  # newlines behind every text, so that a parser can look ahead from any place in it
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
PARQUET = b"PAR1"
CHUNK = 1 << 22
LONGEST_FIELD = (1 << 31) - 1  # characters of a CSV field


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


def decoded(raw: bytes, *, file: Path) -> str:
    """Return the text of UTF-8 bytes; an error names the first line that is not text."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError("is not UTF-8 text", file=file, line=line, remedy="Convert it to UTF-8") from None
    if "\0" in text:
        line, remedy = text.count("\n", 0, text.index("\0")) + 1, "Export it again as UTF-8"
        raise DataError("has a NUL character, so it is no text", file=file, line=line, remedy=remedy)
    return text


def delimited_rows(text: str, *, file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number, from 1, and the fields of each line that is not empty; TSV if the first has a tab, else CSV."""
    if "\t" in text.lstrip("\r\n").partition("\n")[0]:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip("\r"):
                yield number, line.removesuffix("\r").split("\t")
        return
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise DataError(f"is not CSV ({error})", file=file, line=reader.line_num, remedy="Export it again") from None


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """Open a Parquet file; damage that is found while the block reads it is a `DataError`."""
    try:
        parquet = import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MissingExtraError("log", "reading Parquet") from None
    try:
        yield parquet.ParquetFile(file)
    except import_module("pyarrow").ArrowException as error:
        raise DataError(f"is not a sound Parquet file ({error})", file=file) from None


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
