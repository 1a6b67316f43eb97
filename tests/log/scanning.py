"""Looks for a text in every byte of a folder, also in compressed files."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def files_with(folder: Path, word: str, *, but: str = "") -> list[str]:
    """The files that hold a word, as bytes or as a value; `but`: a longer word that does not count."""
    found = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = file.read_bytes().decode("latin-1")
        if file.suffix == ".parquet":
            with suppress(pa.ArrowInvalid):  # cut short by a crash: its bytes are looked at all the same
                text += str(pq.ParquetFile(file).read().to_pylist())
        elif file.suffix == ".gz":
            text += gzip.decompress(file.read_bytes()).decode("latin-1")
        if word in (text.replace(but, "") if but else text):
            found.append(str(file.relative_to(folder)))
    return found
