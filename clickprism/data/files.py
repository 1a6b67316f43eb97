"""Whole files as bytes, text or rows; compressed or not, whatever their names say."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from clickprism.errors import DataError

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
LONGEST_FIELD: Final = (1 << 31) - 1  # characters of a CSV field


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


@contextmanager
def broken_files(file: Path) -> Iterator[None]:
    """Turn what Arrow reports about a file in the block into a `DataError`."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read ({error})", file=file) from None


def expand(raw: bytes, *, file: Path) -> bytes:
    """Return the content of a file: decompressed if its first bytes say gzip or zstd, else as it is."""
    zstd = raw.startswith(ZSTD) or (raw[1:4] == ZSTD_SKIPPABLE and raw[0] >> 4 == 5)
    if not zstd and not raw.startswith(GZIP):
        return raw
    import pyarrow as pa

    kind = "zstd" if zstd else "gzip"
    try:
        with pa.CompressedInputStream(pa.BufferReader(raw), kind) as stream:
            content: bytes = stream.read()
    except OSError as error:
        raise DataError(f"is not a whole {kind} file: {error}", file=file, remedy="Copy or download it again") from None
    return content


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed; an error names the first line that is not UTF-8."""
    raw = expand(read_bytes(path), file=path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError("is not UTF-8 text", file=path, line=line, remedy="Convert it to UTF-8") from None
    if "\0" in text:
        line, remedy = text.count("\n", 0, text.index("\0")) + 1, "Export it again as UTF-8"
        raise DataError("has a NUL character, so it is no text", file=path, line=line, remedy=remedy)
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
