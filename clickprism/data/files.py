"""Whole files as bytes, text, rows or Parquet; compressed or not, whatever their names say."""

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

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
PARQUET = b"PAR1"
CHUNK = 1 << 22
LONGEST_FIELD = (1 << 31) - 1  # characters of a CSV field


def read_bytes(path: Path) -> bytes:
    """Return all bytes of a file as they are on disk."""
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise DataError(
            "cannot be read (it is a folder, and a file is needed)", file=path, remedy="Name the files in it"
        ) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None


def expand(raw: bytes, *, file: Path) -> bytes:
    """Return the text of a file: decompressed if its first bytes say gzip or zstd, else as it is."""
    if raw.startswith(GZIP):
        try:
            return gzip.decompress(raw)
        except EOFError:
            raise _broken("gzip", "it ends in the middle", file) from None
        except (OSError, zlib.error) as error:
            raise _broken("gzip", str(error), file) from None
    if raw.startswith(ZSTD) or (raw[1:4] == ZSTD_SKIPPABLE and raw[0] >> 4 == 5):
        return b"".join(_unzstd(raw, file))
    return raw


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed; an error names the first line that is not UTF-8."""
    return decoded(expand(read_bytes(path), file=path), file=path)


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


def _unzstd(raw: bytes, file: Path) -> Iterator[bytes]:
    import zstandard

    rest = memoryview(raw)
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
